"""What dialects mean, through every way in: where NULL goes, hours of TRUNC, whose variance, no list that is none."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.attacks.doors import Door, Refused, Served

NUMBERS = "(SELECT 1 AS v UNION ALL SELECT 3 UNION ALL SELECT NULL) q"


def asked(gateway: Served, door: Door, sql: str, dialect: str) -> list[object]:
    return [row[0] for row in gateway.ask(door, sql, dialect=dialect, engine="duckdb")]


def test_answers_are_the_dialects(duckdb_gateway: Served, door: Door) -> None:
    first = f"SELECT v FROM {NUMBERS} ORDER BY v"
    assert asked(duckdb_gateway, door, first, "impala") == [1, 3, None]
    assert asked(duckdb_gateway, door, f"{first} DESC", "impala") == [None, 3, 1]
    assert asked(duckdb_gateway, door, first, "hive") == [None, 1, 3]
    assert asked(duckdb_gateway, door, first, "spark") == [None, 1, 3]
    variance = f"SELECT variance(v) AS c FROM {NUMBERS}"
    assert asked(duckdb_gateway, door, variance, "hive") == [1.0]
    assert asked(duckdb_gateway, door, variance, "impala") == [2.0]
    hour = "SELECT CAST(trunc(CAST('2024-02-29 13:45:59' AS TIMESTAMP), 'HH') AS DATE) AS c"
    assert [str(value) for value in asked(duckdb_gateway, door, hour, "impala")] == [str(dt.date(2024, 2, 29))]
    with pytest.raises(Refused, match="TYPEOF"):
        asked(duckdb_gateway, door, "SELECT typeof(1) AS c", "impala")


@pytest.mark.spark
def test_a_column_of_the_name_array(spark_gateway: Served, door: Door, tmp_path: Path) -> None:
    name = f"lists_{door.name.lower()}"
    (tmp_path / name).mkdir()
    pq.write_table(pa.table({"array": pa.array([[7, 8]], pa.list_(pa.int32()))}), tmp_path / name / "1.parquet")
    spark_gateway.register(name, tmp_path / name)
    for dialect in ("hive", "impala", "spark"):
        assert spark_gateway.ask(door, f"SELECT `array`[0] AS c FROM {name}", dialect=dialect) == [(7,)]
