"""Generated queries and the comparison of answers by themselves."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.answers import difference
from benchmarks.both_engines import without_limit
from benchmarks.generated_queries import queries, write_tables
from sql.dialects.names import SPARK
from sql.parsing import ParserLimits
from sql.statement import check

NAN = float("nan")
QUERIES = 300


def test_a_seed_makes_the_same_queries_again() -> None:
    assert list(queries(3, 20)) == list(queries(3, 20))
    assert list(queries(3, 20)) != list(queries(4, 20))


def test_generated_queries_are_sparks_and_are_accepted(tmp_path: Path) -> None:
    catalog = {table.name: table for table in write_tables(tmp_path)}
    for sql in queries(5, QUERIES):
        assert check(sql, SPARK, catalog=catalog, limits=ParserLimits()).fingerprint


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ([1, 2], [2, 1], None),
        ([1, 2], [1, 3], "a: 2 and 3"),
        ([1.0, NAN], [NAN, 1.0 + 1e-13], None),
        ([1.0], [1.001], "a: 1.0 and 1.001"),
        ([None, "x"], ["x", None], None),
        ([None, "x"], ["", "x"], "a: None and ''"),
        ([Decimal("1.5")], [Decimal("1.5")], None),
        ([1], [1, 1], "rows: 1 and 2"),
        ([1], [1.0], "the type of a: int64 and double"),
    ],
)
def test_answers_are_compared_without_order(one: list[object], other: list[object], differs: str | None) -> None:
    assert difference(pa.table({"a": one}), pa.table({"a": other})) == differs


def test_names_count_unless_told_otherwise() -> None:
    one, other = pa.table({"a": [1]}), pa.table({"A": [1]})
    assert difference(one, other) == "names: ['a'] and ['A']"
    assert difference(one, other, names=False) is None


def test_only_the_limit_at_the_end_is_taken_away() -> None:
    sql = "SELECT a FROM (SELECT a FROM t LIMIT 3) ORDER BY a LIMIT 5"
    assert without_limit(sql) == "SELECT a FROM (SELECT a FROM t LIMIT 3) ORDER BY a"
    assert without_limit("SELECT a FROM t") is None


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us", "UTC")])
def test_days_that_python_does_not_have_are_compared_too(kind: pa.DataType) -> None:
    number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    late = 9_000_000 if pa.types.is_date32(kind) else 9_000_000 * 86_400_000_000
    tables = [pa.table({"x": pa.array([0, day], number).cast(kind)}) for day in (late, late, late + 1)]
    assert difference(tables[0], tables[1]) is None
    assert difference(tables[0], tables[2]) is not None
