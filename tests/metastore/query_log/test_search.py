from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from metastore.query_log.search import QueryFilter, QueryOrder, QueryPlace
from metastore.records import Alone, Attempt, QueryState, QuerySummary
from metastore.store import Metastore
from selector.decision import Decision, Reason, ReasonCode
from selector.estimate import UNKNOWN
from tests.metastore.examples import MINUTE, NOON, query
from tests.metastore.writing import at_once

COUNT = 12
MIB = 1 << 20


@pytest.fixture
def filled(store: Metastore) -> Iterator[Metastore]:
    """Record queries q00 to q11, a minute apart: every third failed over, every second is of bob; one still runs."""
    for number in range(COUNT):
        record_one(store, number)
    at_once(store.queries).open(replace(query(), id="running", submitted_at=NOON + COUNT * MINUTE))
    yield store


def record_one(store: Metastore, number: int) -> None:
    at = NOON + number * MINUTE
    user = ("ann", "bob")[number % 2]
    text = f"SELECT 'Name_{number:02}' FROM Sales"
    record = replace(query(), id=f"q{number:02}", sql=text, user=user, authenticated=True, submitted_at=at)
    at_once(store.queries).open(record)
    over = number % 3 == 0
    code = ReasonCode.EXCEEDS_LIMIT if number % 4 == 0 else ReasonCode.FITS
    decision = Decision("duckdb", ("duckdb", "spark"), (Reason(code, "So."),), UNKNOWN, None)
    first = Attempt(1, "duckdb", QueryState.RUNNING, at)
    version = "lake.Sales@1,other@2" if number < 6 else "sales@1"
    at_once(store.queries).decided(
        record.id,
        fingerprint="f",
        template=f"t{number % 2}",
        statistics_version=version,
        decision=decision,
        first=first,
    )
    summary = QuerySummary(
        pool="etl" if number == 5 else "default",
        reason=code.value,
        seconds=float(100 - number),
        attempts=1 + over,
        ran_out=over,
        expected_bytes=MIB,
        peak_bytes=None if number == 7 else number * MIB,
        within_bound=number < 9,
        alone=Alone("spark", 4.0, over),
    )
    ended = replace(first, state=QueryState.FAILED if over else QueryState.FINISHED, wall_s=1.0)
    if over:
        at_once(store.queries).attempt_ended(record.id, replace(ended, failure="MEMORY_EXCEEDED"))
        ended = Attempt(2, "spark", QueryState.FINISHED, at, 2.0)
        at_once(store.queries).attempt_started(record.id, replace(ended, state=QueryState.RUNNING, wall_s=None))
    at_once(store.queries).close(
        record.id, QueryState.FINISHED, at=at + MINUTE, attempt=ended, rows=number, summary=summary
    )


def ids(store: Metastore, wanted: QueryFilter, **options: object) -> list[str]:
    return [record.id for record in store.queries.search(wanted, limit=100, **options)]  # type: ignore[arg-type]


def numbered(*numbers: int) -> list[str]:
    return [f"q{number:02}" for number in sorted(numbers, reverse=True)]


