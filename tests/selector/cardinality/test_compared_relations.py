"""Comparisons of two relations' rows in joins: beside equal keys, and without any."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.cardinality.base import Base
from selector.cardinality.derived import Opaque
from selector.cardinality.residual.filters import Joined, residual_selectivity
from selector.cardinality.residual.pairs import MOST_PAIRS
from selector.plan import PlanColumn
from tests.selector.cardinality.counted import Counted

CALLS, RATES, MINUTES, DAY_1 = 12_000, 9_000, 1_440, 18_000
PRIOR = 0.01  # relative, of a prior that depends on how a condition is written
HELD = 0.02  # of the calls' rows have a value for `late`
STOPS = 3_000  # calls of each: 4
NAMES = {
    "calls": ("id", "stop", "line", "minute", "until", "late", "word", "day"),
    "rates": ("id", "stop", "line", "minute", "until", "price", "word", "day"),
}
KINDS = {"stop": "string", "word": "string", "day": "date", "price": "double"}


def _tables() -> dict[str, pa.Table]:
    chance = np.random.default_rng(5)

    def rows(count: int, stops: int, seed: int) -> dict[str, object]:
        minute = (chance.beta(2, 5, count) * MINUTES).astype(np.int64)
        stop = chance.integers(0, stops, count)
        return {
            "id": np.arange(count, dtype=np.int64),
            "stop": pa.array([f"stop {number}" for number in stop]),
            "line": (stop * 7 + seed) % 5 + chance.integers(0, 2, count),
            "minute": minute,
            "until": minute + chance.integers(0, 60, count),
            "word": pa.array([f"w{number:04}" for number in chance.zipf(1.6, count) % 2_000]),
            "day": pa.array((DAY_1 + chance.integers(0, 400, count)).astype(np.int32), pa.date32()),
        }

    calls, rates = rows(CALLS, STOPS, 0), rows(RATES, STOPS, 1)
    late = chance.integers(0, 90, CALLS)
    calls["late"] = pa.array(late, mask=chance.random(CALLS) > HELD)
    rates["price"] = chance.random(RATES) * 100.0
    return {"calls": pa.table(calls), "rates": pa.table(rates)}


GROUPS = [
    [("calls", "stop"), ("rates", "stop")],
    [("calls", "line,stop"), ("rates", "line,stop")],
    [("calls", "id"), ("rates", "id")],
]
BOTH = "FROM calls a, rates b WHERE"
SELF = "FROM calls a, calls b WHERE"
KEYS = "a.stop = b.stop AND a.line = b.line AND"


@pytest.fixture(scope="module")
def sampled() -> Counted:
    return Counted(_tables(), GROUPS, sampled=0.2, by_key=0.3)


@pytest.fixture(scope="module")
def without_keys() -> Counted:
    return Counted(_tables(), GROUPS, sampled=0.2)


@pytest.fixture(scope="module")
def whole() -> Counted:
    return Counted(_tables(), GROUPS)


STATEMENTS = {
    # both ends of a range come from one row
    f"{BOTH} a.minute BETWEEN b.minute AND b.minute + 3": 1.3,
    f"{BOTH} a.minute >= b.minute AND a.minute <= b.until AND a.id < 3000": 1.2,
    f"{SELF} a.minute BETWEEN b.minute AND b.minute + 1 AND b.line = 3": 1.4,
    f"{BOTH} a.day BETWEEN b.day AND b.day + 2": 1.3,
    f"{BOTH} a.late > b.minute AND a.late < b.until": 1.3,
    # several comparisons that go together
    f"{BOTH} a.minute > b.minute AND a.until < b.until": 1.2,
    f"{BOTH} a.minute < b.minute AND a.until > b.minute": 1.1,
    f"{BOTH} a.word < b.word AND a.minute > b.minute + 600": 1.6,
    # rows of the same key, of which a range of the line holds many
    f"{BOTH} {KEYS} a.minute < b.minute": 1.2,
    f"{BOTH} {KEYS} a.minute BETWEEN b.minute AND b.until": 1.4,
    f"{SELF} {KEYS} a.minute < b.minute": 1.2,
    f"{SELF} {KEYS} a.minute <> b.minute": 1.2,
    f"{SELF} a.stop = b.stop AND a.word <> b.word": 1.2,
    f"{SELF} a.stop = b.stop AND a.minute < b.minute AND a.word = b.word": 1.6,
    # names that both tables have, in either order
    f"{BOTH} a.until < b.minute": 1.1,
    f"{BOTH} a.minute > b.until": 1.1,
    f"{BOTH} a.minute + 30 < b.until % 500": 1.1,
}


@pytest.mark.parametrize(("sql", "times"), STATEMENTS.items())
def test_rows_that_are_compared_are_near_the_truth(sampled: Counted, sql: str, times: float) -> None:
    true, found = sampled.count(f"SELECT 1 {sql}"), sampled.rows(f"SELECT a.id, b.id {sql}")
    assert true / times < found < true * times, f"{found:,.0f} of {true:,}"


@pytest.mark.parametrize("sql", STATEMENTS)
def test_of_whole_tables_pairs_are_counted(whole: Counted, sql: str) -> None:
    """If there are more than MOST_PAIRS, some are drawn: hits have the standard deviation of a Poisson distribution."""
    true = whole.count(f"SELECT 1 {sql}")
    keys = " AND ".join(part for part in ("a.stop = b.stop", "a.line = b.line") if part in sql)
    pairs = whole.count(f"SELECT 1 {sql.split(' WHERE')[0]}{' WHERE ' if keys else ''}{keys}")
    hits = true / pairs * MOST_PAIRS
    relative = 4.0 / hits**0.5 if pairs > MOST_PAIRS else 1e-6
    assert whole.rows(f"SELECT a.id, b.id {sql}") == pytest.approx(true, rel=relative)


@pytest.mark.parametrize("condition", ["a.minute < b.minute", "a.word <> b.word"])
def test_a_sampled_row_meets_itself_no_more_often_than_others(without_keys: Counted, condition: str) -> None:
    """Of four rows with a key one in four pairs is a row with itself, however few of them were sampled."""
    sql = f"SELECT a.id, b.id {SELF} a.stop = b.stop AND {condition}"
    true = without_keys.count(sql)
    assert true / 1.3 < without_keys.rows(sql) < true * 1.3


def test_a_row_is_not_below_itself(sampled: Counted) -> None:
    assert sampled.rows(f"SELECT a.id, b.id {SELF} a.id = b.id AND a.minute < b.minute") < CALLS / 100


def test_a_filter_that_keeps_no_sampled_row_leaves_what_other_rows_tell(sampled: Counted) -> None:
    sample = sampled.statistics["calls"].sample
    assert sample is not None
    missing = next(number for number in range(CALLS) if number not in set(sample.columns["id"].rows))
    always = sampled.rows(f"SELECT a.id, b.price {BOTH} a.id = {missing} AND a.minute > b.price - 200")
    assert always == pytest.approx(RATES, rel=0.05)


def test_what_no_sampled_pair_shows_is_possible(sampled: Counted) -> None:
    shares = [_kept(sampled, [f"minute > minute + {more}"], ("calls", "rates"), (1, 2), []) for more in (700, 5_000)]
    assert 0.0 < shares[1] < shares[0]


# ---------------------------------------------------------------------- laws

COMPARED = ("minute", "until", "word", "day", "minute + 7")
SIGNS = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


def _column(name: str, table: str, scan: int) -> PlanColumn:
    return PlanColumn(name, KINDS.get(name, "bigint"), table, scan)


def _kept(known: Counted, texts: list[str], tables: tuple[str, str], scans: tuple[int, int], keys: list[str]) -> float:
    """Return what a join keeps, whose conditions name columns without tables: the left one's first."""
    filters = {1: ["id % 3 = 0"], 2: ["id > 500"]}
    sides = [
        Base(known.statistics[table], filters[scan], scan, dialect="duckdb")
        for table, scan in zip(tables, scans, strict=True)
    ]
    columns = [[_column(name, table, scan) for name in NAMES[table]] for table, scan in zip(tables, scans, strict=True)]
    equal = [(_column(key, tables[0], scans[0]), _column(key, tables[1], scans[1])) for key in keys]
    joined = Joined((columns[0], columns[1]), equal)
    both = Opaque(sides[0].rows, members=sides)
    return residual_selectivity(texts, [*columns[0], *columns[1]], both, dialect="duckdb", joined=joined).share


