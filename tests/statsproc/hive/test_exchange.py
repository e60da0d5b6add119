"""Against a real Hive Metastore and a real Spark on top of it."""

from __future__ import annotations

import datetime as dt
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from impala._thrift_gen.hive_metastore import ttypes  # type: ignore[import-untyped]

from engines.files.listing import FileMark
from engines.spark.embedded.server import ServerSettings, SparkConnectServer
from metastore.database.connection import sqlite_url
from metastore.discovery.inspection import inspect
from metastore.hive.client import HiveFailed, HiveMetastore
from metastore.records import StatisticsPart
from metastore.store import Metastore
from selector.statistics import ColumnStatistics, CommonValues, Histogram, TableStatistics, as_number
from statsproc.hive.exchange import HIVE, Exchanged, import_statistics, publish_statistics
from statsproc.spark.session import without_pandas_warning
from tests.hive_metastore import hive_metastore

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

pytestmark = pytest.mark.spark

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
ROWS = 20_000
BINS = 600  # more than by default, so that a histogram takes more than one property
SPARK_NDV_ERROR = 0.1
DAY_MICROSECONDS = 86_400 * 1_000_000
NULLS = 0.1
TIMEOUT_S = 120


@pytest.fixture(scope="session")
def hive_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hive_metastore(tmp_path_factory.mktemp("hive")) as address:
        yield address


