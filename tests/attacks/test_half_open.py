"""Connections and calls that begin and do not go on, at every port: they hold nobody up, and they end."""

from __future__ import annotations

import base64
import queue
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.conftest import DUCKDB
from tests.attacks.doors import Door, Served, served
from tests.gateway.drivers.hs2.conftest import certificate

__all__ = ["certificate"]

CALLS = 130  # more than flight.calls
WITHIN_S = 30.0
SERVICE = "/arrow.flight.protocol.FlightService/"


def address_of(told: str) -> tuple[str, int]:
    host, _, port = told.rpartition(":")
    return host, int(port)


class Silent:
    """Requests of a call that never come."""

    def __init__(self) -> None:
        self._never: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._never.get, None)

    def end(self) -> None:
        self._never.put(None)


def silent_calls(stack: ExitStack, address: str, method: str, metadata: list[tuple[str, str]]) -> list[Any]:
    """Begin calls that send headers and no message."""
    grpc = pytest.importorskip("grpc")
    begun = []
    for _ in range(4):  # a connection has 100 calls at most
        channel = stack.enter_context(grpc.insecure_channel(address))
        for _ in range(CALLS // 4 + 1):
            requests = Silent()
            stack.callback(requests.end)
            begun.append(channel.stream_stream(SERVICE + method)(iter(requests), metadata=metadata))
    return begun


def ended(calls: list[Any]) -> int:
    return sum(call.done() for call in calls)


@pytest.mark.parametrize("method", ["GetFlightInfo", "DoGet", "DoPut", "DoAction", "ListActions"])
def test_calls_without_a_login_and_without_a_message_hold_nobody_up(closed: Served, method: str) -> None:
    wrong = base64.b64encode(b"joe:").decode()
    for metadata in ([], [("authorization", f"Basic {wrong}")], [("authorization", "Bearer made-up")]):
        with ExitStack() as stack:
            calls = silent_calls(stack, closed.flight, method, metadata)
            assert closed.ask(Door.FLIGHT, "SELECT 42", user="joe", password="right") == [(42,)]
            until_s = time.monotonic() + WITHIN_S
            while ended(calls) < len(calls):
                assert time.monotonic() < until_s, f"{len(calls) - ended(calls)} of them go on"
                time.sleep(0.05)


@pytest.mark.parametrize("method", ["GetFlightInfo", "DoPut"])
def test_calls_without_a_message_leave_room_where_no_login_is_needed(duckdb_gateway: Served, method: str) -> None:
    with ExitStack() as stack:
        silent_calls(stack, duckdb_gateway.flight, method, [])
        assert duckdb_gateway.ask(Door.FLIGHT, "SELECT 42") == [(42,)]


def hello(kind: str) -> bytes:
    return {
        "silent": b"",
        "part of a hello": b"\x16\x03\x01\x02\x00\x01",
        "part of a request": b"POST /v1/queries HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
        "part of a header": b"GET / HTTP/1.1\r\nHost: loc",
        "part of sasl": b"\x01\x00\x00\x00\x05PL",
        "part of a frame": b"\x80\x01\x00",
    }[kind]


@pytest.mark.thorough
def test_half_open_connections_end_at_every_port(tmp_path: Path, certificate: Any) -> None:
    """Some 10 s each, all at once."""
    tls = {"certificate": str(certificate.certificate), "key": str(certificate.key)}
    with ExitStack() as stack:
        plain = stack.enter_context(served(tmp_path / "plain", duckdb=DUCKDB, spark={"enabled": False}))
        secured = stack.enter_context(served(tmp_path / "tls", duckdb=DUCKDB, spark={"enabled": False}, tls=tls))
        opened: dict[str, socket.socket] = {}
        for name, gateway, kinds in (
            ("plain", plain, ("silent", "part of a request", "part of a header", "part of sasl", "part of a frame")),
            ("tls", secured, ("silent", "part of a hello")),
        ):
            ports = {"http": gateway.url.rpartition("//")[2], "drivers": gateway.drivers, "flight": gateway.flight}
            for port, told in ports.items():
                for kind in kinds:
                    client = stack.enter_context(closing(socket.create_connection(address_of(told))))
                    client.sendall(hello(kind))
                    opened[f"{name} {port}: {kind}"] = client
        until_s = time.monotonic() + WITHIN_S
        for what, client in opened.items():
            client.settimeout(max(0.1, until_s - time.monotonic()))
            try:
                while client.recv(4_096):
                    pass
            except ConnectionError:
                pass
            except TimeoutError:
                pytest.fail(f"{what} is open after {WITHIN_S:.0f} s")
