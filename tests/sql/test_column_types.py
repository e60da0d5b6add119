"""Types of expressions, by which ``||`` and CAST of Hive and Impala go: by the source that a column is of."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import exp

from sql.dialects.column_types import annotate_types, short_name, type_of
from sql.errors import NotAllowed
from sql.parsers.dialects import ImpalaText
from sql.parsing import ParserLimits
from sql.statement import check
from sql.tables import Column, TableSource, View
from tests.writers import SPARK_SQL

SHOPS = TableSource(
    "shops",
    "/data/shops",
    "parquet",
    (
        Column("open", "boolean"),
        Column("name", "string"),
        Column("rows", "bigint"),
        Column("price", "decimal(10,2)"),
        Column("since", "date"),
    ),
)
FLAGS = TableSource("flags", "/data/flags", "parquet", (Column("name", "boolean"), Column("seen", "timestamp")))
CATALOG = {"shops": SHOPS, "flags": FLAGS}
OR, JOINED = " OR ", " || "


@pytest.mark.parametrize(
    ("sql", "sign"),
    [
        ("SELECT open || open AS v FROM shops", OR),
        ("SELECT name || name AS v FROM shops", JOINED),
        ("SELECT name || name AS v FROM flags", OR),
        ("SELECT s.name || s.name AS v FROM shops s, flags f", JOINED),
        ("SELECT f.name || f.name AS v FROM shops s, flags f", OR),
        ("WITH q(x, y) AS (SELECT open, name FROM shops) SELECT x || x AS v FROM q", OR),
        ("WITH q(x, y) AS (SELECT open, name FROM shops) SELECT y || y AS v FROM q", JOINED),
        ("WITH q(name) AS (SELECT open FROM shops) SELECT name || name AS v FROM q", OR),
        ("WITH name AS (SELECT open AS n FROM shops), q AS (SELECT n FROM name) SELECT n || n AS v FROM q", OR),
        ("WITH q AS (SELECT name FROM flags) SELECT s.name || 'x' AS v FROM shops s, q", JOINED),
        ("SELECT x || x AS v FROM (SELECT name FROM flags) q(x)", OR),
        ("SELECT x || y AS v FROM (SELECT name AS x, upper(name) AS y FROM shops) q", JOINED),
        (
            "SELECT v || v AS v FROM (SELECT * FROM (SELECT open AS v FROM shops UNION SELECT name FROM flags) a) b",
            OR,
        ),
        ("SELECT (rows > 1) || (price IS NULL) AS v FROM shops", OR),
        ("SELECT s.name AS v FROM shops s WHERE EXISTS (SELECT 1 FROM flags f WHERE (s.open || f.name))", OR),
        ("SELECT s.name AS v FROM shops s WHERE EXISTS (SELECT 1 FROM flags f WHERE (s.name || 'x') = 'y')", JOINED),
        ("SELECT max(name) || min(name) AS v FROM shops", JOINED),
        ("SELECT coalesce(name, 'x') || CASE WHEN open THEN 'y' END AS v FROM shops", JOINED),
    ],
)
def test_pipes_go_by_the_columns_that_their_own_query_sees(sql: str, sign: str) -> None:
    text = check(sql, "impala", catalog=CATALOG, limits=ParserLimits()).sql(SPARK_SQL)
    assert (sign in text, ({OR, JOINED} - {sign}).pop() in text) == (True, False), text


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name || open AS v FROM shops",
        "SELECT rows || 'x' AS v FROM shops",
        "SELECT s.name || f.name AS v FROM shops s, flags f",
        "WITH q(x) AS (SELECT open FROM shops) SELECT x || 'a' AS v FROM q",
        "SELECT CAST(since AS TIMESTAMP) || '' AS v FROM shops",
    ],
)
def test_pipes_of_anything_else_are_refused(sql: str) -> None:
    with pytest.raises(NotAllowed, match=r"OR of two booleans or joins two strings"):
        check(sql, "impala", catalog=CATALOG, limits=ParserLimits())


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("rows + 1", "bigint"),
        ("price * 2", "decimal"),
        ("rows / 2", "double"),
        ("price > 1", "boolean"),
        ("since + INTERVAL 1 DAY", "date"),
        ("'2024-01-01' + INTERVAL 1 DAY", "timestamp"),
        ("date_add(since, 1)", "date"),
        ("date_add('2024-01-01', 1)", "timestamp"),
        ("sum(rows) OVER (PARTITION BY name)", "bigint"),
        ("nvl(price, 1.5)", "decimal"),
        ("if(open, 1, 2.5)", "decimal"),
        ("(SELECT max(seen) FROM flags)", "timestamp"),
        ("NULL", "null"),
        ("nobody_knows(name)", ""),
        ("CASE WHEN open THEN name ELSE rows END", ""),
    ],
)
def test_types(expression: str, kind: str) -> None:
    tree = ImpalaText().parse(f"SELECT {expression} AS v FROM shops")[0]
    assert isinstance(tree, exp.Select)
    annotate_types(tree, lambda name: CATALOG[name].columns)
    assert type_of(tree.selects[0]) == kind


def test_a_number_that_does_not_fit_is_an_error_and_a_text_is_null() -> None:
    for dialect in ("hive", "impala"):
        text = check(
            "SELECT CAST(rows AS INT) AS n, CAST(upper(name) AS DOUBLE) AS t FROM shops",
            dialect,
            catalog=CATALOG,
            limits=ParserLimits(),
        ).sql(SPARK_SQL)
        assert "SELECT CAST(`rows` AS INT) AS `n`, TRY_CAST(UPPER(`name`) AS DOUBLE) AS `t`" in text


def test_nobody_calls_what_ends_a_statement_as_it_runs() -> None:
    for dialect in ("spark", "hive", "impala"):
        with pytest.raises(NotAllowed):
            check("SELECT raise_error('x') AS v", dialect, catalog={}, limits=ParserLimits())


def test_a_view_is_told_its_types() -> None:
    view = View(
        name="both", sql="SELECT open || open AS v FROM shops", dialect="impala", columns=(Column("v", "boolean"),)
    )
    text = check(
        "SELECT v || v AS w FROM both", "impala", catalog=CATALOG, limits=ParserLimits(), views={"both": view}
    ).sql(SPARK_SQL)
    assert "`open` OR `open`" in text
    assert "`v` OR `v`" in text


def test_names_of_types() -> None:
    names = [short_name(text) for text in ("DECIMAL(10,2)", "varchar(5)", "array<int>", "TEXT")]
    assert names == ["decimal", "string", "array", "string"]


def test_what_does_not_fit_ends_the_statement() -> None:
    for expression in (
        "cast(127.5 as tinyint)",
        "cast(power(2, 1023) * 100 as decimal(38, 0))",
        "cast(concat('2024-02-', '30') as date)",
        "cast(concat('2024-02-29  10:11:12', '.5') as timestamp)",
        "cast(cast(1e20 as double) as string)",
    ):
        text = check(f"SELECT {expression} AS v", "impala", catalog={}, limits=ParserLimits()).sql(
            "engines.duckdb.writer.statement"
        )
        with duckdb.connect() as connection, pytest.raises(duckdb.ConversionException):
            connection.sql(text).fetchall()
