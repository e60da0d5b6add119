"""Generated queries and the comparison of answers by themselves."""

from __future__ import annotations

from pathlib import Path

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


def test_only_the_limit_at_the_end_is_taken_away() -> None:
    sql = "SELECT a FROM (SELECT a FROM t LIMIT 3) ORDER BY a LIMIT 5"
    assert without_limit(sql) == "SELECT a FROM (SELECT a FROM t LIMIT 3) ORDER BY a"
    assert without_limit("SELECT a FROM t") is None
