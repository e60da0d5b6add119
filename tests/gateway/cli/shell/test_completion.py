"""Words that are offered for what is typed, from names alone."""

from __future__ import annotations

import pytest

from gateway.cli.shell.completion import suggestions, tables_in, word_before
from gateway.cli.shell.names import Names

NAMES = Names(
    tables={"books": ("isbn", "price"), "sales.orders": ("id", "isbn", "placed_on")},
    databases=("default", "lake", "sales"),
    engines=("duckdb", "spark"),
    functions=("sum", "substring"),
)


def offered(before: str, after: str = "", *, database: str = "default") -> list[str]:
    return [suggestion.text for suggestion in suggestions(before, after, "spark", database, NAMES)]


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        ("SELECT * FROM b", "", ["books"]),
        ("SELECT * FROM ", "", ["books", "sales.orders", "default", "lake", "sales"]),
        ("SELECT * FROM sales.", "", ["orders"]),
        ("DESCRIBE bo", "", ["books"]),
        ("USE s", "", ["sales"]),
        ("SELECT pri", " FROM books", ["price"]),
        ("SELECT o.", " FROM sales.orders AS o", ["id", "isbn", "placed_on"]),
        ("SELECT O.p", " FROM sales.orders o JOIN books b", ["placed_on"]),
        ("SELECT b.i", " FROM sales.orders o JOIN books b", ["isbn"]),
        ("SELECT ", " FROM books", ["isbn", "price"]),
        ("SELECT 1; sele", "", ["select"]),
        ("SELECT su", "", ["sum", "substring"]),
        ("SEL", "", ["SELECT"]),
        ("SELECT 'FROM b", "", []),
        ("SELECT 1 /* FROM b", "", []),
        ("SELECT nothing.", "", []),
    ],
)
def test_what_can_stand_at_the_cursor_is_offered(before: str, after: str, texts: list[str]) -> None:
    assert offered(before, after) == texts


def test_tables_of_the_current_database_have_bare_names() -> None:
    assert offered("SELECT * FROM o", database="sales") == ["orders"]
    assert offered("SELECT pl", " FROM orders", database="sales") == ["placed_on"]
    assert "default.books" in offered("SELECT * FROM ", database="sales")


def test_columns_are_those_of_the_tables_that_a_statement_reads() -> None:
    assert tables_in("SELECT * FROM books WHERE price > 1", "spark", "default", NAMES) == {"books": "books"}
    joined = "SELECT * FROM books b JOIN sales.orders AS o ON b.isbn = o.isbn"
    assert tables_in(joined, "spark", "default", NAMES) == {
        "books": "books",
        "b": "books",
        "orders": "sales.orders",
        "o": "sales.orders",
    }
    assert tables_in("SELECT * FROM", "spark", "default", NAMES) == {}
    assert tables_in("SELECT 'open", "spark", "default", NAMES) == {}


def test_a_word_has_its_qualifiers() -> None:
    assert word_before("SELECT a.b_1") == "a.b_1"
    assert word_before("SELECT count(") == ""
