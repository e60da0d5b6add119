from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.files.listing import data_files
from metastore.discovery.inspection import inspect
from statsproc.data import bookstore_names as names
from statsproc.data.bookstore import (
    BOOKS,
    FICTION_SHARE,
    GREAT_HOUSE_SHARE,
    PUBLISHERS_PER_CATEGORY,
    TRANSACTIONS,
    Bookstore,
    Distribution,
    Format,
    make_table,
    write_table,
    zipf_rank,
)
from statsproc.data.parquet_output import ROW_GROUP_ROWS, published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE = 1 / 1000
STORE = Bookstore(SCALE)
TYPES = {
    "books": "id bigint, isbn string, category string, publish_date date, publisher string, price double",
    "customers": (
        "id bigint, name string, date_of_birth date, gender string, state string, email string, phone string"
    ),
    "transactions": "id bigint, customer_id bigint, book_id bigint, quantity int, transaction_date date",
}


def test_sizes_follow_table_1_of_the_paper() -> None:
    assert Bookstore(1.0).rows == {"books": BOOKS, "customers": 105_800_433, "transactions": TRANSACTIONS}
    assert Bookstore(1e-9).rows["books"] == 1


@pytest.mark.parametrize("scale", [0.0, -1.0, 101.0])
def test_scales_that_make_no_sense(scale: float) -> None:
    with pytest.raises(ValueError, match="scale must lie"):
        Bookstore(scale)


def test_names_differ() -> None:
    publishers = len(names.CATEGORIES) * PUBLISHERS_PER_CATEGORY
    assert len(set(names.publishers(publishers))) == publishers
    assert len(set(names.LAST_NAMES)) == len(names.LAST_NAMES)
    with pytest.raises(ValueError, match="not"):
        names.publishers(publishers + 1)


