"""Generated statements over lake tables of both formats: the rows that their own libraries read, on both engines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from benchmarks.generated_queries import queries, write_tables
from engines.compiled import SPARK_WRITER
from engines.duckdb.engine import DuckDBEngine
from engines.errors import DataError, EngineError, NoEquivalent, UnsupportedFeature
from engines.protocol import Engine, Lease, snapshots_of
from engines.spark.engine import SparkConnectEngine
from gateway.execution.parity.comparing import difference
from sql.dialects.names import SPARK
from sql.parsing import ParserLimits
from sql.statement import check
from sql.tables import TableSource
from tests.engines.lake_conformance import table_at
from tests.lake_tables import catalog_at, delete_by_position, delete_by_vector, map_columns

pytestmark = pytest.mark.spark

STATEMENTS = int(os.environ.get("LAKE_STATEMENTS", "8"))
"""Of each table; 200 where somebody wants to know it exactly."""
LEASE = Lease(1 << 30)


def with_doomed(rows: pa.Table) -> pa.Table:
    """Return rows with as many again, whose key is larger than any of theirs."""
    key = rows.column(0)
    doomed = rows.set_column(0, rows.field(0), pa.compute.add(key, pa.scalar(10_000, key.type)).cast(key.type))
    return pa.concat_tables([rows, doomed]).combine_chunks()  # delta-rs writes chunks in any order


def delta_of_many_commits(folder: Path, rows: pa.Table) -> pa.Table:
    """Partitions, several files, rows that were deleted, and a column that came later."""
    by = ["flag"] if "flag" in rows.column_names else ["tag"]
    last = rows.column_names[-1]
    write_deltalake(folder, rows.slice(0, 11).drop_columns([last]), partition_by=by)
    write_deltalake(folder, with_doomed(rows.slice(11)), mode="append", schema_mode="merge")
    DeltaTable(folder).delete(f"{rows.column_names[0]} >= 10000")
    return DeltaTable(folder).to_pyarrow_table()


def delta_with_vectors(folder: Path, rows: pa.Table) -> pa.Table:
    """Rows that were deleted by a vector."""
    both = with_doomed(rows)
    write_deltalake(folder, both)
    delete_by_vector(folder, range(rows.num_rows, both.num_rows))
    return rows


def delta_with_other_names(folder: Path, rows: pa.Table) -> pa.Table:
    """Columns whose files have other names."""
    stored = {name: f"c{number}" for number, name in enumerate(rows.column_names)}
    write_deltalake(folder, rows.rename_columns(list(stored.values())))
    map_columns(folder, {file: name for name, file in stored.items()})
    return rows


def iceberg_that_evolved(folder: Path, rows: pa.Table) -> pa.Table:
    """Partitions that changed; columns that were renamed, moved and widened; rows that were deleted."""
    key, *others = rows.column_names
    table = catalog_at(folder).create_table("db.t", rows.schema)
    with table.update_schema() as update:
        update.rename_column(others[0], "another")
    table.append(rows.slice(0, 17).rename_columns([key, "another", *others[1:]]))
    with table.update_spec() as spec:
        spec.add_field("flag" if "flag" in others else "tag", IdentityTransform())
    with table.update_schema() as update:
        update.rename_column("another", others[0])
        update.move_first(others[-1])
        if rows.schema.field(key).type == pa.int32():
            update.update_column(key, LongType())
    table.append(with_doomed(rows.slice(17)).cast(_widened(rows)))
    table.delete(f"{key} >= 10000")
    return table.scan().to_arrow()


def _widened(rows: pa.Table) -> pa.Schema:
    key = rows.column_names[0]
    return pa.schema([pa.field(one.name, pa.int64()) if one.name == key else one for one in rows.schema])


def iceberg_with_deletes(folder: Path, rows: pa.Table) -> pa.Table:
    """Rows that were deleted by their positions."""
    both = with_doomed(rows)
    table = catalog_at(folder).create_table("db.t", both.schema)
    table.append(both)
    delete_by_position(table, range(rows.num_rows, both.num_rows))
    return table.scan().to_arrow()


MAKERS = (
    delta_of_many_commits,
    delta_with_vectors,
    delta_with_other_names,
    iceberg_that_evolved,
    iceberg_with_deletes,
)


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(workers=1, threads=1)
    yield engine
    engine.close()


def made(source: TableSource, folder: Path, maker: Callable[[Path, pa.Table], pa.Table]) -> tuple[TableSource, ...]:
    """Return a table as a lake table, and as plain files of the rows that its own library reads."""
    format = maker.__name__.partition("_")[0]
    rows = pq.read_table(source.location)
    if format == "iceberg":  # which has no small integers
        small = (pa.int8(), pa.int16())
        rows = rows.cast(
            pa.schema([pa.field(one.name, pa.int32() if one.type in small else one.type) for one in rows.schema])
        )
    place = folder / "lake" / source.name
    truth = maker(place, rows)
    root = next(place.rglob("metadata")).parent if format == "iceberg" else place
    lake = replace(table_at(root, format, folder / "manifests"), name=source.name)
    assert lake.snapshot is not None
    assert lake.snapshot.rows == truth.num_rows == pq.read_metadata(f"{source.location}/part-0.parquet").num_rows
    plain = folder / "plain" / source.name
    plain.mkdir(parents=True)
    pq.write_table(truth.select([column.name for column in lake.columns]), plain / "0.parquet")
    return lake, replace(lake, location=str(plain), format="parquet", partition_columns=(), snapshot=None)


def answer(engine: Engine, sql: str, tables: tuple[TableSource, ...]) -> pa.Table | EngineError:
    try:
        with engine.execute(sql, query_id="q", lease=LEASE, deadline_s=120, snapshots=snapshots_of(tables)) as stream:
            return pa.Table.from_batches(stream, stream.schema)
    except EngineError as error:
        return error


@pytest.mark.parametrize("maker", MAKERS)
def test_generated_statements_have_the_answers_of_plain_files(
    tmp_path: Path,
    duckdb: DuckDBEngine,
    spark_engine: SparkConnectEngine,
    maker: Callable[[Path, pa.Table], pa.Table],
) -> None:
    pairs = [made(source, tmp_path, maker) for source in write_tables(tmp_path / "source")]
    lake, plain = (tuple(tables) for tables in zip(*pairs, strict=True))
    catalog = {table.name: table for table in lake}
    spark_engine.use_tables(plain)
    compared = 0
    for sql in queries(MAKERS.index(maker) + 77, STATEMENTS):
        statement = check(sql, SPARK, catalog=catalog, limits=ParserLimits())
        truth = answer(spark_engine, sql, ())
        on_spark = answer(spark_engine, statement.sql(SPARK_WRITER), lake)
        if isinstance(truth, EngineError):
            assert isinstance(on_spark, EngineError), sql
            continue
        assert isinstance(on_spark, pa.Table), (sql, on_spark)
        assert difference(truth, on_spark) is None, sql
        try:
            on_duckdb = answer(duckdb, statement.sql(duckdb.writer), lake)
        except NoEquivalent:
            continue
        if isinstance(on_duckdb, DataError | UnsupportedFeature):  # left to Spark
            continue
        assert isinstance(on_duckdb, pa.Table), (sql, on_duckdb)
        assert difference(truth, on_duckdb) is None, sql
        compared += 1
    assert compared > STATEMENTS // 3
