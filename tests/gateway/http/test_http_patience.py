"""Connections that say nothing, or half of something: closed after a while, and nobody else is."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Request

from engines.duckdb.adapter import DuckDBSettings
from engines.spark.adapter import SparkSettings
from gateway.server.connections import protocol
from gateway.server.serve import own_server
from gateway.settings import load
from tests.gateway.conftest import serving

pytestmark = pytest.mark.e2e

REQUEST_S = 0.3
WITHIN_S = 10.0
HEAD = b"POST /slow HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\n"
WHOLE = HEAD + b"body"
ANSWERED = b"answered after a while"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REQUEST_S", REQUEST_S)


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """Serve an application that reads a body, and takes longer to answer than a request may take to come."""
    app = FastAPI()

    @app.post("/slow")
    async def slow(request: Request) -> str:
        await request.body()
        await asyncio.sleep(2 * REQUEST_S)
        return ANSWERED.decode()

    with serving(app) as client:
        assert client.base_url.port is not None
        yield client.base_url.host, client.base_url.port


def read_to_end(connection: socket.socket) -> bytes:
    connection.settimeout(WITHIN_S)
    pieces = []
    while piece := connection.recv(4_096):
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize(
    "half", [b"", WHOLE[:10], HEAD, WHOLE[:-1]], ids=["nothing", "a line", "no body", "half a body"]
)
def test_what_is_no_whole_request_is_closed(address: tuple[str, int], half: bytes) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(half)

        assert read_to_end(connection) == b""


def test_drops_do_not_keep_a_connection(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        began_s = time.monotonic()
        with pytest.raises(OSError):
            for byte in WHOLE * 20:
                assert time.monotonic() - began_s < WITHIN_S
                connection.sendall(bytes([byte]))
                time.sleep(REQUEST_S / 10)


def test_an_answer_takes_as_long_as_it_takes_and_the_next_request_is_awaited_again(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(WHOLE + WHOLE + HEAD)  # two that are whole, one after the other, and half of one

        assert read_to_end(connection).count(ANSWERED) == 2


def test_a_gateway_is_there_for_others_while_many_say_nothing(tmp_path: Path) -> None:
    settings = load(tmp_path, duckdb=DuckDBSettings(workers=1), spark=SparkSettings(enabled=False))
    with own_server(settings) as url, ExitStack() as stack:
        place = httpx.URL(url)
        assert place.port is not None
        silent = [stack.enter_context(socket.create_connection((place.host, place.port))) for _ in range(200)]

        assert httpx.get(f"{url}/livez").is_success
        assert {read_to_end(each) for each in silent} == {b""}
