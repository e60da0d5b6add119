"""Limits on concurrent downloads: places per user, and memory for rows that are wide by themselves.

Every interface reads a result batch by batch, and a batch of the spool is small, so that a download costs next to
nothing while its client does not read. What is left to bound is how many there are, and rows that are larger than a
batch: of those, a few are in memory at once, and the others wait.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from gateway.errors import TooManyDownloads
from gateway.execution.spooling.results import BATCH_BYTES, ResultFile, weigh

WIDE_ROWS = 4  # of the largest size, that are in memory at once
WIDE_BYTES = 2 * BATCH_BYTES  # from which on rows count as wide
SHARE = 1 / 2  # of the room for wide rows, that one user may take

ROOM_POLL_S = 0.05
NO_ROOM = "Too many wide rows are being read; try again soon."

Release = Callable[[], None]


@dataclass(slots=True, eq=False)
class Download:
    """One download.

    drop: function that ends it, callable from any thread.
    moved_s: monotonic time at which its client last read.
    dropped: it was ended because its client did not read.
    """

    drop: Release
    moved_s: float = field(default_factory=time.monotonic)
    dropped: bool = False

    def moved(self) -> None:
        """Record that its client read something."""
        self.moved_s = time.monotonic()


class Downloads:
    """All downloads of rows. Thread-safe.

    most, most_per_user: largest number at once.
    room_bytes: largest bytes of wide rows in memory at once.
    stall_s: seconds after which a download is dropped whose client reads nothing.
    """

    def __init__(self, *, most: int, most_per_user: int, room_bytes: int, stall_s: float) -> None:
        self.stall_s = stall_s
        self._most = most
        self._most_per_user = most_per_user
        self._room = room_bytes
        self._lock = threading.Lock()
        self._of_user: Counter[str] = Counter()
        self._wide_bytes: Counter[str] = Counter()
        self._watched: set[Download] = set()

    @contextlib.contextmanager
    def place(self, user: str) -> Iterator[None]:
        """Count a download while it lasts. Raises TooManyDownloads."""
        with self._lock:
            if self._of_user[user] >= self._most_per_user:
                raise TooManyDownloads(f"You have {self._of_user[user]} downloads under way; read or close some.")
            if self._of_user.total() >= self._most:
                raise TooManyDownloads("Too many downloads are under way; try again soon.")
            self._of_user[user] += 1
        try:
            yield
        finally:
            with self._lock:
                _subtract(self._of_user, user, 1)

    @contextlib.contextmanager
    def watched(self, drop: Release) -> Iterator[Download]:
        """Drop a download when it stalls, for interfaces that do not detect that themselves."""
        download = Download(drop)
        with self._lock:
            self._watched.add(download)
        try:
            yield download
        finally:
            with self._lock:
                self._watched.discard(download)

    def drop_stalled(self) -> int:
        """Drop stalled downloads; return their number."""
        horizon_s = time.monotonic() - self.stall_s
        with self._lock:
            stalled = [download for download in self._watched if download.moved_s < horizon_s and not download.dropped]
            for download in stalled:
                download.dropped = True
        for download in stalled:
            download.drop()
        return len(stalled)

    def make_room(self, user: str, wide_bytes: int) -> Release | None:
        """Reserve memory for a wide row; return the function that releases it; None: no memory is free.

        A row that is larger than a user's share has to be alone in it.
        """
        with self._lock:
            share = self._room * SHARE
            of_user, of_all = self._wide_bytes[user], self._wide_bytes.total()
            if (of_user and of_user + wide_bytes > share) or (of_all and of_all + wide_bytes > self._room):
                return None
            self._wide_bytes[user] += wide_bytes
        return lambda: self._give_back(user, wide_bytes)

    def messages(self, result: ResultFile, user: str) -> Iterator[pa.Message | None]:
        """Yield a result's batches as they stand, each with room; None while one has none, for whoever reads to wait.

        So it is while the next one is still to come. Raises TooManyDownloads where no room becomes free within
        ``stall_s``, and what the query fails with while its rows are read.
        """
        while True:
            if result.is_behind:
                yield None
                continue
            size = result.next_bytes()
            if size is None:
                return
            message = result.read_message() if size <= WIDE_BYTES else None
            needed_bytes = size if message is None else weigh(result.decode(message))
            if needed_bytes <= WIDE_BYTES:
                yield message
                continue
            until_s = time.monotonic() + self.stall_s
            while (give_back := self.make_room(user, needed_bytes)) is None:
                if time.monotonic() > until_s:
                    raise TooManyDownloads(NO_ROOM)
                yield None
            try:
                yield result.read_message() if message is None else message
            finally:
                give_back()

    def waited_for(self, result: ResultFile, user: str) -> Iterator[pa.Message | None]:
        """Yield what ``messages`` does; the thread has waited a little at each None."""
        for message in self.messages(result, user):
            if message is None:
                time.sleep(ROOM_POLL_S)
            yield message

    @property
    def under_way(self) -> int:
        """Tell how many replies have a place."""
        with self._lock:
            return self._of_user.total()

    def _give_back(self, user: str, wide_bytes: int) -> None:
        with self._lock:
            _subtract(self._wide_bytes, user, wide_bytes)


def _subtract(counter: Counter[str], user: str, count: int) -> None:
    counter[user] -= count
    if not counter[user]:
        del counter[user]
