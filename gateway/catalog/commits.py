"""Commits of written rows to a table: recorded first, then one rename, then file by file.

The metastore says what a commit does, a folder beside the table's files says that it has begun. A folder without a
record is nobody's: it is never opened. Until the rename nothing of a write is seen; from then on its files are moved
into the table, and what they replace is deleted last. Where this gateway cannot, or is killed meanwhile, the next write
to the table or the next gateway does it. Commits of one table come one after the other.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from gateway.catalog.folders import Folder
from metastore.database.retry import retry, retry_insert
from metastore.records import TableCommit
from metastore.store import Metastore

log = logging.getLogger(__name__)

PART = "-"  # behind a query's id and before a number, where it commits to several tables

_STAGED = ".fusion-write-"
_COMMITTED = ".fusion-commit-"
_HIDDEN = ("_", ".")
_RIGHTS_OF_FILES = 0o666
_PAUSE_S = 0.05  # between two looks at whether a folder is free, and its commit still wanted


class FolderBusy(Exception):
    """Somebody else commits to a table's folder, or holds it, for longer than one waits."""


class Commits:
    """Commits writes to the folders of tables. Thread-safe."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore
        self._lock = threading.Lock()
        self._of_folder: dict[Path, threading.Lock] = {}

    @contextlib.contextmanager
    def alone(self, root: Path, *, wait_s: float, require: Callable[[], None] = lambda: None) -> Iterator[Folder]:
        """Lock a table's folder against other commits: of other threads, and of other gateways if the disk has locks.

        wait_s: longest wait for whoever is at it. require: raises where nobody waits for the commit any more.

        Raises FolderBusy, and OSError, also where a link leads there.
        """
        with self._lock:
            lock = self._of_folder.setdefault(root, threading.Lock())
        until_s = time.monotonic() + wait_s
        _acquire_until(lambda pause_s: lock.acquire(timeout=pause_s), until_s, require)
        try:
            with Folder.opened(root) as folder:
                _acquire_until(lambda pause_s: _locked(folder, pause_s), until_s, require)
                yield folder
        finally:
            lock.release()

    def begin(self, query_id: str, root: Path) -> Path:
        """Record a write, and return the folder for its files, which is not there yet."""
        begin = partial(self._metastore.commits.begin, query_id, str(root), at=dt.datetime.now(dt.UTC))
        retry_insert(begin)
        return root / f"{_STAGED}{query_id}"

    def commit(self, folder: Folder, query_id: str, *, files: Sequence[str], replaced: Sequence[str]) -> None:
        """Commit the files of a write: from now on it cannot fail, only be late. The folder must be locked."""
        retry(partial(self._metastore.commits.prepare, query_id, files=files, replaced=replaced))
        folder.rename(f"{_STAGED}{query_id}", f"{_COMMITTED}{query_id}")

    def give_up(self, query_id: str, root: Path) -> None:
        """Delete written files that are not committed."""
        try:
            with Folder.opened(root) as folder:
                folder.remove_tree(f"{_STAGED}{query_id}")
        except FileNotFoundError:  # the table's folder is gone
            pass
        except OSError as error:
            log.warning(
                "what %s wrote into %s could not be deleted; the next start tries again: %s", query_id, root, error
            )
            return
        retry(partial(self._metastore.commits.end, query_id))

    def finish(self, folder: Folder, root: Path, *, sweep: bool = False) -> int:
        """Complete all commits of a folder, the oldest first; return their number. The folder must be locked.

        sweep: delete what dead writes left, too. May be called again after it was broken off. Raises OSError.
        """
        ended = 0
        for commit in retry(partial(self._metastore.commits.list, str(root))):
            if commit.files is not None and folder.has(f"{_COMMITTED}{commit.query_id}"):
                self._move_in(commit, folder, root)
                ended += 1
            elif sweep and not self._is_at_work(commit.query_id):
                folder.remove_tree(f"{_STAGED}{commit.query_id}")
            else:
                continue
            retry(partial(self._metastore.commits.end, commit.query_id))
        return ended

    def unfinished(self) -> list[Path]:
        """Return the folders with unfinished writes of ended gateways."""
        commits = self._metastore.commits.list()
        return list(dict.fromkeys(Path(commit.location) for commit in commits if not self._is_at_work(commit.query_id)))

    def warn_of_unknown(self, root: Path) -> None:
        """Log a warning for each folder that looks like a commit and is not recorded."""
        recorded_ids = {commit.query_id for commit in self._metastore.commits.list(str(root))}
        for folder in root.glob(f"{_COMMITTED}*"):
            if folder.name.removeprefix(_COMMITTED) not in recorded_ids:
                log.warning("%s is no commit of this gateway's: it stays as it is, and nobody reads it", folder)

    def _move_in(self, commit: TableCommit, folder: Folder, root: Path) -> None:
        """Move a commit's files into the table, then delete those they replace, so that readers miss no rows."""
        rights = _rights_of_files(root)
        file_mode = folder.mode() & _RIGHTS_OF_FILES if rights is None else rights
        committed = f"{_COMMITTED}{commit.query_id}"
        for file in commit.files or ():
            folder.move(f"{committed}/{file}", file, folder_mode=folder.mode(), file_mode=file_mode)
        for file in commit.replaced:
            folder.unlink(file)
        folder.remove_tree(committed)

    def _is_at_work(self, query_id: str) -> bool:
        """Tell whether a gateway still works on a query."""
        query = self._metastore.queries.get(query_id.partition(PART)[0])
        return query is not None and not query.state.ended


def _acquire_until(take: Callable[[float], bool], until_s: float, require: Callable[[], None]) -> None:
    """Acquire a lock. take: waits some seconds; returns whether it got it. Raises FolderBusy after ``until_s``."""
    while not take(max(0.0, min(_PAUSE_S, until_s - time.monotonic()))):
        require()
        if time.monotonic() >= until_s:
            raise FolderBusy


def _locked(folder: Folder, pause_s: float) -> bool:
    try:
        fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(pause_s)
        return False
    except OSError:  # not every network disk locks folders
        pass
    return True


def _rights_of_files(root: Path) -> int | None:
    """Return the rights of one of a table's files, which new ones get too; None without any file."""
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        for name in files:
            if not name.startswith(_HIDDEN):
                return stat.S_IMODE(os.lstat(os.path.join(place, name)).st_mode) & _RIGHTS_OF_FILES
    return None
