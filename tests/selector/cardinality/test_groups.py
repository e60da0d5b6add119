"""Groups of rows: how many there are, and how many a condition keeps, against groups that are really made."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from selector.cardinality.base import Base
from selector.cardinality.groups import HavingCondition, Sizes, estimated_groups, skew
from selector.cardinality.predicates.conditions import parsed
from selector.cardinality.union import Union
from selector.plan import PlanColumn
from selector.query_text import wording
from tests.selector.described import described

ROWS = 200_000
TYPES = {"part": "bigint", "supplier": "bigint", "day": "date", "kind": "bigint"}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Return rows in which each part has four suppliers of a thousand, as in TPC-H."""
    with duckdb.connect() as connection:
        return connection.sql(
            "SELECT part, (part * 7 + (hash(i) % 4)::BIGINT * 251) % 1000 AS supplier, "
            "DATE '2020-01-01' + (hash(i + 1) % 730)::INT AS day, i % 3 AS kind "
            f" FROM (SELECT i, (hash(i * 31) % 10000)::BIGINT AS part FROM range({ROWS}) t(i))"
        ).to_arrow_table()


@pytest.fixture(scope="module")
def base(rows: pa.Table) -> Base:
    return filtered(rows)


def filtered(rows: pa.Table, *predicates: str) -> Base:
    return Base(described(rows, TYPES, sample_share=0.05), predicates, 1, dialect="duckdb")


def column(name: str) -> PlanColumn:
    return PlanColumn(name, None, "data", 1)


def counted(rows: pa.Table, columns: str, where: str = "true") -> int:
    with duckdb.connect() as connection:
        connection.register("data", rows)
        found = connection.execute(
            f"SELECT count(*) FROM (SELECT DISTINCT {columns} FROM data WHERE {where})"
        ).fetchone()
        assert found is not None
        return int(found[0])


@pytest.mark.parametrize("columns", [("part", "supplier"), ("part", "kind"), ("supplier", "kind", "part")])
def test_combinations_of_columns_that_depend_on_each_other(
    rows: pa.Table, base: Base, columns: tuple[str, ...]
) -> None:
    assert base.distinct([column(name) for name in columns]) == pytest.approx(
        counted(rows, ", ".join(columns)), rel=0.25
    )


@pytest.mark.parametrize("text", ["year(day)", "month(day)", "part % 10", "CASE WHEN kind = 1 THEN 'a' ELSE 'b' END"])
def test_values_of_an_expression(rows: pa.Table, base: Base, text: str) -> None:
    assert base.distinct([column(text)]) == counted(rows, text)


def test_a_filter_leaves_the_groups_of_its_rows(rows: pa.Table) -> None:
    where = "part < 1000 AND kind = 2"
    found = filtered(rows, where).distinct([column("part"), column("supplier")])
    assert found == pytest.approx(counted(rows, "part, supplier", where), rel=0.25)


def test_a_single_column_has_as_many_groups_as_values_and_one_for_null(base: Base) -> None:
    assert base.distinct([column("part")]) == pytest.approx(10_000, rel=0.01)
    nullable = pa.table({"v": pa.array([1, 2, None, 2], pa.int64())})
    held = Base(described(nullable, {"v": "bigint"}), (), 1, dialect="duckdb")
    assert held.distinct([column("v")]) == 2 + 1


def test_an_expression_that_nobody_can_evaluate_has_no_more_values_than_its_column(base: Base) -> None:
    assert base.distinct([column("some_function(kind)")]) == 3
    assert base.distinct([column("some_function(other)")]) is None
    assert base.distinct([column("sum(kind)")]) is None


