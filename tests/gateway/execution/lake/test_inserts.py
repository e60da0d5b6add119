"""INSERT, CREATE TABLE, TRUNCATE and ALTER TABLE of lake tables: Spark writes, and the formats' own libraries read."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import StaticTable

from gateway.statements.partitions import Overwrite, PartitionSettings
from metastore.lake.iceberg.reading import newest_metadata
from metastore.lake.place import TablePlace
from sql.errors import NotAllowed
from sql.tables import LAKE_FORMATS
from tests.gateway.house import House

pytestmark = pytest.mark.spark

ODD = "x y/ü%[1]{*}?=:"  # a partition's value, much of which paths cannot hold
ALL_TYPES = (
    "SELECT id, true AS b, CAST(id AS TINYINT) AS t, CAST(id AS SMALLINT) AS s, CAST(id AS BIGINT) AS l, "
    "CAST(0.1 AS FLOAT) AS f, CAST('NaN' AS DOUBLE) AS d, CAST(-2.50 AS DECIMAL(38,2)) AS m, DATE'0001-01-01' AS day, "
    "TIMESTAMP'9999-12-31 23:59:59.999999' AS ts, TIMESTAMP_NTZ'1969-12-31 00:00:00.000001' AS tn, 'ü' AS v, "
    "X'00ff' AS bin, array(1, NULL) AS a, map('k', named_struct('x', 1)) AS mp, named_struct('y', array('z')) AS st "
    "FROM VALUES (1), (2), (NULL) AS v(id)"
)


@pytest.fixture(params=LAKE_FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def read_by_its_library(house: House, table: str, format: str) -> pa.Table:
    """Return the rows that the format's own library reads."""
    place = house.location(table)
    if format == "delta":
        return DeltaTable(place).to_pyarrow_table()
    return StaticTable.from_metadata(newest_metadata(TablePlace(str(place)))).scan().to_arrow()


def rows(house: House, table: str) -> list[tuple[Any, ...]]:
    """Return the rows that both engines read."""
    return [tuple(row.values()) for row in house.both(f"SELECT * FROM {table} ORDER BY 1, 2, 3")]


def staged(house: House, table: str) -> list[Path]:
    return list(house.location(table).parent.glob("*-rows-*"))


def test_a_table_of_a_query_keeps_all_types(house: House, format: str) -> None:
    assert house.done(f"CREATE TABLE typed_{format} USING {format} AS {ALL_TYPES}") == [{"rows_written": 3}]
    expected = house.done(ALL_TYPES, engine="spark")
    for engine in ("spark", "duckdb"):
        found = house.done(f"SELECT * FROM typed_{format}", engine=engine)
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), engine
    assert read_by_its_library(house, f"typed_{format}", format).num_rows == 3
    house.done(f"INSERT INTO typed_{format} SELECT * FROM typed_{format}")
    assert house.both(f"SELECT COUNT(*) AS n, SUM(m) AS m FROM typed_{format}") == [{"n": 6, "m": Decimal("-15.00")}]
    assert staged(house, f"typed_{format}") == []
    record = house.ended(f"SELECT 1 FROM typed_{format} LIMIT 1")
    assert record.decision is not None
    assert set(record.decision.snapshots) == {f"typed_{format}"}


