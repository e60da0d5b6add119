"""Joins as people write them: the same pair from every way to say it, and nothing from what only looks like one."""

from __future__ import annotations

import time

import pytest
from sqlglot import parse_one

from engines.compiled import joined_columns
from gateway.cli.demo.paper_queries import PAPER_QUERIES
from selector.join_keys import ColumnRef, KeyPair
from selector.query_text import LONGEST_KEY, MOST_COLUMNS, join_pairs
from sql import statement
from sql.parsing import ParserLimits
from sql.tables import Column, TableSource

COLUMNS = {
    "books": ("id", "isbn", "category", "publish_date", "publisher", "price"),
    "customers": ("id", "name", "gender", "email", "date_of_birth", "city"),
    "transactions": ("id", "customer_id", "book_id", "quantity", "transaction_date"),
}
CATALOG = {
    name: TableSource(name, f"/data/{name}", "parquet", tuple(Column(column, "bigint") for column in columns))
    for name, columns in COLUMNS.items()
}
BOOK = KeyPair.of(ColumnRef("transactions", "book_id"), ColumnRef("books", "id"))
CUSTOMER = KeyPair.of(ColumnRef("transactions", "customer_id"), ColumnRef("customers", "id"))


def pairs(sql: str) -> set[KeyPair]:
    return set(joined_columns(statement.check(sql, "spark", catalog=CATALOG, limits=ParserLimits())))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM transactions t JOIN books b ON t.book_id = b.id",
        "SELECT 1 FROM Transactions T, Books B WHERE B.ID = T.Book_Id AND b.price < 3",
        "SELECT 1 FROM transactions JOIN books ON book_id = books.id",
        "SELECT 1 FROM transactions t LEFT JOIN books b ON (t.book_id = b.id AND t.quantity > 1)",
        "SELECT 1 FROM transactions t WHERE t.book_id IN (SELECT id FROM books WHERE price < 3)",
        "SELECT 1 FROM transactions t WHERE NOT t.book_id IN (SELECT b.id AS x FROM books b)",
        "SELECT 1 FROM transactions t WHERE (book_id, quantity) IN (SELECT id, price + 1 FROM books)",
        "SELECT 1 FROM transactions t WHERE EXISTS (SELECT 1 FROM books b WHERE b.id = t.book_id)",
        "SELECT 1 FROM transactions t WHERE NOT EXISTS (SELECT 1 FROM books WHERE isbn = 3 AND books.id = book_id)",
        "SELECT 1 FROM (SELECT book_id AS b FROM transactions) t JOIN (SELECT * FROM books) x ON t.b = x.id",
        "WITH t AS (SELECT book_id FROM transactions), x AS (SELECT * FROM t) SELECT 1 FROM x, books WHERE book_id=id",
        "WITH t(k) AS (SELECT book_id FROM transactions) SELECT 1 FROM t JOIN books b ON b.id = t.k",
        "SELECT 1 FROM (SELECT b.id, t.book_id FROM books b CROSS JOIN transactions t) x WHERE x.id = x.book_id",
        "SELECT 1 FROM books b WHERE price < (SELECT avg(quantity) FROM transactions t WHERE t.book_id = b.id)",
        "SELECT 1 FROM transactions t JOIN books b ON t.book_id <=> b.id",
        "SELECT book_id FROM transactions UNION SELECT 1 FROM transactions t JOIN books b ON t.book_id = b.id",
    ],
)
def test_every_way_to_say_a_join(sql: str) -> None:
    assert pairs(sql) == {BOOK}


