"""Statements that are cancelled, or whose clients leave, while their texts are read: the reading ends with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from gateway.drivers.hs2 import service
from gateway.drivers.hs2.protocol.messages import (
    ExecuteRequest,
    OpenSessionReply,
    OpenSessionRequest,
    OperationReply,
    OperationRequest,
    OperationState,
    Reply,
    SessionRequest,
    StatusCode,
    StatusReply,
    StatusRequest,
)
from gateway.statements.statement import Statement
from metastore.records import QueryState
from tests.gateway.conftest import stopped_planners
from tests.gateway.drivers.hs2.conftest import Drivers
from tests.gateway.drivers.hs2.test_leaving import opened, post
from tests.gateway.drivers.hs2.wire import Client, call_bytes
from tests.waiting import wait_until

SQL = "SELECT 'small' AS answer"
SOON_S = 0.3


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def unread(serve: Callable[..., Drivers]) -> Iterator[tuple[Drivers, Callable[[], None]]]:
    """Serve a gateway that reads nothing to its end, and check that a statement is cancelled while it is read."""
    drivers = serve()
    with stopped_planners(drivers.gateway) as pids:

        def require_cancelled() -> None:
            asked(drivers)
            wait_until(lambda: drivers.last_query().state is QueryState.CANCELLED)
            wait_until(lambda: any(is_gone(pid) for pid in pids))  # what read it
            assert drivers.last_query().attempts == ()
            assert drivers.gateway.coordinator.find(drivers.last_query().id) is None

        yield drivers, require_cancelled


def asked(drivers: Drivers) -> str:
    """Wait until a statement is on record, and return its id."""
    wait_until(lambda: len(drivers.gateway.metastore.queries.search(limit=1)) == 1)
    return drivers.last_query().id


def test_a_query_is_cancelled_over_http(unread: tuple[Drivers, Callable[[], None]]) -> None:
    drivers, require_cancelled = unread
    address = f"http://{drivers.host}:{drivers.http_port}/v1/queries"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.post, address, json={"sql": SQL}, timeout=30.0)
        cancelled = httpx.delete(f"{address}/{asked(drivers)}", timeout=30.0)
        assert cancelled.json()["state"] == "CANCELLED"
        reply = waiting.result()
    assert (reply.status_code, reply.json()["state"]) == (200, "CANCELLED")
    require_cancelled()


def test_a_client_that_leaves_over_http(unread: tuple[Drivers, Callable[[], None]]) -> None:
    drivers, require_cancelled = unread
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"http://{drivers.host}:{drivers.http_port}/v1/queries", json={"sql": SQL}, timeout=SOON_S)
    require_cancelled()


def test_a_driver_cancels_what_takes_long_to_read(
    unread: tuple[Drivers, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "READING_S", SOON_S)
    drivers, require_cancelled = unread
    request = ExecuteRequest(opened(drivers), SQL, None, True)
    operation = post(drivers, "ExecuteStatement", request, OperationReply).operation
    assert operation is not None
    assert operation.has_result_set
    assert post(drivers, "GetOperationStatus", StatusRequest(operation), StatusReply).state == OperationState.PENDING
    assert post(drivers, "CancelOperation", OperationRequest(operation), Reply).status.code == StatusCode.SUCCESS
    require_cancelled()
    assert post(drivers, "GetOperationStatus", StatusRequest(operation), StatusReply).state == OperationState.CANCELED


def test_what_is_wrong_with_a_text_that_takes_long_to_read(
    serve: Callable[..., Drivers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "READING_S", SOON_S)
    drivers = serve()
    drivers.gateway.coordinator.explain(Statement(SQL))  # so that a planner has begun
    with stopped_planners(drivers.gateway):
        request = ExecuteRequest(opened(drivers), "SELECT nothing FROM nowhere", None, True)
        operation = post(drivers, "ExecuteStatement", request, OperationReply).operation
    wait_until(lambda: drivers.last_query().state.ended)
    status = post(drivers, "GetOperationStatus", StatusRequest(operation), StatusReply)
    assert (status.state, status.sqlstate) == (OperationState.ERROR, "42S02")
    assert "nowhere" in str(status.message)


@pytest.mark.parametrize("run_async", [True, False])
@pytest.mark.parametrize("sql", [SQL, "DROP TABLE IF EXISTS nothing"])
def test_a_driver_that_leaves(unread: tuple[Drivers, Callable[[], None]], run_async: bool, sql: str) -> None:
    drivers, require_cancelled = unread
    with Client(drivers) as client:
        session = client.ask("OpenSession", OpenSessionRequest(), OpenSessionReply).session
        client.send(call_bytes("ExecuteStatement", ExecuteRequest(session, sql, None, run_async)))
        asked(drivers)
    require_cancelled()


def test_a_driver_that_leaves_over_http(unread: tuple[Drivers, Callable[[], None]]) -> None:
    drivers, require_cancelled = unread
    request = ExecuteRequest(opened(drivers), "DROP TABLE IF EXISTS nothing", None, True)
    with pytest.raises(httpx.ReadTimeout):
        post(drivers, "ExecuteStatement", request, OperationReply, timeout_s=SOON_S)
    require_cancelled()


def test_a_session_that_is_closed(unread: tuple[Drivers, Callable[[], None]]) -> None:
    drivers, require_cancelled = unread
    session = opened(drivers)
    with ThreadPoolExecutor(1) as pool:
        request = ExecuteRequest(session, SQL)
        waiting = pool.submit(post, drivers, "ExecuteStatement", request, OperationReply, 30.0)
        asked(drivers)
        post(drivers, "CloseSession", SessionRequest(session), Reply)
        assert waiting.result().status.code == StatusCode.ERROR
    require_cancelled()