def test_rows_for_some_columns_and_partitions(house: House, format: str) -> None:
    table = f"parts_{format}"
    house.done(f"CREATE TABLE {table} (id INT, n BIGINT, p STRING) USING {format} PARTITIONED BY (p)")
    assert rows(house, table) == []
    house.done(f"INSERT INTO {table} (p, id) VALUES ('{ODD}', 1), ('b', 2), (NULL, 3)")
    assert rows(house, table) == [(1, None, ODD), (2, None, "b"), (3, None, None)]
    assert Counter(read_by_its_library(house, table, format)["p"].to_pylist()) == Counter([ODD, "b", None])
    dynamic = PartitionSettings(Overwrite.DYNAMIC)
    house.done(f"INSERT OVERWRITE {table} VALUES (5, 5, 'b'), (6, 6, 'c')", partitions=dynamic)
    assert rows(house, table) == [(1, None, ODD), (3, None, None), (5, 5, "b"), (6, 6, "c")]
    house.done(f"INSERT OVERWRITE {table} SELECT id, n, p FROM {table} WHERE n IS NULL")
    assert rows(house, table) == [(1, None, ODD), (3, None, None)]
    house.done(f"INSERT OVERWRITE {table} SELECT id, n, p FROM {table} WHERE id > 10")
    assert rows(house, table) == []


def test_columns_that_are_words_of_a_query(house: House) -> None:
    house.done("CREATE TABLE words (`select` INT, `from` INT, `values` INT) USING delta")
    house.done("INSERT INTO words (`select`) VALUES (1)")
    house.done("INSERT INTO words (`from`, `values`) SELECT 2, 3")
    house.done("INSERT INTO words (SELECT 4, 5, 6)")
    assert rows(house, "words") == [(None, 2, 3), (1, None, None), (4, 5, 6)]


def test_binary_partitions_of_delta_are_refused(house: House, tmp_path: Path) -> None:
    """delta-rs writes them so that nobody reads the same bytes."""
    made = house.ended("CREATE TABLE in_bytes (id INT, b BINARY) USING delta PARTITIONED BY (b)")
    write_deltalake(tmp_path / "t", pa.table({"id": [1], "b": [b"a"]}), partition_by="b")
    house.register("by_others", tmp_path / "t")
    written = house.ended("INSERT INTO by_others VALUES (1, X'61')")
    for refused in (made, written):
        assert refused.error is not None
        assert refused.error.code == "NOT_ALLOWED"
        assert "binary partition values, as of b" in refused.error.message


def test_partitions_that_a_statement_names_are_replaced(house: House) -> None:
    house.done("CREATE TABLE named (id INT, p INT, q STRING) USING delta PARTITIONED BY (p, q)")
    house.done("INSERT INTO named VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'a')")
    house.done("INSERT OVERWRITE named PARTITION (p = '01', q = 'a') SELECT 10")
    assert rows(house, "named") == [(2, 1, "b"), (3, 2, "a"), (10, 1, "a")]
    house.done("INSERT OVERWRITE named PARTITION (p = 1, q) SELECT 11, 'c'")
    assert rows(house, "named") == [(3, 2, "a"), (11, 1, "c")]
    house.done("INSERT OVERWRITE named PARTITION (p = 2, q = 'a') SELECT 1 WHERE false")
    assert rows(house, "named") == [(11, 1, "c")]


def test_partitions_and_their_files_are_listed(house: House) -> None:
    house.done(
        "CREATE TABLE listed USING delta PARTITIONED BY (p, q) AS SELECT * FROM VALUES "
        f"(1, 1, 'a'), (2, 1, '{ODD}'), (3, 2, NULL), (4, 2, NULL) AS t(id, p, q)"
    )
    house.done("INSERT INTO listed VALUES (5, 2, NULL)")
    paths = [row["partition"] for row in house.done("SHOW PARTITIONS listed")]
    null = "__HIVE_DEFAULT_PARTITION__"
    assert sorted(paths) == sorted([f"p=1/q={quote(ODD)}", "p=1/q=a", f"p=2/q={null}"])
    assert house.done("SHOW PARTITIONS listed PARTITION (p = 1, q = 'a')") == [{"partition": "p=1/q=a"}]
    files = house.done("SHOW FILES IN listed PARTITION (p = 2)")
    assert [file["Partition"] for file in files] == [f"p=2/q={null}"] * 2
    assert house.done("SHOW FILES IN listed PARTITION (p = 3)") == []
    shown = house.done("SHOW TABLE STATS listed")
    assert [(row["p"], row["q"], row["#Files"]) for row in shown][-2:] == [("2", "NULL", 2), ("Total", "", 4)]
    distinct = {row["Column"]: row["#Distinct Values"] for row in house.done("SHOW COLUMN STATS listed")}
    assert (distinct["p"], distinct["q"]) == (2, 2)
    with pytest.raises(NotAllowed, match="come with their rows"):
        house.ended("ALTER TABLE listed ADD PARTITION (p = 3, q = 'a')")


