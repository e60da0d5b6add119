"""Which queries have the same answer again while their tables stay."""

from __future__ import annotations

import pytest
from sqlglot import exp

from engines.protocol import Column, TableSource
from gateway.sql import allowlist
from gateway.sql.compiled import compiled
from gateway.sql.dialects.session_functions import SESSION_FUNCTIONS, facts_of
from gateway.sql.parsing import ParserLimits
from gateway.sql.statement import check
from metastore.records import View

COLUMNS = (Column("id", "bigint"), Column("name", "string"), Column("at", "timestamp"), Column("price", "double"))
BOOKS = TableSource("books", "/books", "parquet", COLUMNS)
NOW = View("recent", "SELECT id FROM books WHERE at > now()", "spark", (Column("id", "bigint"),))
LIMITS = ParserLimits(statement_bytes=1 << 20, nesting=200)

OF_CHANCE = ("rand", "random", "uuid")
OF_THE_MOMENT = ("now", "curdate", "current_date", "current_timestamp", "unix_timestamp")
OF_ROWS_AS_THEY_COME = tuple(
    """
    any_value array_agg collect_list collect_set first first_value last last_value listagg max_by min_by mode string_agg
    """.split()
)


def is_repeatable(sql: str, dialect: str = "spark") -> bool:
    facts = facts_of("ann", dialect, "default")
    checked = check(sql, dialect, catalog={"books": BOOKS}, limits=LIMITS, views={"recent": NOW}, facts=facts)
    return compiled(checked, ("spark", "duckdb")).is_repeatable


def test_every_function_is_of_one_of_two_kinds() -> None:
    assert not allowlist.REPEATABLE & allowlist.UNREPEATABLE
    assert {*OF_CHANCE, *OF_THE_MOMENT, *OF_ROWS_AS_THEY_COME, *SESSION_FUNCTIONS} == allowlist.UNREPEATABLE


@pytest.mark.parametrize("name", sorted(allowlist.UNREPEATABLE - SESSION_FUNCTIONS))
@pytest.mark.parametrize("arguments", ["", "id", "name, id"])
def test_what_calls_one_of_the_other_kind_is_not(name: str, arguments: str) -> None:
    tree = check("SELECT abs(id) FROM books", "spark", catalog={"books": BOOKS}, limits=LIMITS).tree
    assert allowlist.is_repeatable(tree)
    for call in tree.find_all(exp.Anonymous):
        call.set("this", name.upper())
    assert not allowlist.is_repeatable(tree)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM books WHERE id = 4711",
        "SELECT * FROM books LIMIT 10",
        "SELECT name, count(*) AS n, sum(price) FROM books GROUP BY name HAVING count(*) > 1 ORDER BY n DESC LIMIT 3",
        "SELECT b.id, row_number() OVER (PARTITION BY b.name ORDER BY b.price) FROM books b JOIN books c USING (id)",
        "WITH w AS (SELECT CASE WHEN price > 1 THEN 'a' ELSE 'b' END AS k FROM books) SELECT k FROM w UNION SELECT 'c'",
        "SELECT CAST('2020-01-01' AS DATE), date_add(at, 3), upper(trim(name)), TIMESTAMP '2020-01-01 10:00:00'"
        " FROM books",
        "SELECT current_user(), current_database()",  # a text, by the time that anybody compares
        "SELECT id FROM books WHERE name IN (SELECT name FROM books WHERE EXISTS (SELECT 1)) AND name LIKE 'a%'",
    ],
)
def test_usual_queries_are(sql: str) -> None:
    assert is_repeatable(sql)


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("SELECT current_timestamp", "spark"),
        ("SELECT current_timestamp()", "spark"),
        ("SELECT CURRENT_DATE", "duckdb"),
        ("SELECT id FROM books WHERE at < now()", "spark"),
        ("SELECT id FROM books WHERE at < NOW() - INTERVAL 1 DAYS", "impala"),
        ("SELECT unix_timestamp() FROM books", "hive"),
        ("SELECT id FROM (SELECT id, rand() AS r FROM books) WHERE r < 0.5", "spark"),
        ("SELECT rand(42)", "spark"),
        ("SELECT uuid()", "hive"),
        ("SELECT first(name) FROM books", "spark"),
        ("SELECT any_value(name) FROM books", "duckdb"),
        ("SELECT collect_list(name) FROM books", "hive"),
        ("SELECT group_concat(name) FROM books", "impala"),
        ("SELECT first_value(name) OVER (ORDER BY id) FROM books", "spark"),
        ("SELECT id FROM recent", "spark"),
        ("SELECT id FROM books TABLESAMPLE (10 PERCENT)", "spark"),
        ("SELECT TIMESTAMP 'now'", "spark"),
        ("SELECT id FROM books WHERE at < CAST(' Now' AS TIMESTAMP)", "spark"),
    ],
)
def test_what_tells_of_chance_or_the_moment_is_not(sql: str, dialect: str) -> None:
    assert not is_repeatable(sql, dialect)
