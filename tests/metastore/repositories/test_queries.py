from __future__ import annotations

from dataclasses import replace

from engines.protocol import Actuals, OperatorActual
from metastore.query_log.search import QueryFilter
from metastore.records import Attempt, Misestimate, QueryState
from metastore.store import Metastore
from selector.decision import Decision, Reason, ReasonCode
from selector.estimate import LARGEST_BYTES, MemoryEstimate, OperatorEstimate, Uncertainty
from selector.forecast.history import Expectation, PastRun, WorkloadKey
from sql.errors import Failure, Position
from tests.metastore.examples import MINUTE, NOON, query
from tests.metastore.writing import at_once

DECISION = Decision(
    engine="duckdb",
    ranking=("duckdb", "spark"),
    reasons=(Reason(ReasonCode.FITS, "Fits."),),
    estimate=MemoryEstimate(10, 20, (OperatorEstimate("HASH_JOIN", 1, 5.5, None, 8, "histogram"),), ("gap",)),
    limit_bytes=1 << 33,
)
EXPECTED = Expectation(60, Uncertainty("joins", 0.25, 0.5), 1 << 33, 0.125)
FIRST = Attempt(1, "duckdb", QueryState.RUNNING, NOON)
SECOND = Attempt(2, "spark", QueryState.RUNNING, NOON + MINUTE)
LOST = Failure("GATEWAY_RESTARTED", "the gateway was restarted")


def test_a_life_with_a_failover(store: Metastore) -> None:
    at_once(store.queries).open(query())
    assert store.queries.get("q1") == query()
    assert store.queries.get("q2") is None
    at_once(store.queries).decided(
        "q1", fingerprint="f", template="t", statistics_version="books@3", decision=DECISION, first=FIRST
    )
    running = store.queries.get("q1")
    assert running is not None
    assert (running.state, running.engine, running.attempts) == (QueryState.RUNNING, "duckdb", (FIRST,))

    failed = replace(FIRST, state=QueryState.FAILED, wall_s=1.5, peak_bytes=1 << 34)
    failed = replace(failed, failure="MEMORY_EXCEEDED", message="no memory")
    at_once(store.queries).attempt_ended("q1", failed)
    at_once(store.queries).attempt_started("q1", SECOND)
    actuals = Actuals(None, (OperatorActual("SCAN", 100, 0),))
    finished = replace(SECOND, state=QueryState.FINISHED, wall_s=30.0, rows=10, actuals=actuals)
    at_once(store.queries).close(
        "q1", QueryState.FINISHED, at=NOON + 2 * MINUTE, attempt=finished, rows=10, result_bytes=1 << 40
    )

    assert store.queries.get("q1") == replace(
        query(),
        state=QueryState.FINISHED,
        engine="spark",
        fingerprint="f",
        template="t",
        statistics_version="books@3",
        decision=DECISION,
        attempts=(failed, finished),
        rows=10,
        result_bytes=1 << 40,
        finished_at=NOON + 2 * MINUTE,
    )
    assert store.queries.with_results(["q1", "q2", "none"]) == (frozenset({"q1"}), frozenset())


def misestimate(fingerprint: str) -> Misestimate:
    return Misestimate(fingerprint, "duckdb", "books@3", 64, "q", "SELECT 1", 60, 80, NOON)


def test_runs_that_teach_are_read_oldest_first(store: Metastore) -> None:
    ends = {
        "measured": replace(FIRST, state=QueryState.FINISHED, peak_bytes=70, wall_s=3.0, waited_s=1.0),
        "ran out": replace(FIRST, state=QueryState.FAILED, failure="MEMORY_EXCEEDED", peak_bytes=80, wall_s=2.0),
        "cancelled": replace(FIRST, state=QueryState.CANCELLED, failure="STATEMENT_CANCELLED", peak_bytes=80),
        "lost": replace(FIRST, state=QueryState.FAILED, failure="ENGINE_UNAVAILABLE", peak_bytes=80),
        "runs still": FIRST,
        "not measured": replace(FIRST, state=QueryState.FINISHED, wall_s=0.5, waited_s=0.75),
        "elsewhere": replace(FIRST, engine="spark", state=QueryState.FINISHED),
    }
    for minute, (name, end) in enumerate(ends.items()):
        at = NOON + minute * MINUTE
        at_once(store.queries).open(query(name, at))
        expected = EXPECTED if end.engine == "duckdb" else Expectation(seconds=20.0)
        first = replace(FIRST, engine=end.engine, started_at=at, expected=expected)
        at_once(store.queries).decided(
            name, fingerprint=name, template="t", statistics_version="books@3", decision=DECISION, first=first
        )
        if end is not FIRST:
            at_once(store.queries).attempt_ended(name, end)

    def taught(name: str, *, ran_out: bool = False, measured: int | None = None, seconds: float | None) -> PastRun:
        return PastRun("duckdb", WorkloadKey(name, "t"), EXPECTED, ran_out, measured, seconds)

    runs = (
        taught("measured", measured=70, seconds=2.0),  # without the wait for a slot
        taught("ran out", ran_out=True, seconds=2.0),
        taught("not measured", seconds=0.0),
        PastRun("spark", WorkloadKey("elsewhere", "t"), Expectation(seconds=20.0), False, None, None),
    )
    assert store.queries.runs(limit=9) == (runs[0], *runs[2:])  # a miss that nobody remembers is forgotten
    store.misestimates.remember(misestimate("ran out"))
    assert store.queries.runs(limit=9) == runs
    assert store.queries.runs(limit=2) == runs[1:]  # two of DuckDB's, and the one of Spark's