def test_partitions_of_iceberg_have_no_names(house: House) -> None:
    house.done("CREATE TABLE nameless (id INT, p INT) USING iceberg PARTITIONED BY (p)")
    for sql in (
        "SHOW PARTITIONS nameless",
        "SHOW FILES IN nameless PARTITION (p = 1)",
        "INSERT OVERWRITE nameless PARTITION (p = 1) SELECT 1",
    ):
        with pytest.raises(NotAllowed, match=r"hidden, .* the table nameless\.partitions lists them"):
            house.ended(sql)


def test_hidden_partitions(house: House) -> None:
    house.done(
        "CREATE TABLE hidden (id INT, ts TIMESTAMP, s STRING) USING iceberg "
        "PARTITIONED BY (days(ts), bucket(4, id), truncate(2, s)) TBLPROPERTIES ('format-version' = '2')"
    )
    house.done(
        "INSERT INTO hidden VALUES (1, TIMESTAMP'2024-01-01 10:00:00', 'abc'), "
        "(2, TIMESTAMP'2024-01-02 00:00:00', NULL)"
    )
    table = StaticTable.from_metadata(newest_metadata(TablePlace(str(house.location("hidden")))))
    assert [str(field.transform) for field in table.spec().fields] == ["day", "bucket[4]", "truncate[2]"]
    assert {file.file.partition[0] for file in table.scan().plan_files()} == {19723, 19724}
    assert house.both("SELECT id FROM hidden ORDER BY id") == [{"id": 1}, {"id": 2}]
    with pytest.raises(NotAllowed, match="USING iceberg"):
        house.ended("CREATE TABLE plain (id INT, ts TIMESTAMP) PARTITIONED BY (days(ts))")
    record = house.ended("CREATE TABLE odd (id INT, ts TIMESTAMP) USING delta PARTITIONED BY (days(ts))")
    assert record.error is not None
    assert "without day" in record.error.message


def test_columns_are_added_and_rows_are_truncated(house: House, format: str) -> None:
    table = f"grown_{format}"
    house.done(f"CREATE TABLE {table} USING {format} AS SELECT 1 AS id, 'a' AS s")
    house.done(f"ALTER TABLE {table} ADD COLUMNS (extra DECIMAL(5,1) COMMENT 'more', at TIMESTAMP)")
    assert house.both(f"SELECT * FROM {table}") == [{"id": 1, "s": "a", "extra": None, "at": None}]
    house.done(f"INSERT INTO {table} VALUES (2, 'b', 1.5, TIMESTAMP'2024-01-01 00:00:00')")
    at = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert house.both(f"SELECT extra, at FROM {table} WHERE id = 2") == [{"extra": Decimal("1.5"), "at": at}]
    comments = {row["col_name"]: row["comment"] for row in house.done(f"DESCRIBE {table}")}
    assert comments["extra"] == "more"
    house.done(f"TRUNCATE TABLE {table}")
    assert house.both(f"SELECT COUNT(*) AS n FROM {table}") == [{"n": 0}]
    older = house.done(f"DESCRIBE HISTORY {table}")[1]["version"]
    assert house.both(f"SELECT COUNT(*) AS n FROM {table} VERSION AS OF {older}") == [{"n": 2}]


