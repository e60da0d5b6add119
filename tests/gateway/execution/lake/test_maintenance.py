"""OPTIMIZE and VACUUM of lake tables, on this machine, in an object store and in a catalog."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import StaticTable

from engines.duckdb.engine import DuckDBEngine
from gateway.catalog.new_table import NewTable
from gateway.security.principals import IN_PROCESS
from metastore.lake import maintenance, writing
from metastore.lake.iceberg.reading import newest_metadata
from metastore.lake.place import TablePlace
from metastore.lake.values import LakeCommit
from sql.errors import SqlError
from sql.tables import LAKE_FORMATS, Column, PartitionBy, TableSource
from tests.gateway.house import House, opened

OLD_S = 400 * 3_600.0


@pytest.fixture
def house(tmp_path: Path, duckdb: DuckDBEngine) -> Iterator[House]:
    with opened(tmp_path / "home", duckdb) as house:
        yield house


def made(house: House, folder: Path, format: str) -> TableSource:
    """Make a table of ten commits."""
    table = TableSource("t", str(folder), format, (Column("id", "bigint"), Column("p", "string")))
    writing.create(table, (PartitionBy("p"),), {})
    for number in range(10):
        rows = folder.parent / f"rows-{number}.parquet"
        pa.parquet.write_table(pa.table({"id": range(number * 10, number * 10 + 10), "p": ["a", "b"] * 5}), rows)
        writing.commit(table, LakeCommit(f"c{number}", "INSERT", (str(rows),)))
    house.gateway.registration.add(NewTable("t", str(folder)), user=IN_PROCESS)
    return table


def aged(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - OLD_S, time.time() - OLD_S))


def data_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts}


@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_small_files_become_few_and_old_ones_go(house: House, tmp_path: Path, format: str) -> None:
    folder = tmp_path / "lake" / "t"
    folder.mkdir(parents=True)
    table = made(house, folder, format)
    assert house.done("OPTIMIZE t") == [{"files_replaced": 20}]
    assert house.done("OPTIMIZE t") == [{"files_replaced": 0}]
    everything = [{"n": 100, "s": sum(range(100))}]
    assert house.done("SELECT count(*) AS n, sum(id) AS s FROM t") == everything
    assert len(house.done("SHOW FILES IN t")) == 2
    (folder / "orphan.parquet").write_bytes(b"of a writer that was killed")
    assert len(data_files(folder)) == 23
    assert house.done("VACUUM t DRY RUN") == []  # all of it is young
    aged(folder)
    (folder / "young.parquet").write_bytes(b"of a writer that is at it")
    told = {row["file"] for row in house.done("VACUUM t RETAIN 24 HOURS DRY RUN")}
    assert "orphan.parquet" in told
    assert len(data_files(folder)) == 24
    gone = {row["file"] for row in house.done("VACUUM t RETAIN 24 HOURS")}
    assert "orphan.parquet" in gone
    left = data_files(folder)
    assert "young.parquet" in left
    assert len(left) == 23  # the older snapshots are younger than a day
    assert house.done("SELECT count(*) AS n, sum(id) AS s FROM t") == everything
    maintenance.vacuum(table, dt.timedelta(0), dry_run=False)
    assert len(data_files(folder)) == 2
    assert house.done("SELECT count(*) AS n, sum(id) AS s FROM t") == everything
    rows = (
        DeltaTable(folder).to_pyarrow_table()
        if format == "delta"
        else StaticTable.from_metadata(newest_metadata(TablePlace(str(folder)))).scan().to_arrow()
    )
    assert rows.num_rows == 100


def test_what_is_not_maintained_is_told(house: House, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "lake" / "t", pa.table({"id": [1]}))
    house.gateway.registration.add(NewTable("t", str(tmp_path / "lake" / "t")), user=IN_PROCESS)
    (tmp_path / "plain").mkdir()
    pa.parquet.write_table(pa.table({"id": [1]}), tmp_path / "plain" / "a.parquet")
    house.gateway.registration.add(NewTable("plain", str(tmp_path / "plain")), user=IN_PROCESS)
    for sql, code in (
        ("VACUUM t RETAIN 1 HOURS", "NOT_ALLOWED"),
        ("VACUUM plain", "NOT_ALLOWED"),
        ("OPTIMIZE plain", "NOT_ALLOWED"),
        ("VACUUM t NOW", "SYNTAX_ERROR"),
        ("OPTIMIZE missing", "UNKNOWN_TABLE"),
    ):
        with pytest.raises(SqlError) as refused:
            house.done(sql)
        assert refused.value.code == code, sql
