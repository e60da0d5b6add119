from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from metastore.query_log.workload import SavingsBy
from metastore.records import Alone, Attempt, QueryState, QuerySummary
from metastore.store import Metastore
from selector.decision import Decision
from selector.estimate import UNKNOWN
from tests.metastore.examples import MINUTE, NOON, query
from tests.metastore.writing import at_once

SINCE = NOON - dt.timedelta(days=1)
MIB = 1 << 20
DECISION = Decision("duckdb", ("duckdb", "spark"), (), UNKNOWN, None)


def ended(
    store: Metastore,
    name: str,
    attempts: list[tuple[str, float, float]],
    *,
    alone: Alone | None = None,
    user: str = "ann",
    template: str = "t",
    seconds: float = 1.0,
    state: QueryState = QueryState.FINISHED,
    expected: int | None = None,
    peak: int | None = None,
    within: bool | None = None,
) -> None:
    """Record a query. attempts: engine, wall-clock seconds, and those of them that it waited."""
    writing = at_once(store.queries)
    writing.open(replace(query(), id=name, user=user, submitted_at=NOON))
    made = [
        Attempt(place, engine, state if place == len(attempts) else QueryState.FAILED, NOON, wall_s, waited_s=waited_s)
        for place, (engine, wall_s, waited_s) in enumerate(attempts, 1)
    ]
    if made:
        writing.decided(
            name, fingerprint="f", template=template, statistics_version="", decision=DECISION, first=made[0]
        )
    for attempt in made:
        if attempt.ordinal > 1:
            writing.attempt_started(name, attempt)
        writing.attempt_ended(name, attempt)
    summary = QuerySummary(
        pool="default",
        reason="FITS",
        seconds=seconds,
        attempts=len(made),
        ran_out=len(made) > 1,
        expected_bytes=expected,
        peak_bytes=peak,
        within_bound=within,
        alone=alone,
    )
    writing.close(name, state, at=NOON + MINUTE, attempt=made[-1] if made else None, summary=summary)


def test_the_ledger_counts_failed_attempts_against_the_gateway(store: Metastore) -> None:
    ended(store, "20260301_1", [("duckdb", 1.5, 0.5)], alone=Alone("spark", 10.0, False))
    ended(
        store, "20260301_2", [("duckdb", 2.0, 0.0), ("spark", 21.0, 1.0)], alone=Alone("spark", 20.0, True), user="bob"
    )
    ended(store, "20260302_3", [], alone=Alone("spark", 4.0, False))  # from the cache
    ended(store, "20260302_4", [("gateway", 0.25, 0.0)])
    at_once(store.queries).open(replace(query(), id="20260302_5", submitted_at=NOON))  # still open

    (line,) = store.workload.savings(SINCE)
    assert line.spent_s == {"duckdb": 3.0, "spark": 20.0}
    assert (line.measured_s, line.forecast_s) == ({"spark": 20.0}, {"spark": 14.0})
    assert (line.queries, line.unknown, line.other_s) == (3, 1, 0.25)
    assert (line.failed_over, line.ran_out) == (1, 1)
    assert line.saved_s == pytest.approx(11.0)

    by_user = {line.key: line.saved_s for line in store.workload.savings(SINCE, by=SavingsBy.USER)}
    assert by_user == {"ann": pytest.approx(13.0), "bob": pytest.approx(-2.0)}
    days = store.workload.savings(SINCE, by=SavingsBy.DAY)
    assert [(line.key, line.queries) for line in days] == [("20260301", 2), ("20260302", 1)]
    assert {line.key for line in store.workload.savings(SINCE, by=SavingsBy.POOL)} == {"default"}
    assert {line.key for line in store.workload.savings(SINCE, by=SavingsBy.TEMPLATE)} == {"t", ""}


def test_the_ledger_has_bounds_in_time(store: Metastore) -> None:
    ended(store, "q", [("spark", 2.0, 0.0)], alone=Alone("spark", 2.0, True))
    assert store.workload.savings(NOON + MINUTE) == ()
    assert store.workload.savings(SINCE, NOON) == ()
    assert len(store.workload.savings(SINCE, NOON + MINUTE)) == 1


def test_shares_of_engines_have_quantiles_of_what_finished(store: Metastore) -> None:
    for number in range(1, 6):
        ended(store, f"d{number}", [("duckdb", 1.0, 0.0)], seconds=float(number))
    ended(store, "s1", [("duckdb", 1.0, 0.0), ("spark", 1.0, 0.0)], seconds=7.0)
    ended(store, "s2", [("spark", 1.0, 0.0)], seconds=900.0, state=QueryState.FAILED)
    ended(store, "none", [])

    duckdb, spark, none = store.workload.engines(SINCE)
    assert (duckdb.engine, duckdb.queries, duckdb.finished, duckdb.p50_s) == ("duckdb", 5, 5, 3.0)
    assert duckdb.p95_s == pytest.approx(4.8)
    assert (spark.engine, spark.queries, spark.finished, spark.failed_over, spark.ran_out) == ("spark", 2, 1, 1, 1)
    assert (spark.p50_s, none.engine, none.queries) == (7.0, None, 1)
    assert store.workload.engines(NOON + MINUTE) == ()


def test_templates_tell_the_worst_error_in_either_direction(store: Metastore) -> None:
    ended(store, "a", [("duckdb", 1.0, 0.0)], template="low", expected=80 * MIB, peak=10 * MIB, within=True)
    ended(store, "b", [("duckdb", 1.0, 0.0)], template="low", expected=10 * MIB, peak=20 * MIB, within=False)
    ended(store, "c", [("duckdb", 1.0, 0.0)], template="long", seconds=9.0, state=QueryState.FAILED)

    long, low = store.workload.templates(SINCE, limit=10)
    assert (long.template, long.queries, long.failed, long.ratio, long.q_error) == ("long", 1, 1, None, None)
    assert (low.queries, low.seconds, low.newest) == (2, 2.0, "b")
    assert low.ratio == pytest.approx((0.125 + 2.0) / 2)
    assert low.q_error == pytest.approx(8.0)
    assert len(store.workload.templates(SINCE, limit=1)) == 1
    assert store.workload.bounds(SINCE) == (1, 1)
    assert set(store.workload.peaks(SINCE, limit=9)) == {("a", 80 * MIB, 10 * MIB), ("b", 10 * MIB, 20 * MIB)}
