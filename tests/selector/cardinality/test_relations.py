"""Joins by the bins of their keys, against rows that are really joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.cardinality.derived import Groups, Opaque
from selector.cardinality.join_messages import expected_distinct
from selector.cardinality.relations import Base, Joined, Relation
from selector.join_keys import ColumnRef as Ref
from selector.join_keys import ConditionalCounts, KeyPair, KeyStatistics, key_groups
from selector.plan import JoinType, PlanColumn
from selector.statistics import TableStatistics
from statsproc.read.files import TableChunk
from statsproc.read.task import Wanted, summarise_chunks
from statsproc.sketches.column_summary import describe
from statsproc.sketches.join_keys import Cut, cut_keys, cut_values, describe_key

TYPES = {"k": "bigint", "m": "bigint", "v": "bigint"}
FEW = st.lists(st.integers(0, 6) | st.none(), min_size=1, max_size=40)


@dataclass(frozen=True)
class World:
    """Three tables with exact statistics: so few keys that each has a bin of its own."""

    tables: dict[str, pa.Table]
    statistics: dict[str, TableStatistics]

    def base(self, name: str, *predicates: str, scan: int = 0) -> Base:
        return Base(self.statistics[name], predicates, scan or ord(name), dialect="duckdb")

    def count(self, sql: str) -> int:
        with duckdb.connect() as connection:
            for name, table in self.tables.items():
                connection.register(name, table)
            row = connection.execute(f"SELECT count(*) FROM {sql}").fetchone()
            assert row is not None
            return int(row[0])


def world(**columns: dict[str, Sequence[int | None]]) -> World:
    tables = {
        name: pa.table({column: pa.array(values, pa.int64()) for column, values in held.items()})
        for name, held in columns.items()
    }
    looks = {
        name: dict(
            summarise_chunks(
                [TableChunk(name, "", table)], Wanted({c: "bigint" for c in table.column_names}, _keys(table))
            )
        )[""]
        for name, table in tables.items()
    }
    bins = {
        key: replace(found, version=1)
        for key in ("k", "m")
        if (found := cut_keys([look.keys[key] for look in looks.values() if key in look.keys], key)) is not None
    }
    statistics = {}
    for name, table in tables.items():
        types = {column: TYPES[column] for column in table.column_names}
        buckets = {
            column: found
            for column, summary in looks[name].columns.items()
            if column == "v"
            and (found := cut_values(summary.distribution, text=False, ndv=summary.distinct.count)) is not None
        }
        cut = Cut({key: bins[key] for key in _keys(table) if key in bins}, buckets)
        whole = dict(summarise_chunks([TableChunk(name, "", table)], Wanted(types, _keys(table), cut)))[""]
        statistics[name] = TableStatistics(
            table=name,
            version=1,
            rows=table.num_rows,
            bytes=0,
            columns={column: describe(whole.columns[column], column, kind) for column, kind in types.items()},
            keys={
                key: describe_key(summary, key, cut, rows=table.num_rows)
                for key, summary in whole.keys.items()
                if key in cut.bins
            },
        )
    return World(tables, statistics)


def _keys(table: pa.Table) -> tuple[str, ...]:
    return tuple(column for column in table.column_names if column in ("k", "m"))


def column(table: str, name: str) -> PlanColumn:
    return PlanColumn(name, "bigint", table, ord(table))


def joined(left: Relation, right: Relation, key: str, tables: str, kind: JoinType = JoinType.INNER) -> Joined:
    return Joined(left, right, [(column(tables[0], key), column(tables[1], key))], kind)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (JoinType.INNER, "a JOIN b ON a.k = b.k"),
        (JoinType.LEFT, "a LEFT JOIN b ON a.k = b.k"),
        (JoinType.RIGHT, "a RIGHT JOIN b ON a.k = b.k"),
        (JoinType.FULL, "a FULL JOIN b ON a.k = b.k"),
        (JoinType.SEMI, "a SEMI JOIN b ON a.k = b.k"),
        (JoinType.ANTI, "a ANTI JOIN b ON a.k = b.k"),
        (JoinType.RIGHT_SEMI, "b SEMI JOIN a ON a.k = b.k"),
        (JoinType.RIGHT_ANTI, "b ANTI JOIN a ON a.k = b.k"),
        (JoinType.MARK, "a"),
    ],
)
@settings(max_examples=15, deadline=None)
@given(left=FEW, right=FEW)
def test_a_join_of_few_keys_is_counted(
    kind: JoinType, words: str, left: list[int | None], right: list[int | None]
) -> None:
    known = world(a={"k": left}, b={"k": right})
    found = joined(known.base("a"), known.base("b"), "k", "ab", kind)
    assert found.rows == pytest.approx(known.count(words), abs=1e-6)
    assert found.upper >= found.rows


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_chain_reaches_the_far_key_through_rows_that_hold_both(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 60))
    some = st.lists(st.integers(0, 5) | st.none(), min_size=size, max_size=size)
    known = world(a={"k": data.draw(FEW)}, b={"k": data.draw(some), "m": data.draw(some)}, c={"m": data.draw(FEW)})
    truth = known.count("a JOIN b ON a.k = b.k JOIN c ON b.m = c.m")
    first = joined(known.base("a"), known.base("b"), "k", "ab")
    assert joined(first, known.base("c"), "m", "bc").rows == pytest.approx(truth, rel=1e-5, abs=1e-6)
    last = joined(known.base("b"), known.base("c"), "m", "bc")
    assert joined(known.base("a"), last, "k", "ab").rows == pytest.approx(truth, rel=1e-5, abs=1e-6)


def test_a_filter_keeps_what_it_keeps_of_each_key() -> None:
    keys = [0] * 90 + [1] * 10
    known = world(a={"k": keys, "v": [7] * 90 + [8] * 10}, b={"k": [0, *([1] * 50)]})
    for value, truth in ((7, 90), (8, 500)):
        assert known.count(f"a JOIN b ON a.k = b.k WHERE v = {value}") == truth
        found = joined(known.base("a", f"v = {value}"), known.base("b"), "k", "ab")
        assert found.rows == pytest.approx(truth, rel=0.01)
        assert found.by_bins


def test_the_bound_is_the_most_frequent_key_of_each_bin() -> None:
    known = world(a={"k": [1, 1, 2]}, b={"k": [1] * 10 + [2] * 5})
    found = joined(known.base("a"), known.base("b"), "k", "ab")
    assert found.rows == found.upper == 2 * 10 + 1 * 5


def test_a_unique_side_filtered_keeps_its_share_of_the_other_sides_rows() -> None:
    books = list(range(400))
    sold = [book for book in range(0, 400, 2) for _ in range(5)]  # half the books were ever sold
    known = world(a={"k": books, "v": [book % 10 for book in books]}, b={"k": sold})
    found = joined(known.base("b"), known.base("a", "v < 2"), "k", "ba")
    assert known.count("a JOIN b ON a.k = b.k WHERE v < 2") == len(sold) / 5
    assert found.rows == pytest.approx(len(sold) / 5, rel=0.15)


def test_keys_of_different_cuts_fall_back_to_distinct_values() -> None:
    known = world(a={"k": [1, 2, 3, 4]}, b={"k": [1, 1, 2, 2]})
    other = known.statistics["b"]
    stale = KeyStatistics(
        replace(other.keys["k"].bins, version=2), other.keys["k"].rows, other.keys["k"].ndv, other.keys["k"].largest
    )
    right = Base(replace(other, keys={"k": stale}), (), ord("b"), dialect="duckdb")
    found = joined(known.base("a"), right, "k", "ab")
    assert not found.by_bins
    assert found.rows == 4 * 4 / max(4, 2)


def test_two_keys_that_are_unique_together_meet_one_row() -> None:
    pairs = [(k, m) for k in range(20) for m in range(5)]
    known = world(
        a={"k": [k for k, _ in pairs], "m": [m for _, m in pairs]},
        b={"k": [k for k, _ in pairs] * 3, "m": [m for _, m in pairs] * 3},
    )
    keys = [(column("b", name), column("a", name)) for name in ("k", "m")]
    found = Joined(known.base("b"), known.base("a"), keys, JoinType.INNER)
    assert found.rows == pytest.approx(known.count("a JOIN b USING (k, m)"), rel=0.01)


def test_groups_have_each_key_once() -> None:
    known = world(a={"k": [1] * 8 + [2] * 2}, b={"k": [1, 1, 1, 2]})
    key = column("a", "k")
    groups = Groups(known.base("a"), 2.0, [key], upper=2.0)
    assert Joined(groups, known.base("b"), [(key, column("b", "k"))], JoinType.INNER).rows == pytest.approx(4.0)


def test_what_nothing_is_known_of_meets_as_unique_on_the_smaller_side() -> None:
    left, right = Opaque(100.0), Opaque(10.0)
    assert Joined(left, right, [(PlanColumn("x"), PlanColumn("y"))], JoinType.INNER).rows == 100.0


@given(st.floats(1, 1e9), st.floats(1, 1e9), st.floats(0, 1))
def test_survivors_are_no_more_than_values_and_rows(ndv: float, rows: float, share: float) -> None:
    left = float(expected_distinct(min(ndv, rows), rows, share))
    assert 0.0 <= left <= min(ndv, rows) * (1 + 1e-9)
    assert left <= rows * share * (1 + 1e-6) + 1e-9


def test_columns_joined_through_others_are_one_group() -> None:
    a, b, c, d = (Ref(table, "id") for table in "abcd")
    pairs = [KeyPair.of(c, b), KeyPair.of(b, a), KeyPair.of(d, d)]
    assert key_groups(pairs) == {"a.id": (a, b, c), "d.id": (d,)}


def test_counts_keep_only_cells_with_rows() -> None:
    known = world(a={"k": [1, 1, 2], "v": [5, 6, None]})
    together = known.statistics["a"].keys["k"].given["v"]
    assert isinstance(together, ConditionalCounts)
    assert together.rows.size == 3
    everything = together.weighted(np.ones(together.buckets.count + 1))
    assert everything.sum() == 3
    nulls = np.zeros(together.buckets.count + 1)
    nulls[-1] = 1.0
    assert together.weighted(nulls).sum() == 1
