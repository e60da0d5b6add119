"""A statement's lease, from the decision to the record: what it asks for, what it gets, and what pools make of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pyarrow as pa

from engines.errors import MemoryExceeded
from engines.scripted import Held, Pause, Script
from gateway.routing.admission.values import Need
from gateway.server.app import create_app
from gateway.settings import PoolSettings, RoutingSettings
from gateway.statements.statement import Run, Statement
from metastore.records import QueryRecord, QueryState
from selector.forecast.lease import LEAST_BYTES
from tests.gateway.conftest import MIB, Scripted, serving
from tests.waiting import wait_until

Build = Callable[..., Scripted]

LIMIT_BYTES = 512 * MIB
SQL = "SELECT count(*) AS n FROM books"
PLAN = json.dumps([{"name": "DUMMY_SCAN", "children": [], "extra_info": {}}])
ROW = pa.RecordBatch.from_pydict({"n": [1]})
ANSWER = Script(steps=(ROW,), plan=PLAN)
HANGS = Script(steps=(Pause.UNTIL_ENDED,), schema=ROW.schema, plan=PLAN)


def ran_out(peak_bytes: int | None) -> Script:
    return Script(steps=(ROW, MemoryExceeded("out of memory", peak_bytes=peak_bytes)), plan=PLAN)


def started(house: Scripted, sql: str = SQL, pool: str = "") -> Run:
    return house.gateway.coordinator.submit(Statement(sql, pool=pool))


def finished(house: Scripted, sql: str = SQL, pool: str = "") -> QueryRecord:
    return started(house, sql, pool).done.result(timeout=30)


def leases(record: QueryRecord) -> list[tuple[str, str | None, int | None]]:
    return [(each.engine, each.failure, each.lease_bytes) for each in record.attempts]


def test_a_statement_leases_what_it_is_likely_to_need(scripted: Build) -> None:
    house = scripted(limit_bytes=LIMIT_BYTES)
    house.fast.script("books", ANSWER)
    record = finished(house)
    assert leases(record) == [("fast", None, LEAST_BYTES)]
    assert [asked.lease.memory_bytes for asked in house.fast.asked] == [LEAST_BYTES]
    assert record.decision is not None
    price = record.decision.price("fast")
    assert price is not None
    assert price.lease_bytes == LEAST_BYTES
    kept = house.gateway.metastore.queries.get(record.id)
    assert kept is not None
    (attempt,) = kept.attempts
    assert (attempt.lease_bytes, attempt.threads, attempt.expected.limit_bytes) == (LEAST_BYTES, 1, LEAST_BYTES)


def test_the_whole_limit_is_leased_where_that_is_set(scripted: Build) -> None:
    house = scripted(limit_bytes=LIMIT_BYTES, routing=RoutingSettings(lease_by_estimate=False))
    house.fast.script("books", ANSWER)
    assert leases(finished(house)) == [("fast", None, LIMIT_BYTES)]


def test_a_lease_is_raised_while_the_statement_runs(scripted: Build) -> None:
    house = scripted(limit_bytes=LIMIT_BYTES)
    house.fast.script("books", Script(steps=(ROW, Held(LEAST_BYTES // 2)), plan=PLAN))
    record = finished(house)
    assert [raised_bytes for _, raised_bytes in house.fast.raised] == [2 * LEAST_BYTES]
    assert leases(record) == [("fast", None, 2 * LEAST_BYTES)]
    assert record.attempts[0].expected.limit_bytes == 2 * LEAST_BYTES
    assert not any(engine.bytes_held for engine in house.gateway.admission.describe().engines)


def test_nobody_watches_a_lease_that_is_the_whole_limit(scripted: Build) -> None:
    house = scripted(limit_bytes=LIMIT_BYTES, routing=RoutingSettings(lease_by_estimate=False))
    house.fast.script("books", Script(steps=(ROW, Held(LIMIT_BYTES)), plan=PLAN))
    assert leases(finished(house)) == [("fast", None, LIMIT_BYTES)]
    assert not house.fast.raised


def test_a_lease_that_was_too_small_is_tried_again_with_the_whole_limit(scripted: Build) -> None:
    house = scripted(limit_bytes=LIMIT_BYTES)
    house.fast.script("books", ran_out(LEAST_BYTES), ANSWER)
    record = finished(house)
    assert leases(record) == [("fast", "MEMORY_EXCEEDED", LEAST_BYTES), ("fast", None, LIMIT_BYTES)]
    (missed,) = house.gateway.metastore.misestimates.list()
    assert missed.limit_bytes == LEAST_BYTES
    taught = house.gateway.metastore.queries.runs(limit=9)
    assert [(run.ran_out, run.expected.limit_bytes) for run in taught] == [(True, LEAST_BYTES), (False, LIMIT_BYTES)]


def test_what_does_not_fit_into_the_whole_limit_either_goes_elsewhere(scripted: Build) -> None:
    house = scripted(limit_bytes=LIMIT_BYTES)
    house.fast.script("books", ran_out(None))
    house.dependable.script("books", ANSWER)
    tried = [("fast", "MEMORY_EXCEEDED", LEAST_BYTES), ("fast", "MEMORY_EXCEEDED", LIMIT_BYTES)]
    assert leases(finished(house)) == [*tried, ("dependable", None, None)]
    missed = {each.limit_bytes for each in house.gateway.metastore.misestimates.list()}
    assert missed == {LEAST_BYTES, LIMIT_BYTES}
    assert leases(finished(house)) == [("dependable", None, None)]


def test_what_had_more_than_its_lease_ran_out_of_something_else(scripted: Build) -> None:
    house = scripted(limit_bytes=LIMIT_BYTES)
    house.fast.script("books", ran_out(LEAST_BYTES + 1))
    house.dependable.script("books", ANSWER)
    assert leases(finished(house)) == [("fast", "MEMORY_EXCEEDED", LEAST_BYTES), ("dependable", None, None)]
    (missed,) = house.gateway.metastore.misestimates.list()
    assert missed.limit_bytes == LIMIT_BYTES  # so that it is not tried again
    assert leases(finished(house)) == [("dependable", None, None)]


def test_a_pools_memory_is_the_limit_of_its_statements(scripted: Build) -> None:
    pools = {"small": PoolSettings(memory=96 * MIB)}
    house = scripted(limit_bytes=LIMIT_BYTES, pools=pools)
    house.fast.script("books", ran_out(LEAST_BYTES), ANSWER)
    record = finished(house, pool="small")
    assert leases(record) == [("fast", "MEMORY_EXCEEDED", LEAST_BYTES), ("fast", None, 96 * MIB)]
    assert record.decision is not None
    assert record.decision.limit_bytes == 96 * MIB


def test_a_full_pool_refuses_with_503_and_a_code(scripted: Build) -> None:
    pools = {"etl": PoolSettings(slots=1, queue=0, when_full="refuse")}
    house = scripted(pools=pools)
    house.fast.script("books", HANGS)
    first = started(house, pool="etl")
    wait_until(lambda: bool(house.fast.asked))
    with serving(create_app(house.gateway)) as client:
        body = {"sql": SQL, "wait_s": 20, "settings": {"fusion.pool": "etl"}}
        reply = client.post("/v1/queries", json=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "POOL_FULL")
        (etl,) = (pool for pool in client.get("/v1/pools").json()["pools"] if pool["name"] == "etl")
        assert (etl["slots"], etl["slots_held"], etl["queue"], etl["waiting"]) == (1, 1, 0, 0)
        ledger = client.get("/v1/engines").json()["engines"][0]["ledger"]
        assert (ledger["slots_held"], ledger["waiting"]) == (1, 0)
    house.gateway.coordinator.cancel(first.id)
    first.done.result(timeout=10)
    assert house.gateway.admission.pool("etl").slots == 1


def test_a_full_pool_takes_the_next_engine_where_that_is_set(scripted: Build) -> None:
    pools = {"etl": PoolSettings(memory=LEAST_BYTES, queue=0)}
    house = scripted(limit_bytes=LIMIT_BYTES, pools=pools)
    house.fast.script("books", HANGS)
    house.dependable.script("books", ANSWER)
    first = started(house, pool="etl")
    wait_until(lambda: bool(house.fast.asked))
    assert leases(finished(house, SQL + " WHERE id > 1", pool="etl")) == [
        ("fast", "ENGINE_BUSY", None),
        ("dependable", None, None),
    ]
    house.gateway.coordinator.cancel(first.id)
    first.done.result(timeout=10)


def test_a_cancel_ends_the_wait_at_once_and_leaves_nothing(scripted: Build) -> None:
    house = scripted(slots=1)
    house.fast.script("books", HANGS)
    first = started(house)
    wait_until(lambda: bool(house.fast.asked))
    second = started(house, SQL + " WHERE id > 1")
    wait_until(lambda: bool(house.gateway.admission.waiting()))
    (told,) = house.gateway.admission.waiting()
    assert (told.query_id, told.engine, told.needs, told.place) == (second.id, "fast", Need.SLOT, 1)
    begun_s = time.monotonic()
    house.gateway.coordinator.cancel(second.id)
    assert second.done.result(timeout=10).state is QueryState.CANCELLED
    assert time.monotonic() - begun_s < 5.0
    assert house.gateway.admission.waiting() == ()
    house.gateway.coordinator.cancel(first.id)
    first.done.result(timeout=10)
    assert {state.slots_held for state in house.gateway.admission.describe().engines} == {0}