@st.composite
def _comparisons(draw: st.DrawFn) -> list[tuple[str, str, str]]:
    kinds = {"word": "text", "day": "date"}
    found = []
    for _ in range(draw(st.integers(1, 3))):
        left = draw(st.sampled_from(COMPARED))
        right = draw(st.sampled_from([one for one in COMPARED if kinds.get(one) == kinds.get(left)]))
        found.append((left, draw(st.sampled_from(sorted(SIGNS))), right))
    return found


@given(
    comparisons=_comparisons(),
    keys=st.sampled_from(([], ["stop"], ["line", "stop"])),
    tables=st.sampled_from((("calls", "rates"), ("calls", "calls"))),
    data=st.data(),
)
def test_order_and_sides_of_comparisons_say_nothing(
    sampled: Counted,
    comparisons: list[tuple[str, str, str]],
    keys: list[str],
    tables: tuple[str, str],
    data: st.DataObject,
) -> None:
    texts = [" ".join(one) for one in comparisons]
    found = _kept(sampled, texts, tables, (1, 2), keys)
    assert _kept(sampled, data.draw(st.permutations(texts)), tables, (1, 2), keys) == pytest.approx(found, rel=1e-9)
    assert _kept(sampled, [" AND ".join(texts)], tables, (1, 2), keys) == pytest.approx(found, rel=1e-9)
    mirrored = [f"{right} {SIGNS[sign]} {left}" for left, sign, right in comparisons]
    assert _kept(sampled, mirrored, (tables[1], tables[0]), (2, 1), keys) == pytest.approx(found, rel=1e-6)


@given(
    value=st.sampled_from(("minute", "until")),
    low=st.sampled_from(("minute", "until - 60")),
    span=st.integers(0, 700),
    keys=st.sampled_from(([], ["stop"], ["line", "stop"])),
)
def test_between_is_two_comparisons(sampled: Counted, value: str, low: str, span: int, keys: list[str]) -> None:
    tables, scans = ("calls", "rates"), (1, 2)
    between = _kept(sampled, [f"{value} BETWEEN {low} AND {low} + {span}"], tables, scans, keys)
    two = _kept(sampled, [f"{value} <= {low} + {span}", f"{value} >= {low}"], tables, scans, keys)
    wider = _kept(sampled, [f"{value} <= {low} + {span + 10}", f"{value} >= {low}"], tables, scans, keys)
    outside = _kept(sampled, [f"NOT ({value} BETWEEN {low} AND {low} + {span})"], tables, scans, keys)
    assert between == pytest.approx(two, rel=PRIOR)
    assert between <= wider * (1 + PRIOR)
    assert between + outside == pytest.approx(1.0, rel=PRIOR)
