"""Index of the copies on this machine: which parts of which files, who reads them, and which ones go first.

An SQLite file beside the copies, for all gateways of a host. Parts go by LRFU (Lee et al., "LRFU: a spectrum of
policies", IEEE Transactions on Computers 2001): a use counts half as much after each HALF_LIFE_S, so that one scan of a
large table does not drive out what is used all day.
"""

from __future__ import annotations

import fcntl
import math
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HALF_LIFE_S = 3_600.0
BUSY_S = 30.0
"""Longest wait for another process that changes the index."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS parts(
    folder TEXT NOT NULL, file TEXT NOT NULL, part TEXT NOT NULL, bytes INTEGER NOT NULL, used REAL NOT NULL,
    score REAL NOT NULL, PRIMARY KEY(file, part)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS parts_by_score ON parts(score);
CREATE TABLE IF NOT EXISTS readers(
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, folder TEXT NOT NULL, began REAL, reserved INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS versions(file TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS evictions(number INTEGER NOT NULL);
INSERT INTO evictions SELECT 0 WHERE NOT EXISTS (SELECT * FROM evictions);
"""
_LOOKED_AT = 500
"""Files that one query of the index names."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A part that is to go. folder: of the table's copies."""

    folder: str
    file: str
    part: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Size of the copies of a table's files on this machine."""

    files: int
    bytes: int


