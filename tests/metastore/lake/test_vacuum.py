"""VACUUM deletes nothing that a table, or another one in its folder, needs."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from engines.files.manifest import read_manifest
from metastore.lake import maintenance, writing
from metastore.lake.place import TablePlace
from metastore.lake.resolution import pin_location
from metastore.lake.values import At, DeletedFile, LakeCommit, Replaced, SnapshotName
from sql.tables import LAKE_FORMATS, Column, TableSource
from tests.lake_tables import delete_by_vector

COLUMNS = (Column("id", "bigint"),)
LONG_AGO_S = 1_000_000_000.0
NOW, A_DAY = dt.timedelta(0), dt.timedelta(days=1)


def made(folder: Path, format: str, commits: int = 3) -> TableSource:
    """Make a table with a row of each commit."""
    folder.mkdir(parents=True)
    table = TableSource(folder.name, str(folder), format, COLUMNS)
    writing.create(table, (), {})
    for number in range(commits):
        rows = folder.parent / f"{folder.name}-{number}.parquet"
        pq.write_table(pa.table({"id": [number]}), rows)
        writing.commit(table, LakeCommit(f"{folder.name}{number}", "INSERT", (str(rows),)))
    return table


def emptied(table: TableSource) -> None:
    writing.commit(table, LakeCommit("truncated", "TRUNCATE", (), Replaced.EVERYTHING))


def aged(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (LONG_AGO_S, LONG_AGO_S))


def vacuumed(table: TableSource, retain: dt.timedelta = NOW) -> list[DeletedFile]:
    """Delete what a dry run tells, and return it."""
    listed = maintenance.vacuum(table, retain, dry_run=True)
    assert maintenance.vacuum(table, retain, dry_run=False) == listed
    assert maintenance.vacuum(table, retain, dry_run=True) == []
    return listed


def rows(table: TableSource, manifests: Path, *, version: str | None = None) -> int:
    """Return the rows of a table, all of whose files are there."""
    name = None if version is None else SnapshotName(At.VERSION, version)
    state = pin_location(table.format, TablePlace(table.location), name, manifests)
    files = read_manifest(state.snapshot.manifest).files
    return sum(pq.read_metadata(file.path).num_rows - file.deleted_rows for file in files)


@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_a_dry_run_tells_what_goes(tmp_path: Path, format: str) -> None:
    table = made(tmp_path / "t", format)
    emptied(table)
    assert vacuumed(table, A_DAY) == []
    aged(tmp_path / "t")
    assert vacuumed(table, A_DAY) == []  # older snapshots are read for a day
    gone = vacuumed(table)
    assert sum(file.path.endswith(".parquet") for file in gone) == 3
    assert rows(table, tmp_path / "m") == 0


@pytest.mark.parametrize("format", LAKE_FORMATS)
@pytest.mark.parametrize("other", LAKE_FORMATS)
def test_a_table_below_another_one_stays(tmp_path: Path, format: str, other: str) -> None:
    table, below = made(tmp_path / "t", format), made(tmp_path / "t" / "below" / "t", other)
    emptied(table)
    aged(tmp_path / "t")
    assert not any(file.path.startswith("below/t/") for file in vacuumed(table))
    assert rows(below, tmp_path / "m") == 3


def test_files_of_deletion_vectors_stay(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"id": range(10)}))
    delete_by_vector(tmp_path / "t", [1, 3], in_file=True)
    (tmp_path / "t" / "orphan.parquet").write_bytes(b"of a writer that was killed")
    aged(tmp_path / "t")
    table = TableSource("t", str(tmp_path / "t"), "delta", COLUMNS)
    assert [file.path for file in vacuumed(table)] == ["orphan.parquet"]
    assert rows(table, tmp_path / "m") == 8


@pytest.mark.parametrize("beginning", ["./", "{folder}/", "file://{folder}/"])
def test_files_that_a_log_spells_in_another_way_stay(tmp_path: Path, beginning: str) -> None:
    folder = tmp_path / "t"
    write_deltalake(folder, pa.table({"id": range(10)}))
    for log in (folder / "_delta_log").glob("*.json"):
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        for entry in entries:
            if "add" in entry:
                entry["add"]["path"] = beginning.format(folder=folder) + entry["add"]["path"]
        log.write_text("\n".join(map(json.dumps, entries)))
    aged(folder)
    table = TableSource("t", str(folder), "delta", COLUMNS)
    assert vacuumed(table) == []
    assert rows(table, tmp_path / "m") == 10
    write_deltalake(folder, pa.table({"id": range(3)}), mode="overwrite")
    aged(folder)
    assert vacuumed(table, A_DAY) == []
    assert rows(table, tmp_path / "m", version="0") == 10


def test_files_that_metadata_name_through_a_link_stay(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    through = made(tmp_path / "link" / "t", "iceberg")
    aged(tmp_path / "real")
    for folder in ("link", "real"):
        table = TableSource("t", str(tmp_path / folder / "t"), "iceberg", COLUMNS)
        assert [file.path for file in vacuumed(table, A_DAY)] == []
        assert rows(table, tmp_path / "m") == 3
    assert rows(through, tmp_path / "m") == 3
