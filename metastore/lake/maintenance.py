"""Maintenance of lake tables: files that no snapshot names any more go, and many small ones become few.

Only files that are older than a time are deleted: a writer whose commit is not made yet has younger ones, and a
statement that reads an older snapshot is over by then.
"""

from __future__ import annotations

import datetime as dt

from metastore.lake.place import place_of
from metastore.lake.resolution import module_of
from metastore.lake.values import DeletedFile
from metastore.lake.writing import as_sql_errors
from metastore.objects.access import NO_OBJECTS, ObjectAccess
from sql.tables import TableSource


def vacuum(
    table: TableSource, retain: dt.timedelta, dry_run: bool, access: ObjectAccess = NO_OBJECTS
) -> list[DeletedFile]:
    """Delete files that no snapshot of some last time needs, and return them.

    retain: age of the snapshots that stay, and of files that are let alone.
    dry_run: nothing is changed, and no snapshot expires.

    Raises NotAllowed, TableChangedConcurrently.
    """
    with as_sql_errors(table.name, table.location):
        files: list[DeletedFile] = module_of(table.format, "maintenance").vacuum(
            place_of(table, access), retain, dry_run
        )
        return files


def compact(table: TableSource, query_id: str, access: ObjectAccess = NO_OBJECTS) -> int:
    """Write small files of a table, and those with deleted rows, anew as few; return how many went.

    Raises NotAllowed, TableChangedConcurrently.
    """
    with as_sql_errors(table.name, table.location):
        return int(module_of(table.format, "maintenance").compact(place_of(table, access), query_id))
