"""Properties of lake tables are in the tables themselves, where all their readers and writers see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from metastore.lake.iceberg.reading import newest_metadata
from metastore.lake.place import TablePlace
from sql.tables import LAKE_FORMATS
from tests.gateway.house import House

pytestmark = pytest.mark.spark

CODE = "write.py-location-provider.impl"


def in_the_table(house: House, table: str) -> dict[str, str]:
    """Return the properties that the format's own library reads."""
    place = house.location(table)
    if (place / "_delta_log").is_dir():
        return dict(DeltaTable(place).metadata().configuration)
    return dict(StaticTable.from_metadata(newest_metadata(TablePlace(str(place)))).properties)


def shown(house: House, table: str) -> dict[str, str]:
    return {row["key"]: row["value"] for row in house.done(f"SHOW TBLPROPERTIES {table}")}


def refusal(house: House, sql: str) -> str:
    """Return the message of a statement that is not allowed."""
    error = house.ended(sql).error
    assert error is not None
    assert error.code == "NOT_ALLOWED"
    return error.message


@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_properties_are_in_the_table(house: House, format: str) -> None:
    table = f"props_{format}"
    house.done(f"CREATE TABLE {table} (id INT) USING {format} TBLPROPERTIES ('team' = 'a')")
    house.done(f"ALTER TABLE {table} SET TBLPROPERTIES ('team' = 'b', 'delta.appendOnly' = 'true')")
    expected = {"team": "b", "delta.appendOnly": "true"}
    assert expected.items() <= in_the_table(house, table).items()
    assert expected.items() <= shown(house, table).items()
    assert "'team' = 'b'" in next(iter(house.done(f"SHOW CREATE TABLE {table}")[0].values()))
    house.done(f"ALTER TABLE {table} SET TBLPROPERTIES ('kafka.password' = 'x')")
    assert shown(house, table)["kafka.password"] == "*********(redacted)"
    registered = house.gateway.metastore.catalog.get(table)
    assert registered is not None
    assert registered.annotations.properties == {}


def test_properties_are_described(house: House) -> None:
    house.done("CREATE TABLE of_team USING iceberg TBLPROPERTIES ('team' = 'a') AS SELECT 1 AS id")
    assert "team=a" in str(house.done("DESCRIBE EXTENDED of_team"))
    assert "team=a" not in str(house.done("DESCRIBE of_team"))
    for metadata in (house.location("of_team") / "metadata").glob("*.json"):
        metadata.write_text("damaged")
    assert "Provider" in str(house.done("DESCRIBE EXTENDED of_team"))
    assert house.failed("SHOW TBLPROPERTIES of_team") == "TABLE_UNREADABLE"


