"""Lists of the files of plain tables: one per statement, after a check against the table's definition.

Files change without the catalog. Those that came after the registration may be of a lake format by now, lie in other
partition folders, or hold a column in a type that engines would each convert in their own way. A list is used again
until a file or folder of the table changes, and a file that was looked into is not opened again (ADR 54).
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from engines.files.listing import DataFile, InspectionFailed, data_files, partition_names
from engines.files.manifest import FileChange, Manifest, SnapshotFile, delete_old, read_manifest
from gateway.catalog.file_stamps import SETTLED_S, FileStamps, files_at
from gateway.planning.fairness import Requester
from metastore.discovery.inspector import require_fitting
from selector.decision import TableRead
from sql.errors import TableUnreadable
from sql.tables import Snapshot, TableSource

FEW_FILES = 64
"""Files that are looked at before the next statement computes: a folder on a share takes its time for each."""
DELETE_EVERY_S = 60.0
"""Time between two looks for old lists: a table that grows all the time leaves many."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """Files of a table that were checked against its definition.

    source: definition of the table.
    is_own: the gateway wrote the files.
    pinned: the table with the list of its files; None: not listed yet.
    as_they_were: stamps of all files; None: a change within the clock's resolution could not be seen.
    fitting: files that fit the definition.
    """

    source: TableSource
    is_own: bool
    pinned: TableSource | None = None
    as_they_were: FileStamps | None = None
    fitting: frozenset[tuple[str, int, int]] = frozenset()


class ReadableFiles:
    """Lists of tables' files. Thread-safe.

    folder: for the lists.
    is_own: predicate: the gateway wrote a table's files.
    may_be_empty: predicate: a table may have no files.
    """

    def __init__(
        self,
        folder: Path,
        *,
        is_own: Callable[[TableSource], bool],
        may_be_empty: Callable[[TableSource], bool],
        settled_s: float = SETTLED_S,
    ) -> None:
        self._folder = folder
        self._is_own = is_own
        self._may_be_empty = may_be_empty
        self._settled_s = settled_s
        self._listed: dict[str, _Listed] = {}
        self._lock = threading.Lock()
        self._delete_at_s = time.monotonic()

    def pinned(self, table: TableSource, requester: Requester) -> TableSource:
        """Return a table with the list of its files as they are now, which all engines read with the same result.

        Raises TableUnreadable, StatementCancelled, DeadlineExceeded.
        """
        with self._lock:
            listed = self._listed.get(table.location)
        if listed is None or listed.source != table:
            listed = _Listed(table, self._is_own(table))
        if listed.pinned is not None and listed.as_they_were is not None:
            if len(listed.as_they_were.stamps) > FEW_FILES:
                requester.before_waiting()
            if listed.as_they_were.are_unchanged() and _is_kept(listed.pinned):
                return listed.pinned
        requester.before_waiting()
        begun_ns = time.time_ns()
        as_they_are = files_at((table.location,), settled_s=self._settled_s)
        try:
            files = self._files_of(table, requester)
            fitting = frozenset() if listed.is_own else self._fitting(table, files, listed.fitting)
        except InspectionFailed as failure:
            raise TableUnreadable(f"{table.name} cannot be read: {_without_place(failure, table)}.") from failure
        changed_ns = max((max(file.modified_ns, file.status_ns) for file in files), default=0)
        is_settled = as_they_are is not None and changed_ns + self._settled_s * 1e9 < begun_ns
        pinned = self._with_list(table, files, is_settled=is_settled)
        if pinned == listed.pinned:
            pinned = listed.pinned  # the same object: engines compare nothing
        with self._lock:
            self._listed[table.location] = _Listed(table, listed.is_own, pinned, as_they_are, fitting)
        return pinned

    def manifest_of(self, read: TableRead) -> Manifest | None:
        """Return the list of the files that a query read of a table; None: it is no longer kept."""
        try:
            return read_manifest(str(self._folder / f"{read.manifest}.arrow"))
        except FileNotFoundError:
            return None

    def _files_of(self, table: TableSource, requester: Requester) -> Sequence[DataFile]:
        """Return a table's files that hold rows. Raises InspectionFailed."""
        root = Path(table.location)
        if not root.exists():
            raise InspectionFailed("its files are gone; put them back, or drop the table")
        files = [file for file in data_files(root, requester.require) if file.bytes]
        for file in files:
            try:
                str(file.path).encode()
            except UnicodeEncodeError:
                raise InspectionFailed(f"the name of its file {file.path.name!a} is not UTF-8; rename it") from None
        return files

    def _fitting(
        self, table: TableSource, files: Sequence[DataFile], known: frozenset[tuple[str, int, int]]
    ) -> frozenset[tuple[str, int, int]]:
        """Return marks of a table's files, all of which fit. known: of an earlier time. Raises InspectionFailed."""
        if not files and not self._may_be_empty(table):
            raise InspectionFailed(
                "its files are gone, and its columns were those of its files; put them back and REFRESH the table, "
                "or drop it"
            )
        folders = partition_names(files, Path(table.location))
        if files and [name.lower() for name in folders] != [name.lower() for name in table.partition_columns]:
            raise InspectionFailed(
                f"its partition folders are {', '.join(folders) or 'none'} now, not "
                f"{', '.join(table.partition_columns) or 'none'}; REFRESH the table"
            )
        marks = {_mark(file): file.path for file in files}
        new = [path for mark, path in marks.items() if mark not in known]
        if new:
            require_fitting(table, new)
        return frozenset(marks)

    def _with_list(self, table: TableSource, files: Sequence[DataFile], *, is_settled: bool) -> TableSource:
        """Return a table with a list, which is written unless it is there."""
        digest = hashlib.sha256(table.location.encode())
        for file in files:
            state = (file.bytes, file.modified_ns, file.inode, file.status_ns)
            digest.update(f"\0{file.path}\0{state}".encode())
        fingerprint = digest.hexdigest()[:32]
        path = self._folder / f"{fingerprint}.arrow"
        size = sum(file.bytes for file in files)
        snapshot = Snapshot(fingerprint[:16], str(path), None, table.location, len(files), size, is_settled)
        pinned = replace(table, snapshot=snapshot)
        if not _is_kept(pinned):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            Manifest((), tuple(map(_of_plain_table, files)), folder=table.location).write(path)
            self._delete_old()
        return pinned

    def _delete_old(self) -> None:
        with self._lock:
            if time.monotonic() < self._delete_at_s:
                return
            self._delete_at_s = time.monotonic() + DELETE_EVERY_S
        delete_old(self._folder)


