from __future__ import annotations

import contextlib
import io
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import duckdb
import pytest

from benchmarks.cardinality import Estimated, estimates
from benchmarks.tables import database, described

CUSTOMERS, ORDERS = 200, 20_000
LARGE = "SELECT * FROM orders WHERE amount >= 9000"
JOINED = "SELECT count(*) FROM orders o JOIN customers c ON o.customer = c.id WHERE c.region = 'r1'"
UNKNOWN = "SELECT nothing FROM orders"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Give a folder with a table as text, one as Parquet, and a folder that is no table."""
    folder = tmp_path / "data"
    (folder / "orders").mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.sql(f"SELECT i AS id, 'r' || i % 4 AS region FROM range({CUSTOMERS}) t(i)").write_csv(
            str(folder / "customers.csv")
        )
        orders = f"SELECT i AS id, i % {CUSTOMERS} AS customer, i % 10000 AS amount FROM range({ORDERS}) t(i)"
        connection.sql(orders).write_parquet(str(folder / "orders" / "0.parquet"))
    (folder / "empty").mkdir()
    return folder


def estimated(data: Path, work: Path, asked: list[tuple[str, float]]) -> tuple[list[Estimated], str]:
    """Return the estimates, and what is printed meanwhile."""
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        tables = described(data, work, [sql for sql, _ in asked])
        with database(tables.tables.values()) as connection:
            return list(estimates(connection, tables, asked)), printed.getvalue()


@pytest.mark.spark
@pytest.mark.thorough
def test_statements_over_anyones_tables_are_estimated(data: Path, tmp_path: Path) -> None:
    asked = [(LARGE, ORDERS / 10), (JOINED, ORDERS / 4), (UNKNOWN, 1.0)]
    work = tmp_path / "work"
    work.mkdir()
    with ProcessPoolExecutor(1, get_context("spawn")) as process:  # this one may have a Spark of its own
        (large, joined), printed = process.submit(estimated, data, work, asked).result()
    assert "empty is no table" in printed
    assert f"not planned: {UNKNOWN}: Binder Error" in printed
    assert [large.ours, joined.ours] == pytest.approx(
        [ORDERS / 10, ORDERS / 4], rel=0.01
    )  # of a count, the rows below it
    assert abs(large.engines - large.true) > abs(large.ours - large.true)
    assert all(one.upper >= one.true and one.seconds > 0.0 for one in (large, joined))
