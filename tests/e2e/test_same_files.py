"""A table has the same files, types and rows for a real DuckDB, a real Spark, the listing and the inspection."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest

from engines.duckdb.engine import DuckDBEngine
from engines.errors import EngineError, UnsupportedFeature
from engines.files.listing import InspectionFailed, data_files
from engines.files.stored_types import fits
from engines.protocol import Engine, Lease
from engines.spark.embedded.server import SparkConnectServer
from engines.spark.engine import SparkConnectEngine
from metastore.discovery.inspection import inspect
from sql.tables import Column, TableSource

pytestmark = pytest.mark.spark

LEASE = Lease(memory_bytes=256 << 20)
Rows = list[tuple[Any, ...]]
NAN = float("nan")


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(workers=1, threads=1)
    yield engine
    engine.close()


def rows(engine: Engine, sql: str) -> Rows:
    with engine.execute(sql, query_id=uuid.uuid4().hex, lease=LEASE, deadline_s=120) as result:
        return [tuple(row.values()) for batch in result for row in batch.to_pylist()]


def both(sql: str, spark: Engine, duckdb: Engine) -> Rows:
    """Return the rows of a statement, which both engines must give."""
    found = rows(spark, sql)
    assert repr(rows(duckdb, sql)) == repr(found), sql
    return found


def _write(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (pa_orc if path.suffix == ".orc" else pq).write_table(pa.table(columns), path)
    return path


def _floats(path: Path) -> Path:
    numbers = [1.0, NAN, -0.0]
    fields = [{"x": number} for number in numbers]
    return _write(path, i=[1, 2, 3], x=numbers, f=pa.array(numbers, pa.float32()), s=fields, l=[[n] for n in numbers])


COMPARISONS = {
    "isnan({0})": [2],
    "{0} > 100": [2],
    "{0} >= 1.0": [1, 2],
    "{0} = double('NaN')": [2],
    "{0} = 0.0": [3],
    "{0} <= 0.0": [3],
    "{0} < 0.5": [3],
    "{0} IN (0.0, 55.0)": [3],
    "{0} NOT IN (7.0)": [1, 2, 3],
}


@pytest.mark.parametrize("name", ["a.parquet", "a.orc"])
@pytest.mark.parametrize("column", ["x", "f", "s.x", "l[0]"])
def test_nan_and_minus_zero_are_found_in_files_whose_bounds_leave_them_out(
    spark_engine: SparkConnectEngine, duckdb: DuckDBEngine, tmp_path: Path, name: str, column: str
) -> None:
    source = inspect("t", _floats(tmp_path / "t" / name).parent).source
    for engine in (spark_engine, duckdb):
        engine.use_tables([source])
    for comparison, expected in COMPARISONS.items():
        where = comparison.format(column)
        assert rows(spark_engine, f"SELECT i FROM t WHERE {where} ORDER BY i") == [(i,) for i in expected], where
        there = where.replace("[0]", "[1]").replace("double('NaN')", "'NaN'::DOUBLE")
        assert rows(duckdb, f"SELECT i FROM t WHERE {there} ORDER BY i") == [(i,) for i in expected], where
        seen = rows(duckdb, f"SELECT i FROM (SELECT i, {there} AS seen FROM t) WHERE seen ORDER BY i")
        assert seen == [(i,) for i in expected], where


TREES = (
    ("a", "b._COPYING_", "_c", ".d", "e.tmp"),
    ("2024/01/02/a", "2024/01/03/b", "c"),
    ("y=1/a", "y=1/HIVE_UNION_SUBDIR_1/000000_0", "y=2/HIVE_UNION_SUBDIR_2/000000_0", "y=2/_temporary/x"),
    ("_p=1/a", "_p=2/b", "_q/c"),
    ("p=a%2Fb/q=__HIVE_DEFAULT_PARTITION__/x y", "p=NULL/q= 1/z"),
    ("p=01/a[1]", "p=-1/a*", "p=2147483648/{b,c}"),
    ("_a=b.parquet", "x/_SUCCESS", "x/_=y"),
)
PARTITIONS = ("x=1", "x=2", "x=a%20b", "_u=1", "x=", "X=3")
OTHERS = ("a", "_h", "b._COPYING_", "HIVE_UNION_SUBDIR_1")


def _trees(seed: int, number: int) -> Iterator[tuple[str, ...]]:
    chance = random.Random(seed)  # noqa: S311 - no secrets
    for _ in range(number):
        levels = [chance.choices(PARTITIONS, k=3) if chance.random() < 0.5 else [""] * 3, chance.choices(OTHERS, k=3)]
        yield tuple("/".join(filter(None, (*(level[n] for level in levels[: 1 + n % 2]), str(n)))) for n in range(3))


@pytest.mark.parametrize("ending", ["parquet", "orc"])
def test_the_files_of_a_table_are_the_same_for_all(
    spark_engine: SparkConnectEngine, duckdb: DuckDBEngine, tmp_path: Path, ending: str
) -> None:
    """Each file holds its number: what engines read of it shows which files they took, and with what partition."""
    refused = 0
    sources: dict[str, tuple[TableSource, Path]] = {}
    for at, tree in enumerate((*TREES, *_trees(seed=7, number=30))):
        root = tmp_path / f"t{at}"
        for number, name in enumerate(tree):
            path = _write(root / f"{name}.{ending}", n=[number])
            path.rename(root / name)
        (root / "empty").touch()  # of which nobody reads anything
        try:
            sources[f"t{at}"] = inspect(f"t{at}", root, format=ending).source, root
        except InspectionFailed:
            refused += 1
    assert len(sources) > 2 * len(TREES)
    assert refused > 3
    for engine in (spark_engine, duckdb):
        engine.use_tables([source for source, _ in sources.values()])
    for name, (source, root) in sources.items():
        columns = ", ".join(f"CAST({c} AS STRING) AS {c}" for c in source.partition_columns)
        found = both(f"SELECT n{', ' if columns else ''}{columns} FROM {name} ORDER BY n", spark_engine, duckdb)
        listed = [file for file in data_files(root) if file.bytes]
        reader = pa_orc if ending == "orc" else pq
        assert [row[0] for row in found] == sorted(reader.read_table(file.path)["n"][0].as_py() for file in listed)


UNSIGNED = "decimal(20,0)"
STORED = {
    "tinyint": pa.array([7], pa.int8()),
    "smallint": pa.array([300], pa.int16()),
    "int": pa.array([70_000], pa.int32()),
    "bigint": pa.array([5_000_000_000]),
    UNSIGNED: pa.array([2**63 + 5], pa.uint64()),
    "float": pa.array([2.7], pa.float32()),
    "double": pa.array([2.7]),
    "boolean": pa.array([True]),
    "string": pa.array(["é"]),
    "binary": pa.array(["é".encode()]),
    "date": pa.array([dt.date(2020, 1, 2)]),
    "timestamp": pa.array([dt.datetime(2020, 1, 2, 3, 4, 5, 678901)], pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.array([dt.datetime(2020, 1, 2, 3, 4, 5, 678000)], pa.timestamp("ms")),
    "decimal(9,2)": pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
    "decimal(10,3)": pa.array([Decimal("1.255")], pa.decimal128(10, 3)),
    "decimal(38,2)": pa.array([Decimal("1.25")], pa.decimal128(38, 2)),
    "void": pa.nulls(1),
    "struct<a:int>": pa.array([{"a": 1}], pa.struct([("a", pa.int32())])),
    "struct<a:bigint,b:string>": pa.array([{"a": 1, "b": "x"}]),
    "array<int>": pa.array([[1]], pa.list_(pa.int32())),
    "array<bigint>": pa.array([[1]]),
}


@pytest.mark.timeout(900)  # some hundred statements
@pytest.mark.parametrize("in_folders", [False, True])
def test_types_that_fit_are_read_alike_and_all_others_are_no_other_values(
    spark_engine: SparkConnectEngine, duckdb: DuckDBEngine, tmp_path: Path, in_folders: bool
) -> None:
    """A file of one type beside one of the declared type: where they fit, nothing is lost on either engine."""
    sources: dict[tuple[str, str], TableSource] = {}
    for stored, values in STORED.items():
        for declared, others in STORED.items():
            if in_folders and not fits(stored, declared):
                continue
            name = f"t{len(sources)}"
            for at, column in enumerate((values, others)):
                folder = tmp_path / name / (f"p={at}" if in_folders else "")
                _write(folder / f"{at}.parquet", x=column, i=[at])
            columns = [Column("x", declared), Column("i", "bigint"), *([Column("p", "int")] if in_folders else [])]
            place = str(tmp_path / name)
            parts = ("p",) if in_folders else ()
            sources[stored, declared] = TableSource(name, place, "parquet", tuple(columns), parts)
    for engine in (spark_engine, duckdb):
        engine.use_tables(list(sources.values()))
    equal = 0
    for (stored, declared), source in sources.items():
        sql = f"SELECT x FROM {source.name} ORDER BY i"
        if not fits(stored, declared) or (stored, declared) == (UNSIGNED, "decimal(38,2)"):
            with pytest.raises(UnsupportedFeature, match=r"0\.parquet of t\d+ holds .* in the column x"):
                rows(duckdb, sql)
            continue
        found = rows(spark_engine, sql)
        assert found[1] == (STORED[declared][0].as_py(),) or declared == "binary"
        try:
            assert repr(rows(duckdb, sql)) == repr(found), (stored, declared)
            equal += 1
        except UnsupportedFeature:
            assert "<" in declared or "binary" in (stored, declared)
    assert equal > 2 * len(STORED)


def test_files_that_gained_a_column_are_read_on_both(
    spark_engine: SparkConnectEngine, duckdb: DuckDBEngine, tmp_path: Path
) -> None:
    _write(tmp_path / "t" / "a.parquet", n=[1])
    _write(tmp_path / "t" / "b.parquet", N=[2], more=["x"], s=[{"a": 1}])
    columns = [Column("n", "bigint"), Column("more", "string"), Column("later", "double")]
    source = inspect("t", tmp_path / "t", columns=columns).source
    assert source.options == {"mixed_columns": "true"}
    for engine in (spark_engine, duckdb):
        engine.use_tables([source])
    sql = "SELECT n, more, later FROM t ORDER BY n"
    assert both(sql, spark_engine, duckdb) == [(1, None, None), (2, "x", None)]


def test_a_column_of_nulls_alone_harms_no_engine(
    spark_engine: SparkConnectEngine, duckdb: DuckDBEngine, tmp_path: Path
) -> None:
    _write(tmp_path / "t" / "a.parquet", v=pa.nulls(2), i=[1, 2])
    source = inspect("t", tmp_path / "t").source
    assert source.columns[0] == Column("v", "void")
    for engine in (spark_engine, duckdb):
        engine.use_tables([source])
    assert both("SELECT i FROM t ORDER BY i", spark_engine, duckdb) == [(1,), (2,)]
    assert both("SELECT * FROM t ORDER BY i", spark_engine, duckdb) == [(None, 1), (None, 2)]
    assert both("SELECT count(v) AS v, count(*) AS n FROM t", spark_engine, duckdb) == [(0, 2)]


def test_a_variant_is_one_on_spark_and_never_a_struct(
    spark_server: SparkConnectServer, spark_engine: SparkConnectEngine, duckdb: DuckDBEngine, tmp_path: Path
) -> None:
    from pyspark.sql.connect.session import SparkSession

    made = "SELECT parse_json('{\"a\": 1}') AS v, named_struct('w', parse_json('2')) AS s, 1 AS i"
    session = SparkSession.builder.remote(spark_server.start()).create()
    session.sql(made).write.parquet(str(tmp_path / "t"))  # the gateway writes none
    session.stop()
    source = inspect("t", tmp_path / "t").source
    assert [column.data_type for column in source.columns] == ["variant", "struct<w:variant>", "int"]
    for engine in (spark_engine, duckdb):
        engine.use_tables([source])
    sql = "SELECT typeof(v) AS a, typeof(s) AS b, CAST(variant_get(v, '$.a') AS INT) AS c FROM t"
    assert rows(spark_engine, sql) == [("variant", "struct<w:variant>", 1)]
    assert both("SELECT i FROM t", spark_engine, duckdb) == [(1,)]
    for sql in ("SELECT * FROM t", "SELECT v FROM t", "SELECT s FROM t"):
        with pytest.raises(UnsupportedFeature, match="a column of type"):
            rows(duckdb, sql)


def test_a_table_without_files_is_empty_on_both(
    spark_engine: SparkConnectEngine, duckdb: DuckDBEngine, tmp_path: Path
) -> None:
    columns = (Column("n", "int"), Column("s", "struct<a:bigint>"), Column("p", "string"))
    for engine in (spark_engine, duckdb):
        engine.use_tables([TableSource("t", str(tmp_path), "parquet", columns, ("p",))])
    assert both("SELECT * FROM t", spark_engine, duckdb) == []
    assert both("SELECT sum(n) AS s, count(*) AS c FROM t", spark_engine, duckdb) == [(None, 0)]
    _write(tmp_path / "p=1" / "a.parquet", n=pa.array([1], pa.int32()), s=[{"a": 1}])
    assert both("SELECT n, p FROM t", spark_engine, duckdb) == [(1, "1")]


def test_a_folder_around_a_table_is_none_of_its_partitions(
    spark_engine: SparkConnectEngine, duckdb: DuckDBEngine, tmp_path: Path
) -> None:
    _write(tmp_path / "n=9" / "t" / "p=1" / "a.parquet", n=[1])
    source = inspect("t", tmp_path / "n=9" / "t").source
    for engine in (spark_engine, duckdb):
        engine.use_tables([source])
    assert rows(spark_engine, "SELECT n, p FROM t") == [(1, 1)]
    with pytest.raises(EngineError, match=r"lies in a folder n=\.\.\."):
        rows(duckdb, "SELECT n, p FROM t")