def test_each_attempt_teaches_of_its_own_engine(store: Metastore) -> None:
    at_once(store.queries).open(query())
    first = replace(FIRST, expected=EXPECTED)
    at_once(store.queries).decided(
        "q1", fingerprint="f", template="t", statistics_version="books@3", decision=DECISION, first=first
    )
    missed = replace(first, state=QueryState.FAILED, failure="MEMORY_EXCEEDED", wall_s=1.0)
    at_once(store.queries).attempt_ended("q1", missed)
    second = replace(SECOND, expected=Expectation(seconds=20.0))
    at_once(store.queries).attempt_started("q1", second)
    at_once(store.queries).close(
        "q1", QueryState.FINISHED, at=NOON + MINUTE, attempt=replace(second, state=QueryState.FINISHED, wall_s=30.0)
    )
    store.misestimates.remember(misestimate("f"))
    of_first, of_second = store.queries.runs(limit=9)
    assert (of_first.engine, of_first.ran_out, of_first.expected) == ("duckdb", True, EXPECTED)
    assert of_first.teaches_memory
    assert (of_second.engine, of_second.ran_out) == ("spark", False)
    assert (of_second.expected.seconds, of_second.seconds) == (20.0, 30.0)
    assert not of_second.teaches_memory
    found = store.queries.get("q1")
    assert found is not None
    assert [attempt.expected for attempt in found.attempts] == [EXPECTED, Expectation(seconds=20.0)]


def test_estimates_beyond_all_bounds_are_kept(store: Metastore) -> None:
    endless = replace(DECISION, estimate=MemoryEstimate(10**30, 10**31))
    first = replace(FIRST, expected=Expectation(10**30))
    at_once(store.queries).open(query())
    at_once(store.queries).decided(
        "q1", fingerprint="f", template="t", statistics_version="books@3", decision=endless, first=first
    )
    found = store.queries.get("q1")
    assert found is not None
    assert found.decision == endless
    assert found.attempts[0].expected == Expectation(LARGEST_BYTES)


def test_an_error_keeps_its_position(store: Metastore) -> None:
    error = Failure("SYNTAX_ERROR", "here", Position(2, 7))
    at_once(store.queries).open(query())
    at_once(store.queries).close("q1", QueryState.FAILED, at=NOON, error=error)
    found = store.queries.get("q1")
    assert found is not None
    assert found.error == error
    assert store.queries.with_results(["q1", "q2"]) == (frozenset(), frozenset())


def test_recent_queries_come_newest_first(store: Metastore) -> None:
    for minute in range(4):
        at_once(store.queries).open(query(f"q{minute}", NOON + minute * MINUTE))
    assert [found.id for found in store.queries.search(limit=2)] == ["q3", "q2"]
    assert [found.id for found in store.queries.search(QueryFilter(before=NOON + 2 * MINUTE), limit=9)] == ["q1", "q0"]


def test_what_a_dead_gateway_left_open_is_closed(store: Metastore) -> None:
    for name in ("queued", "running", "done"):
        at_once(store.queries).open(query(name))
    at_once(store.queries).attempt_started("running", FIRST)
    at_once(store.queries).close("done", QueryState.FINISHED, at=NOON)

    assert set(store.queries.close_orphans(at=NOON + MINUTE, error=LOST)) == {"queued", "running"}

    running = store.queries.get("running")
    assert running is not None
    assert (running.state, running.error, running.finished_at) == (QueryState.FAILED, LOST, NOON + MINUTE)
    assert running.attempts == (replace(FIRST, state=QueryState.FAILED, failure=LOST.code, message=LOST.message),)
    done = store.queries.get("done")
    assert done is not None
    assert done.state is QueryState.FINISHED
    assert store.queries.close_orphans(at=NOON, error=LOST) == ()


def test_only_what_dead_gateways_left_open_is_closed(store: Metastore, url: str) -> None:
    store.membership.join("dead")
    at_once(store.queries).open(query("of a dead one"))
    store.membership.join("dead")  # again, under another id
    at_once(store.queries).open(query("of its next start"))
    assert store.queries.close_orphans(at=NOON, error=LOST) == ("of a dead one",)
    with Metastore(url) as judge:
        judge.membership.remove("dead")
        assert judge.queries.close_orphans(at=NOON, error=LOST) == ("of its next start",)


def test_reads_that_may_run_again_are_taken_and_never_closed(store: Metastore, url: str) -> None:
    with Metastore(url) as dead:
        dead.membership.join("dead")
        for number in range(5):
            at_once(dead.queries).open(query(f"read {number}"), lambda: {"pool": ""})
        at_once(dead.queries).open(query("seen"), lambda: {"pool": ""})
        at_once(dead.queries).keep_from_others("seen")
        at_once(dead.queries).open(query("command"), lambda: {"pool": ""})
        at_once(dead.queries).attempt_started("command", FIRST)
    store.membership.join("survivor")
    assert {orphan.record.id for orphan in store.queries.take_over(most=2, error=LOST)} == {"read 0", "read 1"}
    assert set(store.queries.close_orphans(at=NOON, error=LOST)) == {"seen", "command"}
    assert store.queries.take_over(most=9, error=LOST, without=["read 2", "read 3", "read 4"]) == ()
    assert len(store.queries.take_over(most=9, error=LOST)) == 3
    assert store.queries.close_orphans(at=NOON, error=LOST) == ()


def test_a_gateway_that_takes_its_own_query_back_writes_of_it_again(store: Metastore, url: str) -> None:
    store.membership.join("one")
    at_once(store.queries).open(query("q"), lambda: {"pool": ""})
    with Metastore(url) as other:
        other.membership.remove("one")
    store.queries.writer.disown(["q"])
    store.membership.join("one")
    (orphan,) = store.queries.take_over(most=9, error=LOST)
    assert orphan.record.id == "q"
    assert at_once(store.queries).close("q", QueryState.FINISHED, at=NOON)
