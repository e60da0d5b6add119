"""An UPDATE, DELETE or MERGE, from the table's files as they are to one commit.

The files that hold rows to be changed are looked for, written anew beside the table with what becomes of their rows,
and exchanged by the same commit as an INSERT OVERWRITE's. Nobody is kept out meanwhile. If others have changed the
table by the time of the commit, all is done again, a few times. Changes of one table by this gateway take turns, so
that none of them works for nothing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from engines.errors import EngineError
from engines.files.listing import DataFile, FileMark, data_files
from engines.protocol import TableFiles
from gateway.catalog.commits import Commits
from gateway.catalog.folders import Folder
from gateway.catalog.registration import Registration
from gateway.commands.dml.change_queries import ChangeKind, ChangeRows
from gateway.errors import WriteConflict, WriteFailed
from gateway.execution.changing.rewrite import Changed, Rewrite, TableMoved
from gateway.execution.staged_rows import Produce
from gateway.statements.statement import Run
from metastore.store import Metastore
from sql.tables import TableSource

log = logging.getLogger(__name__)

TRIES = 5
_PAUSE_S = 0.05  # between two looks at whether a statement that waits for its turn is still wanted
_AFFECTED = ("num_affected_rows", pa.int64())
_OF_KIND = (("num_updated_rows", pa.int64()), ("num_deleted_rows", pa.int64()), ("num_inserted_rows", pa.int64()))


class TableChanger:
    """Carries changes out. Thread-safe; each runs in the thread of its statement.

    require_alone: refuses a table whose files are also another's. make_visible: ends a commit. turn_s: longest wait for
    the table's folder.
    """

    def __init__(
        self,
        metastore: Metastore,
        registration: Registration,
        commits: Commits,
        *,
        require_alone: Callable[[TableSource], None],
        make_visible: Callable[[TableSource, Folder], None],
        turn_s: float,
    ) -> None:
        self._metastore = metastore
        self._registration = registration
        self._commits = commits
        self._require_alone = require_alone
        self._make_visible = make_visible
        self._turn_s = turn_s
        self._lock = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}

    def change(self, change: ChangeRows, run: Run, produce: Produce) -> pa.Table:
        """Do what a statement says, and tell of how many rows. Raises WriteFailed, EngineError, FolderBusy, OSError."""
        source = change.target
        self._require_own(source)
        self._registration.require_unchanged((source,))
        self._require_alone(source)
        root = Path(source.location)
        staged = self._commits.begin(run.id, root)
        committed = False
        try:
            with self._turn(source, run):
                for number in range(1, TRIES + 1):
                    before = self._files(root, run)
                    rewrite = Rewrite(change, staged, number, before, self._read_beside(change), produce)
                    try:
                        changed = rewrite.run()
                    except (EngineError, TableMoved):
                        if self._files(root, run) == before:  # else it read files that are gone
                            raise
                        continue
                    if not (changed.files or changed.replaced):
                        return _answer(change, changed)
                    with self._commits.alone(root, wait_s=self._turn_s, require=run.require) as folder:
                        self._commits.finish(folder, root)
                        if _is_as_it_was(before, data_files(root), root, change):
                            replaced = [file.path.relative_to(root).as_posix() for file in changed.replaced]
                            self._commits.commit(folder, run.id, files=changed.files, replaced=replaced)
                            committed = True
                            self._make_visible(source, folder)
                            return _answer(change, changed)
                    log.info("query %s: %s was changed by others, doing it again", run.id, source.name)
                    rewrite.discard()
        except TableMoved as error:
            raise _conflict(source) from error
        finally:
            if not committed:
                self._commits.give_up(run.id, root)
        raise _conflict(source)

    def _require_own(self, source: TableSource) -> None:
        if self._metastore.folders.get(source.location) is None:
            message = (
                f"Rows of {source.name} cannot be changed: it was registered, and its files are somebody else's. Make "
                "a table of it with CREATE TABLE ... AS, and change that."
            )
            raise WriteFailed(message)

    def _files(self, root: Path, run: Run) -> tuple[DataFile, ...]:
        """Return the table's files, those of earlier commits among them."""
        with self._commits.alone(root, wait_s=self._turn_s, require=run.require) as folder:
            self._commits.finish(folder, root)
            return data_files(root)

    def _read_beside(self, change: ChangeRows) -> tuple[TableFiles, ...]:
        """Return the files of all tables that a change reads: it may read them more than once, and they may grow."""
        tables = (table for table in change.reads if Path(table.location).is_dir())
        return tuple(TableFiles(each, tuple(str(f.path) for f in data_files(Path(each.location)))) for each in tables)

    @contextlib.contextmanager
    def _turn(self, source: TableSource, run: Run) -> Iterator[None]:
        """Wait until no other change of this gateway is at the table."""
        with self._lock:
            lock = self._turns.setdefault(source.location, threading.Lock())
        while not lock.acquire(timeout=_PAUSE_S):
            run.require()
        try:
            yield
        finally:
            lock.release()


def _is_as_it_was(before: tuple[DataFile, ...], now: tuple[DataFile, ...], root: Path, change: ChangeRows) -> bool:
    """Tell whether a change of the files as they were is still one of the files as they are.

    Rows that were only added are as if they came after an UPDATE or DELETE, unless that looked at the table as a whole.
    """
    old, new = _marks(before, root), _marks(now, root)
    queries = (change.rows, change.added, change.source)
    looks = any(table.name == change.target.name for query in queries if query is not None for table in query.tables)
    return old == new if looks or change.kind is ChangeKind.MERGE else old <= new


def _marks(files: tuple[DataFile, ...], root: Path) -> frozenset[FileMark]:
    return frozenset(file.mark(root) for file in files)


def _conflict(source: TableSource) -> WriteConflict:
    return WriteConflict(
        f"Others wrote to {source.name} each of the {TRIES} times that its rows were rewritten. Nothing was changed; "
        "send it again when they write less often."
    )


def _answer(change: ChangeRows, changed: Changed) -> pa.Table:
    """Return one row: how many rows there were of each kind, NULL where that is not known."""
    counts = (changed.updated, changed.deleted, changed.inserted)
    affected = None if None in counts else sum(count for count in counts if count is not None)
    if change.kind is not ChangeKind.MERGE:
        return pa.table([[affected]], schema=pa.schema([_AFFECTED]))
    return pa.table([[count] for count in (affected, *counts)], schema=pa.schema([_AFFECTED, *_OF_KIND]))
