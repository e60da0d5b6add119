from __future__ import annotations

import pytest

from engines.compiled import compiled
from sql.dialects.names import SPARK
from sql.parsing import ParserLimits
from sql.statement import check
from sql.tables import Column, TableSource

TABLE = TableSource("t", "/t", "parquet", (Column("a", "int"), Column("b", "string"), Column("c", "double")))


def of(sql: str) -> tuple[bool, tuple[int, ...]]:
    made = compiled(check(sql, SPARK, catalog={"t": TABLE}, limits=ParserLimits()), ())
    return made.leaves_open, made.sorted_by


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t LIMIT 3",
        "SELECT a FROM (SELECT a FROM t LIMIT 3)",
        "SELECT a FROM t ORDER BY a OFFSET 3",
        "SELECT row_number() OVER (ORDER BY a) FROM t",
        "SELECT sum(a) OVER (ORDER BY b) FROM t",
        "SELECT lag(a) OVER (ORDER BY b) FROM t",
        "SELECT first(a), last(b) FROM t",
        "SELECT any_value(a) FROM t",
        "SELECT collect_list(a) FROM t",
        "SELECT collect_set(a) FROM t",
        "SELECT max_by(a, b) FROM t",
        "SELECT mode(a) FROM t",
        "SELECT approx_count_distinct(a) FROM t",
        "SELECT percentile_approx(c, 0.5) FROM t",
        "SELECT listagg(b) FROM t",
    ],
)
def test_sql_allows_several_answers(sql: str) -> None:
    assert of(sql)[0]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT DISTINCT a FROM t ORDER BY b",
        "SELECT b, sum(a), max(c), count(DISTINCT a) FROM t GROUP BY b",
        "SELECT rank() OVER (ORDER BY a), dense_rank() OVER (PARTITION BY b ORDER BY a) FROM t",
        "SELECT sum(a) OVER (PARTITION BY b) FROM t",
        "SELECT a FROM t UNION SELECT a FROM t",
        "SELECT percentile(c, 0.5) FROM t",
    ],
)
def test_sql_allows_one_answer(sql: str) -> None:
    assert not of(sql)[0]


@pytest.mark.parametrize(
    ("sql", "positions"),
    [
        ("SELECT a, b FROM t", ()),
        ("SELECT a, b FROM t ORDER BY b, a", (1, 0)),
        ("SELECT a AS x, b FROM t ORDER BY X DESC", (0,)),
        ("SELECT a, b FROM t ORDER BY 2", (1,)),
        ("SELECT b, count(*) FROM t GROUP BY b ORDER BY count(*) DESC, b", (1, 0)),
        ("SELECT a FROM t ORDER BY b, a", ()),
        ("SELECT a, b FROM t ORDER BY a, c, b", (0,)),
        ("SELECT * FROM t ORDER BY a", ()),
        ("SELECT explode(array(1, 2)), a FROM t ORDER BY a", ()),
        ("SELECT a FROM t UNION SELECT a FROM t ORDER BY a", ()),
    ],
)
def test_outputs_by_which_rows_are_sorted(sql: str, positions: tuple[int, ...]) -> None:
    assert of(sql)[1] == positions
