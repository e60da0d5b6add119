"""A real database that goes away and comes back: what runs waits for it, what comes meanwhile is told so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from sqlalchemy.exc import OperationalError

import metastore.query_log.writer
from engines.errors import MemoryExceeded
from engines.scripted import Script
from gateway.server.app import create_app
from gateway.statements.statement import Statement
from metastore.records import QueryState
from tests.gateway.conftest import Scripted, serving
from tests.gateway.execution.test_coordinator import ANSWER, ONE, PLAN, SQL, outcomes, rows
from tests.postgresql import PostgreSQL, postgresql
from tests.waiting import wait_until

Build = Callable[..., Scripted]

pytestmark = pytest.mark.e2e


@pytest.fixture
def database() -> Iterator[PostgreSQL]:
    with postgresql() as server:
        yield server


def test_query_outlives_its_database(scripted: Build, database: PostgreSQL) -> None:
    house = scripted(metastore_url=database.url)
    gone = threading.Event()
    house.fast.script("books", Script(steps=(ONE, gone, MemoryExceeded("full")), plan=PLAN))
    house.dependable.script("books", ANSWER)
    run = house.gateway.coordinator.submit(Statement(SQL))
    while not house.fast.asked:
        time.sleep(0.01)
    database.stop()
    gone.set()
    time.sleep(0.5)
    with pytest.raises(OperationalError):
        house.gateway.coordinator.submit(Statement(SQL))
    assert not run.done.done()
    database.start()
    record = run.done.result(timeout=30)
    assert outcomes(record) == [("fast", "MEMORY_EXCEEDED"), ("dependable", None)]
    assert rows(house, record) == [1, 2, 3]
    assert house.gateway.metastore.queries.get(run.id) == record
    assert [misestimate.query_id for misestimate in house.gateway.metastore.misestimates.list()] == [run.id]


def test_query_ends_for_its_client_although_nobody_can_write_that_down(scripted: Build, database: PostgreSQL) -> None:
    house = scripted(metastore_url=database.url)
    house.gateway.metastore.queries.writer.retry_s = 0.5
    gone = threading.Event()
    house.fast.script("books", Script(steps=(ONE, gone), plan=PLAN))
    run = house.gateway.coordinator.submit(Statement(SQL))
    while not house.fast.asked:
        time.sleep(0.01)
    database.stop()
    gone.set()
    record = run.done.result(timeout=30)
    assert record.state is QueryState.FAILED
    assert record.error is not None
    assert record.error.code == "METASTORE_UNAVAILABLE"
    assert house.gateway.coordinator.find(run.id) is None
    database.start()
    house.fast.script("books", ANSWER)
    house.gateway.coordinator.submit(Statement(SQL)).done.result(timeout=30)
    kept = house.gateway.metastore.queries.get(run.id)
    assert kept is not None
    assert (kept.state, kept.error) == (QueryState.FAILED, record.error)


def test_a_query_that_was_never_written_down_is_told_to_nobody(
    scripted: Build, database: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metastore.query_log.writer, "LINGER_S", 60.0)  # nothing is written before it ends
    house = scripted(metastore_url=database.url)
    gone = threading.Event()
    house.fast.script("books", Script(steps=(ONE, gone), plan=PLAN))
    with serving(create_app(house.gateway)) as client:
        replies = list[httpx.Response]()
        body = {"sql": SQL, "wait_s": 60}
        asking = threading.Thread(target=lambda: replies.append(client.post("/v1/queries", json=body)))
        asking.start()
        wait_until(lambda: bool(house.fast.asked), "the engine is asked")
        database.stop()
        gone.set()
        asking.join(60)
    (reply,) = replies
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "METASTORE_UNAVAILABLE")
    assert "id" not in reply.json()
