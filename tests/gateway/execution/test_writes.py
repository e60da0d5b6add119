"""Statements that write, over a real Spark that writes and a real DuckDB that reads what was written at once."""

from __future__ import annotations

import datetime as dt
import os
import signal
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.duckdb.engine import DuckDBEngine
from engines.errors import StatementError, UnsupportedFeature
from engines.protocol import Lease
from engines.spark.embedded.server import SparkConnectServer
from engines.spark.engine import SparkConnectEngine
from gateway.security.principals import Principal
from gateway.statements.session import Session
from gateway.statements.statement import Statement
from metastore.discovery.inspection import inspect
from metastore.records import QueryState
from selector.decision import ReasonCode
from sql.errors import SqlError, UnknownDatabase, UnknownTable
from sql.tables import Column
from tests.gateway.house import LIMIT, House, opened

pytestmark = pytest.mark.spark

SALES = "SELECT 1 AS id, CAST(2.50 AS DECIMAL(10,2)) AS price, DATE'1969-12-31' AS sold, 'Ünï' AS title, 2023 AS year"
SLOW = "SELECT a.id FROM ids a CROSS JOIN ids b WHERE (a.id * b.id) % 1000003 = 7"


@pytest.fixture
def house(tmp_path: Path, duckdb: DuckDBEngine, spark_engine: SparkConnectEngine) -> Iterator[House]:
    with opened(tmp_path / "home", duckdb, spark_engine) as house:
        yield house


def test_a_table_of_a_querys_rows(house: House) -> None:
    assert house.done(f"CREATE TABLE sold AS {SALES}") == [{"rows_written": 1}]
    table = house.gateway.metastore.catalog.get("sold")
    assert table is not None
    assert [(c.name, c.data_type) for c in table.source.columns] == [
        ("id", "int"),
        ("price", "decimal(10,2)"),
        ("sold", "date"),
        ("title", "string"),
        ("year", "int"),
    ]
    row = {"id": 1, "price": Decimal("2.50"), "sold": dt.date(1969, 12, 31), "title": "Ünï", "year": 2023}
    assert house.both("SELECT * FROM sold") == [row]
    record = house.ended("INSERT INTO sold SELECT id + 1, price, sold, title, year FROM sold")
    assert record.decision is not None
    assert [reason.code for reason in record.decision.reasons] == [ReasonCode.WRITE]
    assert [attempt.engine for attempt in record.attempts] == ["spark"]
    assert house.both("SELECT id FROM sold ORDER BY id") == [{"id": 1}, {"id": 2}]


def test_a_table_that_is_there_stays_as_it_is(house: House) -> None:
    house.done("CREATE TABLE once AS SELECT 1 AS a")
    assert house.done("CREATE TABLE IF NOT EXISTS once AS SELECT 2 AS b") == [{"rows_written": 0}]
    assert house.both("SELECT * FROM once") == [{"a": 1}]


@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
def test_rows_of_a_query_in_with(house: House, dialect: str) -> None:
    house.done("CREATE TABLE rows_of_with (n INT)")
    house.done("WITH w AS (SELECT 1 AS n) INSERT INTO rows_of_with SELECT n FROM w", dialect=dialect)
    house.done("WITH w AS (SELECT 2 AS n, 'INSERT INTO' AS s) INSERT INTO rows_of_with SELECT n FROM w WHERE s > ''")
    assert house.both("SELECT n FROM rows_of_with ORDER BY n") == [{"n": 1}, {"n": 2}]
    assert house.both("WITH w AS (SELECT 'INSERT INTO t' AS s) SELECT s FROM w") == [{"s": "INSERT INTO t"}]


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_texts_that_have_a_collation_are_compared_by_it(house: House, format: str) -> None:
    house.done(
        f"CREATE TABLE cities (id INT, name STRING COLLATE UTF8_LCASE, code STRING COLLATE UTF8_BINARY) USING {format}"
    )
    house.done("INSERT INTO cities VALUES (1, 'Oslo', 'Oslo'), (2, 'OSLO', 'OSLO'), (3, 'Bergen', 'bergen')")
    same = "SELECT id FROM cities WHERE name = 'oslo' ORDER BY id"
    assert house.done(same) == [{"id": 1}, {"id": 2}]
    assert house.done("SELECT count(DISTINCT name) AS n, count(DISTINCT code) AS c FROM cities") == [{"n": 2, "c": 3}]
    record = house.ended(same, engine="duckdb")
    assert record.error is not None
    assert "a collation, which the column name has" in record.error.message
    house.done("CREATE TABLE towns AS SELECT id, name, upper(code) AS code FROM cities")
    assert house.done("SELECT id FROM towns WHERE name = 'BERGEN'") == [{"id": 3}]
    shown = [row["data_type"] for row in house.done("DESCRIBE towns")]
    assert shown == ["int", "string collate UTF8_LCASE", "string"]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("CREATE TABLE odd (a INT, p STRING COLLATE UNICODE) PARTITIONED BY (p)", "has a collation"),
        ("CREATE TABLE odd (a ARRAY<STRING COLLATE UNICODE>)", "collations of texts inside"),
        ("CREATE TABLE odd (a STRING COLLATE nope_nope)", "no collation NOPE_NOPE"),
    ],
)
def test_collations_that_no_table_can_have(house: House, sql: str, says: str) -> None:
    with pytest.raises(SqlError, match=says):
        house.ended(sql)