ODD, THIRDS = (1, 3, 5, 7, 9, 11), (0, 3, 6, 9)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (QueryFilter(text="name_03"), numbered(3)),
        (QueryFilter(text="NAME_0"), numbered(*range(10))),
        (QueryFilter(text="name%03"), []),
        (QueryFilter(text="namex03"), []),
        (QueryFilter(text="\\"), []),
        (QueryFilter(text="name", text_of="bob"), numbered(*ODD)),
        (QueryFilter(text="name", text_of=""), []),
        (QueryFilter(id="q0"), numbered(*range(10))),
        (QueryFilter(id="q_0"), []),
        (QueryFilter(user="bob"), numbered(*ODD)),
        (QueryFilter(pool="etl"), numbered(5)),
        (QueryFilter(state="RUNNING"), ["running"]),
        (QueryFilter(state="QUEUED"), ["running"]),
        (QueryFilter(state="FINISHED", user="bob"), numbered(*ODD)),
        (QueryFilter(state="NO_SUCH"), []),
        (QueryFilter(engine="spark"), numbered(*THIRDS)),
        (QueryFilter(reason="EXCEEDS_LIMIT"), numbered(0, 4, 8)),
        (QueryFilter(table="lake.sales"), numbered(*range(6))),
        (QueryFilter(table="sales"), numbered(*range(6, 12))),
        (QueryFilter(table="other"), numbered(*range(6))),
        (QueryFilter(template="t1"), numbered(*ODD)),
        (QueryFilter(since=NOON + 10 * MINUTE, before=NOON + 12 * MINUTE), numbered(10, 11)),
        (QueryFilter(least_s=98.0), numbered(0, 1, 2)),
        (QueryFilter(least_bytes=10 * MIB), numbered(10, 11)),
        (QueryFilter(failed_over=True), numbered(*THIRDS)),
        (QueryFilter(ran_out=True), numbered(*THIRDS)),
        (QueryFilter(above_bound=True), numbered(9, 10, 11)),
    ],
)
def test_a_filter_finds_its_queries_newest_first(filled: Metastore, wanted: QueryFilter, found: list[str]) -> None:
    assert ids(filled, wanted) == found


def test_a_failover_without_a_summary_is_found_by_its_attempts(filled: Metastore) -> None:
    at_once(filled.queries).attempt_started("running", Attempt(1, "duckdb", QueryState.RUNNING, NOON))
    at_once(filled.queries).attempt_started("running", Attempt(2, "spark", QueryState.RUNNING, NOON))
    assert ids(filled, QueryFilter(failed_over=True)) == ["running", *numbered(*THIRDS)]


def test_statements_of_nobody_are_searched_by_everybody(filled: Metastore) -> None:
    at_once(filled.queries).open(replace(query(), id="open", sql="SELECT 'name'", submitted_at=NOON))
    assert ids(filled, QueryFilter(text="name", text_of="eve")) == ["open"]


@pytest.mark.parametrize(
    ("order", "place"),
    [
        (QueryOrder.SUBMITTED, lambda n: NOON + n * MINUTE),
        (QueryOrder.SECONDS, lambda n: float(100 - n)),
        (QueryOrder.PEAK, lambda n: n * MIB),
        (QueryOrder.ROWS, lambda n: n),
    ],
)
@pytest.mark.parametrize("descending", [True, False])
def test_pages_go_on_behind_a_place(filled: Metastore, order: QueryOrder, place: object, descending: bool) -> None:
    whole = ids(filled, QueryFilter(), order=order, descending=descending)
    assert ("q07" in whole) == (order is not QueryOrder.PEAK)
    assert ("running" in whole) == (order is QueryOrder.SUBMITTED)
    values = [place(int(name[1:])) for name in whole if name != "running"]  # type: ignore[operator]
    assert values == sorted(values, reverse=descending)
    paged: list[str] = []
    after: QueryPlace | None = None
    while page := filled.queries.search(QueryFilter(), order=order, descending=descending, after=after, limit=5):
        paged += [record.id for record in page]
        last = page[-1]
        number = COUNT if last.id == "running" else int(last.id[1:])
        after = QueryPlace(place(number), last.id)  # type: ignore[operator]
    assert paged == whole


def test_equal_values_are_on_one_page_only(filled: Metastore) -> None:
    order, paged = QueryOrder.EXPECTED, list[str]()
    after: QueryPlace | None = None
    while page := filled.queries.search(QueryFilter(), order=order, after=after, limit=5):
        paged += [record.id for record in page]
        after = QueryPlace(MIB, page[-1].id)
    assert paged == numbered(*range(COUNT))


def test_a_summary_comes_back_as_it_was(filled: Metastore) -> None:
    (record,) = filled.queries.search(QueryFilter(id="q03"), limit=2)
    assert record.summary is not None
    assert record.summary.alone == Alone("spark", 4.0, True)
    assert (record.summary.pool, record.summary.reason, record.summary.attempts) == ("default", "FITS", 2)
    assert (record.summary.seconds, record.summary.peak_bytes, record.summary.within_bound) == (97.0, 3 * MIB, True)
    (running,) = filled.queries.search(QueryFilter(id="running"), limit=2)
    assert running.summary is None
