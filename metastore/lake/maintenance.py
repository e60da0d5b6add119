"""Maintenance of lake tables: files that no snapshot names any more go, and many small ones become few.

Only files that are older than a time are deleted: a writer whose commit is not made yet has younger ones, and a
statement that reads an older snapshot is over by then.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.fs as pafs
from deltalake import CommitProperties
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from metastore.lake import delta, delta_writing, iceberg_writing
from metastore.lake.place import TablePlace, place_of
from metastore.lake.writing import as_sql_errors
from metastore.objects.access import NO_OBJECTS, ObjectAccess
from metastore.objects.store import SCHEMES
from sql.tables import TableSource

SMALL_BYTES = 32 << 20
"""Size below which an Iceberg data file is written anew together with others of its partition."""
_KEPT_NAMES = ("version-hint.text",)


@dataclass(frozen=True, slots=True)
class DeletedFile:
    """A file that was deleted, or would be. path: below the table's folder. bytes: None: unknown."""

    path: str
    bytes: int | None


def vacuum(
    table: TableSource, retain: dt.timedelta, dry_run: bool, access: ObjectAccess = NO_OBJECTS
) -> list[DeletedFile]:
    """Delete files that no snapshot of some last time needs, and return them.

    retain: age of the snapshots that stay, and of files that are let alone.
    dry_run: nothing is changed, and no snapshot expires.

    Raises NotAllowed, TableChangedConcurrently.
    """
    with as_sql_errors(table.name, table.location):
        place = place_of(table, access)
        if table.format == "delta":
            return _vacuum_delta(place, retain, dry_run)
        return _vacuum_iceberg(place, retain, dry_run)


def compact(table: TableSource, query_id: str, access: ObjectAccess = NO_OBJECTS) -> int:
    """Write small files of a table, and those with deleted rows, anew as few; return how many went.

    Raises NotAllowed, TableChangedConcurrently.
    """
    with as_sql_errors(table.name, table.location):
        place = place_of(table, access)
        if table.format == "iceberg":
            return _compact_iceberg(place, query_id)
        with delta_writing.writable():
            notes = CommitProperties(custom_metadata={delta_writing.QUERY: query_id})
            return int(delta.open_table(place).optimize.compact(commit_properties=notes)["numFilesRemoved"])


def _compact_iceberg(place: TablePlace, query_id: str) -> int:
    with iceberg_writing.writable():
        table, _ = iceberg_writing.table_at(place)
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
            for file in iceberg_writing.data_files(table, scan.to_record_batches(tasks)):
                added.append(file)
            notes = {iceberg_writing.QUERY: query_id, "fusion.operation": "OPTIMIZE"}
            with table.transaction() as transaction:
                with transaction.update_snapshot(snapshot_properties=notes).overwrite() as snapshot:
                    for task in tasks:
                        snapshot.delete_data_file(task.file)
                    for file in added:
                        snapshot.append_data_file(file)
        except BaseException:
            for file in added:
                table.io.delete(file.file_path)
            raise
        return len(tasks)


def _vacuum_delta(place: TablePlace, retain: dt.timedelta, dry_run: bool) -> list[DeletedFile]:
    with delta_writing.writable():
        hours = int(retain.total_seconds() // 3_600)
        paths = delta.open_table(place).vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
    return [DeletedFile(path, None) for path in sorted(paths)]


def _vacuum_iceberg(place: TablePlace, retain: dt.timedelta, dry_run: bool) -> list[DeletedFile]:
    with iceberg_writing.writable():
        before = dt.datetime.now(dt.UTC) - retain
        table, located = iceberg_writing.table_at(place)
        if not dry_run:
            table.maintenance.expire_snapshots().older_than(before).commit()
            table, located = iceberg_writing.table_at(place)
        named = {located.local(path) for path in _named(table)}
        found = []
        for file in located.filesystem.get_file_info(pafs.FileSelector(located.path(), recursive=True)):
            if file.type is not pafs.FileType.File or file.mtime >= before or _stays(file.base_name, located):
                continue
            location = file.path if located.store is None else f"{next(iter(SCHEMES))}://{file.path}"
            if located.local(location) not in named:
                found.append(DeletedFile(file.path.removeprefix(f"{located.path()}/"), file.size))
                if not dry_run:
                    located.filesystem.delete_file(file.path)
    return sorted(found, key=lambda file: file.path)


def _stays(name: str, place: TablePlace) -> bool:
    """Return True for files of a folder's own catalog, which tell writers that a version was made."""
    return name in _KEPT_NAMES or (place.catalog is None and name.endswith(".metadata.json"))


def _named(table: Table) -> Iterator[str]:
    """Yield the locations of all files that a table names."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (one.statistics_path for one in metadata.statistics)
    yield from (one.statistics_path for one in metadata.partition_statistics)
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path
