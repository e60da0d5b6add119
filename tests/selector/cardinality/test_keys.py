"""Keys of joins: what equal columns have in the cells of one cut, and what is told where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.cardinality.base import Base
from selector.cardinality.derived import Groups, Opaque
from selector.cardinality.inner_joins import InnerJoins
from selector.cardinality.join_messages import expected_distinct
from selector.cardinality.keys.classes import KeyClasses, Member, key_class
from selector.cardinality.keys.counts import counts_of, possible
from selector.cardinality.outer_joins import OuterJoin
from selector.cardinality.predicates.domains import Domain
from selector.join_keys import ColumnRef, KeyPair, key_groups
from selector.plan import JoinType, Operator, Plan, PlanColumn, PlanNode
from selector.statistics import CommonValues, TableStatistics
from tests.selector.cardinality.counted import Counted
from tests.selector.examples import column, table, uniform

FEW = st.lists(st.integers(0, 6) | st.none(), min_size=1, max_size=40)


def known(sampled: float = 1.0, **keys: Sequence[int | None]) -> dict[str, TableStatistics]:
    tables = {name: pa.table({"k": pa.array(values, pa.int64())}) for name, values in keys.items()}
    made = Counted(tables, [[(name, "k") for name in tables]], sampled=sampled)
    made.connection.close()
    return made.statistics


def key_of(name: str) -> PlanColumn:
    return PlanColumn("k", "bigint", name, ord(name))


def classes(statistics: dict[str, TableStatistics]) -> KeyClasses:
    """Return the class of all tables' keys."""
    first, *others = statistics
    pairs = tuple((key_of(first), key_of(other)) for other in others)
    return KeyClasses(Plan(PlanNode(Operator.HASH_JOIN, "JOIN", join_keys=pairs), "duckdb"), statistics)


def base(statistics: TableStatistics, *predicates: str) -> Base:
    return Base(statistics, predicates, ord(statistics.table), dialect="duckdb")


@given(left=FEW, right=FEW, sampled=st.sampled_from([0.0, 1.0]))
def test_few_keys_are_counted_with_or_without_a_sample(
    left: list[int | None], right: list[int | None], sampled: float
) -> None:
    statistics = known(sampled, a=left, b=right)
    members = tuple(Member(one, ("k",)) for one in statistics.values())
    cells = key_class(members, ((),))
    assert cells is not None
    for member, values in zip(members, (left, right), strict=True):
        counts = counts_of(member, cells)
        there = np.array([value for value in values if value is not None], dtype=np.float64)
        assert counts.rows.sum() == pytest.approx(there.size)
        held = np.bincount(cells.of(there), minlength=cells.count)
        assert counts.rows == pytest.approx(held, abs=1e-6)
        assert np.all(counts.ndv <= possible(cells) + 1e-9)


def test_a_key_that_a_predicate_names_has_a_cell_of_its_own() -> None:
    ids = table("a", 1000, column("k", "bigint", 1000, minimum=0.0, maximum=1000.0, histogram=uniform(0, 1000)))
    cells = key_class((Member(ids, ("k",)),), ((Domain.one_of([7.0, 9.0], text=False),),))
    assert cells is not None
    assert cells.keys.tolist() == [7.0, 9.0]
    rows = counts_of(cells.members[0], cells).rows
    assert rows.sum() == pytest.approx(1000, rel=0.01)
    assert rows[:2] == pytest.approx([1.0, 1.0], rel=0.1)


def test_a_column_that_nothing_bounds_has_the_keys_of_the_others() -> None:
    ids = table("a", 1000, column("k", "bigint", 1000, minimum=0.0, maximum=1000.0, histogram=uniform(0, 1000)))
    sold = table("b", 5000, column("k", "bigint", 800))
    statistics = {"a": ids, "b": sold}
    joined = InnerJoins.of(base(ids), base(sold), [(key_of("a"), key_of("b"))], classes(statistics))
    assert joined.rows == pytest.approx(5000)


