"""SQL in, each engine's SQL out: pairs."""

from __future__ import annotations

import pytest

from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import Column, TableSource
from tests.writers import DUCKDB_SQL, SPARK_SQL

BOOKS = TableSource("books", "/data/books", "parquet", (Column("id", "bigint"), Column("price", "double")))


def checked(sql: str, dialect: str = "spark") -> CheckedStatement:
    return check(sql, dialect, catalog={"books": BOOKS}, limits=ParserLimits())


@pytest.mark.parametrize(
    ("dialect", "sql", "duckdb", "spark"),
    [
        (
            "spark",
            "SELECT COUNT(*) FROM books",
            'SELECT count(*) AS "count(1)" FROM "books" AS "books"',
            "SELECT COUNT(*) FROM `books` AS `books`",
        ),
        (
            "spark",
            "SELECT CAST(id AS STRING) s FROM default.Books b",
            'SELECT CAST("id" AS VARCHAR) AS "s" FROM "books" AS "b"',
            "SELECT CAST(`id` AS STRING) AS `s` FROM `books` AS `b`",
        ),
        (
            "spark",
            "SELECT TRY_CAST(id AS INT) AS s FROM books",
            'SELECT TRY_CAST("id" AS INTEGER) AS "s" FROM "books" AS "books"',
            "SELECT TRY_CAST(`id` AS INT) AS `s` FROM `books` AS `books`",
        ),
        (
            "impala",
            "SELECT CAST(CAST(id AS STRING) AS INT) AS s FROM books",
            "SELECT CASE WHEN NOT regexp_full_match(trim(CAST(\"id\" AS VARCHAR), ' '), '[+-]?[0-9]+')",
            "SELECT TRY_CAST(TRY_CAST(`id` AS STRING) AS INT) AS `s` FROM `books` AS `books`",
        ),
        (
            "impala",
            "SELECT CAST(id AS INT) AS s FROM books",
            'SELECT CAST("id" AS INTEGER) AS "s" FROM "books" AS "books"',
            "SELECT CAST(`id` AS INT) AS `s` FROM `books` AS `books`",
        ),
        (
            "spark",
            "SELECT /*+ BROADCAST(b) */ id FROM books b -- a remark",
            'SELECT "id" FROM "books" AS "b"',
            "SELECT /*+ BROADCAST(b) */ `id` FROM `books` AS `b`",
        ),
        (
            "spark",
            "SELECT * FROM (SELECT max(price) FROM books) ORDER BY 1",
            'SELECT * FROM (SELECT max(-(-("price"))) AS "max(price)" FROM "books" AS "books") ORDER BY 1 NULLS FIRST',
            "SELECT * FROM (SELECT MAX(`price`) FROM `books` AS `books`) ORDER BY 1",
        ),
    ],
)
def test_engines_get_their_own_sql(dialect: str, sql: str, duckdb: str, spark: str) -> None:
    statement = checked(sql, dialect)
    assert statement.sql(DUCKDB_SQL).startswith(duckdb)
    assert statement.sql(SPARK_SQL) == spark


@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
def test_columns_in_brackets_keep_their_names(dialect: str) -> None:
    for sql in ("SELECT DISTINCT (id) FROM books ORDER BY id", "SELECT id FROM (SELECT ((b.id)) FROM books b) AS x"):
        assert "AS `id`" in checked(sql, dialect).sql(SPARK_SQL)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT id FROM books", "select  ID\nfrom BOOKS -- remark"),
        ("SELECT id FROM books WHERE price < 3", "SELECT id FROM default.books WHERE price<3;"),
    ],
)
def test_the_same_tree_has_the_same_fingerprint(one: str, other: str) -> None:
    assert checked(one).fingerprint == checked(other).fingerprint


TEMPLATE = "SELECT id, price < 3 FROM books WHERE price < 3 AND CAST(id AS STRING) IN ('a', 'b') LIMIT 5"


@pytest.mark.parametrize(
    "other",
    [
        TEMPLATE.replace("3", "-4.5e3"),
        TEMPLATE.replace("'a', 'b'", r"'it\'s AS `x', 'b', 'c', '?'"),
        TEMPLATE.replace("LIMIT 5", "LIMIT 50").lower(),
        TEMPLATE.replace("'a'", r"'\\'"),
    ],
)
def test_other_literals_have_the_same_template(other: str) -> None:
    assert checked(other).template == checked(TEMPLATE).template
    assert checked(other).fingerprint != checked(TEMPLATE).fingerprint


@pytest.mark.parametrize(
    "other", [TEMPLATE.replace("id,", "price,"), TEMPLATE.replace("AND", "OR"), TEMPLATE.replace(" LIMIT 5", "")]
)
def test_another_column_or_clause_has_another_template(other: str) -> None:
    assert checked(other).template != checked(TEMPLATE).template


@pytest.mark.parametrize("other", ["SELECT id FROM books WHERE price < 4", "SELECT price FROM books"])
def test_another_literal_or_column_has_another_fingerprint(other: str) -> None:
    assert checked("SELECT id FROM books WHERE price < 3").fingerprint != checked(other).fingerprint
