"""Files of a snapshot that a query needs: those that may hold rows of its answer, by the bounds in the table's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from engines.files.manifest import totals_of
from engines.files.pruning import FEW_FILES, pruned
from engines.files.ranges import Reading
from metastore.objects.store import is_remote
from sql.tables import TableSource


def with_needed_files(table: TableSource, ranges: Mapping[str, tuple[Reading, ...]]) -> TableSource:
    """Return a table with the files of its snapshot that may matter to a query, and their rows."""
    readings = ranges.get(table.name.lower())
    if table.snapshot is None or not readings:
        return table
    least_files = 2 if is_remote(table.location) else FEW_FILES
    manifest = pruned(table.snapshot.manifest, readings, least_files=least_files)
    if manifest == table.snapshot.manifest:
        return table
    return replace(table, snapshot=replace(table.snapshot, manifest=manifest, **asdict(totals_of(manifest))))
