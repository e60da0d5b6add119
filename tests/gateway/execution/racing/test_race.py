"""Two attempts of one query at once: the first whole answer wins, and each stays on record as what it was."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from engines.errors import DataError, EngineBusy, EngineError, EngineUnavailable, MemoryExceeded, StatementError
from engines.protocol import EngineStatus, Progress
from engines.scripted import Pause, Script, Step
from gateway.execution.racing import race
from gateway.server.runtime import Gateway
from gateway.settings import RoutingSettings
from metastore.records import QueryRecord, QueryState
from selector.decision import Rule
from selector.forecast import continuation
from selector.forecast.continuation import Continuation
from tests.gateway.conftest import LIMIT, MIB, Scripted
from tests.gateway.execution.test_coordinator import ANSWER, ONE, PLAN, SQL, TWO, outcomes, rows, started
from tests.waiting import wait_until

Build = Callable[..., Scripted]
Doubting = Callable[[Continuation], None]

FULL = Progress(held_bytes=LIMIT - MIB // 4)
OTHER = ONE.slice(0, 1)  # an answer that tells who gave it


def script(*steps: Step) -> Script:
    return Script(steps=steps, schema=ONE.schema, plan=PLAN)


def finished(house: Scripted, **fields: object) -> QueryRecord:
    record = started(house, SQL, **fields).done.result(timeout=30)
    assert record == house.gateway.metastore.queries.get(record.id)
    return record


@pytest.fixture
def doubting(monkeypatch: pytest.MonkeyPatch) -> Doubting:
    """Choose what becomes of attempts that hold nearly all of their memory: scripts take no time to weigh."""

    def choose(choice: Continuation) -> None:
        monkeypatch.setattr(
            race, "weigh", lambda prospects, standing: replace(continuation.weigh(prospects, standing), choice=choice)
        )

    return choose


def is_idle(gateway: Gateway) -> bool:
    """Tell whether nothing is held of any engine."""
    return not any(engine.slots_held for engine in gateway.admission.describe().engines)


def require_idle(house: Scripted) -> None:
    """Wait until no engine holds anything of a query any more, and no file is left but results."""
    for engine in (house.fast, house.dependable):
        wait_until(lambda engine=engine: engine.open_results == 0, "its statements are closed")  # type: ignore[misc]
    wait_until(lambda: is_idle(house.gateway), "all slots are free")
    folder = house.gateway.spool.path("any").parent
    wait_until(lambda: not list(folder.glob("*.part")), "no unfinished file is left")


def test_what_will_not_fit_is_broken_off_and_remembered(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.SWITCH)
    house = scripted()
    house.fast.script("books", script(ONE, FULL, Pause.UNTIL_ENDED))
    house.dependable.script("books", ANSWER)
    record = finished(house)
    assert (record.state, record.engine) == (QueryState.FINISHED, "dependable")
    assert outcomes(record) == [("fast", "BROKEN_OFF"), ("dependable", None)]
    first, second = record.attempts
    assert (first.state, first.peak_bytes) == (QueryState.CANCELLED, FULL.held_bytes)
    assert "64 MiB of the 64 MiB" in (first.message or "")
    first_ended_at = first.started_at + dt.timedelta(seconds=first.wall_s or 0.0)
    assert abs(second.started_at - first_ended_at) < dt.timedelta(seconds=0.5)
    assert rows(house, record) == [1, 2, 3]
    require_idle(house)
    (missed,) = house.gateway.metastore.misestimates.list()
    assert (missed.limit_bytes, missed.peak_bytes) == (LIMIT, FULL.held_bytes)
    again = finished(house)
    assert outcomes(again) == [("dependable", None)]
    assert again.decision is not None
    assert "MISESTIMATE_ON_RECORD" in again.decision.codes


def test_what_was_broken_off_teaches_that_its_peak_is_not_below_what_it_held(
    scripted: Build, doubting: Doubting
) -> None:
    doubting(Continuation.SWITCH)
    house = scripted()
    house.fast.script("books", script(FULL, Pause.UNTIL_ENDED))
    house.dependable.script("books", ANSWER)
    finished(house)
    require_idle(house)
    (run,) = [each for each in house.gateway.metastore.queries.runs(limit=9) if each.engine == "fast"]
    assert (run.ran_out, run.broken_off, run.measured_bytes) == (False, True, FULL.held_bytes)
    assert run.is_censored
    assert run.peak_error > 0


def test_in_a_race_the_first_whole_answer_wins(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.RACE)
    house = scripted()
    go = threading.Event()
    house.fast.script("books", script(FULL, ONE, go, TWO))
    house.dependable.script("books", script(OTHER, Pause.UNTIL_ENDED))
    run = started(house, SQL)
    wait_until(lambda: set(run.engines) == {"fast", "dependable"}, "both run")
    go.set()
    record = run.done.result(timeout=30)
    assert record == house.gateway.metastore.queries.get(record.id)
    assert (record.state, record.engine) == (QueryState.FINISHED, "fast")
    assert outcomes(record) == [("fast", None), ("dependable", "SUPERSEDED")]
    assert record.attempts[1].state is QueryState.CANCELLED
    assert rows(house, record) == [1, 2, 3]
    require_idle(house)
    assert house.dependable.cancelled
    assert not house.fast.cancelled
    assert not house.gateway.metastore.misestimates.list()


def test_in_a_race_the_second_may_win(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.RACE)
    house = scripted()
    house.fast.script("books", script(ONE, FULL, Pause.UNTIL_ENDED))
    house.dependable.script("books", script(OTHER))
    record = finished(house)
    assert outcomes(record) == [("fast", "SUPERSEDED"), ("dependable", None)]
    assert rows(house, record) == OTHER.column(0).to_pylist()
    assert record.attempts[0].peak_bytes == FULL.held_bytes
    require_idle(house)
    assert not house.gateway.metastore.misestimates.list()
    assert not [each for each in house.gateway.metastore.queries.runs(limit=9) if each.engine == "fast"]


def test_of_two_that_end_in_the_same_instant_one_wins(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.RACE)
    house = scripted()
    for _ in range(20):
        go = threading.Event()
        house.fast.script("books", script(FULL, ONE, go, TWO))
        house.dependable.script("books", script(OTHER, go))
        run = started(house, SQL)
        wait_until(lambda run=run: set(run.engines) == {"fast", "dependable"}, "both run")  # type: ignore[misc]
        go.set()
        record = run.done.result(timeout=30)
        assert record == house.gateway.metastore.queries.get(record.id)
        assert record.state is QueryState.FINISHED
        won = [attempt.engine for attempt in record.attempts if attempt.state is QueryState.FINISHED]
        assert won == [record.engine]
        assert rows(house, record) == ([1, 2, 3] if won == ["fast"] else OTHER.column(0).to_pylist())
    require_idle(house)
    assert not house.gateway.metastore.misestimates.list()


def test_running_out_of_memory_in_a_race_leaves_the_other_one_alone(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.RACE)
    house = scripted()
    full, go = threading.Event(), threading.Event()
    house.fast.script("books", script(FULL, full, MemoryExceeded("full", peak_bytes=LIMIT)))
    house.dependable.script("books", script(ONE, go, TWO))
    run = started(house, SQL)
    wait_until(lambda: set(run.engines) == {"fast", "dependable"}, "both run")
    full.set()
    wait_until(lambda: len(run.record.attempts) == 1, "the first is on record")
    assert run.engines == ("dependable",)
    go.set()
    record = run.done.result(timeout=30)
    assert outcomes(record) == [("fast", "MEMORY_EXCEEDED"), ("dependable", None)]
    assert rows(house, record) == [1, 2, 3]


@pytest.mark.parametrize("refusal", [EngineUnavailable("gone"), EngineBusy("full")], ids=["lost", "busy"])
def test_what_was_broken_off_runs_to_its_end_where_the_other_engine_refuses(
    scripted: Build, doubting: Doubting, refusal: EngineError
) -> None:
    doubting(Continuation.SWITCH)
    house = scripted()
    house.fast.script("books", script(FULL, Pause.UNTIL_ENDED), script(FULL, ONE, TWO))
    broken_off = threading.Event()
    cancel = house.fast.cancel

    def cancelled(query_id: str) -> None:
        cancel(query_id)
        broken_off.set()

    house.fast.cancel = cancelled  # type: ignore[method-assign]
    house.dependable.script("books", Script(before=(broken_off, refusal), plan=PLAN))
    record = finished(house)
    assert record.state is QueryState.FINISHED
    assert outcomes(record) == [("fast", "BROKEN_OFF"), ("dependable", refusal.code), ("fast", None)]
    assert rows(house, record) == [1, 2, 3]


def test_nothing_is_broken_off_for_an_engine_that_is_down(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.SWITCH)
    house = scripted()
    go = threading.Event()
    house.fast.script("books", script(go, FULL, ONE, TWO))
    run = started(house, SQL)
    wait_until(lambda: run.engines == ("fast",), "it runs")
    house.dependable.reported_status = EngineStatus(alive=False, detail="stopped")
    go.set()
    record = run.done.result(timeout=30)
    assert outcomes(record) == [("fast", None)]


def test_nothing_is_broken_off_before_the_other_engine_has_a_slot(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.SWITCH)
    house = scripted(slots=1)
    go = threading.Event()
    house.dependable.script("publisher", script(Pause.UNTIL_ENDED))
    house.fast.script("price", script(FULL, ONE, go, TWO))
    other = started(house, "SELECT publisher FROM books", engine="dependable")
    wait_until(lambda: other.engines == ("dependable",), "the slot is taken")
    run = started(house, SQL)
    wait_until(lambda: len(house.gateway.metastore.queries.get(run.id).attempts) == 2, "the second waits")  # type: ignore[union-attr]
    assert not house.fast.cancelled
    go.set()
    record = run.done.result(timeout=30)
    assert outcomes(record) == [("fast", None), ("dependable", "SUPERSEDED")]
    assert rows(house, record) == [1, 2, 3]
    house.gateway.coordinator.cancel(other.id)
    other.done.result(timeout=30)
    require_idle(house)


def test_where_both_fail_the_query_does(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.RACE)
    house = scripted()
    house.fast.script("books", script(FULL, MemoryExceeded("full")))
    house.dependable.script("books", script(MemoryExceeded("full")))
    record = finished(house)
    assert record.state is QueryState.FAILED
    assert record.error is not None
    assert record.error.code == "MEMORY_EXCEEDED"
    assert sorted(outcomes(record)) == [("dependable", "MEMORY_EXCEEDED")] * 2 + [("fast", "MEMORY_EXCEEDED")]


@pytest.mark.parametrize("winner", ["fast", "dependable"])
def test_an_error_that_never_fails_over_ends_the_query_and_the_other_attempt(
    scripted: Build, doubting: Doubting, winner: str
) -> None:
    doubting(Continuation.RACE)
    house = scripted()
    go = threading.Event()
    wrong = (go, StatementError("division by zero"))
    house.fast.script("books", script(FULL, *(wrong if winner == "fast" else (Pause.UNTIL_ENDED,))))
    house.dependable.script("books", script(*(wrong if winner == "dependable" else (Pause.UNTIL_ENDED,))))
    run = started(house, SQL)
    wait_until(lambda: set(run.engines) == {"fast", "dependable"}, "both run")
    go.set()
    record = run.done.result(timeout=30)
    assert record == house.gateway.metastore.queries.get(record.id)
    assert (record.state, record.error.code if record.error else None) == (QueryState.FAILED, "STATEMENT_ERROR")
    assert {engine: failure for engine, failure in outcomes(record) if engine != winner}.popitem()[1] == "SUPERSEDED"
    require_idle(house)


def test_what_the_fast_engine_says_of_the_data_leaves_the_other_alone(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.RACE)
    house = scripted()
    wrong, go = threading.Event(), threading.Event()
    house.fast.script("books", script(FULL, wrong, DataError("a value")))
    house.dependable.script("books", script(ONE, go, TWO))
    run = started(house, SQL)
    wait_until(lambda: set(run.engines) == {"fast", "dependable"}, "both run")
    wrong.set()
    wait_until(lambda: len(run.record.attempts) == 1, "the first is on record")
    go.set()
    record = run.done.result(timeout=30)
    assert outcomes(record) == [("fast", "STATEMENT_ERROR"), ("dependable", None)]


def test_a_client_that_leaves_ends_both(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.RACE)
    house = scripted()
    house.fast.script("books", script(FULL, Pause.UNTIL_ENDED))
    house.dependable.script("books", script(Pause.UNTIL_ENDED))
    run = started(house, SQL)
    wait_until(lambda: set(run.engines) == {"fast", "dependable"}, "both run")
    assert house.gateway.coordinator.cancel(run.id)
    record = run.done.result(timeout=30)
    assert record == house.gateway.metastore.queries.get(record.id)
    assert record.state is QueryState.CANCELLED
    assert outcomes(record) == [("fast", "CANCELLED"), ("dependable", "CANCELLED")]
    require_idle(house)


def test_a_deadline_ends_both(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.RACE)
    house = scripted()
    house.fast.script("books", script(FULL, Pause.UNTIL_ENDED))
    house.dependable.script("books", script(Pause.UNTIL_ENDED))
    record = finished(house, deadline_s=1.5)
    assert (record.state, record.error.code if record.error else None) == (QueryState.FAILED, "DEADLINE_EXCEEDED")
    assert len(record.attempts) == 2
    require_idle(house)


def test_a_stop_of_the_gateway_ends_both(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.RACE)
    house = scripted()
    house.fast.script("books", script(FULL, Pause.UNTIL_ENDED))
    house.dependable.script("books", script(Pause.UNTIL_ENDED))
    run = started(house, SQL)
    wait_until(lambda: set(run.engines) == {"fast", "dependable"}, "both run")
    house.gateway.coordinator.stop(grace_s=10)
    assert run.done.result(timeout=1).state is QueryState.CANCELLED


def test_what_is_pinned_is_never_broken_off(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.SWITCH)
    house = scripted()
    house.fast.script("books", script(FULL, ONE, TWO))
    record = finished(house, engine="fast")
    assert outcomes(record) == [("fast", None)]


def test_it_can_be_switched_off(scripted: Build, doubting: Doubting) -> None:
    doubting(Continuation.SWITCH)
    house = scripted(routing=RoutingSettings(policy=Rule.SAFE, early_failover=False))
    house.fast.script("books", script(FULL, MemoryExceeded("full")))
    house.dependable.script("books", ANSWER)
    record = finished(house)
    assert outcomes(record) == [("fast", "MEMORY_EXCEEDED"), ("dependable", None)]


def test_what_is_expected_to_take_least_decides(scripted: Build) -> None:
    """The dependable engine takes 20 s: what may still fit goes on, however little room is left."""
    house = scripted()
    house.fast.script("books", script(FULL, ONE, TWO))
    assert outcomes(finished(house)) == [("fast", None)]
