"""Clients that leave without a word, stay without one, or want more than a reply holds; a server short of threads."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import httpx
import psutil
import pyarrow as pa
import pytest

from gateway.drivers.hs2 import binary, operations, registry
from gateway.drivers.hs2.operations import Cursor
from gateway.drivers.hs2.protocol.messages import (
    ExecuteRequest,
    FetchReply,
    FetchRequest,
    OpenSessionReply,
    OpenSessionRequest,
    OperationReply,
    SessionHandle,
    SessionRequest,
    StatusCode,
    StatusReply,
    StatusRequest,
)
from gateway.drivers.hs2.protocol.thrift import Struct
from gateway.execution.spooling import results
from gateway.execution.spooling.results import CELL_BYTES, in_memory
from gateway.server.serve import driver_server, tls_context
from gateway.settings import Hs2Settings, TlsSettings
from metastore.records import QueryState
from tests.gateway.drivers.hs2.conftest import MANY_ROWS, Drivers
from tests.gateway.drivers.hs2.wire import Client, call_bytes, reply_of
from tests.waiting import wait_until

R = TypeVar("R", bound=Struct)
SOON_S = 0.5
LARGEST_ADDRESS_BITS = 47  # of a process; no stack is that large
SMALL_BUFFER_BYTES = 4 << 10


def post(drivers: Drivers, method: str, request: Struct, kind: type[R], timeout_s: float = 10.0) -> R:
    """Call over HTTP, on a connection that ends with the call."""
    address = f"http://{drivers.host}:{drivers.http_port}/cliservice"
    headers = {"Content-Type": "application/x-thrift"}
    answered = httpx.post(address, content=call_bytes(method, request), headers=headers, timeout=timeout_s)
    return reply_of(answered.content, kind)


def opened(drivers: Drivers) -> SessionHandle:
    session = post(drivers, "OpenSession", OpenSessionRequest(0, "joe"), OpenSessionReply).session
    assert session is not None
    return session


# ---------------------------------------------------------------------- clients that left


def test_over_http_a_statement_ends_soon_after_its_client(drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes back in time finds it as it was."""
    monkeypatch.setattr(registry, "ABANDONED_S", SOON_S)
    asked = ExecuteRequest(opened(drivers), "SELECT 'forever'", None, True)
    operation = post(drivers, "ExecuteStatement", asked, OperationReply).operation
    wait_until(lambda: drivers.last_query().state is QueryState.RUNNING)

    def leave() -> None:
        with pytest.raises(httpx.ReadTimeout):
            post(drivers, "GetOperationStatus", StatusRequest(operation), StatusReply, timeout_s=0.1)

    def is_noted() -> bool:
        sessions = list(drivers.gateway.hs2.registry._sessions.values())
        return any(session.abandoned for session in sessions)

    leave()
    wait_until(is_noted)
    assert post(drivers, "GetOperationStatus", StatusRequest(operation), StatusReply).state == 1
    assert not is_noted()
    time.sleep(2 * SOON_S + 1.0)  # with a housekeeper who comes once a second
    assert drivers.last_query().state is QueryState.RUNNING
    leave()
    wait_until(lambda: drivers.last_query().state is QueryState.CANCELLED)
    gone = post(drivers, "GetOperationStatus", StatusRequest(operation), StatusReply)
    assert gone.status.code == StatusCode.INVALID_HANDLE


