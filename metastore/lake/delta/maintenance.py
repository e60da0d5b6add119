"""Maintenance of Delta tables, by delta-rs."""

from __future__ import annotations

import datetime as dt
import os
from fnmatch import fnmatch

from deltalake import CommitProperties

from metastore.lake.delta import reading
from metastore.lake.delta.writing import ASIDE, QUERY, removed_since, writable
from metastore.lake.place import TablePlace, other_tables
from metastore.lake.values import DeletedFile

_OF_VECTORS = ".bin"
"""End of the names of files with deletion vectors, of which delta-rs does not know who needs them."""


def compact(place: TablePlace, query_id: str) -> int:
    """Write small files of a table anew as few, and return how many went. Raises LakeUnwritable, LakeConflict."""
    with writable():
        notes = CommitProperties(custom_metadata={QUERY: query_id})
        return int(reading.open_table(place).optimize.compact(commit_properties=notes)["numFilesRemoved"])


def vacuum(place: TablePlace, retain: dt.timedelta, dry_run: bool) -> list[DeletedFile]:
    """Delete files that no recent version needs, and return them. Raises LakeUnwritable.

    Only what delta-rs would delete goes, and of that not what it does not see that the table, or another one, needs.
    """
    with writable():
        hours = int(retain.total_seconds() // 3_600)
        table = reading.open_table(place)
        paths = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        files = place.files()
        since = dt.datetime.now(dt.UTC) - retain
        needed = set(map(os.path.normpath, (*reading.paths_in_log(table, place), *removed_since(place, since))))
        others = tuple(folder for folder in other_tables(files) if not folder.startswith(ASIDE))
        if any(fnmatch(path, "metadata/*.metadata.json") for path in files):  # the same table, for readers of Iceberg
            others += ("metadata/",)
        orphans = [
            path
            for path in sorted(paths)
            if path in files
            and not path.startswith(others)
            and not path.endswith(_OF_VECTORS)
            and place.local(place.joined(path)) not in needed
        ]
        if not dry_run:
            for path in orphans:
                place.filesystem.delete_file(files[path].path)
    return [DeletedFile(path, files[path].size) for path in orphans]