def test_a_text_is_no_longer_than_its_column_allows(house: House) -> None:
    house.done("CREATE TABLE short (id INT, code VARCHAR(3), p VARCHAR(2)) PARTITIONED BY (p)")
    assert house.done("INSERT INTO short VALUES (1, 'abc', 'x'), (2, 'ab    ', 'y '), (3, NULL, 'z   ')") == [
        {"rows_written": 3}
    ]
    for statement in (
        "INSERT INTO short VALUES (4, 'abcd', 'x')",
        "INSERT INTO short SELECT 4, concat(code, 'd'), p FROM short",
        "INSERT INTO short VALUES (4, 'abc', 'xyz')",
        "INSERT OVERWRITE short VALUES (4, ' abc', 'x')",
    ):
        record = house.ended(statement)
        assert record.error is not None
        assert "[EXCEED_LIMIT_LENGTH] A text is longer than the" in record.error.message, statement
    assert house.both("SELECT id, code, length(code) AS n, p FROM short ORDER BY id") == [
        {"id": 1, "code": "abc", "n": 3, "p": "x"},
        {"id": 2, "code": "ab ", "n": 3, "p": "y "},
        {"id": 3, "code": None, "n": None, "p": "z "},
    ]


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_partitions(house: House, format: str) -> None:
    made = f"CREATE TABLE parts (amount BIGINT, year INT, region VARCHAR(10)) STORED AS {format}"
    house.done(f"{made} PARTITIONED BY (year, region)")
    assert house.done("SELECT * FROM parts") == []
    assert house.done("INSERT INTO parts VALUES (1, 2023, 'a b/c'), (2, 2023, NULL), (3, 2024, 'n')") == [
        {"rows_written": 3}
    ]
    house.done("INSERT INTO parts PARTITION (year = 2024, region) (amount, region) SELECT 4, 'n'")
    assert house.both("SELECT amount, region FROM parts WHERE year = 2023 ORDER BY amount") == [
        {"amount": 1, "region": "a b/c"},
        {"amount": 2, "region": None},
    ]
    assert house.both("SELECT SUM(amount) AS n FROM parts WHERE year = 2024") == [{"n": 7}]
    house.done("INSERT OVERWRITE parts PARTITION (year = 02024, region) SELECT 9, 's'")
    assert house.both("SELECT amount, year, region FROM parts WHERE year >= 2024") == [
        {"amount": 9, "year": 2024, "region": "s"}
    ]
    assert house.both("SELECT COUNT(*) AS n FROM parts") == [{"n": 3}]
    house.done("INSERT OVERWRITE parts SELECT amount * 10, year, region FROM parts WHERE region = 's'")
    assert house.both("SELECT amount, year FROM parts") == [{"amount": 90, "year": 2024}]


def test_an_empty_table_of_all_types(house: House) -> None:
    types = ["boolean", "tinyint", "double", "decimal(38,10)", "string", "binary", "date", "timestamp", "array<int>"]
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(types))
    house.done(f"CREATE TABLE typed ({columns})")
    found = house.gateway.metastore.catalog.get("typed")
    assert found is not None
    assert [column.data_type for column in found.source.columns] == types
    assert house.both("SELECT COUNT(*) AS n FROM typed") == [{"n": 0}]


