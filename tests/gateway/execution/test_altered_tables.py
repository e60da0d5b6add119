"""Tables that statements replace, widen and empty, over a real Spark that writes and a DuckDB that reads beside it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gateway.statements.statement import Statement
from metastore.records import QueryState
from sql.errors import UnknownColumn
from tests.gateway.execution.test_writes import house
from tests.gateway.house import House

__all__ = ["house"]

pytestmark = pytest.mark.spark

TYPES = (
    "boolean tinyint smallint int bigint float double decimal(38,10) string binary date timestamp timestamp_ntz".split()
)


@pytest.mark.parametrize("format", ["parquet", pytest.param("orc", marks=pytest.mark.thorough)])
def test_both_engines_read_files_from_before_and_after_a_column_came(house: House, format: str) -> None:
    house.done(f"CREATE TABLE t (id INT, p INT) USING {format} PARTITIONED BY (p)")
    house.done("INSERT INTO t VALUES (1, 1), (2, 2)")
    house.done("ALTER TABLE t ADD COLUMNS (note STRING, n DECIMAL(9,2))")
    everything = "SELECT id, note, n, p FROM t ORDER BY id"
    old = [{"id": at, "note": None, "n": None, "p": at} for at in (1, 2)]
    assert house.both(everything) == old
    assert house.done("INSERT INTO t VALUES (3, 'new', 1.5, 1)") == [{"rows_written": 1}]
    assert [(row["id"], row["note"]) for row in house.both(everything)] == [(1, None), (2, None), (3, "new")]
    house.done(f"CREATE TABLE u USING {format} AS SELECT 1 AS id")
    house.done("ALTER TABLE u ADD COLUMN later DOUBLE")
    assert house.both("SELECT id, later FROM u") == [{"id": 1, "later": None}]
    house.done("INSERT INTO u SELECT 2, 7")
    assert house.both("SELECT id, later FROM u ORDER BY id")[1] == {"id": 2, "later": 7.0}
    house.done("COMPUTE STATS u")
    assert house.both("SELECT count(later) AS n FROM u") == [{"n": 1}]


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_an_empty_table_has_its_columns_for_both_engines(house: House, format: str) -> None:
    kinds = [kind for kind in TYPES if format == "parquet" or kind not in ("timestamp", "timestamp_ntz")]
    house.done(f"CREATE TABLE t ({', '.join(f'c{at} {kind}' for at, kind in enumerate(kinds))}) STORED AS {format}")
    columns = ", ".join(f"c{at}" for at in range(len(kinds)))
    assert house.both(f"SELECT {columns} FROM t") == []
    house.done(f"INSERT INTO t ({columns}) SELECT {', '.join('NULL' for _ in kinds)}")
    assert len(house.both(f"SELECT {columns} FROM t")) == 1
    house.done("TRUNCATE TABLE t")
    assert house.both(f"SELECT {columns} FROM t") == []


def test_a_replaced_table_is_the_old_one_or_the_new_one_for_whoever_reads(house: House) -> None:
    house.done("CREATE TABLE t AS SELECT 0 AS a, 0 AS b")
    stop, seen = threading.Event(), set()

    def read() -> None:
        while not stop.is_set():
            for row in house.done("SELECT a, b FROM t"):
                seen.add((row["a"], row["b"]))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for at in range(1, 4):
        house.done(f"CREATE OR REPLACE TABLE t COMMENT 'v{at}' AS SELECT {at} AS a, {at} AS b FROM t")
    stop.set()
    for reader in readers:
        reader.join()
    assert house.both("SELECT a, b FROM t") == [{"a": 3, "b": 3}]
    assert seen <= {(at, at) for at in range(4)}
    assert len(seen) > 1
    table = house.gateway.metastore.catalog.get("t")
    assert table is not None
    assert table.annotations.comment == "v3"


def test_a_replacement_that_fails_leaves_the_table(house: House) -> None:
    house.done("CREATE TABLE t AS SELECT 1 AS a")
    assert house.failed("CREATE OR REPLACE TABLE t AS SELECT 1 / (a - 1) AS a FROM t") == "STATEMENT_ERROR"
    assert house.both("SELECT a FROM t") == [{"a": 1}]
    assert len(list(house.location("t").parent.iterdir())) == 1


def test_a_renamed_table_is_written_and_dropped_with_its_files(house: House) -> None:
    house.done("CREATE DATABASE d")
    house.done("CREATE TABLE t AS SELECT 1 AS a")
    house.done("ALTER TABLE t RENAME TO d.u")
    house.done("CREATE TABLE t AS SELECT 7 AS a")
    house.done("INSERT INTO d.u VALUES (2)")
    assert house.both("SELECT a FROM d.u ORDER BY a") == [{"a": 1}, {"a": 2}]
    folder = house.location("d.u")
    house.done("DROP TABLE d.u")
    assert not folder.exists()
    assert house.both("SELECT a FROM t") == [{"a": 7}]


def test_dropped_partitions_are_missed_by_nobody_else(house: House) -> None:
    house.done("CREATE TABLE t PARTITIONED BY (p) AS SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, NULL)) v(id, p)")
    house.done("ALTER TABLE t DROP PARTITION (p = 'a')")
    assert house.both("SELECT id FROM t ORDER BY id") == [{"id": 2}, {"id": 3}]
    house.done("ALTER TABLE t DROP PARTITION (p IS NULL)")
    assert house.both("SELECT id, p FROM t") == [{"id": 2, "p": "b"}]
    house.done("TRUNCATE TABLE t PARTITION (p = 'b')")
    assert house.done("SELECT id FROM t") == []
    house.done("INSERT INTO t VALUES (4, 'a')")
    assert house.both("SELECT id FROM t") == [{"id": 4}]


def test_rows_for_files_that_were_registered_by_a_statement(house: House, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    house.done(f"CREATE EXTERNAL TABLE theirs (a INT, b STRING) STORED AS PARQUET LOCATION '{folder}'")
    assert house.done("SELECT a FROM theirs") == []
    house.done("INSERT INTO theirs VALUES (1, 'x')")
    assert house.both("SELECT a, b FROM theirs") == [{"a": 1, "b": "x"}]
    house.done("DROP TABLE theirs")
    assert len(list(folder.glob("*.parquet"))) == 1


def test_forms_of_insert(house: House) -> None:
    house.done("CREATE TABLE t (a INT, b STRING)")
    house.done("INSERT INTO t (b, a)\n( select 'x', 1 )")
    house.done("INSERT INTO t (a) VALUES (2), (3)")
    house.done("CREATE TABLE u LIKE t")
    house.done("INSERT INTO u TABLE t")
    house.done("insert overwrite t ( select a, b from u where a < 3 )", dialect="impala")
    assert house.both("SELECT a, b FROM t ORDER BY a") == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert house.both("SELECT count(*) AS n FROM u") == [{"n": 3}]
    made = house.done("CREATE TABLE v AS SELECT a FROM t", dialect="impala")
    assert made == [{"summary": "Inserted 2 row(s)"}]


def test_a_truncation_that_was_cancelled_has_changed_nothing(house: House) -> None:
    house.done("CREATE TABLE t AS SELECT 1 AS a")
    run = house.gateway.coordinator.start(Statement(sql="TRUNCATE TABLE t", deadline_s=0.0))
    assert run.done.result(timeout=60).state is not QueryState.FINISHED
    assert house.both("SELECT a FROM t") == [{"a": 1}]


def test_rows_for_several_tables_come_together_or_not_at_all(house: House) -> None:
    house.done("CREATE TABLE src AS SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'c')) v(id, s)")
    house.done("CREATE TABLE odd AS SELECT 9 AS id")
    house.done("CREATE TABLE parts (s STRING, id INT) PARTITIONED BY (id)")
    written = house.done(
        """FROM (SELECT id, s FROM src) q
           INSERT INTO TABLE odd SELECT id WHERE id % 2 = 1
           INSERT OVERWRITE TABLE parts PARTITION (id = 2) SELECT s WHERE id = 2""",
        dialect="hive",
    )
    assert written == [{"rows_written": 3}]
    assert house.both("SELECT id FROM odd ORDER BY id") == [{"id": 1}, {"id": 3}, {"id": 9}]
    assert house.both("SELECT id, s FROM parts") == [{"id": 2, "s": "b"}]
    failing = "FROM src INSERT INTO odd SELECT id INSERT INTO parts PARTITION (id = 1) SELECT s / (id - 2)"
    assert house.failed(failing, dialect="hive") in ("STATEMENT_ERROR", "WRITE_FAILED")
    assert house.both("SELECT count(*) AS n FROM odd") == [{"n": 3}]
    assert house.both("SELECT count(*) AS n FROM parts") == [{"n": 1}]
    assert list(house.location("odd").glob(".fusion*")) == []
    twice = "FROM src INSERT INTO odd SELECT id + 10 INSERT INTO odd SELECT id + 20"
    assert house.done(twice, dialect="hive") == [{"rows_written": 6}]
    assert house.both("SELECT count(*) AS n FROM odd") == [{"n": 9}]


def test_a_mistake_in_one_of_several_inserts_has_its_place(house: House) -> None:
    house.done("CREATE TABLE src AS SELECT 1 AS id")
    with pytest.raises(UnknownColumn) as caught:
        house.ended("FROM src\nINSERT INTO src SELECT id\nINSERT INTO src SELECT nothing", dialect="hive")
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (3, 24)
