"""INSERT as text: which column of a query is which of the table."""

from __future__ import annotations

import pytest

from gateway.commands.classification import read_command
from gateway.commands.dml.inserts import InsertInto
from gateway.commands.grammar.reader import Context
from gateway.commands.registry import FAMILIES
from sql.errors import SqlError
from sql.parsing import ParserLimits
from sql.tables import Column, TableSource

SALES = TableSource(
    "sales",
    "/data/sales",
    "delta",
    (Column("Id", "bigint"), Column("note", "string"), Column("year", "int")),
    partition_columns=("year",),
)


def read(sql: str) -> InsertInto:
    insert = read_command(sql, Context("spark", {"sales": SALES}, ParserLimits()), FAMILIES)
    assert isinstance(insert, InsertInto)
    return insert


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("INSERT INTO sales BY NAME SELECT 1 AS year, 2 AS ID", ("year", "Id")),
        ("INSERT OVERWRITE sales BY NAME SELECT note FROM sales", ("note",)),
        ("INSERT OVERWRITE sales BY NAME SELECT * FROM sales", ("Id", "note", "year")),
        ("INSERT INTO sales PARTITION (year = 1) BY NAME (SELECT 1 AS id)", ("Id",)),
        ("INSERT INTO sales PARTITION (year) BY NAME SELECT 1 AS year, 'a' AS note", ("year", "note")),
        ("INSERT INTO sales BY NAME WITH a AS (SELECT 1 AS id) SELECT id FROM a", ("Id",)),
    ],
)
def test_columns_by_name(sql: str, columns: tuple[str, ...]) -> None:
    assert read(sql).columns == columns


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("SELECT 1 AS nota", "UNKNOWN_COLUMN", "did you mean note"),
        ("SELECT 1 AS id, 2 AS ID", "NOT_ALLOWED", "two columns id"),
        ("1", "SYNTAX_ERROR", "a query is expected"),
    ],
)
def test_what_has_no_name_is_refused(query: str, code: str, message: str) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        read(f"INSERT INTO sales BY NAME {query}")
    assert (caught.value.code, caught.value.position.column) == (code, 27)  # type: ignore[union-attr]


def test_a_column_has_one_value() -> None:
    with pytest.raises(SqlError, match="has a value already"):
        read("INSERT INTO sales PARTITION (year = 1) BY NAME SELECT 2 AS year")
