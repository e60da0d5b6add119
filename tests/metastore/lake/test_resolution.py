"""States of lake tables become manifests."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from engines.files.manifest import read_manifest
from metastore.lake.resolution import KEEP_S, pin_location
from metastore.lake.values import At, LakeUnreadable, SnapshotName
from tests.lake_tables import catalog_at, delete_by_position, delete_by_vector

ROWS = pa.table({"id": pa.array(range(5), pa.int64())})


def test_a_state_is_written_once(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    first = pin_location("delta", str(tmp_path / "t"), None, tmp_path / "m")
    assert pin_location("delta", str(tmp_path / "t"), None, tmp_path / "m") is first
    os.unlink(first.snapshot.manifest)
    again = pin_location("delta", str(tmp_path / "t"), None, tmp_path / "m")
    assert Path(again.snapshot.manifest).is_file()


def test_a_table_that_was_made_again_is_another_one(tmp_path: Path) -> None:
    for count in (5, 3, 4):
        shutil.rmtree(tmp_path / "t", ignore_errors=True)
        write_deltalake(tmp_path / "t", ROWS.slice(0, count))
        assert pin_location("delta", str(tmp_path / "t"), None, tmp_path / "m").snapshot.rows == min(count, 5)


def test_manifests_of_long_ago_are_deleted(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    old = pin_location("delta", str(tmp_path / "t"), None, tmp_path / "m").snapshot.manifest
    os.utime(old, (time.time() - 2 * KEEP_S,) * 2)
    write_deltalake(tmp_path / "t", ROWS, mode="append")
    new = pin_location("delta", str(tmp_path / "t"), None, tmp_path / "m").snapshot.manifest
    assert (Path(old).exists(), Path(new).exists()) == (False, True)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_deleted_rows_are_positions(tmp_path: Path, format: str) -> None:
    folder = tmp_path / "t"
    if format == "delta":
        write_deltalake(folder, ROWS)
        delete_by_vector(folder, [4, 0])
    else:
        table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
        table.append(ROWS)
        delete_by_position(table, [4, 0])
        folder = Path(table.location())
    pinned = pin_location(format, str(folder), None, tmp_path / "m")
    (file,) = read_manifest(pinned.snapshot.manifest).files
    assert file.deleted is not None
    assert (file.rows, file.deleted.tolist(), pinned.snapshot.rows) == (5, [0, 4], 3)


def test_a_moment_before_the_table(tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
    table.append(ROWS)
    with pytest.raises(LakeUnreadable, match="no snapshot yet at that moment"):
        pin_location("iceberg", table.location(), SnapshotName(At.TIMESTAMP, "0"), tmp_path / "m")


def test_a_branch_that_is_not_there(tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
    table.append(ROWS)
    with pytest.raises(LakeUnreadable, match="branches and tags: main"):
        pin_location("iceberg", table.location(), SnapshotName(At.VERSION, "audit"), tmp_path / "m")