@given(st.integers(1, 2_000), st.floats(1.0, 1e6), st.integers(0, 2**31))
def test_a_sample_promises_no_fewer_groups_than_it_met_and_no_more_than_rows(size: int, per: float, seed: int) -> None:
    code = np.random.default_rng(seed).integers(0, max(1, size // 3), size)
    found = estimated_groups(code, None, size * per)
    assert np.unique(code).size <= found + 1e-6
    assert found <= max(size * per, size) * (1 + 1e-9)


def test_rows_that_never_meet_again_are_groups_of_their_own() -> None:
    assert estimated_groups(np.arange(1_000), None, 1e6) == pytest.approx(1e6)


def test_even_groups_are_told_from_how_often_a_sample_meets_them_twice() -> None:
    code = np.random.default_rng(7).integers(0, 100_000, 10_000)
    assert estimated_groups(code, None, 10_000_000) == pytest.approx(100_000, rel=0.1)


def test_a_column_that_is_known_sets_right_what_the_sample_tells_of_it() -> None:
    drawn = np.random.default_rng(7).zipf(1.3, 10_000) % 1_000_000
    code, rows, known = np.unique(drawn, return_inverse=True)[1], 1e7, 400_000.0
    told = estimated_groups(code, None, rows)
    assert rows * (told / rows) ** skew(code, rows, known) == pytest.approx(known)


# ---------------------------------------------------------------------- conditions on groups


def grouped(kept: str) -> float:
    """Return the share of the orders of 1 to 7 lines that a condition keeps."""
    with duckdb.connect() as connection:
        ((found,),) = connection.execute(
            f"SELECT avg(CASE WHEN {kept} THEN 1.0 ELSE 0.0 END) FROM (SELECT o, count(*) AS lines "
            "FROM range(20000) t(o), range(7) u(i) WHERE i <= hash(o) % 7 GROUP BY o)"
        ).fetchall()
    return float(found)


ORDERS = Sizes(np.array([20_000.0]), np.array([4.0]), np.array([7.0]))


def condition(text: str) -> HavingCondition:
    read = parsed(text, "duckdb")
    assert read is not None
    found = HavingCondition.read(read[0])
    assert found is not None
    return found


@pytest.mark.parametrize("text", ["count(*) > 4", "count(*) <= 2", "count(*) = 7", "3 < count(*)", "count_star() >= 6"])
def test_groups_are_kept_by_their_size(text: str) -> None:
    asked = condition(text)
    number = asked.number("duckdb")
    assert number is not None
    actual = grouped(text.replace("count(*)", "lines").replace("count_star()", "lines"))
    assert asked.counted(ORDERS, number) == pytest.approx(actual, abs=0.02)


@given(st.floats(1.0, 1e6), st.floats(1.0, 1e9), st.floats(-10.0, 1e6), st.floats(0.0, 1e3))
def test_fewer_groups_are_larger_than_a_larger_size(groups: float, rows: float, size: float, more: float) -> None:
    sizes = Sizes.of(groups, rows)
    assert 0.0 <= sizes.above(size + more) <= sizes.above(size) <= 1.0


@pytest.mark.parametrize("text", ["sum(a) > sum(b)", "a > 1", "sum(a) > b", "median(a) > 1"])
def test_other_conditions_are_none_of_groups(text: str) -> None:
    read = parsed(text, "duckdb")
    assert read is not None
    assert HavingCondition.read(read[0]) is None


# ---------------------------------------------------------------------- unions and names


def test_a_union_has_the_rows_of_all_and_the_values_of_any(rows: pa.Table) -> None:
    low, high = filtered(rows, "kind = 0"), filtered(rows, "kind = 1")
    both = Union([low, high], [[column("part"), column("kind")]] * 2)
    assert both.rows == low.rows + high.rows
    assert both.holds(column("part"))
    assert not both.holds(column("supplier"))
    assert both.ndv(column("part")) == pytest.approx(counted(rows, "part", "kind < 2"), rel=0.05)


def test_what_a_statement_gives_names_to() -> None:
    tree = sqlglot.parse_one(
        "SELECT y, sum(n) AS total FROM (SELECT year(t.day) AS y, kind AS n FROM t) AS s GROUP BY y "
        "UNION ALL SELECT 1 AS y, 2 AS total",
        read="duckdb",
    )
    named = {name: set(meanings) for name, meanings in wording(tree, dialect="duckdb").named.items()}
    assert named == {"y": {"YEAR(day)", "1"}, "n": {"kind"}, "total": {"SUM(kind)", "2"}}


# ---------------------------------------------------------------------- sizes


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(0, 50))
def test_sizes_that_are_counted_tell_of_first_rows_and_of_different_sizes(sizes: list[int], most: int) -> None:
    found = Sizes.counted(np.array([0.0, *sizes]))
    assert found.first_rows(most) * len(sizes) == pytest.approx(sum(min(size, most) for size in sizes))
    assert found.different == min(len(set(sizes)), max(sizes))
    assert found.above(most) == pytest.approx(sum(size > most for size in sizes) / len(sizes))


@pytest.mark.parametrize("spread", ["even", "skewed"])
def test_sizes_that_a_sample_promises_are_near_those_of_all_groups(spread: str) -> None:
    chance = np.random.default_rng(4)
    sizes = chance.poisson(6, 20_000) + 1 if spread == "even" else 1 + chance.geometric(0.15, 20_000)
    held = chance.binomial(sizes, 0.2)
    found = Sizes.estimated(held[held > 0], 0.2, float(sizes.size), float(sizes.sum()))
    assert found.first_rows(float("inf")) == pytest.approx(sizes.mean(), rel=0.02)
    for size in (3, 6, 10):
        assert found.above(size) == pytest.approx((sizes > size).mean(), abs=0.05)
