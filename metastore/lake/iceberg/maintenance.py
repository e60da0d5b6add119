"""Maintenance of Iceberg tables, by pyiceberg, which deletes no file itself."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from metastore.lake.iceberg import writing
from metastore.lake.iceberg.writing import writable
from metastore.lake.place import TablePlace, other_tables
from metastore.lake.values import DeletedFile, LakeUnwritable

SMALL_BYTES = 32 << 20
"""Size below which a data file is written anew together with others of its partition."""
_KEPT_NAMES = ("version-hint.text",)


def compact(place: TablePlace, query_id: str) -> int:
    """Write small files of a table, and those with deleted rows, anew as few; return how many went.

    Raises LakeUnwritable, LakeConflict.
    """
    with writable():
        table, _ = writing.table_at(place)
        groups: dict[object, list[FileScanTask]] = {}
        for task in table.scan().plan_files():
            if task.file.file_size_in_bytes < SMALL_BYTES or task.delete_files:
                groups.setdefault((task.file.spec_id, task.file.partition), []).append(task)
        tasks = [one for some in groups.values() if len(some) > 1 or some[0].delete_files for one in some]
        if not tasks:
            return 0
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        added: list[DataFile] = []
        try:
            for file in writing.data_files(table, scan.to_record_batches(tasks)):
                added.append(file)
            notes = {writing.QUERY: query_id, "fusion.operation": "OPTIMIZE"}
            with table.transaction() as transaction:
                with transaction.update_snapshot(snapshot_properties=notes).overwrite() as snapshot:
                    for task in tasks:
                        snapshot.delete_data_file(task.file)
                    for file in added:
                        snapshot.append_data_file(file)
        except BaseException as failure:
            writing.delete_uncommitted(place, query_id, added, failure)
            raise
        return len(tasks)


def vacuum(place: TablePlace, retain: dt.timedelta, dry_run: bool) -> list[DeletedFile]:
    """Let older snapshots expire, delete files that no snapshot needs, and return these. Raises LakeUnwritable."""
    with writable():
        before = dt.datetime.now(dt.UTC) - retain
        table, located = writing.table_at(place)
        if not dry_run:
            table.maintenance.expire_snapshots().older_than(before).commit()
            table, located = writing.table_at(place)
        named = {_real(located.local(path), located) for path in _named(table, before)}
        files = located.files()
        others = other_tables(files)
        if any(below.startswith("_delta_log/") for below in files):
            raise LakeUnwritable("there is a Delta table in its folder, too: use its own writer")
        orphans = []
        for below, file in files.items():
            if file.mtime >= before or below.startswith(others) or _stays(file.base_name, located):
                continue
            if _real(located.local(located.joined(below)), located) not in named:
                orphans.append(DeletedFile(below, file.size))
                if not dry_run:
                    located.filesystem.delete_file(file.path)
    return sorted(orphans, key=lambda file: file.path)


def _real(path: str, place: TablePlace) -> str:
    """Return a path with links followed: metadata may name files by another way to the folder."""
    return path if place.store is not None else os.path.realpath(path)


def _stays(name: str, place: TablePlace) -> bool:
    """Return True for files of a folder's own catalog, which tell writers that a version was made."""
    return name in _KEPT_NAMES or (place.catalog is None and name.endswith(".metadata.json"))


def _named(table: Table, before: dt.datetime) -> Iterator[str]:
    """Yield the locations of all files that a table names, without snapshots that may expire."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (one.statistics_path for one in metadata.statistics)
    yield from (one.statistics_path for one in metadata.partition_statistics)
    heads = {metadata.current_snapshot_id, *(reference.snapshot_id for reference in metadata.refs.values())}
    for snapshot in metadata.snapshots:
        if snapshot.timestamp_ms < before.timestamp() * 1e3 and snapshot.snapshot_id not in heads:
            continue
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path