def test_using_joins_what_has_the_same_name() -> None:
    sql = "SELECT 1 FROM (SELECT book_id AS id FROM transactions) t JOIN books USING (id)"
    assert pairs(sql) == {BOOK}


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        (
            "SELECT 1 FROM transactions t JOIN books b ON t.book_id = b.id JOIN customers c ON c.id = t.customer_id",
            {BOOK, CUSTOMER},
        ),
        (
            "SELECT 1 FROM books a JOIN books b ON a.publisher = b.publisher",
            {KeyPair(ColumnRef("books", "publisher"), ColumnRef("books", "publisher"))},
        ),
        (
            "WITH x AS (SELECT * FROM books) SELECT 1 FROM x a JOIN x b ON a.id = b.price",
            {KeyPair(ColumnRef("books", "id"), ColumnRef("books", "price"))},
        ),
    ],
)
def test_several_joins_and_joins_with_oneself(sql: str, found: set[KeyPair]) -> None:
    assert pairs(sql) == found


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM books WHERE id = price",
        "SELECT 1 FROM books b WHERE b.id = 3",
        "SELECT t.book_id = b.id FROM transactions t, books b",
        "SELECT 1 FROM transactions t, books b WHERE t.book_id = b.id OR b.price < 3",
        "SELECT 1 FROM transactions t, books b WHERE NOT t.book_id = b.id",
        "SELECT 1 FROM transactions t JOIN books b ON t.book_id = b.id + 1",
        "SELECT 1 FROM transactions t JOIN (SELECT max(id) AS id FROM books) b ON t.book_id = b.id",
        "SELECT 1 FROM transactions t WHERE t.book_id IN (1, 2)",
        "SELECT 1 FROM transactions t JOIN (SELECT id FROM books UNION SELECT id FROM customers) b ON t.book_id = b.id",
        "SELECT 1",
    ],
)
def test_what_only_looks_like_a_join(sql: str) -> None:
    assert pairs(sql) == set()


BOTH = KeyPair.together(
    (ColumnRef("transactions", own), ColumnRef("books", its)) for own, its in (("book_id", "id"), ("quantity", "price"))
)
EACH = {BOOK, KeyPair.of(ColumnRef("transactions", "quantity"), ColumnRef("books", "price"))}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM transactions t JOIN books b ON t.book_id = b.id AND t.quantity = b.price",
        "SELECT 1 FROM books b JOIN transactions t ON b.price = t.quantity WHERE b.id = t.book_id",
        "SELECT 1 FROM transactions t WHERE (quantity, book_id) IN (SELECT price, id FROM books)",
        "SELECT 1 FROM books b WHERE EXISTS (SELECT 1 FROM transactions t WHERE b.id = book_id AND quantity = price)",
        "SELECT 1 FROM (SELECT quantity AS price, book_id AS id FROM transactions) t JOIN books USING (price, id)",
    ],
)
def test_columns_that_are_compared_with_one_table_are_a_key_together(sql: str) -> None:
    assert pairs(sql) == {*EACH, BOTH}
    assert (BOTH.left.table, BOTH.left.columns, BOTH.right.columns) == (
        "books",
        ("id", "price"),
        ("book_id", "quantity"),
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM transactions t JOIN books b ON t.book_id = b.id JOIN books c ON t.quantity = c.price",
        "SELECT 1 FROM transactions t JOIN books b ON t.book_id = b.id OR t.quantity = b.price"
        " WHERE t.book_id = b.id AND t.quantity IN (SELECT price FROM books)",
    ],
)
def test_columns_that_are_compared_with_different_references_are_not(sql: str) -> None:
    assert pairs(sql) == EACH


def test_a_key_has_few_columns_with_short_names() -> None:
    def joined(names: list[str]) -> set[KeyPair]:
        on = " AND ".join(f"a.`{name}` = b.`{name}`" for name in names)
        tree = parse_one(f"SELECT 1 FROM x a JOIN y b ON {on}", dialect="spark")
        return set(join_pairs(tree, {"x": frozenset(names), "y": frozenset(names)}))

    def each(names: list[str]) -> set[KeyPair]:
        return {KeyPair.of(ColumnRef("x", name), ColumnRef("y", name)) for name in names}

    most = [f"k{n}" for n in range(MOST_COLUMNS)]
    assert len(joined(most) - each(most)) == 1
    longest = ["k" * (LONGEST_KEY // 2), "l" * (LONGEST_KEY // 2)]
    assert len(joined(longest) - each(longest)) == 1
    for names in ([*most, "one_more"], [longest[0] + "k", longest[1]], ["a,b", "c"]):
        assert joined(names) == each(names)


def test_the_papers_queries_teach_its_keys() -> None:
    found = {pair for sql in PAPER_QUERIES.values() for pair in pairs(sql)}
    assert {BOOK, CUSTOMER} >= found
    assert BOOK in found


def test_reading_a_statement_takes_less_than_a_millisecond() -> None:
    sql = "SELECT 1 FROM transactions t JOIN books b ON t.book_id = b.id JOIN customers c ON c.id = t.customer_id"
    checked = statement.check(sql, "spark", catalog=CATALOG, limits=ParserLimits())
    times = []
    for _ in range(20):
        begun = time.perf_counter()
        joined_columns(checked)
        times.append(time.perf_counter() - begun)
    assert min(times) < 1e-3
