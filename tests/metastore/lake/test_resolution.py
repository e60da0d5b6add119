"""States of lake tables become manifests."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from engines.files.manifest import KEEP_S, read_manifest, totals_of
from metastore.lake import resolution
from metastore.lake.delta import reading
from metastore.lake.place import TablePlace
from metastore.lake.resolution import pin_location
from metastore.lake.values import At, LakeUnreadable, SnapshotName
from tests.lake_tables import catalog_at, delete_by_position, delete_by_vector, map_columns

ROWS = pa.table({"id": pa.array(range(5), pa.int64())})


def test_a_state_is_written_once(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    first = pin_location("delta", TablePlace(str(tmp_path / "t")), None, tmp_path / "m")
    written = os.stat(first.snapshot.manifest)
    assert pin_location("delta", TablePlace(str(tmp_path / "t")), None, tmp_path / "m") == first
    assert os.stat(first.snapshot.manifest).st_ino == written.st_ino
    os.unlink(first.snapshot.manifest)
    again = pin_location("delta", TablePlace(str(tmp_path / "t")), None, tmp_path / "m")
    assert Path(again.snapshot.manifest).is_file()


def test_what_another_process_has_resolved_is_taken(iceberg: Path, tmp_path: Path) -> None:
    first = pin_location("iceberg", TablePlace(str(iceberg)), None, tmp_path / "m")
    for list_of_files in (iceberg / "metadata").glob("*.avro"):
        list_of_files.unlink()
    resolution._pinned.clear()
    assert pin_location("iceberg", TablePlace(str(iceberg)), None, tmp_path / "m") == first


@pytest.mark.parametrize("content", [b"", b"no Arrow"])
def test_a_damaged_manifest_is_written_anew(iceberg: Path, tmp_path: Path, content: bytes) -> None:
    first = pin_location("iceberg", TablePlace(str(iceberg)), None, tmp_path / "m")
    Path(first.snapshot.manifest).write_bytes(content)
    resolution._pinned.clear()
    totals_of.cache_clear()
    assert pin_location("iceberg", TablePlace(str(iceberg)), None, tmp_path / "m") == first
    assert read_manifest(first.snapshot.manifest).rows == 5


def test_other_columns_of_the_same_snapshot_are_another_state(iceberg: Path, tmp_path: Path) -> None:
    first = pin_location("iceberg", TablePlace(str(iceberg)), None, tmp_path / "m")

    def rename(content: dict[str, Any]) -> None:
        content["schemas"][0]["fields"][0]["name"] = "number"
        content["last-updated-ms"] += 1

    _edited(iceberg, rename)  # as where a backup was put back, and something else was done to it
    again = pin_location("iceberg", TablePlace(str(iceberg)), None, tmp_path / "m")
    assert [column.name for column in (*first.columns, *again.columns)] == ["id", "number"]


def test_a_table_that_was_made_again_is_another_one(tmp_path: Path) -> None:
    for count in (5, 3, 4):
        shutil.rmtree(tmp_path / "t", ignore_errors=True)
        write_deltalake(tmp_path / "t", ROWS.slice(0, count))
        assert pin_location("delta", TablePlace(str(tmp_path / "t")), None, tmp_path / "m").snapshot.rows == min(
            count, 5
        )


def test_manifests_of_long_ago_are_deleted(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    old = pin_location("delta", TablePlace(str(tmp_path / "t")), None, tmp_path / "m").snapshot.manifest
    os.utime(old, (time.time() - 2 * KEEP_S,) * 2)
    write_deltalake(tmp_path / "t", ROWS, mode="append")
    new = pin_location("delta", TablePlace(str(tmp_path / "t")), None, tmp_path / "m").snapshot.manifest
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
    pinned = pin_location(format, TablePlace(str(folder)), None, tmp_path / "m")
    (file,) = read_manifest(pinned.snapshot.manifest).files
    assert file.deleted is not None
    assert (file.rows, file.deleted.tolist(), pinned.snapshot.rows) == (5, [0, 4], 3)


def test_a_moment_before_the_table(tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
    table.append(ROWS)
    with pytest.raises(LakeUnreadable, match="no snapshot yet at that moment"):
        pin_location("iceberg", TablePlace(table.location()), SnapshotName(At.TIMESTAMP, "0"), tmp_path / "m")


@pytest.mark.parametrize("says_when", [False, True], ids=["file", "commit"])
def test_moments_of_delta_are_those_of_its_history(tmp_path: Path, says_when: bool) -> None:
    """A commit says itself when it was made (inCommitTimestamp), or the time of its file does: copies have new ones."""
    times_ms = {0: 1_700_000_000_000, 1: 1_700_000_000_100, 2: 1_700_000_300_000}
    for version, at_ms in times_ms.items():
        write_deltalake(tmp_path / "t", ROWS, mode="append")
        log = tmp_path / "t" / "_delta_log" / f"{version:020}.json"
        if says_when:
            actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
            for action in actions:
                if "commitInfo" in action:
                    action["commitInfo"]["inCommitTimestamp"] = at_ms
            log.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
        os.utime(log, ns=(at_ms * 1_000_000 + says_when * 10**18,) * 2)
    place = TablePlace(str(tmp_path / "t"))
    assert {int(entry.id): entry.at_ms for entry in reading.history(place)} == times_ms
    for after_ms, version in ((0, 0), (99, 0), (100, 1), (299_999, 1), (300_000, 2), (10**9, 2)):
        moment = SnapshotName(At.TIMESTAMP, str(times_ms[0] + after_ms))
        assert pin_location("delta", place, moment, tmp_path / "m").snapshot.id == str(version)
    with pytest.raises(LakeUnreadable, match="no version yet at that moment"):
        pin_location("delta", place, SnapshotName(At.TIMESTAMP, str(times_ms[0] - 1)), tmp_path / "m")


def test_moments_whose_snapshots_have_expired(tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
    for _ in range(5):
        table.append(ROWS)
        time.sleep(0.002)  # snapshots have milliseconds
    moments = [(one.snapshot_id, one.timestamp_ms) for one in table.metadata.snapshots]
    table.manage_snapshots().create_tag(moments[1][0], "monthly").commit()
    place = TablePlace(table.location().removeprefix("file://"))

    def at(moment_ms: int) -> str:
        return pin_location("iceberg", place, SnapshotName(At.TIMESTAMP, str(moment_ms)), tmp_path / "m").snapshot.id

    assert [at(at_ms) for _, at_ms in moments] == [str(number) for number, _ in moments]
    table.maintenance.expire_snapshots().by_ids([moments[number][0] for number in (0, 2, 3)]).commit()
    for number in range(4):
        with pytest.raises(LakeUnreadable, match="expired"):
            at(moments[number][1])
    assert at(moments[4][1]) == str(moments[4][0])
    table.manage_snapshots().set_current_snapshot(moments[1][0]).commit()
    assert at(int(time.time() * 1e3) + 1_000) == str(moments[1][0])
    assert at(moments[4][1]) == str(moments[4][0])


def test_log_files_of_a_moment_that_were_deleted(tmp_path: Path) -> None:
    for _ in range(3):
        write_deltalake(tmp_path / "t", ROWS, mode="append")
    DeltaTable(tmp_path / "t").create_checkpoint()
    log = tmp_path / "t" / "_delta_log"
    (log / f"{0:020}.json").unlink()
    for version in (1, 2):
        os.utime(log / f"{version:020}.json", (1_000 * version,) * 2)
    place = TablePlace(str(tmp_path / "t"))
    at = SnapshotName(At.TIMESTAMP, "2000000")
    assert pin_location("delta", place, at, tmp_path / "m").snapshot.id == "2"
    with pytest.raises(LakeUnreadable, match="version 1 does not exist, or its log files were deleted"):
        pin_location("delta", place, SnapshotName(At.TIMESTAMP, "1000000"), tmp_path / "m")


def test_a_branch_that_is_not_there(tmp_path: Path) -> None:
    table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
    table.append(ROWS)
    with pytest.raises(LakeUnreadable, match="branches and tags: main"):
        pin_location("iceberg", TablePlace(table.location()), SnapshotName(At.VERSION, "audit"), tmp_path / "m")


# ---------------------------------------------------------------------- metadata of strangers


def _metadata(folder: Path) -> Path:
    return max((folder / "metadata").glob("*.metadata.json"))


def _edited(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = _metadata(folder)
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def iceberg(tmp_path: Path) -> Path:
    """Give the folder of an Iceberg table with rows."""
    table = catalog_at(tmp_path / "lake").create_table("db.t", ROWS.schema)
    table.append(ROWS)
    return Path(table.location())


@pytest.mark.parametrize("place", ["s3://bucket/list.avro", "http://127.0.0.1:9/list.avro", "/etc/passwd", "../../x"])
def test_nothing_outside_the_folder_is_opened(iceberg: Path, tmp_path: Path, place: str) -> None:
    _edited(iceberg, lambda content: content["snapshots"][0].update({"manifest-list": place}))
    with pytest.raises(LakeUnreadable, match=r"outside the table's folder|not on this machine"):
        pin_location("iceberg", TablePlace(str(iceberg)), None, tmp_path / "m")


def test_metadata_do_not_choose_our_code(iceberg: Path, tmp_path: Path) -> None:
    _edited(iceberg, lambda content: content["properties"].update({"py-io-impl": "tests.no_such_module.IO"}))
    assert pin_location("iceberg", TablePlace(str(iceberg)), None, tmp_path / "m").snapshot.rows == 5


def test_defaults_of_older_rows_are_refused(iceberg: Path, tmp_path: Path) -> None:
    def add(content: dict[str, Any]) -> None:
        field = {"id": 9, "name": "late", "type": "long", "required": False, "initial-default": 7, "write-default": 7}
        content["schemas"][0]["fields"].append(field)

    _edited(iceberg, add)
    with pytest.raises(LakeUnreadable, match="late has a default"):
        pin_location("iceberg", TablePlace(str(iceberg)), None, tmp_path / "m")


def test_files_of_delta_without_field_ids_are_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    map_columns(tmp_path / "t", {"id": "number"}, mode="id")
    with pytest.raises(LakeUnreadable, match="no field ids"):
        pin_location("delta", TablePlace(str(tmp_path / "t")), None, tmp_path / "m")


def test_a_library_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    monkeypatch.setitem(sys.modules, "metastore.lake.delta.reading", None)
    with pytest.raises(LakeUnreadable, match=r"fusion-sql-gateway\[lake\]"):
        pin_location("delta", TablePlace(str(tmp_path / "t")), None, tmp_path / "m")


def test_files_without_field_ids_are_refused(iceberg: Path, tmp_path: Path) -> None:
    (data,) = (iceberg / "data").glob("*.parquet")
    pq.write_table(ROWS, data)
    with pytest.raises(LakeUnreadable, match="no field ids"):
        pin_location("iceberg", TablePlace(str(iceberg)), None, tmp_path / "m")


def test_names_of_folders_are_not_decoded(tmp_path: Path) -> None:
    rows = ROWS.append_column("p", pa.array(["a b", "c%20d", "e/f", "g+h", "é"]))
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = catalog_at(tmp_path / "a lake").create_table("db.t", schema, partition_spec=spec)
    table.append(rows)
    pinned = pin_location("iceberg", TablePlace(table.location()), None, tmp_path / "m")
    assert all(Path(file.path).is_file() for file in read_manifest(pinned.snapshot.manifest).files)


def test_fields_of_added_files_whose_names_were_changed_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "s": [{"a": 5}]})
    table = catalog_at(tmp_path / "lake").create_table("db.t", rows.schema)
    place = Path(table.location()) / "data" / "x.parquet"
    place.parent.mkdir(parents=True)
    pq.write_table(rows, place)
    table.add_files([str(place)])
    pin_location("iceberg", TablePlace(table.location()), None, tmp_path / "m")
    with table.update_schema() as update:
        update.rename_column("s.a", "b")
    with pytest.raises(LakeUnreadable, match="columns were renamed"):
        pin_location("iceberg", TablePlace(table.location()), None, tmp_path / "m")


def test_columns_that_a_name_mapping_leaves_out_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "p": ["v"]})
    table = catalog_at(tmp_path / "lake").create_table("db.t", rows.schema)
    place = Path(table.location()) / "data" / "x.parquet"
    place.parent.mkdir(parents=True)
    pq.write_table(rows, place)
    table.add_files([str(place)])
    mapping: dict[str, Any] = {"schema.name-mapping.default": '[{"field-id": 1, "names": ["id"]}]'}
    table.transaction().set_properties(**mapping).commit_transaction()
    with pytest.raises(LakeUnreadable, match="store the column p, which its name mapping leaves out"):
        pin_location("iceberg", TablePlace(table.location()), None, tmp_path / "m")


def test_texts_of_partitions_are_told_as_they_are(tmp_path: Path) -> None:
    moment = pa.array([dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)] * 2, pa.timestamp("us", "UTC"))
    rows = pa.table({"id": [1, 2], "p": ["abc+00:00", "abc"], "at": moment})
    write_deltalake(tmp_path / "t", rows, partition_by=["p", "at"])
    pinned = pin_location("delta", TablePlace(str(tmp_path / "t")), None, tmp_path / "m")
    told = [file.partition for file in read_manifest(pinned.snapshot.manifest).files]
    assert sorted(one["p"] for one in told) == ["abc", "abc+00:00"]
    assert {one["at"] for one in told} == {"2024-01-01 12:00:00"}