def test_properties_of_delta_are_obeyed(house: House) -> None:
    house.done("CREATE TABLE only_new USING delta AS SELECT 1 AS id")
    house.done("ALTER TABLE only_new SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    refusal(house, "DELETE FROM only_new")
    house.done("ALTER TABLE only_new SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    assert house.done("DELETE FROM only_new") == [{"num_affected_rows": 1}]
    refusal(house, "ALTER TABLE only_new UNSET TBLPROPERTIES ('delta.appendOnly')")
    house.done("ALTER TABLE only_new UNSET TBLPROPERTIES IF EXISTS ('nothing')")


def test_properties_of_iceberg_go(house: House) -> None:
    house.done("CREATE TABLE going (id INT) USING iceberg TBLPROPERTIES ('a' = '1', 'b' = '2', 'format-version' = '1')")
    house.done("ALTER TABLE going UNSET TBLPROPERTIES ('a')")
    assert in_the_table(house, "going").keys() & {"a", "b"} == {"b"}
    assert house.failed("ALTER TABLE going UNSET TBLPROPERTIES ('a')") == "UNKNOWN_PROPERTY"
    house.done("ALTER TABLE going SET TBLPROPERTIES ('format-version' = '2')")
    metadata = json.loads(Path(newest_metadata(TablePlace(str(house.location("going"))))).read_text())
    assert metadata["format-version"] == 2
    house.done("INSERT INTO going VALUES (1)")
    assert house.both("SELECT * FROM going") == [{"id": 1}]


@pytest.mark.parametrize(
    ("format", "name", "value"),
    [
        ("iceberg", CODE, "shutil.rmtree"),
        ("iceberg", "write.data.path", "/elsewhere"),
        ("iceberg", "write.metadata.path", "/elsewhere"),
        ("iceberg", "s3.endpoint", "http://127.0.0.1:9"),
        ("iceberg", "current-snapshot-id", "1"),
        ("iceberg", "format-version", "3"),
        ("delta", "delta.enableDeletionVectors", "true"),
        ("delta", "delta.minReaderVersion", "3"),
        ("delta", "delta.minWriterVersion", "7"),
        ("delta", "delta.noSuchProperty", "1"),
    ],
)
def test_properties_that_would_harm_are_refused(house: House, format: str, name: str, value: str) -> None:
    table = f"harmless_{format}"
    house.done(f"CREATE TABLE IF NOT EXISTS {table} (id INT) USING {format}")
    before = in_the_table(house, table)
    clause = f"TBLPROPERTIES ('{name}' = '{value}')"
    assert name in refusal(house, f"ALTER TABLE {table} SET {clause}")
    assert in_the_table(house, table) == before
    refusal(house, f"CREATE TABLE harmful USING {format} {clause} AS SELECT 1 AS id")
    assert house.done("SHOW TABLES LIKE 'harmful'") == []


def test_code_that_a_table_of_others_names_is_not_run(house: House) -> None:
    house.done("CREATE TABLE hostile USING iceberg AS SELECT 1 AS id")
    metadata = Path(newest_metadata(TablePlace(str(house.location("hostile")))))
    content = json.loads(metadata.read_text())
    content["properties"][CODE] = "shutil.rmtree"
    metadata.write_text(json.dumps(content))
    for sql in ("INSERT INTO hostile VALUES (2)", "DELETE FROM hostile", "UPDATE hostile SET id = 2"):
        assert "names code" in refusal(house, sql)
    assert house.both("SELECT * FROM hostile") == [{"id": 1}]
    house.done(f"ALTER TABLE hostile UNSET TBLPROPERTIES ('{CODE}')")
    house.done("INSERT INTO hostile VALUES (2)")
    assert house.both("SELECT * FROM hostile ORDER BY id") == [{"id": 1}, {"id": 2}]


def test_texts_with_a_length(house: House) -> None:
    house.done("CREATE TABLE short_delta (id INT, v VARCHAR(3)) USING delta")
    house.done("ALTER TABLE short_delta ADD COLUMNS (w VARCHAR(2))")
    types = {row["col_name"]: row["data_type"] for row in house.done("DESCRIBE short_delta")}
    assert types == {"id": "int", "v": "varchar(3)", "w": "varchar(2)"}
    house.done("INSERT INTO short_delta VALUES (1, 'abc', 'de'), (2, 'é', NULL)")
    for sql in ("INSERT INTO short_delta VALUES (3, 'abcd', 'd')", "UPDATE short_delta SET w = 'def' WHERE id = 1"):
        assert "EXCEED_LIMIT_LENGTH" in str(house.ended(sql).error)
    house.done("UPDATE short_delta SET v = 'xyz' WHERE id = 1")
    assert house.both("SELECT * FROM short_delta WHERE v > 'a' ORDER BY id") == [
        {"id": 1, "v": "xyz", "w": "de"},
        {"id": 2, "v": "é", "w": None},
    ]
    house.done("CREATE TABLE short_iceberg (v VARCHAR(3)) USING iceberg")
    assert house.done("DESCRIBE short_iceberg")[0]["data_type"] == "string"  # as Spark makes it


@pytest.mark.parametrize("format", (*LAKE_FORMATS, "parquet"))
def test_fields_that_come_by_name_in_another_order(house: House, format: str) -> None:
    table = f"by_name_{format}"
    house.done(f"CREATE TABLE {table} (id INT, s STRUCT<a: INT, b: INT>) USING {format}")
    swapped = house.ended(f"INSERT INTO {table} BY NAME SELECT named_struct('b', 2, 'a', 1) AS s, 1 AS id")
    assert "in another order than the column's: a, b" in str(swapped.error)
    house.done(f"INSERT INTO {table} BY NAME SELECT named_struct('a', 1, 'b', 2) AS s, 1 AS id")
    everything = [{"id": 1, "s": {"a": 1, "b": 2}}]
    assert house.both(f"SELECT * FROM {table}") == everything
    house.done(f"INSERT OVERWRITE {table} BY NAME SELECT * FROM (SELECT s, ID FROM {table})")
    assert house.both(f"SELECT * FROM {table}") == everything
    for query, words in (
        ("SELECT *, 1 AS x FROM {}", "has a column x"),
        ("SELECT *, id FROM {}", "two columns id"),
        ("SELECT * FROM (SELECT named_struct('b', 2, 'a', 1) AS s)", "in another order"),
    ):
        assert words in str(house.ended(f"INSERT INTO {table} BY NAME {query.format(table)}").error)
    house.done(f"INSERT OVERWRITE {table} BY NAME SELECT * FROM (VALUES (7)) AS v(id)")
    assert house.both(f"SELECT * FROM {table}") == [{"id": 7, "s": None}]


@pytest.mark.parametrize("dialect", ["spark", "impala"])
@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_what_makes_a_table_is_told_and_makes_it_again(house: House, format: str, dialect: str) -> None:
    table = f"told_{format}_{dialect}"
    partitions = {"iceberg": "`a b`, days(ts), hours(ts2), bucket(4, id), truncate(3, `s``x`)", "delta": "`a b`, id"}
    house.done(
        f"CREATE TABLE {table} (id INT, `a b` STRING, ts TIMESTAMP, ts2 TIMESTAMP, `s``x` STRING) USING {format} "
        f"PARTITIONED BY ({partitions[format]}) TBLPROPERTIES ('team' = 'x''y')"
    )

    def statement() -> str:
        (row,) = house.done(f"SHOW CREATE TABLE {table}", dialect=dialect)
        return str(next(iter(row.values())))

    first = statement()
    house.done(f"DROP TABLE {table}")
    house.done(first, dialect=dialect)
    assert statement() == first
    assert "PARTITIONED BY" in first
    if format == "iceberg":
        for partition in ("`a b`", "days(`ts`)", "hours(`ts2`)", "bucket(4, `id`)", "truncate(3, `s``x`)"):
            assert partition in first.partition("PARTITIONED BY")[2]
