"""Statistics of lake tables: of the rows of one snapshot, whatever else its files hold."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.types import LongType, StringType

from metastore.lake.place import TablePlace
from metastore.lake.resolution import pin_location
from metastore.records import CatalogTable, JobRequest, Mode
from selector.statistics import TableStatistics
from sql.tables import Column, TableSource
from statsproc.job.build import BuildPlan, Built, PreviousBuild, build, plan_build
from statsproc.read.scan import scan_here
from statsproc.sketches.join_keys import Cut
from tests.lake_tables import catalog_at, delete_by_position, delete_by_vector

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "name": [f"n{i % 10}" for i in range(100)]})


def planned(
    folder: Path, format: str, manifests: Path, previous: PreviousBuild | None = None, **request: Any
) -> BuildPlan:
    state = pin_location(format, TablePlace(str(folder)), None, manifests)
    source = TableSource("t", str(folder), format, state.columns, state.partition_columns, snapshot=state.snapshot)
    table = CatalogTable(source, state.snapshot.files, state.snapshot.bytes, state.snapshot.rows, (), NOW, None)
    wanted = JobRequest(tables=("t",), **{"mode": Mode.FULL, **request})
    return plan_build(table, wanted, cut=Cut(), previous=previous or PreviousBuild())


def built(folder: Path, format: str, manifests: Path, previous: PreviousBuild | None = None, **request: Any) -> Built:
    plan = planned(folder, format, manifests, previous, **request)
    summaries = scan_here(plan.reading.pieces.splits, plan.reading.wanted)
    spark: Any = None  # nothing is left to read
    return build(spark, plan, summaries, now=NOW)


def statistics(folder: Path, format: str, manifests: Path) -> TableStatistics:
    return built(folder, format, manifests).statistics


def bounds(table: TableStatistics, column: str) -> tuple[object, object]:
    histogram = table.columns[column].histogram
    assert histogram is not None
    return histogram.endpoints[0], histogram.endpoints[-1]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_deleted_rows_are_not_counted(tmp_path: Path, format: str) -> None:
    gone = [0, 1, 2, 50, 98, 99]
    folder = tmp_path / "t"
    if format == "delta":
        write_deltalake(folder, ROWS)
        delete_by_vector(folder, gone)
    else:
        table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
        table.append(ROWS)
        delete_by_position(table, gone)
        folder = Path(table.location())
    found = statistics(folder, format, tmp_path / "m")
    assert found.rows == 94
    assert bounds(found, "id") == (3, 97)
    assert round(found.columns["id"].ndv) == 94


def test_rows_of_several_row_groups(tmp_path: Path) -> None:
    from deltalake import WriterProperties

    write_deltalake(tmp_path / "t", ROWS, writer_properties=WriterProperties(max_row_group_size=10))
    delete_by_vector(tmp_path / "t", [9, 10, 11, 99])
    plan = planned(tmp_path / "t", "delta", tmp_path / "m")
    (summary,) = scan_here(plan.reading.pieces.splits, plan.reading.wanted).values()
    assert summary.rows == 96
    assert bounds(statistics(tmp_path / "t", "delta", tmp_path / "m"), "id") == (0, 98)


def test_renamed_columns_are_found(tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
    table.append(ROWS)
    with table.update_schema() as update:
        update.rename_column("id", "number")
    with table.update_schema() as update:
        update.add_column("id", StringType())  # another column of the old name
    found = statistics(Path(table.location()), "iceberg", tmp_path / "m")
    assert bounds(found, "number") == (0, 99)
    assert found.columns["id"].nulls == 100


def test_partition_values_come_from_the_log(tmp_path: Path) -> None:
    days = [dt.date(2024, 1, 1 + i % 4) if i % 5 else None for i in range(100)]
    write_deltalake(tmp_path / "t", ROWS.append_column("day", pa.array(days)), partition_by=["day"])
    found = statistics(tmp_path / "t", "delta", tmp_path / "m")
    assert found.rows == 100
    assert found.columns["day"].nulls == 20
    assert round(found.columns["day"].ndv) == 4


def test_an_incremental_build_reads_files_that_are_new_or_lost_rows(tmp_path: Path) -> None:
    folder, manifests = tmp_path / "t", tmp_path / "m"
    write_deltalake(folder, ROWS)
    first = built(folder, "delta", manifests)
    (file,) = folder.glob("*.parquet")
    os.utime(file, (1, 1))  # as of a copy that was fetched again

    def following(last: Built) -> BuildPlan:
        assert last.parts is not None
        table = TableSource("t", str(folder), "delta", (Column("id", "bigint"), Column("name", "string")))
        previous = PreviousBuild.of(table, last.statistics, last.parts)
        return planned(folder, "delta", manifests, previous, mode=Mode.INCREMENTAL)

    assert following(first).reading.scope.files == 0
    delete_by_vector(folder, [1, 2, 3])
    assert following(first).reading.scope.files == 1
    second = built(folder, "delta", manifests)
    write_deltalake(folder, ROWS, mode="append")
    plan = following(second)
    assert plan.reading.scope.files == 1
    summaries = scan_here(plan.reading.pieces.splits, plan.reading.wanted)
    spark: Any = None  # nothing is left to read
    assert build(spark, plan, summaries, now=NOW).statistics.rows == 197


def test_an_incremental_build_sees_other_fields_of_the_same_names(tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    table.append(pa.table({"a": pa.array(range(100), pa.int64()), "b": pa.array(range(500, 600), pa.int64())}))
    folder = Path(table.location().removeprefix("file://"))
    first = built(folder, "iceberg", tmp_path / "m")
    assert first.parts is not None
    with table.update_schema() as update:
        update.rename_column("a", "x").rename_column("b", "a").move_first("b")
    with table.update_schema() as update:
        update.rename_column("x", "b").move_first("a")
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("b")
    with table.update_schema() as update:
        update.add_column("b", LongType())
    state = pin_location("iceberg", TablePlace(str(folder)), None, tmp_path / "m")
    source = TableSource("t", str(folder), "iceberg", state.columns, snapshot=state.snapshot)
    previous = PreviousBuild.of(source, first.statistics, first.parts)
    again = built(folder, "iceberg", tmp_path / "m", previous, mode=Mode.INCREMENTAL).statistics
    assert bounds(again, "a") == (500, 599)
    assert again.columns["b"].nulls == 100
