"""One statement's life over scripted engines: failover, memory of misses, cancelling, deadlines, recovery."""

from __future__ import annotations

import datetime as dt
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest

from engines.errors import (
    EngineBusy,
    EngineError,
    EngineFault,
    EngineRestarted,
    EngineUnavailable,
    MemoryExceeded,
    StatementError,
    UnsupportedFeature,
)
from engines.protocol import Actuals, EngineStatus
from engines.scripted import Pause, Script
from gateway.errors import GatewayStopped, NoEngineAvailable, TooManyQueries, UnknownEngine
from gateway.execution.records.query_log import GATEWAY_LOST
from gateway.routing.circuit_breaker import CircuitBreaker
from gateway.statements.statement import Run, Statement
from metastore.records import JobRequest, JobState, QueryRecord, QueryState, StatisticsJob
from selector.decision import ReasonCode
from selector.estimate import MemoryEstimate
from selector.statistics import TableStatistics
from tests.gateway.conftest import BOOKS, LIMIT, MIB, Scripted
from tests.waiting import wait_until

Build = Callable[..., Scripted]

SQL = "SELECT id FROM books WHERE price < 10"
PLAN = json.dumps(
    [
        {
            "name": "READ_PARQUET",
            "extra_info": {"Projections": "id", "Filters": "(price < 10.0)", "Estimated Cardinality": str(BOOKS // 5)},
        }
    ]
)
PEAK = 40 * MIB
ONE, TWO = (pa.RecordBatch.from_pydict({"id": ids}) for ids in ([1, 2], [3]))
ANSWER = Script(steps=(ONE, TWO), actuals=Actuals(peak_bytes=PEAK), plan=PLAN)
HANGS = Script(steps=(ONE, Pause.UNTIL_ENDED), plan=PLAN)
HANGS_AT_ONCE = Script(before=(Pause.UNTIL_ENDED,), plan=PLAN)


def failing(error: EngineError, *, after: tuple[pa.RecordBatch, ...] = ()) -> Script:
    return Script(steps=(*after, error), schema=ONE.schema, plan=PLAN)


def finished(house: Scripted, sql: str = SQL, **fields: object) -> QueryRecord:
    record = started(house, sql, **fields).done.result(timeout=30)
    assert record == house.gateway.metastore.queries.get(record.id)
    return record


def started(house: Scripted, sql: str = SQL, **fields: object) -> Run:
    return house.gateway.coordinator.submit(Statement(sql=sql, **fields))  # type: ignore[arg-type]


def codes(record: QueryRecord) -> list[ReasonCode]:
    assert record.decision is not None
    return [reason.code for reason in record.decision.reasons]


def outcomes(record: QueryRecord) -> list[tuple[str, str | None]]:
    return [(attempt.engine, attempt.failure) for attempt in record.attempts]


def rows(house: Scripted, record: QueryRecord) -> list[int]:
    page = house.gateway.spool.page(record.id, max_rows=100)
    return [value for batch in page.batches for value in batch.column(0).to_pylist()]


def compute_statistics(house: Scripted) -> None:
    statistics = TableStatistics("books", version=0, rows=BOOKS, bytes=1_000)
    house.gateway.metastore.statistics.publish(statistics, at=dt.datetime.now(dt.UTC))


def test_what_fits_runs_on_the_fast_engine(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", ANSWER)
    record = finished(house)
    assert record.state is QueryState.FINISHED
    assert outcomes(record) == [("fast", None)]
    assert record.attempts[0].peak_bytes == PEAK
    assert (record.rows, rows(house, record)) == (3, [1, 2, 3])
    assert house.fast.asked[0].lease.memory_bytes == LIMIT


@pytest.mark.parametrize("delivered", [(), (ONE,), (ONE, TWO)], ids=["at once", "after a batch", "after the last"])
def test_out_of_memory_fails_over_and_no_row_comes_twice(
    scripted: Build, delivered: tuple[pa.RecordBatch, ...]
) -> None:
    house = scripted()
    house.fast.script("books", failing(MemoryExceeded("full", peak_bytes=LIMIT), after=delivered))
    house.dependable.script("books", ANSWER)
    record = finished(house)
    assert record.state is QueryState.FINISHED
    assert outcomes(record) == [("fast", "MEMORY_EXCEEDED"), ("dependable", None)]
    assert record.attempts[0].peak_bytes == LIMIT
    assert rows(house, record) == [1, 2, 3]


def test_out_of_memory_of_the_dependable_engine_runs_again_once_carefully(scripted: Build) -> None:
    house = scripted()
    house.dependable.script("books", failing(MemoryExceeded("full"), after=(ONE,)), ANSWER)
    record = finished(house, engine="dependable")
    assert record.state is QueryState.FINISHED
    assert outcomes(record) == [("dependable", "MEMORY_EXCEEDED"), ("dependable", None)]
    assert [asked.lease.careful for asked in house.dependable.asked] == [False, True]
    assert rows(house, record) == [1, 2, 3]


def test_out_of_memory_in_spite_of_all_care_is_told(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", failing(MemoryExceeded("full")))
    house.dependable.script("books", failing(MemoryExceeded("full")))
    record = finished(house)
    assert record.state is QueryState.FAILED
    assert record.error is not None
    assert record.error.code == "MEMORY_EXCEEDED"
    assert outcomes(record) == [
        ("fast", "MEMORY_EXCEEDED"),
        ("dependable", "MEMORY_EXCEEDED"),
        ("dependable", "MEMORY_EXCEEDED"),
    ]


def test_engine_restarted_on_purpose_runs_it_again_and_is_not_blamed(scripted: Build) -> None:
    house = scripted()
    restarted = failing(EngineRestarted("started again"))
    house.dependable.script("books", restarted, restarted, restarted, ANSWER)
    record = finished(house, engine="dependable")
    assert record.state is QueryState.FINISHED
    assert [failure for _, failure in outcomes(record)] == ["ENGINE_UNAVAILABLE"] * 3 + [None]
    assert house.gateway.engines["dependable"].breaker.why_open() is None


def test_the_same_miss_never_happens_twice(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", failing(MemoryExceeded("full")))
    house.dependable.script("books", ANSWER)
    first = finished(house)
    second = finished(house, "select ID from BOOKS where PRICE<10 -- again")
    assert outcomes(second) == [("dependable", None)]
    assert codes(second)[0] is ReasonCode.MISESTIMATE_ON_RECORD
    assert second.decision is not None
    assert first.id in second.decision.reasons[0].text
    assert len(house.fast.asked) == 1


@pytest.mark.parametrize("change", ["forgotten", "other literal"])
def test_a_lesson_holds_only_for_what_it_was_learned_on(scripted: Build, change: str) -> None:
    house = scripted()
    house.fast.script("books", failing(MemoryExceeded("full")), ANSWER)
    house.dependable.script("books", ANSWER)
    record = finished(house)
    sql = SQL
    match change:
        case "forgotten":
            assert house.gateway.metastore.misestimates.forget(record.fingerprint or "") == 1
            house.gateway.router.forget_misses(record.fingerprint or "")
        case "other literal":
            sql = SQL.replace("10", "11")
    again = finished(house, sql)
    assert ReasonCode.MISESTIMATE_ON_RECORD not in codes(again)
    assert change == "other literal" or again.engine == "fast"


def test_a_larger_limit_is_another_chance(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", failing(MemoryExceeded("full")))
    house.dependable.script("books", ANSWER)
    finished(house)
    house.gateway.close()
    house = scripted(limit_bytes=4_096 * LIMIT)  # without statistics, little less is certain to be enough
    house.fast.script("books", ANSWER)
    assert outcomes(finished(house)) == [("fast", None)]


def test_a_smaller_limit_keeps_the_lesson(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", failing(MemoryExceeded("full")))
    house.dependable.script("books", ANSWER)
    finished(house)
    house.gateway.close()
    smaller = scripted(limit_bytes=LIMIT // 2)
    smaller.fast.script("books", ANSWER)
    smaller.dependable.script("books", ANSWER)
    assert outcomes(finished(smaller)) == [("dependable", None)]


@pytest.mark.parametrize("error", [EngineUnavailable("lost"), EngineBusy("full"), UnsupportedFeature("cannot")])
def test_other_failures_that_are_not_the_statements_fault_fail_over_and_are_not_remembered(
    scripted: Build, error: EngineError
) -> None:
    house = scripted()
    house.fast.script("books", failing(error), ANSWER)
    house.dependable.script("books", ANSWER)
    assert outcomes(finished(house)) == [("fast", error.code), ("dependable", None)]
    assert house.gateway.metastore.misestimates.list() == ()
    assert outcomes(finished(house)) == [("fast", None)]


@pytest.mark.parametrize("error", [StatementError("division by zero"), EngineFault("unheard of")])
def test_errors_of_the_statement_and_unknown_ones_never_fail_over(scripted: Build, error: EngineError) -> None:
    house = scripted()
    house.fast.script("books", failing(error))
    record = finished(house)
    assert record.state is QueryState.FAILED
    assert outcomes(record) == [("fast", error.code)]
    assert record.error is not None
    assert (record.error.code, record.error.message) == (error.code, error.message)
    assert house.dependable.asked == []


def test_when_every_engine_fails_the_last_error_is_told(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", failing(MemoryExceeded("full")))
    house.dependable.script("books", failing(EngineUnavailable("lost")))
    record = finished(house)
    assert record.state is QueryState.FAILED
    assert outcomes(record) == [("fast", "MEMORY_EXCEEDED"), *2 * [("dependable", "ENGINE_UNAVAILABLE")]]
    assert record.error is not None
    assert record.error.message == "lost"


def test_a_pinned_statement_stays_where_it_was_pinned(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", failing(MemoryExceeded("full")))
    record = finished(house, engine="fast")
    assert (record.state, outcomes(record)) == (QueryState.FAILED, [("fast", "MEMORY_EXCEEDED")])
    assert codes(record) == [ReasonCode.PINNED]


def test_an_unknown_engine_is_refused(scripted: Build) -> None:
    with pytest.raises(UnknownEngine, match="fast, dependable"):
        started(scripted(), engine="oracle")


def test_an_engine_that_is_down_is_passed_by(scripted: Build) -> None:
    house = scripted()
    house.fast.reported_status = EngineStatus(alive=False, detail="no worker starts")
    house.fast.script("books", ANSWER)
    house.dependable.script("books", ANSWER)
    record = finished(house)
    assert outcomes(record) == [("dependable", None)]
    assert ReasonCode.ENGINE_DOWN in codes(record)


def test_an_engine_that_was_lost_is_tried_once_more(scripted: Build) -> None:
    house = scripted()
    lost = failing(EngineUnavailable("lost"), after=(ONE,))
    house.fast.script("books", lost, ANSWER)
    house.dependable.script("books", lost)
    record = finished(house)
    assert outcomes(record) == [
        ("fast", "ENGINE_UNAVAILABLE"),
        ("dependable", "ENGINE_UNAVAILABLE"),
        ("fast", None),
    ]
    assert rows(house, record) == [1, 2, 3]


def test_a_pinned_statement_survives_the_loss_of_its_engine(scripted: Build) -> None:
    house = scripted()
    house.dependable.script("books", failing(EngineUnavailable("lost")), ANSWER)
    record = finished(house, engine="dependable")
    assert outcomes(record) == [("dependable", "ENGINE_UNAVAILABLE"), ("dependable", None)]


def test_a_lost_engine_that_stays_away_is_an_error(scripted: Build) -> None:
    house = scripted(queue_s=0.5)
    may_fail = threading.Event()
    lost = Script(steps=(ONE, may_fail, EngineUnavailable("lost")), plan=PLAN)
    house.dependable.script("books", lost)
    run = started(house, engine="dependable")
    while not house.dependable.asked:
        time.sleep(0.01)
    house.dependable.reported_status = EngineStatus(alive=False, detail="gone")
    may_fail.set()
    record = run.done.result(timeout=30)
    assert outcomes(record) == [("dependable", "ENGINE_UNAVAILABLE")]
    assert record.error is not None
    assert record.error.message == "lost"


def lose(breaker: CircuitBreaker, times: int) -> None:
    for _ in range(times):
        with suppress(EngineUnavailable), breaker.watched():
            raise EngineUnavailable("lost")


def test_a_query_waits_for_an_engine_that_rests(scripted: Build) -> None:
    house = scripted()
    house.dependable.script("books", ANSWER)
    breaker = house.gateway.engines["dependable"].breaker
    breaker._open_s = 0.5
    lose(breaker, 3)
    begun = time.monotonic()
    record = finished(house, engine="dependable")
    assert time.monotonic() - begun > 0.3
    assert outcomes(record) == [("dependable", None)]


def test_a_query_that_waits_for_an_engine_can_be_cancelled(scripted: Build) -> None:
    house = scripted()
    lose(house.gateway.engines["dependable"].breaker, 3)
    run = started(house, engine="dependable")
    time.sleep(0.2)
    assert not run.done.done()
    house.gateway.coordinator.cancel(run.id)
    assert run.done.result(timeout=5).state is QueryState.CANCELLED


def test_the_circuit_breaker_opens_after_failures_in_a_row(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", failing(EngineUnavailable("lost")))
    house.dependable.script("books", ANSWER)
    for _ in range(3):
        finished(house)
    record = finished(house)
    assert ReasonCode.ENGINE_DOWN in codes(record)
    assert len(house.fast.asked) == 3


def test_no_engine_at_all(scripted: Build) -> None:
    house = scripted()
    for engine in (house.fast, house.dependable):
        engine.reported_status = EngineStatus(alive=False, detail="gone")
    record = finished(house)
    assert record.error is not None
    assert (record.state, record.error.code) == (QueryState.FAILED, NoEngineAvailable.code)


@pytest.mark.parametrize("script", [HANGS, HANGS_AT_ONCE], ids=["while rows come", "before the first row"])
def test_cancel(scripted: Build, script: Script) -> None:
    house = scripted()
    house.fast.script("books", script)
    run = started(house)
    wait_until(lambda: bool(house.fast.asked))
    assert house.gateway.coordinator.cancel(run.id)
    record = run.done.result(timeout=10)
    assert record.state is QueryState.CANCELLED
    assert record.attempts[0].state is QueryState.CANCELLED
    assert house.dependable.asked == []
    assert house.fast.open_results == 0
    assert not house.gateway.coordinator.cancel(run.id)


def test_cancel_while_it_waits_for_a_slot(scripted: Build) -> None:
    house = scripted(slots=1)
    house.fast.script("books", HANGS)
    first = started(house)
    wait_until(lambda: bool(house.fast.asked))
    waiting = started(house)
    wait_until(lambda: _state(house, waiting) is QueryState.RUNNING)
    house.gateway.coordinator.cancel(waiting.id)
    assert waiting.done.result(timeout=10).state is QueryState.CANCELLED
    assert len(house.fast.asked) == 1
    house.gateway.coordinator.cancel(first.id)
    first.done.result(timeout=10)


def test_a_full_engine_passes_a_statement_on_after_the_queue_time(scripted: Build) -> None:
    house = scripted(slots=1, queue_s=0.3)
    house.fast.script("books", HANGS)
    house.dependable.script("books", ANSWER)
    first = started(house)
    wait_until(lambda: bool(house.fast.asked))
    assert outcomes(finished(house)) == [("fast", "ENGINE_BUSY"), ("dependable", None)]
    house.gateway.coordinator.cancel(first.id)
    first.done.result(timeout=10)


def test_a_deadline_ends_a_statement_and_does_not_fail_over(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", HANGS)
    house.gateway.coordinator.explain(Statement("SELECT 1", deadline_s=60))  # so that a planner is there
    record = finished(house, deadline_s=0.5)
    assert (record.state, outcomes(record)) == (QueryState.FAILED, [("fast", "DEADLINE_EXCEEDED")])


def test_too_many_queries_are_refused_and_places_come_back(scripted: Build) -> None:
    house = scripted(queries=1)
    house.fast.script("books", HANGS, ANSWER)
    run = started(house)
    with pytest.raises(TooManyQueries):
        started(house)
    wait_until(lambda: bool(house.fast.asked))
    house.gateway.coordinator.cancel(run.id)
    run.done.result(timeout=10)
    wait_until(lambda: house.gateway.coordinator.find(run.id) is None)
    assert finished(house).state is QueryState.FINISHED


def test_a_result_that_is_too_large_fails_and_leaves_no_file(scripted: Build) -> None:
    house = scripted()
    house.gateway.spool._limit = 10  # the setting has a floor of its own
    house.fast.script("books", ANSWER)
    record = finished(house)
    assert record.error is not None
    assert record.error.code == "RESULT_TOO_LARGE"
    assert list(house.gateway.spool.path(record.id).parent.iterdir()) == []


def test_estimates_are_made_once_until_the_catalog_changes(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", ANSWER)
    finished(house)
    finished(house)
    assert len(house.fast.explained) == 1
    compute_statistics(house)
    finished(house)
    assert len(house.fast.explained) == 2


def estimated(record: QueryRecord) -> MemoryEstimate:
    assert record.decision is not None
    return record.decision.estimate


def test_a_statement_is_expected_to_take_what_it_took(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", ANSWER)
    first, second, third = finished(house), finished(house), finished(house)
    assert estimated(first).learned is None
    for record in (second, third):
        assert estimated(record).peak_bytes == pytest.approx(PEAK, rel=0.02)
        assert PEAK < (estimated(record).upper_bytes or 0) < 1.2 * PEAK
        assert ReasonCode.LEARNED_FROM_RUNS in codes(record)
    learned = estimated(third).learned
    assert learned is not None
    assert (learned.text, learned.runs) == ("Learned from 2 runs of this statement.", 2)
    expected = [record.attempts[0].expected for record in (first, second, third)]
    assert expected[0] == replace(expected[2], seconds=expected[0].seconds)  # by the model alone
    assert learned.peak_bytes == expected[0].peak_bytes


def test_other_literals_are_the_same_template(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", ANSWER)
    first = finished(house)
    second = finished(house, SQL.replace("10", "11"))
    assert (estimated(first).peak_bytes or 0) < (estimated(second).peak_bytes or 0) < PEAK
    assert (estimated(second).upper_bytes or 0) >= PEAK
    assert first.template == second.template
    assert first.fingerprint != second.fingerprint


def test_what_was_learned_outlives_the_gateway(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", ANSWER)
    finished(house)
    house.gateway.close()
    later = scripted()
    later.fast.script("books", ANSWER)
    assert estimated(finished(later)).peak_bytes == pytest.approx(PEAK, rel=0.02)


@pytest.mark.parametrize("change", ["statistics", "limit"])
def test_new_statistics_and_another_limit_keep_what_was_learned(scripted: Build, change: str) -> None:
    house = scripted()
    house.fast.script("books", ANSWER)
    finished(house)
    if change == "statistics":
        compute_statistics(house)
    else:
        house.gateway.close()
        house = scripted(limit_bytes=2 * LIMIT)
        house.fast.script("books", ANSWER)
    assert estimated(finished(house)).peak_bytes == pytest.approx(PEAK, rel=0.02)


@pytest.mark.parametrize("error", [EngineUnavailable("lost", peak_bytes=PEAK), EngineFault("odd", peak_bytes=PEAK)])
def test_a_failure_that_is_not_about_memory_teaches_nothing(scripted: Build, error: EngineError) -> None:
    house = scripted()
    house.fast.script("books", failing(error), ANSWER)
    house.dependable.script("books", ANSWER)
    finished(house)
    assert estimated(finished(house)).learned is None


def test_a_cancelled_run_teaches_nothing(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", HANGS, ANSWER)
    run = started(house)
    wait_until(lambda: bool(house.fast.asked))
    house.gateway.coordinator.cancel(run.id)
    run.done.result(timeout=10)
    assert estimated(finished(house)).learned is None


def test_a_run_that_failed_over_teaches_that_the_limit_is_not_enough(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", failing(MemoryExceeded("full", peak_bytes=LIMIT // 2)))
    house.dependable.script("books", ANSWER)  # its peak is another engine's
    finished(house)
    assert (estimated(finished(house)).peak_bytes or 0) > LIMIT
    runs = house.gateway.metastore.queries.runs(limit=9)
    assert [(run.engine, run.ran_out, run.measured_bytes) for run in runs] == [
        ("fast", True, None),
        ("dependable", False, PEAK),
        ("dependable", False, PEAK),
    ]
    assert [run.teaches_memory for run in runs] == [True, False, False]


def test_what_the_fast_engine_cannot_plan_goes_to_the_dependable_one(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", replace(ANSWER, plan="no JSON"))
    house.dependable.script("books", ANSWER)
    record = finished(house)
    assert (outcomes(record), codes(record)) == ([("dependable", None)], [ReasonCode.NO_ESTIMATE])


def test_missing_statistics_are_said(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", ANSWER)
    assert ReasonCode.STATISTICS_MISSING in codes(finished(house))


def test_a_killed_gateway_leaves_nothing_open(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", HANGS)
    run = started(house)
    wait_until(lambda: _state(house, run) is QueryState.RUNNING)
    orphan = house.gateway.spool.path("20200101_000000_0000000000")
    orphan.write_bytes(b"rows that nobody can ask for")
    writer = house.gateway.metastore.queries.writer
    writer.wait(writer.keep_from_others(run.id))  # as if its client had seen rows
    later = scripted()  # the same home: what a restart after kill -9 finds
    record = later.gateway.metastore.queries.get(run.id)
    assert record is not None
    assert (record.state, record.error) == (QueryState.FAILED, GATEWAY_LOST)
    assert record.attempts[0].failure == GATEWAY_LOST.code
    assert not orphan.exists()
    house.gateway.coordinator.cancel(run.id)
    assert run.done.result(timeout=10).error == GATEWAY_LOST


def test_a_job_whose_process_is_gone_does_not_stay_open(scripted: Build) -> None:
    house = scripted()
    job = StatisticsJob("j1", JobRequest(("books",)), JobState.QUEUED, created_at=dt.datetime.now(dt.UTC))
    house.gateway.metastore.jobs.create(job)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    house.gateway.metastore.jobs.started("j1", at=job.created_at, host=socket.gethostname(), process_id=gone.pid)
    house.gateway.jobs.recover()
    closed = house.gateway.metastore.jobs.get("j1")
    assert closed is not None
    assert closed.state is JobState.FAILED


def test_many_at_once(scripted: Build) -> None:
    house = scripted(slots=2)
    house.fast.script("books", failing(MemoryExceeded("full")), ANSWER)
    house.dependable.script("books", ANSWER)
    runs = [started(house, SQL.replace("10", str(10 + i))) for i in range(40)]
    records = [run.done.result(timeout=30) for run in runs]
    assert {record.state for record in records} == {QueryState.FINISHED}
    assert all(rows(house, record) == [1, 2, 3] for record in records)
    assert house.fast.open_results == house.dependable.open_results == 0
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("query ")])


def _state(house: Scripted, run: Run) -> QueryState | None:
    record = house.gateway.metastore.queries.get(run.id)
    return record.state if record else None


def test_a_view_that_is_made_can_be_cancelled(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", HANGS_AT_ONCE)
    run = started(house, "CREATE VIEW v AS SELECT id FROM books")
    wait_until(lambda: run.engine == "fast", "the engine is asked")
    house.gateway.coordinator.cancel(run.id)
    assert run.done.result(timeout=30).state is QueryState.CANCELLED


def test_a_view_that_is_made_waits_for_a_slot_like_a_query(scripted: Build) -> None:
    house = scripted(slots=1, queue_s=0.3)
    house.fast.script("books", HANGS_AT_ONCE)
    house.dependable.script("books", HANGS_AT_ONCE)
    held = [started(house, engine=name) for name in ("fast", "dependable")]
    wait_until(lambda: all(run.engine for run in held), "both engines are busy")
    record = finished(house, "CREATE VIEW v AS SELECT id FROM books")
    assert record.error is not None
    assert record.error.code == EngineBusy.code
    for run in held:
        house.gateway.coordinator.cancel(run.id)


def test_a_gateway_that_stops_lets_go_on_and_takes_nothing_new(scripted: Build) -> None:
    house = scripted()
    gone = threading.Event()
    house.fast.script("books", Script(steps=(ONE, gone), plan=PLAN))
    run = started(house)
    house.gateway.coordinator.stop_accepting()
    with pytest.raises(GatewayStopped):
        started(house)
    gone.set()
    assert run.done.result(timeout=30).state is QueryState.FINISHED


def test_many_cancels_of_one_query_are_one(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", HANGS)
    run = started(house)
    before = threading.active_count()
    for _ in range(100):
        house.gateway.coordinator.cancel(run.id)
    assert threading.active_count() <= before + 2
    assert run.done.result(timeout=30).state is QueryState.CANCELLED
