"""Rows and values that a change does not mean stay, also beside others that write; what is random counts once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from metastore.lake.iceberg.reading import newest_metadata
from metastore.lake.place import TablePlace
from metastore.records import QueryState
from sql.errors import NotAllowed
from sql.tables import LAKE_FORMATS
from tests.gateway.house import House

pytestmark = pytest.mark.spark


def in_library(house: House, table: str, format: str) -> list[dict[str, Any]]:
    """Return the rows of the files that a format's library names, by id: pyiceberg changes some where it reads them."""
    folder = house.location(table)
    if format == "delta":
        paths = DeltaTable(folder).file_uris()
    else:
        tasks = StaticTable.from_metadata(newest_metadata(TablePlace(str(folder)))).scan().plan_files()
        paths = [task.file.file_path for task in tasks]
    rows = [row for path in paths for row in pq.ParquetFile(path.removeprefix("file://")).read().to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


NESTED = (
    "l ARRAY<STRUCT<k: INT>>, m MAP<STRING, STRUCT<k: INT>>, s STRUCT<d: ARRAY<STRUCT<k: INT>>, e: INT>, a ARRAY<INT>"
)
ROWS = {
    1: "NULL, NULL, NULL, NULL",
    2: "array(), map(), named_struct('d', array(), 'e', 2), array()",
    3: "array(named_struct('k', 1), NULL), map('x', named_struct('k', 2), 'y', NULL), named_struct('d', NULL, 'e', 3), "
    "array(NULL)",
    4: "NULL, map('z', named_struct('k', NULL)), named_struct('d', array(NULL), 'e', NULL), NULL",
}
ARE_NULL = "l IS NULL AS l, m IS NULL AS m, s IS NULL AS s, s.d IS NULL AS d, a IS NULL AS a"


@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_nested_nulls_stay_nulls(house: House, format: str) -> None:
    table = f"nested_{format}"
    house.done(f"CREATE TABLE {table} (id INT, {NESTED}) USING {format}")
    for number, values in ROWS.items():
        house.done(f"INSERT INTO {table} VALUES ({number}, {values})")
    before = in_library(house, table, format)
    assert [row["l"] for row in before] == [None, [], [{"k": 1}, None], None]
    assert [row["m"] for row in before] == [None, [], [("x", {"k": 2}), ("y", None)], [("z", {"k": None})]]
    assert [row["s"] and row["s"]["d"] for row in before] == [None, [], None, [None]]
    house.done(f"OPTIMIZE {table}")
    assert in_library(house, table, format) == before
    house.done(f"UPDATE {table} SET id = 20 WHERE id = 2")
    house.done(f"UPDATE {table} SET id = 2 WHERE id = 20")
    assert in_library(house, table, format) == before
    spread = f"{table}_spread"
    house.done(f"CREATE TABLE {spread} USING {format} PARTITIONED BY (part) AS SELECT *, id % 2 AS part FROM {table}")
    nested = [{name: row[name] for name in ("id", "l", "m", "s", "a")} for row in in_library(house, spread, format)]
    assert nested == before
    found = house.done(f"SELECT id, {ARE_NULL} FROM {table} ORDER BY id", engine="spark")
    assert [[name for name in "lmsda" if row[name]] for row in found] == [
        ["l", "m", "s", "d", "a"],
        [],
        ["d"],
        ["l", "a"],
    ]


@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_fields_of_a_value_are_not_mixed_up(house: House, format: str) -> None:
    table = f"fields_{format}"
    house.done(
        f"CREATE TABLE {table} (id INT, s STRUCT<a: INT, b: INT>, l ARRAY<STRUCT<a: INT, b: INT>>) USING {format}"
    )
    house.done(f"INSERT INTO {table} VALUES (1, named_struct('a', 1, 'b', 2), array(named_struct('a', 1, 'b', 2)))")
    turned = "named_struct('b', 20, 'a', 10)"
    source = f"(SELECT 1 AS id, {turned} AS s) AS n ON t.id = n.id"
    for sql in (
        f"UPDATE {table} SET s = {turned}",
        f"UPDATE {table} SET l = array({turned})",
        f"MERGE INTO {table} AS t USING {source} WHEN MATCHED THEN UPDATE SET s = n.s",
    ):
        assert house.failed(sql) == "STATEMENT_ERROR"
    for value in ("named_struct('A', 10, 'b', 20)", "s", "named_struct('a', NULL, 'b', 3L)", "NULL"):
        house.done(f"UPDATE {table} SET s = {value}, l = array()")
    house.done(f"UPDATE {table} SET s = struct(7, 8), l = array(s, NULL)")
    found = house.done(f"SELECT s.a AS a, s.b AS b, size(l) AS n FROM {table}", engine="spark")
    assert found == [{"a": 7, "b": 8, "n": 2}]


@pytest.mark.parametrize("format", LAKE_FORMATS)
@pytest.mark.parametrize("condition", ["randn() > 0", "size(shuffle(array(1, 2))) = 2", "uniform(0, 10) > 5"])
def test_conditions_that_are_random_are_refused(house: House, format: str, condition: str) -> None:
    table = f"random_{format}"
    house.done(f"CREATE TABLE IF NOT EXISTS {table} (id INT, v INT) USING {format}")
    with pytest.raises(NotAllowed, match="say the same each time"):
        house.done(
            f"MERGE INTO {table} AS t USING (SELECT 1 AS id) AS s ON t.id = s.id WHEN MATCHED AND {condition} "
            "THEN UPDATE SET v = 1"
        )


@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_a_random_source_is_computed_once(house: House, format: str) -> None:
    table = f"once_{format}"
    house.done(f"CREATE TABLE {table} USING {format} AS SELECT CAST(id AS INT) AS id, 0 AS v FROM range(1, 51)")
    house.done(
        f"MERGE INTO {table} AS t USING (SELECT explode(slice(shuffle(sequence(1, 100)), 1, 50)) AS id) AS s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = t.v + 1 WHEN NOT MATCHED THEN INSERT VALUES (s.id, 1)"
    )
    assert house.both(f"SELECT SUM(v) AS n FROM {table}") == [{"n": 50}]


WAYS = [("delta", "all"), ("delta", "static"), ("delta", "dynamic"), ("iceberg", "all"), ("iceberg", "dynamic")]
"""Ways of INSERT OVERWRITE that a format takes."""


@pytest.mark.parametrize(("format", "way"), WAYS)
def test_overwriting_what_one_reads_loses_nothing(house: House, format: str, way: str) -> None:
    table = f"own_{format}_{way}"
    house.done(f"CREATE TABLE {table} (id INT, n INT, p INT) USING {format} PARTITIONED BY (p)")
    house.done(f"INSERT INTO {table} VALUES (1, 0, 1)")
    where = {"static": " PARTITION (p = 1)"}.get(way, "")
    columns = "id, n + 1" if way == "static" else "id, n + 1, p"
    overwrite = f"INSERT OVERWRITE {'TABLE ' if way == 'dynamic' else ''}{table}{where} SELECT {columns} FROM {table}"
    statements = [overwrite, f"INSERT INTO {table} VALUES (2, 100, 1)"] * 3
    dialect = "hive" if way == "dynamic" else "spark"

    def send(sql: str) -> bool:
        record = house.ended(sql, dialect=dialect)
        assert record.state is QueryState.FINISHED or (
            record.error is not None and record.error.code in ("TABLE_CHANGED", "WRITE_CONFLICT")
        ), record.error
        return record.state is QueryState.FINISHED

    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(send, statements))
    counted = sum(done[::2])
    rows = in_library(house, table, format)
    assert counted > 0
    assert [row["n"] for row in rows if row["id"] == 1] == [counted]
    assert len(rows) == 1 + sum(done[1::2])