def test_columns_of_iceberg_tables_are_renamed_dropped_and_widened(house: House) -> None:
    house.done(
        "CREATE TABLE evolved USING iceberg PARTITIONED BY (p) AS SELECT 1 AS id, 'a' AS old, 2.5 AS price, 7 AS p"
    )
    house.done("COMMENT ON COLUMN evolved.old IS 'what it was'")
    house.done("ALTER TABLE evolved RENAME COLUMN old TO new")
    house.done("ALTER TABLE evolved ALTER COLUMN id TYPE BIGINT")
    house.done("ALTER TABLE evolved ALTER COLUMN price TYPE DECIMAL(10, 1)")
    house.done("ALTER TABLE evolved DROP COLUMN price")
    house.done("ALTER TABLE evolved ADD COLUMNS (price STRING)")
    house.done("INSERT INTO evolved VALUES (5000000000, 'b', 8, 'x')")
    assert rows(house, "evolved") == [(1, "a", 7, None), (5_000_000_000, "b", 8, "x")]
    assert [(row["col_name"], row["comment"]) for row in house.done("DESCRIBE evolved")][:2] == [
        ("id", ""),
        ("new", "what it was"),
    ]
    for sql, says in (
        ("ALTER TABLE evolved ALTER COLUMN id TYPE INT", "Cannot change column type"),
        ("ALTER TABLE evolved DROP COLUMN p", "its partitions are made of the column p"),
    ):
        record = house.ended(sql)
        assert record.error is not None, sql
        assert (record.error.code, says in record.error.message) == ("NOT_ALLOWED", True), record.error
    house.done("CREATE TABLE fixed USING delta AS SELECT 1 AS id, 2 AS n")
    with pytest.raises(NotAllowed, match="USING iceberg"):
        house.ended("ALTER TABLE fixed RENAME COLUMN id TO other")


def test_a_table_is_replaced_and_dropped(house: House, format: str) -> None:
    table = f"replaced_{format}"
    house.done(f"CREATE TABLE {table} USING {format} AS SELECT 1 AS id")
    first = house.location(table)
    house.done(f"CREATE OR REPLACE TABLE {table} USING {format} AS SELECT 'x' AS other")
    assert house.both(f"SELECT * FROM {table}") == [{"other": "x"}]
    last = house.location(table)
    assert last != first
    house.done(f"DROP TABLE {table}")
    assert not last.exists()


def test_tables_of_others_are_written_too(house: House, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(
        tmp_path / "theirs",
        pa.table({"id": [1, 2], "n": [1, 2]}),
        configuration={
            "delta.columnMapping.mode": "name",
            "delta.minReaderVersion": "2",
            "delta.minWriterVersion": "5",
        },
    )
    house.done(f"CREATE TABLE theirs LOCATION '{tmp_path / 'theirs'}'")
    house.done("INSERT INTO theirs VALUES (3, 3)")
    assert house.both("SELECT SUM(id) AS n FROM theirs") == [{"n": 6}]
    record = house.ended("UPDATE theirs SET n = 0 WHERE id = 1")
    assert record.error is not None
    assert "columns are mapped" in record.error.message


def test_one_statement_for_several_tables(house: House) -> None:
    house.done("CREATE TABLE first (id INT) USING delta")
    house.done("CREATE TABLE second (id INT) USING iceberg")
    house.done("CREATE TABLE third (id INT)")
    source = "FROM VALUES (1), (2), (3) AS v(id)"
    house.done(f"{source} INSERT INTO first SELECT id WHERE id < 2 INSERT INTO second SELECT id WHERE id >= 2")
    assert house.both("SELECT * FROM first") == [{"id": 1}]
    assert house.both("SELECT SUM(id) AS n FROM second") == [{"n": 5}]
    record = house.ended(f"{source} INSERT INTO first SELECT id INSERT INTO third SELECT id")
    assert record.error is not None
    assert record.error.code == "NOT_ALLOWED"
    assert house.both("SELECT COUNT(*) AS n FROM first") == [{"n": 1}]
