"""Drift of a table's files since its statistics were computed.

Files of plain tables are compared by names, sizes and times; those of lake tables by names and deleted rows.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from engines.errors import EngineError
from engines.files.listing import DataFile, FileMark, InspectionFailed, data_files
from engines.files.manifest import read_manifest
from gateway.catalog.registration import Registration
from gateway.planning.fairness import Requester
from metastore.records import Staleness
from metastore.store import Metastore
from selector.statistics import TableStatistics
from sql.errors import SqlError
from sql.tables import TableSource

KEPT_S = 30.0
SNAPSHOT_S = 120.0
"""Longest wait for the snapshot of a lake table."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Difference between the current files and those of the active build. files: number of all files, then or now."""

    new: int
    changed: int
    removed: int
    files: int

    @property
    def share(self) -> float:
        """Share of the files that are not as they were, 0..1."""
        return (self.new + self.changed + self.removed) / self.files if self.files else 0.0

    @classmethod
    def between(cls, marks: Iterable[FileMark], files: Iterable[FileMark]) -> Drift:
        """Compare the files that a build read with those that are there."""
        then, now = ({mark.path: mark for mark in some} for some in (marks, files))
        both = then.keys() & now.keys()
        return cls(
            new=len(now.keys() - both),
            changed=sum(then[path] != now[path] for path in both),
            removed=len(then.keys() - both),
            files=len(then.keys() | now.keys()),
        )


class Freshness:
    """Checks tables' files, and caches the answer for a moment: a page asks about all tables at once."""

    def __init__(self, metastore: Metastore, registration: Registration) -> None:
        self._metastore = metastore
        self._registration = registration
        self._seen: dict[tuple[str, int | None], tuple[float, Drift | None]] = {}
        self._lock = threading.Lock()

    def look(self, table: TableSource, build: TableStatistics | None) -> Drift | None:
        """Compare a table's files with its build; None without one. Raises InspectionFailed, OSError."""
        if build is None:
            return None
        if table.is_lake:
            root, files = self._of_snapshot(table)
        else:
            root = Path(table.location)
            files = data_files(root)
        marks = [mark for part in self._metastore.statistics.part_marks(table.name) for mark in part.files]
        if not marks:
            return _since(build, files)
        now = [file.mark(root) for file in files]
        if table.is_lake:  # its files are never written again, and logs with wrong sizes have been seen
            marks, now = ([replace(mark, bytes=0) for mark in some] for some in (marks, now))
        return Drift.between(marks, now)

    def _of_snapshot(self, table: TableSource) -> tuple[Path, tuple[DataFile, ...]]:
        """Return the folder and the files of a lake table's newest snapshot. Raises InspectionFailed, OSError."""
        try:
            (pinned,) = self._registration.pinned([table], Requester("statistics", time.monotonic() + SNAPSHOT_S))
        except (SqlError, EngineError) as error:
            raise InspectionFailed(str(error)) from error
        assert pinned.snapshot is not None
        return Path(pinned.snapshot.folder), read_manifest(pinned.snapshot.manifest).data_files()

    def recent(self, table: TableSource, build: TableStatistics | None) -> Drift | None:
        """Return what ``look`` says now or said a moment ago.

        None also for a lake table, whose log may be far away, and where the files cannot be seen.
        """
        if table.is_lake:
            return None
        key = (table.name, build.version if build else None)
        with self._lock:
            seen_s, drift = self._seen.get(key, (-KEPT_S, None))
        if time.monotonic() - seen_s < KEPT_S:
            return drift
        try:
            drift = self.look(table, build)
        except (InspectionFailed, OSError):
            drift = None
        with self._lock:
            self._seen = {other: value for other, value in self._seen.items() if other[0] != table.name}
            self._seen[key] = (time.monotonic(), drift)
        return drift

    def why_stale(
        self, limit: Staleness, table: TableSource, build: TableStatistics | None, *, at: dt.datetime
    ) -> str | None:
        """Say in words why a table's statistics are due, None where they are not.

        Those of a table whose files cannot be seen are due: the job tells what is wrong, and computes the others.
        """
        if build is None or build.built_at is None:
            return "it has no statistics"
        age_days = (at - build.built_at) / dt.timedelta(days=1)
        if limit.days is not None and age_days >= limit.days:
            return f"its statistics are {age_days:.1f} days old"
        if limit.changed_files is None:
            return None
        try:
            drift = self.look(table, build)
        except (InspectionFailed, OSError) as failure:
            return f"its files cannot be seen: {failure}"
        if drift is None or drift.share < limit.changed_files:
            return None
        return f"{drift.share:.0%} of its files have changed"


def _since(build: TableStatistics, files: Iterable[DataFile]) -> Drift:
    """Judge by times where a build kept no marks: which files it read is then a guess from their number.

    Files of lake tables have no times.
    """
    current = tuple(files)
    if all(file.deleted_mark is not None for file in current):
        difference = len(current) - (build.files or len(current))
        return Drift(max(0, difference), 0, max(0, -difference), max(len(current), len(current) - difference))
    touched = sum(
        build.built_at is not None and file.modified_ns > build.built_at.timestamp() * 1e9 for file in current
    )
    built_files = build.files or len(current) - touched
    new = min(touched, max(0, len(current) - built_files))
    return Drift(new, touched - new, max(0, built_files - len(current)), max(built_files, len(current)))