@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_one_statement_does_not_overwrite_its_own_rows(house: House, format: str) -> None:
    table = f"several_{format}"
    house.done(f"CREATE TABLE {table} (id INT) USING {format}")
    for first, second in (("OVERWRITE TABLE", "OVERWRITE TABLE"), ("INTO", "OVERWRITE TABLE")):
        sql = f"FROM (SELECT 1 AS x) AS s INSERT {first} {table} SELECT x INSERT {second} {table} SELECT x + 1"
        assert house.failed(sql) == "NOT_ALLOWED"
    assert in_library(house, table, format) == []
    house.done(f"FROM (SELECT 1 AS x) AS s INSERT INTO {table} SELECT x INSERT INTO {table} SELECT x + 1")
    assert in_library(house, table, format) == [{"id": 1}, {"id": 2}]


def test_partitions_in_another_order_than_columns(house: House) -> None:
    house.done("CREATE TABLE turned (a INT, b INT, c INT) USING delta PARTITIONED BY (c, b)")
    house.done("INSERT INTO turned VALUES (1, 2, 3), (4, 5, NULL)")
    house.done("UPDATE turned SET a = a + 1 WHERE c = 3")
    assert house.both("SELECT * FROM turned ORDER BY a") == [{"a": 2, "b": 2, "c": 3}, {"a": 4, "b": 5, "c": None}]
    assert DeltaTable(house.location("turned")).metadata().partition_columns == ["c", "b"]
    house.done("CREATE TABLE turned_too USING delta PARTITIONED BY (c, b) AS SELECT * FROM turned")
    assert len(house.both("SELECT * FROM turned_too")) == 2


def test_changes_that_a_table_does_not_take(house: House) -> None:
    house.done("CREATE TABLE one_column (v INT) USING iceberg")
    assert house.failed("ALTER TABLE one_column DROP COLUMN v") == "NOT_ALLOWED"
    house.done("INSERT INTO one_column VALUES (1)")
    house.done("CREATE TABLE grows USING delta TBLPROPERTIES ('delta.appendOnly' = 'true') AS SELECT 1 AS v")
    for sql in ("INSERT OVERWRITE grows SELECT 2", "TRUNCATE TABLE grows", "DELETE FROM grows WHERE v = 1"):
        assert house.failed(sql) == "NOT_ALLOWED"
    house.done("INSERT INTO grows VALUES (2)")
    assert house.both("SELECT COUNT(*) AS n FROM grows") == [{"n": 2}]


def test_columns_named_as_ours_are_refused(house: House) -> None:
    house.done("CREATE TABLE ours (id INT, `..file` STRING) USING delta")
    house.done("INSERT INTO ours VALUES (1, 'x')")
    for sql in ("UPDATE ours SET id = 2", "DELETE FROM ours WHERE id = 1"):
        with pytest.raises(NotAllowed, match=r"has a column \.\.file"):
            house.done(sql)
