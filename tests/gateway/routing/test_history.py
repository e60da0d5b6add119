"""What a replay reads out of records: engines as they were, estimates before learning, and what stays as it was."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from engines.protocol import EngineKind
from engines.scripted import ScriptedEngine
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.routing.history import NEVER_THERE, recorded
from metastore.records import Attempt, QueryRecord, QueryState
from selector.decide import decide
from selector.decision import Candidate, Decision, Reason, ReasonCode, RoutingPolicy, Rule
from selector.estimate import UNKNOWN, MemoryEstimate, OperatorEstimate, Uncertainty
from selector.forecast.experience import Experience
from selector.forecast.history import Expectation, PastRun, WorkloadKey
from selector.forecast.seconds import Speed, Work
from selector.wording import MIB

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
LIMIT = 100 * MIB
PEAK = 40 * MIB
SPEEDS = {"duckdb": Speed(), "spark": Speed(start_s=1.0)}
SUBJECT = WorkloadKey("fingerprint", "template")
ESTIMATE = MemoryEstimate(
    PEAK,
    2 * PEAK,
    (OperatorEstimate("hash join", 0, 1e6, 1e6, PEAK, "bins"), OperatorEstimate("scan", 1, 3e6, 3e6, 0, "rows")),
    driver=0,
    uncertainty=Uncertainty("guesses", -0.5, 0.8),
)
OTHER_LIMIT = 7 * LIMIT  # that is configured now


@pytest.fixture
def engines() -> EngineRegistry:
    fast = ScriptedEngine("duckdb")
    dependable = ScriptedEngine("spark", kind=EngineKind.DEPENDABLE)
    entries = [
        EngineEntry(fast, limit_bytes=OTHER_LIMIT),
        EngineEntry(dependable),
    ]
    return EngineRegistry(entries)


def decided(*, pinned: str | None = None, runs: int = 0, **fast: object) -> Decision:
    """Decide as the router does, after some runs of another statement that took twice what was expected."""
    experience = Experience(SPEEDS)
    expected = Expectation(PEAK, ESTIMATE.uncertainty, LIMIT, seconds=0.1)
    for number in range(runs):
        other = WorkloadKey(f"other {number}", f"template {number}")
        experience.learn(PastRun("duckdb", other, expected, ran_out=False, measured_bytes=2 * PEAK, seconds=0.1))
    work = Work.of(ESTIMATE)
    candidates = [
        Candidate(
            "duckdb",
            dependable=False,
            limit_bytes=LIMIT,
            forecast=experience.forecast("duckdb", SUBJECT, work, ESTIMATE),
            **fast,  # type: ignore[arg-type]
        ),
        Candidate("spark", dependable=True, forecast=experience.forecast("spark", SUBJECT, work, UNKNOWN), held_s=0.25),
    ]
    return decide(candidates, policy=RoutingPolicy(), pinned=pinned, template=SUBJECT.template)


def record(decision: Decision, *attempts: Attempt, state: QueryState = QueryState.FINISHED) -> QueryRecord:
    return QueryRecord(
        "q1",
        "SELECT 1",
        "spark",
        "ann",
        "auto",
        state,
        NOON,
        fingerprint=SUBJECT.fingerprint,
        template=SUBJECT.template,
        statistics_version="books@3",
        decision=decision,
        attempts=attempts or (finished(decision.engine),),
        finished_at=NOON + dt.timedelta(seconds=9),
    )


def finished(engine: str, ordinal: int = 1) -> Attempt:
    started = NOON + dt.timedelta(seconds=3 * ordinal)
    return Attempt(ordinal, engine, QueryState.FINISHED, started, wall_s=2.0, waited_s=0.5, peak_bytes=PEAK)


def ran_out(engine: str) -> Attempt:
    return replace(finished(engine), state=QueryState.FAILED, failure="MEMORY_EXCEEDED", peak_bytes=LIMIT)


@pytest.mark.parametrize("runs", [0, 30])
def test_estimates_are_those_of_the_memory_model_alone(engines: EngineRegistry, runs: int) -> None:
    decision = decided(runs=runs)
    assert decision.estimate.peak_bytes != PEAK  # it is corrected, by what is known of such plans at least
    found = recorded(record(decision), engines)
    assert found.estimates["duckdb"].peak_bytes == PEAK
    assert found.estimates["duckdb"].uncertainty == ESTIMATE.uncertainty
    assert found.estimates["duckdb"].learned is None
    assert found.work == Work.of(ESTIMATE)
    assert found.subject == SUBJECT
    assert (found.engine, found.rule, found.pinned, found.is_fixed) == ("duckdb", Rule.EXPECTED, None, False)


def test_the_work_is_that_of_the_first_engine_that_tells_of_it() -> None:
    plans = {"first": UNKNOWN, "second": ESTIMATE, "third": replace(ESTIMATE, operators=ESTIMATE.operators[:1])}
    experience = Experience({name: Speed() for name in plans})
    entries = [EngineEntry(ScriptedEngine(name), limit_bytes=LIMIT) for name in plans]
    candidates = [
        Candidate(
            name,
            dependable=False,
            limit_bytes=LIMIT,
            forecast=experience.forecast(name, SUBJECT, Work.of(ESTIMATE), estimate),
        )
        for name, estimate in plans.items()
    ]
    decision = decide(candidates, policy=RoutingPolicy(), template=SUBJECT.template)
    assert recorded(record(decision), EngineRegistry(entries)).work == Work.of(ESTIMATE)


def test_engines_are_as_they_were(engines: EngineRegistry) -> None:
    found = recorded(record(decided(wait_s=0.125)), engines)
    fast, dependable = found.candidates
    assert (fast.limit_bytes, fast.wait_s, fast.down) == (LIMIT, 0.125, None)
    assert (dependable.limit_bytes, dependable.held_s, dependable.dependable) == (None, 0.25, True)


@pytest.mark.parametrize(
    ("obstacle", "text"),
    [
        ("down", "connection refused"),
        ("unsupported", "it cannot read the form of books"),
        ("no_equivalent", "rand() differs: its seed is another one"),
    ],
)
def test_what_stood_in_the_way_still_does(engines: EngineRegistry, obstacle: str, text: str) -> None:
    decision = decided(**{obstacle: text})  # type: ignore[arg-type]
    fast, dependable = recorded(record(decision), engines).candidates
    assert getattr(fast, obstacle) == text
    assert (dependable.down, dependable.unsupported, dependable.no_equivalent) == (None, None, None)
    others = {"down", "unsupported", "no_equivalent"} - {obstacle}
    assert all(getattr(fast, other) is None for other in others)


def test_an_engine_that_was_not_there_cannot_be_chosen(engines: EngineRegistry) -> None:
    decision = decided()
    alone = replace(decision, prices=tuple(price for price in decision.prices if price.engine == "duckdb"))
    fast, dependable = recorded(record(replace(alone, ranking=("duckdb",))), engines).candidates
    assert (fast.down, dependable.down) == (None, NEVER_THERE)


def test_decisions_of_before_had_no_prices(engines: EngineRegistry) -> None:
    old = replace(decided(), prices=(), estimate=ESTIMATE)
    found = recorded(record(old), engines)
    assert [each.down for each in found.candidates] == [None, None]
    assert found.estimates["duckdb"].peak_bytes == PEAK


def test_attempts_say_what_they_took_and_when_it_was_known(engines: EngineRegistry) -> None:
    found = recorded(record(decided(), ran_out("duckdb"), finished("spark", 2)), engines)
    first, second = found.attempts
    assert (first.ran_out, first.finished, first.run_s, first.waited_s) == (True, False, 1.5, 0.5)
    ended_s, next_s = first.started_s + 2.0, second.started_s
    assert first.ended_s == (ended_s + next_s) / 2
    assert (second.ran_out, second.finished) == (False, True)
    assert second.ended_s == found.ended_s == (NOON + dt.timedelta(seconds=9)).timestamp()
    assert found.client_s == 9.0


def test_a_pinned_statement_stays_where_it_asked_to_be(engines: EngineRegistry) -> None:
    found = recorded(record(decided(pinned="spark")), engines)
    assert (found.pinned, found.is_fixed) == ("spark", False)
    gone = recorded(record(replace(decided(pinned="spark"), engine="impala", ranking=("impala",))), engines)
    assert gone.is_fixed


@pytest.mark.parametrize(
    ("state", "attempts", "is_fixed"),
    [
        (QueryState.FINISHED, (finished("duckdb"),), False),
        (QueryState.FAILED, (ran_out("duckdb"),), False),  # with more memory, it would not have failed
        (QueryState.FAILED, (replace(finished("duckdb"), state=QueryState.FAILED, failure="STATEMENT_ERROR"),), True),
        (QueryState.CANCELLED, (replace(finished("duckdb"), state=QueryState.CANCELLED),), True),
    ],
)
def test_what_failed_by_itself_stays_as_it_was(
    engines: EngineRegistry, state: QueryState, attempts: tuple[Attempt, ...], is_fixed: bool
) -> None:
    assert recorded(record(decided(), *attempts, state=state), engines).is_fixed == is_fixed


def test_writes_and_what_was_never_tried_stay_as_they_were(engines: EngineRegistry) -> None:
    write = Decision("spark", ("spark",), (Reason(ReasonCode.WRITE, "It writes."),), UNKNOWN, None)
    assert recorded(record(write), engines).is_fixed
    untried = recorded(replace(record(decided()), attempts=()), engines)
    assert untried.is_fixed
    assert untried.decided_s == NOON.timestamp()


def test_todays_estimate_takes_the_place_of_the_recorded_one(engines: EngineRegistry) -> None:
    grown = replace(decided(), estimate=replace(ESTIMATE, peak_bytes=5 * PEAK, upper_bytes=9 * PEAK), prices=())
    found = recorded(record(decided()), engines, (grown, "books@4"))
    assert (found.estimates["duckdb"].peak_bytes, found.statistics_version) == (5 * PEAK, "books@4")
    assert found.candidates[0].limit_bytes == LIMIT
