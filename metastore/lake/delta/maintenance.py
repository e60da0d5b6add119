"""Maintenance of Delta tables, by delta-rs."""

from __future__ import annotations

import datetime as dt

from deltalake import CommitProperties

from metastore.lake.delta import reading
from metastore.lake.delta.writing import QUERY, writable
from metastore.lake.place import TablePlace
from metastore.lake.values import DeletedFile


def compact(place: TablePlace, query_id: str) -> int:
    """Write small files of a table anew as few, and return how many went. Raises LakeUnwritable, LakeConflict."""
    with writable():
        notes = CommitProperties(custom_metadata={QUERY: query_id})
        return int(reading.open_table(place).optimize.compact(commit_properties=notes)["numFilesRemoved"])


def vacuum(place: TablePlace, retain: dt.timedelta, dry_run: bool) -> list[DeletedFile]:
    """Delete files that no recent version needs, and return them. Raises LakeUnwritable."""
    with writable():
        hours = int(retain.total_seconds() // 3_600)
        table = reading.open_table(place)
        paths = table.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
    return [DeletedFile(path, None) for path in sorted(paths)]
