"""What Sail gets of a statement: Spark's text where its answer is the same, another where it is made so, or nothing."""

from __future__ import annotations

import pytest

from engines.protocol import Column, TableSource
from gateway.sql.duckdb.values import NoEquivalent
from gateway.sql.parsing import ParserLimits
from gateway.sql.statement import check

TYPES = {"a": "int", "b": "bigint", "m": "decimal(12,2)", "d": "date", "s": "string", "x": "double", "at": "timestamp"}
TABLE = TableSource("t", "/data/t", "parquet", tuple(Column(name, kind) for name, kind in TYPES.items()))


def written(sql: str) -> str:
    return check(sql, "spark", catalog={"t": TABLE}, limits=ParserLimits()).sql("sail")


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("SELECT a + 1 AS c FROM t", "CAST((CAST((`a`) AS BIGINT) + CAST((1) AS BIGINT)) AS INT)"),
        ("SELECT b - 1 AS c FROM t", "CAST((CAST((`b`) AS DECIMAL(20, 0)) - CAST((1) AS DECIMAL(20, 0))) AS BIGINT)"),
        ("SELECT sum(b) AS c FROM t", "CAST(SUM(CAST((`b`) AS DECIMAL(20, 0))) AS BIGINT)"),
        ("SELECT sum(a) AS c FROM t", "SUM(`a`) AS `c`"),
        ("SELECT m * 2 AS c FROM t", "`m` * CAST((2) AS DECIMAL(1, 0))"),
        (
            "SELECT m / 3 AS c FROM t",
            "CAST((CAST((`m`) AS DECIMAL(38, 3)) / (CAST((3) AS DECIMAL(1, 0)))) AS DECIMAL(16, 6))",
        ),
        ("SELECT avg(m) AS c FROM t", "/ (NULLIF(COUNT(`m`), 0))) AS DECIMAL(16, 6))"),
        ("SELECT a FROM t WHERE x = 0", "(CAST((`x`) AS DOUBLE) + CAST(0 AS DOUBLE)) ="),
        ("SELECT a FROM t WHERE d >= '2020-01-01'", "`d` >= CAST('2020-01-01' AS DATE)"),
        ("SELECT a FROM t WHERE m > x", "CAST((`m`) AS DOUBLE)"),
        ("SELECT datediff(d, d) AS c FROM t", "CAST(DATEDIFF(`d`, `d`) AS INT)"),
    ],
)
def test_what_would_be_another_answer_is_written_otherwise(sql: str, part: str) -> None:
    assert part in written(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT initcap(s) AS c FROM t",
        "SELECT a FROM t WHERE s RLIKE 'a'",
        "SELECT a FROM t WHERE a NOT IN (SELECT b FROM t)",
        "SELECT x, count(*) AS n FROM t GROUP BY x",
        "SELECT DISTINCT x FROM t",
        "SELECT a FROM t ORDER BY x",
        "SELECT sum(x) OVER (ORDER BY a) AS c FROM t",
        "SELECT round(x, 2) AS c FROM t",
        "SELECT isnan(x) AS c FROM t",
        "SELECT right(s, -1) AS c FROM t",
        "SELECT concat(s, at) AS c FROM t",
        "SELECT a, s, count(*) AS n FROM t GROUP BY ROLLUP (a, s)",
        "SELECT a FROM t JOIN (SELECT a AS a, b AS z FROM t) q USING (a)",
        "SELECT a FROM t UNION ALL SELECT b FROM t",
        "SELECT a FROM t WHERE s = 3",
        "SELECT cast(s AS int) AS c FROM t",
        "SELECT a DIV a AS c FROM t",
        "SELECT max(x) AS c FROM t",
    ],
)
def test_what_was_not_found_the_same_goes_elsewhere(sql: str) -> None:
    with pytest.raises(NoEquivalent) as caught:
        written(sql)
    assert caught.value.message