def test_a_common_value_takes_no_keys_from_its_bin() -> None:
    """Half of the rows hold key 3; every row meets the one that holds its key."""
    ids = column("k", "bigint", 1000, minimum=0.0, maximum=999.0, histogram=uniform(0, 999, 100))
    ranks = np.append(0.0, np.linspace(0.5, 1.0, 100))
    histogram = replace(uniform(0, 999, 100), below=ranks, up_to=ranks)
    sold = replace(ids, ndv=900.0, histogram=histogram, common=CommonValues(np.array([3.0]), np.array([5_000.0])))
    statistics = {"a": table("a", 1000, ids), "b": table("b", 10_000, sold)}
    left, right = (base(one) for one in statistics.values())
    joined = InnerJoins.of(left, right, [(key_of("a"), key_of("b"))], classes(statistics))
    assert joined.rows == pytest.approx(10_000, rel=0.05)


def test_keys_of_different_cuts_fall_back_to_what_columns_tell() -> None:
    statistics = known(0.0, a=[1, 2, 3, 4], b=[1, 1, 2, 2])
    other = statistics["b"].keys["k"]
    stale = replace(other, bins=replace(other.bins, version=2))
    statistics["b"] = replace(statistics["b"], keys={"k": stale})
    left, right = (base(one) for one in statistics.values())
    joined = InnerJoins.of(left, right, [(key_of("a"), key_of("b"))], classes(statistics))
    assert joined.rows == pytest.approx(4.0)


def test_a_bound_is_at_most_all_rows_by_the_most_frequent_key() -> None:
    statistics = known(a=[1, 1, 2], b=[1] * 10 + [2] * 5)
    left, right = (base(one) for one in statistics.values())
    joined = InnerJoins.of(left, right, [(key_of("a"), key_of("b"))], classes(statistics))
    assert joined.rows == 2 * 10 + 1 * 5
    assert joined.rows <= joined.upper <= 3 * 10


def test_nulls_of_a_full_join_are_rows_that_met_none() -> None:
    statistics = known(a=[1, 1, 2, None], b=[1, 1, 1, 3])
    left, right = (base(one) for one in statistics.values())
    joined = OuterJoin(left, right, [(key_of("a"), key_of("b"))], JoinType.FULL, classes(statistics))
    assert joined.rows == pytest.approx(6 + 2 + 1)
    assert joined.nulls(key_of("a")) * joined.rows == pytest.approx(1 + 1)  # its own NULL, and 3 of the right side
    assert joined.nulls(key_of("b")) * joined.rows == pytest.approx(2)


def test_groups_have_each_key_once() -> None:
    statistics = known(a=[1] * 8 + [2] * 2, b=[1, 1, 1, 2])
    made = classes(statistics)
    groups = Groups(base(statistics["a"]), 2.0, [key_of("a")], upper=2.0, classes=made)
    joined = InnerJoins.of(groups, base(statistics["b"]), [(key_of("a"), key_of("b"))], made)
    assert joined.rows == pytest.approx(4.0)


def test_what_nothing_is_known_of_meets_as_unique_on_the_smaller_side() -> None:
    nothing = KeyClasses(Plan(PlanNode(Operator.HASH_JOIN, "JOIN"), "duckdb"), {})
    pairs = [(PlanColumn("x"), PlanColumn("y"))]
    assert InnerJoins.of(Opaque(100.0), Opaque(10.0), pairs, nothing).rows == 100.0


@given(st.floats(1, 1e9), st.floats(1, 1e9), st.floats(0, 1))
def test_survivors_are_no_more_than_values_and_rows(ndv: float, rows: float, share: float) -> None:
    left = float(expected_distinct(min(ndv, rows), rows, share))
    assert 0.0 <= left <= min(ndv, rows) * (1 + 1e-9)
    assert left <= rows * share * (1 + 1e-6) + 1e-9


def test_columns_joined_through_others_are_one_group() -> None:
    a, b, c, d = (ColumnRef(name, "id") for name in "abcd")
    pairs = [KeyPair.of(c, b), KeyPair.of(b, a), KeyPair.of(d, d)]
    assert key_groups(pairs) == {"a.id": (a, b, c), "d.id": (d,)}
