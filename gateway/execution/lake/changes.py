"""UPDATE, DELETE and MERGE of a lake table, from a snapshot to one commit.

The data files that hold rows to be changed are looked for, their rows are written anew with what becomes of them, and
one commit exchanges the files. Others may commit meanwhile. Where they change what the statement has read, all is done
again, a few times. Changes of one table by this gateway take turns, so that none of them works for nothing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from engines.files.listing import data_files
from engines.files.manifest import read_manifest
from engines.protocol import TableFiles
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.catalog.own_folders import OwnFolders
from gateway.catalog.registration import Registration
from gateway.commands.dml.change_queries import ChangeKind, ChangeRows
from gateway.execution.lake.rewrite import Changed, Rewrite
from gateway.execution.lake.staging import staging_folder
from gateway.execution.lake.writer import TRIES, conflict
from gateway.execution.staged_rows import Produce
from gateway.statements.statement import Run
from metastore.lake.values import LakeCommit, Replaced
from sql.errors import TableChangedConcurrently

log = logging.getLogger(__name__)

_PAUSE_S = 0.05  # between two looks at whether a statement that waits for its turn is still wanted
_AFFECTED = ("num_affected_rows", pa.int64())
_OF_KIND = (("num_updated_rows", pa.int64()), ("num_deleted_rows", pa.int64()), ("num_inserted_rows", pa.int64()))


class LakeChanges:
    """Changes rows of lake tables. Thread-safe; each change runs in the thread of its statement."""

    def __init__(self, lake: LakeTables, folders: OwnFolders, registration: Registration) -> None:
        self._lake = lake
        self._folders = folders
        self._registration = registration
        self._lock = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}

    def change(self, change: ChangeRows, run: Run, produce: Produce) -> pa.Table:
        """Do what a statement says, and return how many rows were changed.

        Raises WriteFailed, SqlError, EngineError.
        """
        source = change.target
        self._registration.require_unchanged((source,))
        with staging_folder(self._folders, source.name, run.id) as folder, self._turn(source.location, run):
            for number in range(1, TRIES + 1):
                run.require()
                (target,) = self._registration.pinned((source,), run.requester)
                assert target.snapshot is not None
                manifest = read_manifest(target.snapshot.manifest)
                own = TableFiles(target, tuple(file.path for file in manifest.files))  # where sub-queries read it
                read = (*_read_beside(change), own)
                with self._registration.reading((target,), None, run.require):
                    changed = Rewrite(change, target, manifest, folder / str(number), read, produce).run()
                if not (changed.files or changed.replaced):
                    return _answer(change, changed)
                commit = LakeCommit(
                    run.id,
                    change.kind,
                    changed.files,
                    Replaced.FILES,
                    {file.path: file.deleted_rows for file in changed.replaced},
                    target.snapshot.id,
                    _rests_on_all_rows(change),
                )
                run.require()
                try:
                    self._lake.commit(target, commit, run.requester)
                except TableChangedConcurrently:
                    log.info("query %s: %s was changed by others, doing it again", run.id, source.name)
                    continue
                self._registration.refresh_after_commit(source.name, run.requester)
                return _answer(change, changed)
        raise conflict(source.name, TRIES)

    @contextlib.contextmanager
    def _turn(self, location: str, run: Run) -> Iterator[None]:
        """Wait until no other change of this gateway is at the table."""
        with self._lock:
            lock = self._turns.setdefault(location, threading.Lock())
        while not lock.acquire(timeout=_PAUSE_S):
            run.require()
        try:
            yield
        finally:
            lock.release()


def _read_beside(change: ChangeRows) -> tuple[TableFiles, ...]:
    """Return the files of all plain tables that a change reads: it may read them more than once, and they may grow."""
    tables = (table for table in change.reads if not table.is_lake and Path(table.location).is_dir())
    return tuple(
        TableFiles(table, tuple(str(file.path) for file in data_files(Path(table.location)))) for table in tables
    )


def _rests_on_all_rows(change: ChangeRows) -> bool:
    """Return True if rows that others add meanwhile could change what the statement does to other rows.

    Else they are as if they came after an UPDATE or DELETE.
    """
    queries = (change.rows, change.added, change.source)
    looks = any(table.name == change.target.name for query in queries if query is not None for table in query.tables)
    return looks or change.kind is ChangeKind.MERGE


def _answer(change: ChangeRows, changed: Changed) -> pa.Table:
    """Return one row: how many rows there were of each kind, NULL where that is not known."""
    counts = (changed.updated, changed.deleted, changed.inserted)
    affected = None if None in counts else sum(count for count in counts if count is not None)
    if change.kind is not ChangeKind.MERGE:
        return pa.table([[affected]], schema=pa.schema([_AFFECTED]))
    return pa.table([[count] for count in (affected, *counts)], schema=pa.schema([_AFFECTED, *_OF_KIND]))
