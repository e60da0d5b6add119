"""Small results, together in one SQLite database: to create a file for each takes several times as long as to fill it.

Several processes of a gateway share it. What is written stays there when a process is killed, as a file would.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from engines.machine.private_files import private_file
from gateway.errors import ResultStoreFull
from metastore.database.connection import BUSY_TIMEOUT_MS, CHECKPOINT_PAGES

log = logging.getLogger(__name__)

SMALL_BYTES = 16 << 10  # of a result that belongs here
_BUSY_S = BUSY_TIMEOUT_MS / 1_000
_PRAGMAS = (
    "auto_vacuum=INCREMENTAL",
    "journal_mode=WAL",
    "synchronous=NORMAL",
    f"wal_autocheckpoint={CHECKPOINT_PAGES}",
)
_TABLE = "CREATE TABLE IF NOT EXISTS results (id TEXT PRIMARY KEY, came_s REAL, content BLOB) WITHOUT ROWID"


class SmallResults:
    """SQLite database of small results. Thread-safe. path: its file, created if missing, replaced if unreadable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            self._connection = _opened(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            log.error("%s cannot be read, the small results in it are gone: %s", path, error)
            path.rename(path.with_name(f"{path.name}.broken"))
            for companion in ("-wal", "-shm"):  # of which the new one would take the old one's pages
                path.with_name(f"{path.name}{companion}").unlink(missing_ok=True)
            self._connection = _opened(path)

    def put(self, query_id: str, content: bytes) -> None:
        """Keep a result, in the place of an earlier one. Raises ResultStoreFull."""
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", (query_id, time.time(), content))

    def get(self, query_id: str) -> bytes | None:
        """Return a result; None where there is none."""
        with self._lock, _refusals():
            row = self._connection.execute("SELECT content FROM results WHERE id = ?", (query_id,)).fetchone()
        return None if row is None else row[0]

    def delete(self, query_ids: Collection[str]) -> int:
        """Delete results, as far as they are there; returns how many."""
        wanted = json.dumps([*query_ids])
        with self._writing() as connection:
            return connection.execute(
                "DELETE FROM results WHERE id IN (SELECT value FROM json_each(?))", (wanted,)
            ).rowcount

    def expire(self, before_s: float) -> int:
        """Delete results that came before a moment, in seconds since 1970; returns how many."""
        with self._writing() as connection:
            gone = connection.execute("DELETE FROM results WHERE came_s < ?", (before_s,)).rowcount
        if gone:
            with self._writing() as connection:
                connection.executescript("PRAGMA incremental_vacuum")  # by execute, a page alone would be given back
        return gone

    def checkpoint(self) -> None:
        """Checkpoint the write-ahead log, outside of any statement: it waits for the disk."""
        with self._beside() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextmanager
    def _beside(self) -> Iterator[sqlite3.Connection]:
        """Yield another connection, for long work. Raises ResultStoreFull."""
        with _refusals(), closing(sqlite3.connect(self._path, timeout=_BUSY_S)) as connection:
            yield connection

    def sizes(self) -> Sequence[tuple[float, str, int]]:
        """Return when each result came, its query and its bytes."""
        with self._beside() as connection:
            return connection.execute("SELECT came_s, id, length(content) FROM results").fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for one statement, in a transaction of its own."""
        with self._lock, _refusals():
            yield self._connection


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise errors of the database as ResultStoreFull."""
    try:
        yield
    except sqlite3.Error as error:
        raise ResultStoreFull(f"The result cannot be kept or read: {error}") from error


def _opened(path: Path) -> sqlite3.Connection:
    private_file(path)  # its companions, -wal and -shm, get the rights that it has
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False, isolation_level=None)
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(_TABLE)
    except BaseException:
        connection.close()
        raise
    return connection