def require_unreplaced(tables: Iterable[TableSource]) -> None:
    """Require that no file of plain tables' lists was replaced while an engine read them. Raises TableUnreadable.

    A file that is gone by now does no harm: no engine ends well without having read it.
    """
    for table in tables:
        if table.snapshot is not None and not table.is_lake:
            _require(table, frozenset({FileChange.REPLACED}))


def require_present(tables: Iterable[TableSource]) -> None:
    """Require, after an engine failed, that all files of tables' snapshots are there. Raises TableUnreadable."""
    for table in tables:
        if table.snapshot is not None:
            _require(table, frozenset(FileChange))


def _require(table: TableSource, unwanted: Collection[FileChange]) -> None:
    assert table.snapshot is not None
    manifest = read_manifest(table.snapshot.manifest)
    changed = ((file, change) for file in manifest.files if (change := file.change()) in unwanted)
    file, change = next(changed, (None, None))
    if file is None:
        return
    path = manifest.relative(file)
    if table.is_lake:
        raise TableUnreadable(
            f"{table.name} cannot be read: files of its snapshot {table.snapshot.id} are gone ({path}), as after a "
            "VACUUM. Send the statement again; if that does not help, restore the files or an older version."
        )
    raise TableUnreadable(
        f"{table.name} cannot be read: its file {path} {change} since the statement listed the table's files. Send the "
        "statement again: it reads the files as they are then."
    )


def _is_kept(pinned: TableSource) -> bool:
    """Return True if a table's list is still there, and note that it is asked for."""
    assert pinned.snapshot is not None
    with suppress(FileNotFoundError):
        os.utime(pinned.snapshot.manifest)
        return True
    return False


def _of_plain_table(file: DataFile) -> SnapshotFile:
    return SnapshotFile(str(file.path), file.bytes, None, {}, modified_ns=file.modified_ns, inode=file.inode)


def _mark(file: DataFile) -> tuple[str, int, int]:
    return str(file.path), file.bytes, file.modified_ns


def _without_place(failure: InspectionFailed, table: TableSource) -> str:
    return str(failure).replace(table.location, table.name)