def test_rows_for_a_table_that_somebody_else_made(house: House, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    pq.write_table(pa.table({"a": pa.array([1], pa.int64()), "b": ["x"]}), folder / "1.parquet")
    house.gateway.metastore.catalog.put(inspect("theirs", folder), at=dt.datetime.now(dt.UTC))
    house.done("INSERT INTO theirs (b) SELECT 'y'")
    assert house.both("SELECT a, b FROM theirs ORDER BY b") == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    house.done("DROP TABLE theirs")
    assert len(list(folder.iterdir())) == 2  # forgotten, not deleted


def test_a_dropped_table_is_gone_with_its_files(house: House) -> None:
    house.done("CREATE TABLE short AS SELECT 1 AS a")
    folder = house.location("short")
    assert list(folder.iterdir())
    house.done("DROP TABLE short")
    assert not folder.exists()
    assert house.done("DROP TABLE IF EXISTS short") == [{"rows_written": 0}]
    house.done("CREATE TABLE short AS SELECT 2 AS b")
    assert house.both("SELECT * FROM short") == [{"b": 2}]


FAILING = {
    "INSERT INTO target SELECT 1, 2": "STATEMENT_ERROR",
    "INSERT INTO target SELECT 1 / (id - 7) FROM (SELECT 7 AS id) s": "STATEMENT_ERROR",
    "INSERT INTO target SELECT 'no number'": "STATEMENT_ERROR",
    "CREATE TABLE other AS SELECT 1 AS a, 2 AS A": "STATEMENT_ERROR",
    "CREATE TABLE other PARTITIONED BY (nothing) AS SELECT 1 AS a": "STATEMENT_ERROR",
    "INSERT INTO text SELECT 1": "WRITE_FAILED",
}


def test_a_write_that_fails_leaves_everything_as_it_was(house: House, tmp_path: Path) -> None:
    house.done("CREATE TABLE target AS SELECT CAST(1 AS BIGINT) AS a")
    (tmp_path / "text.csv").write_text("1\n", encoding="ascii")
    text = inspect("text", tmp_path / "text.csv", columns=[Column("a", "bigint")])
    house.gateway.metastore.catalog.put(text, at=dt.datetime.now(dt.UTC))
    before = sorted(house.location("target").rglob("*"))
    for sql, code in FAILING.items():
        assert house.failed(sql) == code
        assert sorted(house.location("target").rglob("*")) == before
        assert sorted(path.name.split("-")[0] for path in house.location("target").parent.iterdir()) == ["target"]
        assert house.gateway.metastore.catalog.get("other") is None
    assert house.both("SELECT a FROM target") == [{"a": 1}]


def test_the_fast_engine_cannot_be_asked_to_write(house: House) -> None:
    record = house.ended("CREATE TABLE x AS SELECT 1 AS a", engine="duckdb")
    assert record.error is not None
    assert record.error.code == "NO_ENGINE_AVAILABLE"
    assert "duckdb does not write" in record.error.message


@pytest.fixture
def ids(house: House, tmp_path: Path) -> None:
    (tmp_path / "ids").mkdir()
    pq.write_table(pa.table({"id": pa.array(range(400_000), pa.int64())}), tmp_path / "ids" / "ids.parquet")
    house.gateway.metastore.catalog.put(inspect("ids", tmp_path / "ids"), at=dt.datetime.now(dt.UTC))


@pytest.mark.usefixtures("ids")
def test_a_cancelled_write_leaves_nothing(house: House) -> None:
    run = house.gateway.coordinator.submit(Statement(sql=f"CREATE TABLE slow AS {SLOW}"))
    threading.Timer(2.0, house.gateway.coordinator.cancel, [run.id]).start()
    assert run.done.result(timeout=60).state is QueryState.CANCELLED
    assert house.gateway.metastore.catalog.get("slow") is None


def test_a_commit_that_was_broken_off_is_ended_by_the_next_gateway(
    house: House, tmp_path: Path, duckdb: DuckDBEngine, spark_engine: SparkConnectEngine
) -> None:
    house.done("CREATE TABLE target AS SELECT CAST(1 AS BIGINT) AS a")
    folder = house.location("target")
    committed, staged = folder / ".fusion-commit-20260101_000000_aa", folder / ".fusion-write-20260101_000000_bb"
    for place, value in ((committed, 2), (staged, 3)):
        place.mkdir()
        pq.write_table(pa.table({"a": pa.array([value], pa.int64())}), place / f"{value}.parquet")
    commits = house.gateway.metastore.commits
    for query_id in ("20260101_000000_aa", "20260101_000000_bb"):
        commits.begin(query_id, str(folder), at=dt.datetime.now(dt.UTC))
    commits.prepare("20260101_000000_aa", files=["2.parquet"], replaced=[])
    assert house.both("SELECT a FROM target") == [{"a": 1}]  # nobody sees what is not the table's yet
    with opened(tmp_path / "home", duckdb, spark_engine) as following:
        assert following.both("SELECT a FROM target ORDER BY a") == [{"a": 1}, {"a": 2}]
    assert not committed.exists()
    assert not staged.exists()


def test_views(house: House) -> None:
    house.done("CREATE TABLE sold AS SELECT * FROM (VALUES (1, 2.5), (2, 10.0)) v(id, price)")
    house.done("CREATE VIEW cheap AS SELECT id, price * 2 AS twice FROM sold WHERE price < 5;")
    assert house.both("SELECT twice FROM cheap WHERE id = 1") == [{"twice": Decimal("5.0")}]
    house.done("CREATE VIEW named (a, b) AS SELECT c.id, s.id FROM cheap c JOIN sold AS s ON s.id > c.id")
    assert house.both("SELECT n.a + n.b AS n FROM named AS n, cheap") == [{"n": 3}]
    assert house.both("WITH cheap AS (SELECT 7 AS id) SELECT id FROM cheap") == [{"id": 7}]
    assert house.both("WITH sold AS (SELECT 7 AS id) SELECT cheap.id + sold.id AS n FROM cheap, sold") == [{"n": 8}]
    assert house.done("DESCRIBE named")[1] == {"col_name": "b", "data_type": "int", "comment": ""}
    assert house.done("SHOW TABLES") == [{"tab_name": name} for name in ("cheap", "named", "sold")]
    house.done("CREATE OR REPLACE VIEW cheap AS SELECT id, price AS twice FROM sold")
    assert house.both("SELECT b FROM named") == [{"b": 2}]  # what a view names is looked up when it is used
    house.done("DROP VIEW cheap")
    with pytest.raises(UnknownTable, match="cheap"):
        house.ended("SELECT * FROM named")


def test_temporary_views_are_the_sessions_own(house: House) -> None:
    house.done("CREATE TABLE sold AS SELECT 1 AS id")
    mine, other = (Session(Principal("ann"), deadline_s=60) for _ in range(2))
    house.done("CREATE TEMPORARY VIEW sold AS SELECT id + 1 AS id FROM default.sold", session=mine)
    assert house.done("SELECT * FROM sold", session=mine) == [{"id": 2}]
    assert house.done("SELECT * FROM sold", session=other) == [{"id": 1}]
    assert house.failed("CREATE TEMP VIEW sold AS SELECT 1 AS id", session=mine) == "TABLE_EXISTS"
    house.done("DROP VIEW sold", session=mine)
    assert house.done("SELECT * FROM sold", session=mine) == [{"id": 1}]
    assert house.failed("CREATE TEMP VIEW x AS SELECT 1 AS id") == "NO_SESSION"


def test_tables_come_and_go_under_the_same_processes(house: House, duckdb: DuckDBEngine) -> None:
    """A new table is read at once, a dropped one by nobody, one of the same name is another one; no process ends."""
    house.done("CREATE TABLE standing AS SELECT 1 AS id")
    assert house.done("SELECT id FROM standing", engine="duckdb") == [{"id": 1}]
    before = duckdb.worker_pids(), duckdb.planner_pids()
    for number in range(3):
        house.done(f"CREATE TABLE made AS SELECT {number} AS n{number}")
        place = house.location("made")
        assert house.both(f"SELECT n{number} FROM made JOIN standing ON id > 0") == [{f"n{number}": number}]
        house.done(f"INSERT INTO made SELECT {number + 10}")
        assert house.both(f"SELECT n{number} AS n FROM made ORDER BY n") == [{"n": number}, {"n": number + 10}]
        house.done("DROP TABLE made")
        with pytest.raises(UnknownTable):
            house.done(f"SELECT n{number} FROM made")
        # Behind the gateway's back, too: nothing of it is left in a worker.
        for sql in (
            f"SELECT n{number} FROM made",
            f"SELECT * FROM read_parquet('{place}/*')",
            "SELECT * FROM glob('/*')",
        ):
            with pytest.raises((StatementError, UnsupportedFeature)):
                duckdb.execute(sql, query_id="q", lease=Lease(LIMIT), deadline_s=30)
        assert house.done("SELECT id FROM standing", engine="duckdb") == [{"id": 1}]
    assert (duckdb.worker_pids(), duckdb.planner_pids()) == before


def test_of_two_overwrites_at_once_one_result_is_left(house: House) -> None:
    house.done("CREATE TABLE target AS SELECT 0 AS a")
    runs = [
        house.gateway.coordinator.submit(Statement(sql=f"INSERT OVERWRITE target SELECT {value}")) for value in (1, 2)
    ]
    for run in runs:
        assert run.done.result(timeout=60).state is QueryState.FINISHED
    assert house.done("SELECT a FROM target", engine="duckdb") in ([{"a": 1}], [{"a": 2}])


@pytest.mark.usefixtures("ids")
def test_a_write_is_never_tried_again(house: House, spark_server: SparkConnectServer) -> None:
    house.done("CREATE TABLE target AS SELECT CAST(1 AS BIGINT) AS a")
    run = house.gateway.coordinator.submit(Statement(sql=f"INSERT INTO target {SLOW}"))
    time.sleep(2.0)
    pid = spark_server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    record = run.done.result(timeout=60)
    assert (record.state, len(record.attempts)) == (QueryState.FAILED, 1)
    assert record.error is not None
    assert record.error.code == "ENGINE_UNAVAILABLE"
    assert house.done("SELECT a FROM target", engine="duckdb") == [{"a": 1}]


def test_tables_of_another_database_are_written_read_and_dropped_with_it(house: House) -> None:
    house.done("CREATE DATABASE shop")
    house.done("CREATE TABLE shop.sold PARTITIONED BY (year) AS SELECT 1 AS id, 2023 AS year")
    house.done("CREATE TABLE sold AS SELECT 9 AS id")
    assert house.done("INSERT INTO shop.sold SELECT 2 AS id, 2024 AS year") == [{"rows_written": 1}]
    house.done("INSERT OVERWRITE sold PARTITION (year = 2023) SELECT 3", database="shop")
    assert house.both("SELECT s.id, year FROM shop.sold s JOIN sold ON sold.id = 9 ORDER BY s.id") == [
        {"id": 2, "year": 2024},
        {"id": 3, "year": 2023},
    ]
    house.done("CREATE VIEW shop.newest AS SELECT max(year) AS year FROM sold", database="shop")
    assert house.both("SELECT year FROM shop.newest") == [{"year": 2024}]
    folder = house.location("shop.sold")
    assert house.failed("DROP DATABASE shop") == "DATABASE_NOT_EMPTY"
    assert folder.is_dir()
    house.done("DROP SCHEMA shop CASCADE")
    assert not folder.exists()
    assert house.done("SHOW DATABASES") == [{"namespace": "default"}]
    assert house.both("SELECT id FROM sold") == [{"id": 9}]
    house.done("DROP DATABASE IF EXISTS shop")
    with pytest.raises(UnknownDatabase):
        house.ended("CREATE TABLE shop.again AS SELECT 1 AS id")


def test_what_was_written_is_explained_and_made_again(house: House) -> None:
    house.done(f"CREATE TABLE sold PARTITIONED BY (year) AS {SALES}")
    location = str(house.location("sold"))
    ((text,),) = (row.values() for row in house.done("SHOW CREATE TABLE sold"))
    lines = house.done("EXPLAIN FORMATTED SELECT id FROM sold WHERE id > 0", engine="spark")
    plan = "\n".join(row["plan"] for row in lines)
    assert "Plan of spark:" in plan
    assert "Scan parquet" in plan
    assert location not in plan
    assert Path(location).name not in plan
    assert house.done("EXPLAIN INSERT INTO sold SELECT * FROM sold")[0] == {"plan": "Engine: spark"}
    before = house.done("DESCRIBE sold")
    house.done("DROP TABLE sold")
    house.done(text)
    assert house.done("DESCRIBE sold") == before
    assert house.done("SELECT * FROM sold", engine="spark") == []
