"""Tables of a real Hive Metastore: made and read by the embedded Spark, imported, and read by DuckDB."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engines.spark.embedded.server import MIB, ServerSettings, SparkConnectServer
from engines.spark.engine import SparkConnectEngine
from metastore.hive.client import HiveFailed, HiveMetastore
from metastore.hive.tables import files_of
from tests.engines.conformance import ask
from tests.hive_metastore import hive_metastore

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

FUSION = str(Path(sys.executable).with_name("fusion"))
ROWS = 12


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hive_metastore(tmp_path_factory.mktemp("hms")) as address:
        yield address


@pytest.fixture(scope="module")
def spark(uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnectEngine]:
    """Give an embedded Spark whose catalog is the metastore, with one table of each kind in it."""
    settings = ServerSettings(
        work_folder=tmp_path_factory.mktemp("spark"),
        driver_memory_bytes=768 * MIB,
        hive_metastore_uri=uri,
        configuration={"spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict"},
    )
    engine = SparkConnectEngine(SparkConnectServer(settings))
    folder = tmp_path_factory.mktemp("tables")
    ask(engine, f"CREATE DATABASE shop LOCATION '{folder}'")
    rows = f"SELECT id, CAST(id * 1.5 AS DECIMAL(10,2)) AS Price, CONCAT('n', id) AS name FROM RANGE({ROWS})"
    for sql in (
        f"CREATE TABLE shop.of_spark USING parquet AS {rows}",
        f"CREATE TABLE shop.of_hive STORED AS ORC AS {rows}",
        "CREATE TABLE shop.by_year (id BIGINT, price DECIMAL(10,2)) PARTITIONED BY (year STRING) STORED AS PARQUET",
        f"INSERT INTO shop.by_year SELECT id, price, CAST(2020 + id % 3 AS STRING) FROM ({rows})",
        "CREATE TABLE shop.lines (id BIGINT, price DECIMAL(10,2), name STRING) USING csv OPTIONS (delimiter '|')",
        f"INSERT INTO shop.lines {rows}",
        f"CREATE TABLE shop.hives_text STORED AS TEXTFILE AS {rows}",
        "CREATE VIEW shop.a_view AS SELECT id FROM shop.of_spark",
        "CREATE TABLE shop.astray (id BIGINT) PARTITIONED BY (year STRING) STORED AS PARQUET",
        f"ALTER TABLE shop.astray ADD PARTITION (year = '2020') LOCATION '{folder}/elsewhere'",
    ):
        ask(engine, sql)
    yield engine
    engine.close()


def totals(engine: SparkConnectEngine, table: str) -> list[dict[str, Any]]:
    answer: pa.Table = ask(engine, f"SELECT COUNT(*) AS n, SUM(price) AS total FROM shop.{table}")
    rows: list[dict[str, Any]] = answer.to_pylist()
    return rows


def test_embedded_spark_reads_tables_of_the_metastore(spark: SparkConnectEngine) -> None:
    for table in ("of_spark", "of_hive", "by_year", "lines", "hives_text"):
        assert [(row["n"], float(row["total"])) for row in totals(spark, table)] == [(ROWS, 1.5 * sum(range(ROWS)))]


def test_imported_tables_are_read_by_the_fast_engine(spark: SparkConnectEngine, uri: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    imported = subprocess.run(
        [FUSION, "tables", "import", "--home", str(home), "--hive-metastore", uri, "--database", "shop"],
        capture_output=True,
        text=True,
    )
    assert sorted(line.partition(":")[0] for line in imported.stdout.splitlines()) == [
        *("shop.by_year", "shop.lines", "shop.of_hive", "shop.of_spark")
    ]
    started, *told = imported.stderr.splitlines()
    assert started.startswith("no gateway serves")  # so that one was started for the command
    refused = dict(line.split(": ", 1) for line in told if line)
    assert set(refused) == {"a_view", "astray", "hives_text"}
    assert "view" in refused["a_view"]
    assert "outside" in refused["astray"]
    assert "null" in refused["hives_text"]
    assert imported.returncode != 0  # some were refused

    for table in ("of_spark", "of_hive", "by_year", "lines"):
        sql = f"SELECT COUNT(*) AS n, SUM(price) AS total FROM shop.{table}"
        asked = [FUSION, "query", sql, "--home", str(home), "--engine", "duckdb", "--format", "json"]
        reply = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
        assert [[int(n), float(total)] for n, total in reply["rows"]] == [[ROWS, 1.5 * sum(range(ROWS))]]
    sql = "SELECT DISTINCT year FROM shop.by_year WHERE year > '2020' ORDER BY year"
    asked = [FUSION, "query", sql, "--home", str(home), "--engine", "duckdb", "--format", "json"]
    reply = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    assert reply["rows"] == [["2021"], ["2022"]]  # strings, as the metastore says, not the numbers that folders suggest


def test_what_is_not_there(uri: str, tmp_path: Path) -> None:
    with HiveMetastore(uri) as hive:
        with pytest.raises(HiveFailed, match=r"no table default\.nothing"):
            files_of(hive, "default", "nothing")
        with pytest.raises(HiveFailed, match="no database nowhere"):
            hive.tables("nowhere")
    command = [FUSION, "tables", "import", "--home", str(tmp_path), "--hive-metastore", "thrift://127.0.0.1:1"]
    failed = subprocess.run(command, capture_output=True, text=True)
    assert failed.returncode != 0
    assert "no Hive metastore answers" in failed.stderr
