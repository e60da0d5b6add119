"""Rows that are made ready before they are asked for: the same rows, whatever is asked next, and few at once."""

from __future__ import annotations

import contextlib

import numpy as np
import pyarrow as pa
import pytest

from gateway.drivers.hs2 import operations
from gateway.drivers.hs2.operations import Cursor, ReadAhead
from gateway.drivers.hs2.protocol.messages import (
    ExecuteRequest,
    FetchOrientation,
    FetchReply,
    FetchRequest,
    OperationHandle,
    OperationReply,
    OperationRequest,
    Reply,
    StatusCode,
)
from gateway.execution.spooling.results import in_memory
from tests.gateway.drivers.hs2.conftest import MANY_ROWS, Drivers
from tests.gateway.drivers.hs2.wire import Client, call_bytes
from tests.waiting import wait_until

HEAD = b"\x0c\x00\x05\x0f\x00\x01\x0a"  # of a column of whole numbers, before their count


@pytest.fixture
def client(drivers: Drivers) -> Client:
    return Client(drivers)


def started(client: Client) -> OperationHandle:
    """Run a query of many rows."""
    asked = ExecuteRequest(client.open_session(), "SELECT 'many rows'")
    operation = client.ask("ExecuteStatement", asked, OperationReply).operation
    assert operation is not None
    return operation


def fetch(client: Client, operation: OperationHandle, rows: int, how: FetchOrientation) -> list[int]:
    """Return the numbers that come next."""
    client.send(call_bytes("FetchResults", FetchRequest(operation, int(how), rows)))
    reply = client.frame()
    begin = reply.index(HEAD) + len(HEAD)
    count = int.from_bytes(reply[begin : begin + 4], "big")
    return [int(number) for number in np.frombuffer(reply, ">i8", count, begin + 4)]


def cursor_of(drivers: Drivers) -> Cursor:
    """Return the cursor of the operation that is open."""
    (operation,) = (
        each for session in drivers.gateway.hs2.registry._sessions.values() for each in session.operations.values()
    )
    return operation.cursor


def close(client: Client, operation: OperationHandle) -> None:
    client.ask("CloseOperation", OperationRequest(operation), Reply)


def test_rows_are_those_that_come_next_whatever_is_asked(client: Client) -> None:
    chance = np.random.default_rng(17)
    with client:
        operation, at = started(client), 0
        for _ in range(200):
            rows = int(chance.choice([10, 10, 10, 1_000]))
            how = FetchOrientation.FIRST if chance.random() < 0.05 else FetchOrientation.NEXT
            at = 0 if how is FetchOrientation.FIRST else at
            assert fetch(client, operation, rows, how) == list(range(at, min(at + rows, MANY_ROWS)))
            at += rows
        close(client, operation)


def test_the_next_rows_are_there_before_they_are_asked_for(drivers: Drivers, client: Client) -> None:
    with client:
        operation = started(client)
        fetch(client, operation, 10, FetchOrientation.NEXT)
        assert cursor_of(drivers).ready is None  # many ask once
        fetch(client, operation, 10, FetchOrientation.NEXT)
        wait_until(lambda: cursor_of(drivers).ready is not None)
        drivers.gateway.spool.delete(drivers.last_query().id)
        assert fetch(client, operation, 10, FetchOrientation.NEXT) == list(range(20, 30))
        gone = client.ask("FetchResults", FetchRequest(operation, int(FetchOrientation.NEXT), 10), FetchReply)
        assert gone.status.code == StatusCode.ERROR
        close(client, operation)


def test_few_replies_are_ready_at_once(drivers: Drivers, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "READY_REPLIES", 1)
    other = Client(drivers)
    with client, other:
        operation = started(client)
        for _ in range(2):
            fetch(client, operation, 10, FetchOrientation.NEXT)
        first = cursor_of(drivers)
        wait_until(lambda: first.ready is not None)
        another = started(other)
        for _ in range(2):
            fetch(other, another, 10, FetchOrientation.NEXT)
        wait_until(lambda: first.ready is None)
        assert fetch(client, operation, 10, FetchOrientation.NEXT) == list(range(20, 30))
        close(client, operation)
        close(other, another)


@pytest.mark.parametrize("fails", [ValueError, OSError])
def test_what_goes_wrong_ahead_is_told_when_it_is_asked_for(fails: type[Exception]) -> None:
    def write() -> FetchReply:
        raise fails

    table = pa.table({"n": range(10)})
    cursor = Cursor(lambda: contextlib.nullcontext(in_memory(table)))
    assert cursor.next(2)[0] == 0
    ahead = ReadAhead()
    ahead.prepare(cursor, "two", write)
    assert ahead.take(cursor, "two") is None
    assert cursor.next(2)[0] == 2


def test_an_operation_that_is_closed_holds_no_rows(drivers: Drivers, client: Client) -> None:
    with client:
        operation = started(client)
        for _ in range(2):
            fetch(client, operation, 10, FetchOrientation.NEXT)
        cursor = cursor_of(drivers)
        wait_until(lambda: cursor.ready is not None)
        close(client, operation)
        assert cursor.ready is None