def test_a_zipf_rank_needs_a_skew_other_than_one() -> None:
    with pytest.raises(ValueError, match="another formula"):
        zipf_rank("0.5D", 1.0, 10)


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "t"
    with published(target) as draft:
        draft.mkdir()
        (draft / "a").write_text("old")
    with pytest.raises(RuntimeError), published(target) as draft:
        draft.mkdir()
        (draft / "a").write_text("half of the n")
        raise RuntimeError
    assert (target / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give the three tables in DuckDB."""
    folder = tmp_path_factory.mktemp("bookstore")
    connection = duckdb.connect()
    for table in STORE.rows:
        path = write_table(spark, STORE, table, folder)
        connection.execute(f"CREATE VIEW {table} AS FROM read_parquet('{path}/*.parquet')")
        found = inspect(table, path)
        assert found.rows == STORE.rows[table]
        assert ", ".join(f"{column.name} {column.data_type}" for column in found.source.columns) == TYPES[table]
        footers = [pq.read_metadata(file.path) for file in data_files(path)]
        groups = [footer.row_group(at).num_rows for footer in footers for at in range(footer.num_row_groups)]
        assert max(groups) == min(STORE.rows[table], ROW_GROUP_ROWS)
    yield connection
    connection.close()


def _one(store: duckdb.DuckDBPyConnection, sql: str) -> float:
    row = store.execute(sql).fetchone()
    assert row is not None
    return float(row[0])


@pytest.mark.spark
def test_prices_are_skewed(store: duckdb.DuckDBPyConnection) -> None:
    assert 0.75 < _one(store, "SELECT avg((price < 80)::INT) FROM books") < 0.85
    assert 35 < _one(store, "SELECT median(price) FROM books") < _one(store, "SELECT avg(price) FROM books")
    assert _one(store, "SELECT max(price) FROM books") <= 150


@pytest.mark.spark
def test_quantities_are_small_and_skewed(store: duckdb.DuckDBPyConnection) -> None:
    assert _one(store, "SELECT min(quantity) FROM transactions") == 1
    assert _one(store, "SELECT max(quantity) FROM transactions") == 100
    assert _one(store, "SELECT median(quantity) FROM transactions") <= 5


@pytest.mark.spark
def test_publishers_go_with_categories(store: duckdb.DuckDBPyConnection) -> None:
    publishers = len(names.CATEGORIES) * PUBLISHERS_PER_CATEGORY
    assert _one(store, "SELECT count(DISTINCT publisher) FROM books") == publishers
    assert _one(store, "SELECT max(n) FROM (SELECT count(DISTINCT category) n FROM books GROUP BY publisher)") == 1
    house = names.publishers(1)[0]
    both = _one(store, f"SELECT avg((category = 'Fiction' AND publisher = '{house}')::INT) FROM books")
    assert both == pytest.approx(FICTION_SHARE * GREAT_HOUSE_SHARE, abs=0.01)


@pytest.mark.spark
def test_popular_books_are_not_those_with_low_ids(store: duckdb.DuckDBPyConnection) -> None:
    shares = "SELECT book_id, count(*) / sum(count(*)) OVER () AS share FROM transactions GROUP BY book_id"
    assert _one(store, f"SELECT max(share) FROM ({shares})") > 100 / STORE.rows["books"]
    top = f"SELECT book_id, share FROM ({shares}) ORDER BY share DESC LIMIT 1000"
    assert abs(_one(store, f"SELECT corr(book_id, share) FROM ({top})")) < 0.2


@pytest.mark.spark
def test_every_transaction_has_its_book_and_its_customer(store: duckdb.DuckDBPyConnection) -> None:
    joined = (
        "SELECT count(*) FROM transactions t JOIN books b ON t.book_id = b.id JOIN customers c ON t.customer_id = c.id"
    )
    assert _one(store, joined) == STORE.rows["transactions"]


@pytest.mark.spark
def test_dates_go_with_ids(store: duckdb.DuckDBPyConnection) -> None:
    assert _one(store, "SELECT corr(id, epoch(publish_date)) FROM books") > 0.9
    assert _one(store, "SELECT corr(id, epoch(transaction_date)) FROM transactions") > 0.99
    assert _one(store, "SELECT count(*) FROM books WHERE publish_date < DATE '1970-01-01'") > 0


@pytest.mark.spark
def test_isbns_are_valid_and_differ(store: duckdb.DuckDBPyConnection) -> None:
    digits = "SELECT replace(isbn, '-', '') AS d FROM books"
    total = " + ".join(f"{3 if place % 2 == 0 else 1} * d[{place}]::INT" for place in range(1, 14))
    assert _one(store, f"SELECT count(*) FROM ({digits}) WHERE length(d) <> 13 OR ({total}) % 10 <> 0") == 0
    assert _one(store, "SELECT count(DISTINCT isbn) FROM books") == STORE.rows["books"]


@pytest.mark.spark
def test_the_customer_of_query_6_is_there_a_few_times(store: duckdb.DuckDBPyConnection) -> None:
    assert 1 <= _one(store, "SELECT count(*) FROM customers WHERE name = 'Harrison SMITH'") <= 20
    assert _one(store, "SELECT count(*) FROM customers WHERE email IS NULL") > 0
    assert (
        _one(store, "SELECT count(*) FROM customers WHERE NOT email LIKE lower(split_part(name, ' ', 1)) || '.%'") == 0
    )


@pytest.mark.spark
@pytest.mark.parametrize("table", ["books", "customers", "transactions"])
def test_the_same_seed_gives_the_same_rows_in_any_number_of_parts(spark: SparkSession, table: str) -> None:
    small = Bookstore(1e-5)
    whole = make_table(spark, small, table).toArrow()
    columns = [f"{expression} AS {name}" for name, expression in small.columns(table).items()]
    parts = spark.range(1, small.rows[table] + 1, 1, 5).selectExpr(*columns).toArrow()
    assert whole.equals(parts)
    assert not whole.equals(make_table(spark, Bookstore(1e-5, seed=7), table).toArrow())


@pytest.mark.spark
def test_uniform_prices_and_quantities(spark: SparkSession, tmp_path: Path) -> None:
    uniform = Bookstore(SCALE / 10, distribution=Distribution.UNIFORM)
    path = write_table(spark, uniform, "transactions", tmp_path)
    quantities = pq.read_table(path, columns=["quantity"]).column("quantity").to_numpy()
    assert (quantities.min(), quantities.max()) == (1, 100)
    assert quantities.mean() == pytest.approx(50.5, abs=1.0)


@pytest.mark.spark
def test_the_papers_text_form(spark: SparkSession, tmp_path: Path) -> None:
    small = Bookstore(1e-6)
    path = write_table(spark, small, "customers", tmp_path, Format.TEXT)
    lines = [line for file in data_files(path) for line in file.path.read_text().splitlines()]
    assert len(lines) == small.rows["customers"]
    expected: pa.Table = make_table(spark, small, "customers").toArrow()
    for line, row in zip(lines, expected.to_pylist(), strict=True):
        assert line.split("|") == ["" if value is None else str(value) for value in row.values()]