def test_a_session_that_nobody_seems_to_use_gives_way(
    serve: Callable[..., Drivers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.drivers.sessions.SPARE_S", 0.0)
    drivers = serve(hs2=Hs2Settings(port=0, sessions=3, sessions_per_user=2, drain_s=0.0))
    first, second = opened(drivers), opened(drivers)
    busy = ExecuteRequest(first, "SELECT 'forever'", None, True)
    assert post(drivers, "ExecuteStatement", busy, OperationReply).status.code == StatusCode.SUCCESS
    third = opened(drivers)  # in the place of the second: the first one works

    def is_known(session: SessionHandle) -> bool:
        asked = ExecuteRequest(session, "SELECT 'forever'", None, True)
        return post(drivers, "ExecuteStatement", asked, OperationReply).status.code == StatusCode.SUCCESS

    assert not is_known(second)
    assert is_known(third)
    full = post(drivers, "OpenSession", OpenSessionRequest(0, "joe"), OpenSessionReply).status
    assert full.message == "joe has 2 sessions open already; close one."


@contextlib.contextmanager
def on_a_port(drivers: Drivers, certificate: TlsSettings | None) -> Iterator[binary.BinaryServer]:
    """Serve the same gateway on one more port."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = driver_server(listening, drivers.gateway, None if certificate is None else tls_context(certificate))
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_connection_without_calls_ends(
    serve: Callable[..., Drivers], request: pytest.FixtureRequest, encrypted: bool
) -> None:
    dbapi = pytest.importorskip("impala.dbapi", reason="needs the extra impala")
    certificate: TlsSettings | None = request.getfixturevalue("certificate") if encrypted else None
    drivers = serve(hs2=Hs2Settings(port=0, idle_s=2.0))  # a busy machine needs a second between two calls
    options = {} if certificate is None else {"use_ssl": True, "ca_cert": str(certificate.certificate)}
    with on_a_port(drivers, certificate) as server:
        host, port = server.address
        connection = dbapi.connect(host, port, auth_mechanism="PLAIN", user="joe", password="any", **options)
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(42,), (43,)]
        wait_until(lambda: server.connections == 0)
        connection.close()


def test_a_client_that_stops_reading_is_let_go(drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "MESSAGE_S", SOON_S)
    with Client(drivers) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
        session = client.open_session()
        asked = ExecuteRequest(session, "SELECT 'many rows'")
        operation = client.ask("ExecuteStatement", asked, OperationReply).operation
        client.send(call_bytes("FetchResults", FetchRequest(operation, 0, MANY_ROWS)))
        wait_until(lambda: drivers.server.connections == 0)


# ---------------------------------------------------------------------- a server short of something


def test_without_threads_a_connection_is_refused_and_the_next_one_is_served(drivers: Drivers) -> None:
    usual = threading.stack_size()
    threading.stack_size(1 << LARGEST_ADDRESS_BITS)
    try:
        with socket.create_connection((drivers.host, drivers.port), timeout=10) as refused:
            assert refused.recv(1) == b""
    finally:
        threading.stack_size(usual)
    assert drivers.server.connections == 0
    with Client(drivers) as client:
        client.open_session()


# ---------------------------------------------------------------------- replies


def test_a_reply_holds_a_bounded_number_of_values() -> None:
    """Columns of NULLs have no bytes in Arrow."""
    width, rows = 5_000, 1_000
    table = pa.table({f"c{number}": pa.nulls(rows) for number in range(width)})
    cursor = Cursor(lambda: contextlib.nullcontext(in_memory(table)))
    _, batch = cursor.next(rows)
    assert 1 <= batch.num_rows <= operations.REPLY_BYTES // (CELL_BYTES * width) + 1
    offset, following = cursor.next(rows)
    assert (offset, following.num_rows) == (batch.num_rows,) * 2


@pytest.mark.parametrize("page_rows", [1, 2])
def test_a_result_is_open_no_longer_than_a_reply_takes(
    drivers: Drivers, page_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "SMALL_BYTES", 0)  # it has a file of its own
    with Client(drivers) as client:
        asked = ExecuteRequest(client.open_session(), "SELECT 'two rows'")
        operation = client.ask("ExecuteStatement", asked, OperationReply).operation
        path = str(drivers.gateway.spool.path(drivers.last_query().id))
        assert os.path.exists(path)

        def is_open() -> bool:
            return path in [file.path for file in psutil.Process().open_files()]

        def fetched(orientation: int) -> FetchReply:
            return client.ask("FetchResults", FetchRequest(operation, orientation, page_rows), FetchReply)

        for _ in range(2):  # from the first row to the last one, and again
            more, orientation = True, 4
            while more:
                more = bool(fetched(orientation).has_more_rows)
                assert not is_open()
                orientation = 0
        assert not fetched(0).has_more_rows
        assert not is_open()


def test_a_value_that_cannot_be_told_ends_no_session(drivers: Drivers) -> None:
    with Client(drivers) as client:
        session = client.open_session()
        asked = ExecuteRequest(session, "SELECT 'for ages'")
        operation = client.ask("ExecuteStatement", asked, OperationReply).operation
        told = client.ask("FetchResults", FetchRequest(operation, 0, 10), FetchReply).status
        assert (told.code, told.message) == (StatusCode.ERROR, "The gateway failed; its log says why.")
        assert client.ask("GetCatalogs", SessionRequest(session), OperationReply).status.code == StatusCode.SUCCESS