@pytest.fixture(scope="session")
def hive_spark(hive_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give a Spark whose catalog is the metastore."""
    settings = ServerSettings(
        work_folder=tmp_path_factory.mktemp("hive-spark"),
        configuration={
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": hive_address,
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("hive-warehouse")),
            "spark.sql.statistics.histogram.enabled": "true",
            "spark.sql.statistics.histogram.numBins": str(BINS),
            "spark.sql.cbo.enabled": "true",
            "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
        },
    )
    server = SparkConnectServer(settings)
    try:
        with without_pandas_warning():
            from pyspark.sql.connect.session import SparkSession

            session = SparkSession.builder.remote(server.start()).create()
        yield session
        session.stop()
    finally:
        server.stop()


@pytest.fixture
def hive(hive_address: str) -> Iterator[HiveMetastore]:
    with HiveMetastore(hive_address) as hive:
        yield hive


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Metastore]:
    with Metastore(sqlite_url(tmp_path / "metastore.db")) as store:
        yield store


def _books() -> pa.Table:
    random = np.random.default_rng(3)
    cents = random.integers(1, 20_000, ROWS)
    weights = random.normal(size=ROWS)
    weights[::50] = np.nan
    return pa.table(
        {
            "Id": pa.array(np.arange(ROWS)),
            "price": pa.array([Decimal(int(n)).scaleb(-2) for n in cents], pa.decimal128(10, 2)),
            "weight": pa.array(weights, mask=random.random(ROWS) < NULLS),
            "born": pa.array(random.integers(-20_000, 10_000, ROWS).astype(np.int32), pa.date32()),
            "seen": pa.array(random.integers(-(10**15), 10**15, ROWS), pa.timestamp("us", tz="UTC")),
            "plain": pa.array(random.integers(0, 10**15, ROWS), pa.timestamp("us")),
            "title": pa.array([f"t{n % 300}é" for n in range(ROWS)]),
            "flag": pa.array(random.random(ROWS) < 0.25),
            "blob": pa.array([b"\xff" * (n % 5) for n in range(ROWS)]),
            "stars": pa.array(random.zipf(1.5, ROWS).clip(max=100).astype(np.int32)),
            "nothing": pa.nulls(ROWS, pa.float64()),
            "tags": pa.array([[1, 2]] * ROWS),
        }
    )


def _write(folder: Path, table: pa.Table, name: str = "part-0.parquet") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name)
    return folder


def _numbers(table: pa.Table, column: str) -> np.ndarray:
    """Return a column's values on their number line, sorted, without NULL and NaN."""
    values = table[column].drop_null()
    if pa.types.is_date(values.type):
        numbers = values.cast(pa.int32()).to_numpy().astype(np.float64)
    elif pa.types.is_timestamp(values.type):
        numbers = values.cast(pa.int64()).to_numpy().astype(np.float64)
    else:
        numbers = np.array([float(value) for value in values.to_pylist()])
    return np.sort(numbers[~np.isnan(numbers)])


def test_what_analyze_stored_comes_in(
    hive_spark: SparkSession, hive: HiveMetastore, store: Metastore, tmp_path: Path
) -> None:
    books = _books()
    folder = _write(tmp_path / "books", books)
    hive_spark.sql(f"CREATE TABLE Books USING parquet LOCATION '{folder}'")
    names = [name for name in books.column_names if name != "tags"]
    hive_spark.sql(f"ANALYZE TABLE books COMPUTE STATISTICS FOR COLUMNS {', '.join(names)}")
    assert any(".histogram.part.1" in key for key in hive.table("default", "books").parameters)

    table = store.catalog.put(inspect("BOOKS", folder), at=NOON)
    done = import_statistics(store, hive, "books", database="default", force=False, at=NOON)
    found = store.statistics.current("books")
    assert found is not None
    assert (done.rows, done.columns, done.version, done.skipped) == (ROWS, len(names), 1, None)
    assert (found.source, found.rows, found.bytes) == (HIVE, ROWS, table.bytes)
    assert found.notes == ("from Hive's default.books: Spark's ANALYZE (11 columns)",)
    assert list(found.columns) == names
    for name, column in found.columns.items():
        assert column.nulls == books[name].null_count, name
        distinct = len(set(books[name].drop_null().to_pylist()))
        assert column.ndv == pytest.approx(distinct, rel=SPARK_NDV_ERROR), name
        assert column.data_type == {c.name: c.data_type for c in table.source.columns}[name]
    for name in ("Id", "price", "weight", "born", "seen", "plain", "stars"):
        truth, column = _numbers(books, name), found.columns[name]
        histogram = column.histogram
        assert histogram is not None, name
        nans = 1 - truth.size / (ROWS - column.nulls)
        assert column.minimum == truth[0], name
        assert column.maximum == pytest.approx(truth[-1], abs=0 if not nans else 1.0), name
        for x in truth[:: ROWS // 40]:
            below, up_to = (
                np.searchsorted(truth, x, side=side) / truth.size * (1 - nans) for side in ("left", "right")
            )
            assert histogram.share_up_to(x) >= below - 2 / BINS, name
            assert histogram.share_below(x) <= up_to + 2 / BINS, name
    title, blob, flag = (found.columns[name] for name in ("title", "blob", "flag"))
    assert (title.maximum_length, blob.maximum_length) == (len("t299é"), 4)  # Spark counts characters
    assert (flag.minimum, flag.maximum, title.minimum) == (0.0, 1.0, None)
    assert (found.columns["nothing"].minimum, found.columns["nothing"].histogram) == (None, None)


def _ours(columns: list[ColumnStatistics], *, rows: int, size: int, source: str = "spark") -> TableStatistics:
    return TableStatistics("sales", 0, rows, size, {column.name: column for column in columns}, source=source, files=3)


def _by_description(spark: SparkSession, table: str, column: str) -> dict[str, str]:
    rows = spark.sql(f"DESCRIBE EXTENDED {table} {column}").collect()
    return {row.info_name: row.info_value for row in rows}


def _estimated_rows(spark: SparkSession, query: str) -> float:
    plan = spark.sql(f"EXPLAIN COST {query}").collect()[0][0]
    text = re.search(r"rowCount=([\d.E+]+)", plan)
    assert text is not None, plan
    return float(text.group(1))


def _sales(spark: SparkSession, name: str, folder: Path) -> None:
    """Make a table of Hive's own kind with three partitions and files of a thousand rows each."""
    spark.sql(
        f"CREATE TABLE {name} (id INT, price DECIMAL(10,2), title VARCHAR(20), sold DATE, at TIMESTAMP, ok BOOLEAN, "
        f"weight DOUBLE, raw BINARY, tags ARRAY<INT>) PARTITIONED BY (year INT) STORED AS PARQUET LOCATION '{folder}'"
    )
    spark.sql(
        f"INSERT INTO {name} PARTITION (year) SELECT CAST(id AS INT), CAST(id / 100 AS DECIMAL(10,2)), "
        "CONCAT('t', id % 10), DATE_ADD(DATE'2020-01-01', CAST(id % 100 AS INT)), TIMESTAMP'2020-01-01', id % 4 = 0, "
        "DOUBLE(id), CAST('abc' AS BINARY), ARRAY(1), CAST(2000 + id % 3 AS INT) FROM RANGE(0, 3000, 1, 1)"
    )


def test_hive_s_own_statistics_come_in(
    hive_spark: SparkSession, hive: HiveMetastore, store: Metastore, tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    _sales(hive_spark, "own", folder)
    table = store.catalog.put(inspect("own", folder), at=NOON)
    held = hive.table("default", "own")
    objects = [
        ttypes.ColumnStatisticsObj("id", "int", ttypes.ColumnStatisticsData(longStats=data))
        for data in [ttypes.LongColumnStatsData(lowValue=0, highValue=2999, numNulls=0, numDVs=2990)]
    ]
    text = ttypes.StringColumnStatsData(maxColLen=2, avgColLen=2.0, numNulls=-1, numDVs=10)  # as Impala may
    objects.append(ttypes.ColumnStatisticsObj("title", "string", ttypes.ColumnStatisticsData(stringStats=text)))
    hive.put_column_statistics(held, objects)

    with pytest.raises(HiveFailed, match=r"^Hive's default.nil has no statistics: run ANALYZE TABLE there$"):
        hive_spark.sql("CREATE TABLE nil (a INT) STORED AS PARQUET LOCATION '{}'".format(tmp_path / "nil"))
        (tmp_path / "nil.json").write_text('{"a": 1}\n')
        store.catalog.put(inspect("nil", tmp_path / "nil.json"), at=NOON)
        import_statistics(store, hive, "nil", database="default", force=False, at=NOON)

    done = import_statistics(store, hive, "OWN", database="DEFAULT", force=False, at=NOON)
    found = store.statistics.current("own")
    assert found is not None
    assert (found.rows, list(found.columns)) == (3_000, ["id"])
    column = found.columns["id"]
    assert (column.minimum, column.maximum, column.nulls, column.ndv) == (0.0, 2_999.0, 0, 2_990.0)
    assert done.notes[0] == "from Hive's default.own: Hive's column statistics (1 columns)"
    assert "title: Hive does not know its nulls" in done.notes
    assert any(note.startswith("Hive has no statistics of price, title, sold") for note in done.notes)

    description = ttypes.ColumnStatisticsDesc(isTblLevel=False, dbName="default", tableName="own")
    for year, true in ((2000, 250), (2001, 251), (2002, 249)):
        description.partName = f"year={year}"
        flags = ttypes.BooleanColumnStatsData(numTrues=true, numFalses=1_000 - true, numNulls=0)
        one = ttypes.ColumnStatisticsObj("ok", "boolean", ttypes.ColumnStatisticsData(booleanStats=flags))
        hive._client.update_partition_column_statistics(ttypes.ColumnStatistics(description, [one]))
    import_statistics(store, hive, "own", database="default", force=False, at=NOON)
    found = store.statistics.current("own")
    assert found is not None
    common = found.columns["ok"].common
    assert common is not None
    assert dict(zip(common.values, common.rows, strict=True)) == {1.0: 750, 0.0: 2_250}
    assert table.statistics_version is None


def test_ours_reach_spark_and_hive(
    hive_spark: SparkSession, hive: HiveMetastore, store: Metastore, tmp_path: Path
) -> None:
    folder = tmp_path / "sales"
    _sales(hive_spark, "Sales", folder)
    table = store.catalog.put(inspect("sales", folder), at=NOON)
    rows, skewed = 3_000, np.repeat([0.0, 1.0, 29.99], [200, 50, 5])
    day, first = as_number("2020-01-01", "date"), as_number("2020-01-01 00:00:00", "timestamp")
    assert day is not None
    ours = [
        ColumnStatistics("id", "int", 0, 3_000, 0.0, 2_999.0, histogram=Histogram(np.linspace(0, 2_999, 255))),
        ColumnStatistics("price", "decimal(10,2)", 0, 2_900, 0.0, 29.99, histogram=Histogram(skewed)),
        ColumnStatistics("title", "string", 7, 10, "t0", "t9", 2.0, 2),
        ColumnStatistics("sold", "date", 0, 100, day, day + 99),
        ColumnStatistics("at", "timestamp", 0, 1, first, first),
        ColumnStatistics(
            "ok", "boolean", 0, 2, 0.0, 1.0, common=CommonValues(np.array([0.0, 1.0]), np.array([2_250, 750]))
        ),
        ColumnStatistics("weight", "double", 0, 3_000, 0.0, 2_999.0),
        ColumnStatistics("raw", "binary", 0, 1, average_length=3.0, maximum_length=3),
        ColumnStatistics("year", "int", 0, 3, 2_000.0, 2_002.0),
    ]
    parts = [
        StatisticsPart(
            partition.path,
            tuple(FileMark(f"{partition.path}/{n}", 1, 1) for n in range(2)),
            1_000 + n,
            partition.bytes,
            1.0,
            NOON,
            b"-",
        )
        for n, partition in enumerate(table.partitions[:2])
    ]
    store.statistics.publish(_ours(ours, rows=rows, size=table.bytes), at=NOON, parts=parts)

    done = publish_statistics(store, hive, "sales", database="default")
    assert (done.rows, done.columns, done.partitions, done.version) == (rows, 9, 2, 1)
    assert done.notes == ("1 of 3 partitions have no row count of ours",)

    hive_spark.catalog.refreshTable("sales")
    described = {row[0]: row[1] for row in hive_spark.sql("DESCRIBE EXTENDED sales").collect()}
    assert described["Statistics"] == f"{table.bytes} bytes, {rows} rows"
    price = _by_description(hive_spark, "sales", "price")
    assert (price["min"], price["max"], price["num_nulls"], price["distinct_count"]) == ("0.0", "29.99", "0", "2900")
    assert price["histogram"] == f"height: {rows / 254}, num_of_bins: 254"
    assert _by_description(hive_spark, "sales", "title")["num_nulls"] == "7"
    assert _by_description(hive_spark, "sales", "sold")["max"] == "2020-04-09"
    assert _by_description(hive_spark, "sales", "at")["min"] == "2020-01-01 00:00:00.000000 +0000"
    assert _estimated_rows(hive_spark, "SELECT * FROM sales") == rows
    assert _estimated_rows(hive_spark, "SELECT * FROM sales WHERE price < 1") == pytest.approx(
        rows * 200 / 254, rel=0.02
    )
    assert _estimated_rows(hive_spark, "SELECT * FROM sales WHERE title = 't1'") == pytest.approx(rows / 10, rel=0.01)

    held = hive.table("default", "sales")
    assert {key: held.parameters[key] for key in ("numRows", "totalSize", "numFiles", "STATS_GENERATED")} == {
        "numRows": str(rows),
        "totalSize": str(table.bytes),
        "numFiles": "3",
        "STATS_GENERATED": "TASK",
    }
    assert "COLUMN_STATS_ACCURATE" not in held.parameters
    assert "transient_lastDdlTime" in held.parameters
    objects = {found.colName: found for found in hive.column_statistics(held, [column.name for column in ours[:-1]])}
    assert set(objects) == {column.name for column in ours[:-1]}
    stored = objects["price"].statsData.decimalStats
    assert (int.from_bytes(stored.highValue.unscaled, "big", signed=True), stored.highValue.scale) == (2_999, 2)
    assert (objects["title"].colType, objects["title"].statsData.stringStats.numDVs) == ("varchar(20)", 10)
    assert objects["ok"].statsData.booleanStats.numTrues == 750
    assert objects["at"].statsData.longStats.lowValue == 1_577_836_800
    assert objects["raw"].statsData.binaryStats.maxColLen == 3
    partitions = {partition.values[0]: partition.parameters for partition in hive.partitions(held)}
    assert [partitions[str(2000 + n)].get("numRows") for n in range(3)] == ["1000", "1001", None]
    for n in range(2):
        found = hive_spark.sql(f"DESCRIBE EXTENDED sales PARTITION (year = {2000 + n})").collect()
        assert f"{1_000 + n} rows" in {row[0]: row[1] for row in found}["Partition Statistics"]

    assert publish_statistics(store, hive, "sales", database="default").rows == rows  # again changes nothing
    assert hive.table("default", "sales").parameters.keys() == held.parameters.keys()
    assert hive_spark.sql("SELECT count(*) FROM sales").collect()[0][0] == rows

    kept = import_statistics(store, hive, "sales", database="default", force=False, at=NOON)
    assert kept == Exchanged(version=1, skipped="statistics of our own are in force (version 1)")
    forced = import_statistics(store, hive, "sales", database="default", force=True, at=NOON)
    assert forced.version == 2
    back = store.statistics.current("sales")
    assert back is not None
    assert back.source == HIVE
    assert {name: (c.ndv, c.nulls, c.minimum, c.maximum) for name, c in back.columns.items()} == {
        c.name: (c.ndv, c.nulls, *((c.minimum, c.maximum) if c.data_type != "string" else (None, None))) for c in ours
    }
    from_hive = publish_statistics(store, hive, "sales", database="default")
    assert from_hive.skipped == "the statistics in force came from Hive"


def test_a_table_that_only_spark_can_read(
    hive_spark: SparkSession, hive: HiveMetastore, store: Metastore, tmp_path: Path
) -> None:
    folder = _write(tmp_path / "ntz", pa.table({"At": pa.array([1, 2], pa.timestamp("us")), "N": [1, 2]}))
    hive_spark.sql(f"CREATE TABLE ntz USING parquet LOCATION '{folder}'")
    assert hive.table("default", "ntz").stored == {"col": "array<string>"}
    store.catalog.put(inspect("ntz", folder), at=NOON)
    ours = [ColumnStatistics("N", "bigint", 0, 2, 1.0, 2.0), ColumnStatistics("At", "timestamp_ntz", 0, 2, 1.0, 2.0)]
    store.statistics.publish(
        TableStatistics("ntz", 0, 2, 100, {column.name: column for column in ours}), at=NOON, parts=()
    )
    assert publish_statistics(store, hive, "ntz", database="default").notes == ()
    hive_spark.catalog.refreshTable("ntz")
    assert _by_description(hive_spark, "ntz", "N")["max"] == "2"
    assert _by_description(hive_spark, "ntz", "At")["max"].startswith("1970-01-01 00:00:00.000002")


def _fails(store: Metastore, hive: HiveMetastore, table: str, database: str = "default") -> str:
    messages = []
    calls: tuple[Callable[[], Exchanged], ...] = (
        lambda: import_statistics(store, hive, table, database=database, force=False, at=NOON),
        lambda: publish_statistics(store, hive, table, database=database),
    )
    for call in calls:
        with pytest.raises(HiveFailed) as failure:
            call()
        messages.append(str(failure.value))
    assert messages[0] == messages[1]
    assert "\n" not in messages[0]
    return messages[0]


def test_errors(hive_spark: SparkSession, hive: HiveMetastore, store: Metastore, tmp_path: Path) -> None:
    assert _fails(store, hive, "nowhere") == "table nowhere is not registered"
    folder = _write(tmp_path / "other", pa.table({"a": [1], "b": ["x"], "c": [1.5]}))
    store.catalog.put(inspect("other", folder), at=NOON)
    assert _fails(store, hive, "other") == "the Hive metastore has no table default.other"
    assert _fails(store, hive, "other", "nobody") == "the Hive metastore has no table nobody.other"
    hive_spark.sql("CREATE TABLE other (a STRING, B STRING, d INT) STORED AS PARQUET")
    assert _fails(store, hive, "other") == (
        "the columns differ from those of Hive's default.other: "
        "c only here, d only in Hive, a is bigint here and string in Hive"
    )
    hive_spark.sql("CREATE TABLE acid (a BIGINT) CLUSTERED BY (a) INTO 2 BUCKETS STORED AS ORC")
    hive.change_properties(hive.table("default", "acid"), lambda now: {**now, "transactional": "TRUE"})
    store.catalog.put(inspect("acid", _write(tmp_path / "acid", pa.table({"a": [1]}))), at=NOON)
    with pytest.raises(HiveFailed, match=r"^acid has no statistics: compute them first$"):
        publish_statistics(store, hive, "acid", database="default")
    store.statistics.publish(TableStatistics("acid", 0, 1, 1), at=NOON)
    with pytest.raises(HiveFailed, match="is transactional"):
        publish_statistics(store, hive, "acid", database="default")


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "statsproc", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_commands(hive_spark: SparkSession, hive_address: str, tmp_path: Path) -> None:
    folder = _write(tmp_path / "little", pa.table({"n": list(range(100))}))
    hive_spark.sql(f"CREATE TABLE little USING parquet LOCATION '{folder}'")
    hive_spark.sql("ANALYZE TABLE little COMPUTE STATISTICS FOR ALL COLUMNS")
    url = sqlite_url(tmp_path / "metastore.db")
    with Metastore(url) as store:
        store.catalog.put(inspect("little", folder), at=NOON)
    where: tuple[str, ...] = ("--hive", hive_address, "--metastore", url)
    done = _run("hive-import", "little", *where)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == ("little: 100 rows, 1 columns; from Hive's default.little: Spark's ANALYZE (1 columns)\n")
    kept = _run("hive-publish", "little", "missing", *where)
    assert kept.returncode == 1
    assert kept.stderr.splitlines() == [
        "little: left alone: the statistics in force came from Hive",
        "missing: failed: table missing is not registered",
    ]


def test_addresses(tmp_path: Path, hive_address: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"thrift://127.0.0.1:{closed.getsockname()[1]}"
        with HiveMetastore(f"{nobody},{hive_address}") as hive, pytest.raises(HiveFailed, match="no table"):
            hive.table("default", "nothing_here")
        done = _run("hive-import", "t", "--hive", nobody, "--metastore", sqlite_url(tmp_path / "metastore.db"))
        assert done.returncode == 1
        assert re.fullmatch(f"error: no Hive metastore answers at {nobody}: Could not connect to .*\n", done.stderr)
    for wrong in ("127.0.0.1:9083", "http://127.0.0.1", "thrift://", "thrift://host:port"):
        with pytest.raises(HiveFailed, match=r"is not an address such as thrift://127\.0\.0\.1:9083"):
            HiveMetastore(wrong)


def test_a_metastore_that_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with HiveMetastore(f"thrift://127.0.0.1:{server.getsockname()[1]}") as hive:
            server.accept()[0].close()
            with pytest.raises(HiveFailed, match=r"^the Hive metastore at thrift://127.* failed at default\.t: "):
                hive.table("default", "t")