class Index:
    """The index. Thread-safe, and safe among processes. folder: of the index and of all copies."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(
            folder / "index.db", timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        self._lock = threading.Lock()
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(_SCHEMA)
        self._owners = folder / "owners"
        self._owners.mkdir(exist_ok=True)
        self._owner = uuid.uuid4().hex
        self._held = os.open(self._owners / self._owner, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def close(self) -> None:
        """Let others evict what this process read."""
        with self._changing():
            self._connection.execute("DELETE FROM readers WHERE owner = ?", (self._owner,))
        self._connection.close()
        (self._owners / self._owner).unlink(missing_ok=True)
        os.close(self._held)

    def evictions(self) -> int:
        """Return a number that is another one after parts have gone."""
        with self._lock:
            return int(self._connection.execute("SELECT number FROM evictions").fetchone()[0])

    @contextmanager
    def reader(self, folder: str, began_s: float | None) -> Iterator[str]:
        """Note a reader of a table's files; yields its id.

        began_s: parts that were used at that time or later stay, in seconds since 1970; None: none stays yet.
        """
        name = uuid.uuid4().hex
        with self._lock:
            self._connection.execute(
                "INSERT INTO readers VALUES (?, ?, ?, ?, 0)", (name, self._owner, f"{folder}/", began_s)
            )
        try:
            yield name
        finally:
            with self._lock:
                self._connection.execute("DELETE FROM readers WHERE id = ?", (name,))

    def present(self, files: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """Return the names of the parts that are here, by file."""
        result: dict[str, set[str]] = {}
        for begin in range(0, len(files), _LOOKED_AT):
            some = files[begin : begin + _LOOKED_AT]
            marks = ",".join("?" * len(some))
            with self._lock:
                rows = self._connection.execute(f"SELECT file, part FROM parts WHERE file IN ({marks})", some)  # noqa: S608
                for file, part in rows:
                    result.setdefault(file, set()).add(part)
        return {file: frozenset(parts) for file, parts in result.items()}

    def replaced(self, versions: Mapping[str, int]) -> Sequence[str]:
        """Return the files here that came from another object of the name. versions: of the objects now, by file."""
        replaced: list[str] = []
        files = list(versions)
        for begin in range(0, len(files), _LOOKED_AT):
            some = files[begin : begin + _LOOKED_AT]
            marks = ",".join("?" * len(some))
            find = f"SELECT file, version FROM versions WHERE file IN ({marks})"  # noqa: S608 - of marks alone
            with self._lock:
                replaced += [
                    file for file, version in self._connection.execute(find, some) if version != versions[file]
                ]
        return replaced

    def claim(self, reader: str, files: Mapping[str, Iterable[str]]) -> float | None:
        """Note a use of parts, all of which stay until the reader ends, and return its time in seconds since 1970.

        None: some are not here any more, and nothing was noted.
        """
        now_s = time.time()
        now = now_s / HALF_LIFE_S
        find = "SELECT score FROM parts WHERE file = ? AND part = ?"
        changes = []
        with self._changing():
            for file, parts in files.items():
                for part in parts:
                    row = self._connection.execute(find, (file, part)).fetchone()
                    if row is None:
                        return None
                    changes.append((now_s, _score(row[0], now), file, part))
            self._connection.executemany("UPDATE parts SET used = ?, score = ? WHERE file = ? AND part = ?", changes)
            self._connection.execute("UPDATE readers SET began = ?, reserved = 0 WHERE id = ?", (now_s, reader))
        return now_s

    def waiting(self, reader: str) -> None:
        """Note that a reader reads nothing yet."""
        with self._lock:
            self._connection.execute("UPDATE readers SET began = NULL WHERE id = ?", (reader,))

    def add(self, folder: str, file: str, parts: Mapping[str, int], version: int | None = None) -> None:
        """Note that parts of a file have come. parts: bytes by name. version: as in ``replaced``."""
        now_s = time.time()
        rows = [(folder, file, part, size, now_s, now_s / HALF_LIFE_S) for part, size in parts.items()]
        with self._changing():
            self._connection.executemany("INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?, ?)", rows)
            if version is not None:
                self._connection.execute("INSERT OR REPLACE INTO versions VALUES (?, ?)", (file, version))

    def reserve(self, reader: str, need_bytes: int, limit_bytes: int) -> int:
        """Reserve room for what a reader fetches; return the bytes that are missing, and reserve nothing, if any are.

        limit_bytes: of all parts and reservations.
        """
        with self._changing():
            self._end_dead()
            free = limit_bytes - self._taken(but=reader) - need_bytes
            if free >= 0:
                self._connection.execute("UPDATE readers SET reserved = ? WHERE id = ?", (need_bytes, reader))
        return max(0, -free)

    def victims(self, need_bytes: int, needed: Mapping[str, Iterable[str]]) -> Sequence[Victim]:
        """Forget parts of at least so many bytes, those first that are worth least, and return them.

        Parts that a reader may be reading stay, and ``needed``, by file, so that there may be fewer.
        """
        victims: list[Victim] = []
        freed = 0
        staying = [(file, part) for file, parts in needed.items() for part in parts]
        with self._changing():
            self._end_dead()
            self._connection.execute(
                "CREATE TEMP TABLE IF NOT EXISTS needed(file TEXT, part TEXT, PRIMARY KEY(file, part))"
            )
            self._connection.execute("DELETE FROM needed")
            self._connection.executemany("INSERT OR IGNORE INTO needed VALUES (?, ?)", staying)
            rows = self._connection.execute(
                "SELECT folder, file, part, bytes FROM parts p WHERE NOT EXISTS "
                "(SELECT * FROM readers r WHERE substr(p.file, 1, length(r.folder)) = r.folder AND r.began <= p.used) "
                "AND NOT EXISTS (SELECT * FROM needed n WHERE n.file = p.file AND n.part = p.part) "
                "AND (part <> '' OR NOT EXISTS (SELECT * FROM parts q WHERE q.file = p.file AND q.part <> '')) "
                "ORDER BY score"
            )
            for folder, file, part, size in rows:
                if freed >= need_bytes:
                    break
                victims.append(Victim(folder, file, part, size))
                freed += size
            self._connection.executemany(
                "DELETE FROM parts WHERE file = ? AND part = ?", [(one.file, one.part) for one in victims]
            )
            gone = [(one.file,) for one in victims if not one.part]
            self._connection.executemany("DELETE FROM versions WHERE file = ?", gone)
            self._connection.execute("UPDATE evictions SET number = number + 1")
        return victims

    def forget(self, file: str) -> None:
        """Forget all parts of a file, whose copy is gone or damaged."""
        with self._changing():
            self._connection.execute("DELETE FROM parts WHERE file = ?", (file,))
            self._connection.execute("DELETE FROM versions WHERE file = ?", (file,))
            self._connection.execute("UPDATE evictions SET number = number + 1")

    def is_deserted(self, folder: str) -> bool:
        """Return True for a folder of which no part is here and which nobody reads."""
        with self._lock:
            (number,) = self._connection.execute(
                "SELECT (SELECT count(*) FROM parts WHERE substr(file, 1, length(:f)) = :f) + (SELECT count(*) "
                "FROM readers WHERE substr(folder, 1, length(:f)) = :f OR substr(:f, 1, length(folder)) = folder)",
                {"f": f"{folder}/"},
            ).fetchone()
        return bool(number == 0)

    def usage(self) -> Mapping[str, Usage]:
        """Return what lies here, by the folder of a table's copies."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT folder, count(DISTINCT file), sum(bytes) FROM parts GROUP BY folder"
            ).fetchall()
        return {folder: Usage(files, size) for folder, files, size in rows}

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold a transaction, of which there is one at a time among all processes."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _taken(self, but: str) -> int:
        (parts,) = self._connection.execute("SELECT coalesce(sum(bytes), 0) FROM parts").fetchone()
        sum_reserved = "SELECT coalesce(sum(reserved), 0) FROM readers WHERE id <> ?"
        (reserved,) = self._connection.execute(sum_reserved, (but,)).fetchone()
        return int(parts + reserved)

    def _end_dead(self) -> None:
        """Delete the readers of processes that have ended."""
        owners = [owner for (owner,) in self._connection.execute("SELECT DISTINCT owner FROM readers")]
        for owner in owners:
            if owner != self._owner and not _is_held(self._owners / owner):
                self._connection.execute("DELETE FROM readers WHERE owner = ?", (owner,))
                (self._owners / owner).unlink(missing_ok=True)


def _score(old: float, now: float) -> float:
    """Return the score of a part after another use. old, now: in half-lives since 1970.

    A score is the logarithm of the sum of 2^(time of a use), which orders parts alike at any later time.
    """
    return now + math.log2(1 + 2.0 ** max(-1_000.0, old - now))


def _is_held(path: Path) -> bool:
    """Return True if a living process holds an owner's file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
