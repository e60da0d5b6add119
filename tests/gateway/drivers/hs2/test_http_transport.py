"""HiveServer2 over HTTP, as HTTP: bodies in chunks, large replies, and bodies that are no calls."""

from __future__ import annotations

import gzip
import random
import socket
from collections.abc import Iterator

import httpx
import pytest

from gateway.drivers.hs2.elsewhere.cancel import CONTENT_TYPE
from gateway.drivers.hs2.operations import REPLY_BYTES, REPLY_ROWS
from gateway.drivers.hs2.protocol.messages import (
    ExecuteRequest,
    FetchOrientation,
    FetchRequest,
    OpenSessionReply,
    OpenSessionRequest,
    OperationReply,
)
from tests.gateway.drivers.hs2.conftest import MANY_ROWS, Drivers
from tests.gateway.drivers.hs2.test_hostile import CALLS, mutations
from tests.gateway.drivers.hs2.wire import broken, call_bytes, reply_of

pytestmark = pytest.mark.e2e
PATH = "/cliservice"
OPEN = call_bytes("OpenSession", OpenSessionRequest())
HOSTILE_CASES = 200
WITHIN_S = 10.0
SMALLEST_REPLY_BYTES = 1_000  # one without rows has fewer
ABOVE_ROWS = 2  # how much larger than its rows' estimate a reply may be
SEED = 20_261_123


@pytest.fixture
def http(drivers: Drivers) -> Iterator[httpx.Client]:
    headers = {"Content-Type": CONTENT_TYPE}
    with httpx.Client(base_url=f"http://{drivers.host}:{drivers.http_port}", headers=headers, timeout=60) as client:
        yield client


def test_a_body_in_chunks(http: httpx.Client) -> None:
    for pieces in ([OPEN], [OPEN[:7], OPEN[7:]], [bytes([byte]) for byte in OPEN]):
        reply = http.post(PATH, content=iter(pieces))
        assert reply_of(reply.content, OpenSessionReply).session is not None


def test_a_client_that_asks_before_it_sends(drivers: Drivers) -> None:
    lines = [f"POST {PATH} HTTP/1.1", "Host: 127.0.0.1", f"Content-Type: {CONTENT_TYPE}", "Connection: close"]
    lines += [f"Content-Length: {len(OPEN)}", "Expect: 100-continue", "", ""]
    with socket.create_connection((drivers.host, drivers.http_port), timeout=WITHIN_S) as connection:
        connection.sendall("\r\n".join(lines).encode())
        assert connection.recv(4_096).startswith(b"HTTP/1.1 100 ")
        connection.sendall(OPEN)
        assert connection.recv(4_096).startswith(b"HTTP/1.1 200 ")


def test_large_replies_come_as_a_whole(http: httpx.Client) -> None:
    session = reply_of(http.post(PATH, content=OPEN).content, OpenSessionReply).session
    execute = call_bytes("ExecuteStatement", ExecuteRequest(session, "SELECT 'many rows'"))
    operation = reply_of(http.post(PATH, content=execute).content, OperationReply).operation
    fetch = call_bytes("FetchResults", FetchRequest(operation, FetchOrientation.NEXT, MANY_ROWS))
    sizes: list[int] = []
    while not sizes or sizes[-1] > SMALLEST_REPLY_BYTES:
        sizes.append(len(http.post(PATH, content=fetch).content))
    assert len(sizes) > MANY_ROWS // REPLY_ROWS
    assert sum(sizes) > MANY_ROWS * len("row 99999")
    assert max(sizes) < ABOVE_ROWS * REPLY_BYTES


@pytest.mark.parametrize("body", [b"", b"\0", gzip.compress(OPEN, mtime=0), OPEN[:-1], b"{}"])
def test_a_body_that_is_no_call_is_refused(http: httpx.Client, body: bytes) -> None:
    refused = http.post(PATH, content=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "BAD_REQUEST")


def test_no_body_is_a_defect(http: httpx.Client, drivers: Drivers) -> None:
    cut = random.Random(SEED).sample(broken(CALLS), HOSTILE_CASES)  # noqa: S311 - no secret
    statuses = {http.post(PATH, content=body).status_code for body in [*cut, *mutations(HOSTILE_CASES)]}
    drivers.gateway.hs2.registry.leave()
    assert statuses <= {200, 400}


@pytest.mark.parametrize(
    ("content_type", "status", "code"),
    [("application/json", 415, "WRONG_CONTENT_TYPE"), ("application/x-thrift; charset=utf-8", 200, None)],
)
def test_the_type_of_a_body(http: httpx.Client, content_type: str, status: int, code: str | None) -> None:
    reply = http.post(PATH, content=OPEN, headers={"Content-Type": content_type})
    assert reply.status_code == status
    if code is not None:
        assert reply.json()["error"]["code"] == code
