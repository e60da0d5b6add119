"""START HERE: what a statement reads of files in object stores is fetched, and stays on this machine for the next one.

A copy is a sparse file as long as the object, filled column by column: a statement that reads two columns of a table
fetches these two, and what belongs to no column (``ranges.py``). Objects of lake tables never change, so that a copy is
right as long as it is there. The copies of all gateways of a host are one cache, bounded in bytes (``index.py``).
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cachetools import LRUCache

from engines.files.manifest import Manifest, SnapshotFile
from engines.machine.private_files import private_folder
from engines.machine.threads import Threads
from metastore.objects.errors import CacheFull
from metastore.objects.index import Index, Usage, Victim
from metastore.objects.kinds.kind import ObjectStore
from metastore.objects.ranges import FRAME, Part
from metastore.objects.requests import settle
from metastore.objects.transfer import (
    REQUEST_BYTES,
    WHOLE_BYTES,
    Traffic,
    Transfer,
    Wanted,
    evict,
    is_there,
    make_empty,
    sweep,
)

log = logging.getLogger(__name__)

THREADS = 16
"""Requests to one store at once, of all statements."""
TOUCH_S = 60.0
"""Age from which a use is noted again, of parts that a statement has used before."""
ROOM_S = 60.0
"""Longest wait for others to give room."""
POLL_S = 0.1
"""Time between two looks whether others have given room, or the statement was cancelled."""


def _go_on() -> None:
    """Do nothing: somebody waits for it."""


@dataclass(frozen=True, slots=True)
class _Used:
    """Parts of a snapshot that were complete. evictions: number in the index then. touched_s: since 1970."""

    evictions: int
    touched_s: float


class ObjectCache:
    """Copies of objects on this machine. Thread-safe.

    folder: of the copies and their index.
    limit_bytes: of all copies.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = private_folder(folder)
        self.limit_bytes = limit_bytes
        self._index = Index(folder)
        self._threads = Threads("objects")
        self._turns: dict[tuple[type[ObjectStore], str], threading.Semaphore] = {}
        self._complete: LRUCache[tuple[str, frozenset[str] | None], _Used] = LRUCache(1_024)
        self._lock = threading.Lock()
        self.traffic = Traffic()

    @contextmanager
    def reading(
        self,
        name: str,
        manifest: Manifest,
        store: ObjectStore,
        columns: frozenset[str] | None,
        require: Callable[[], None] = _go_on,
        folder: str | None = None,
    ) -> Iterator[None]:
        """Have columns of a snapshot's files on this machine, as long as the block runs.

        name: of the snapshot; no other one has it.
        columns: of the table, in small letters; None: all.
        require: raises once nobody waits any more.
        folder: of all of the table's copies; None: the one that holds the manifest's files.

        Raises ObjectUnreadable, StoreUnavailable, CacheFull.
        """
        if not manifest.files:
            yield
            return
        folder = folder or _folder_of(manifest)
        key = name, columns
        with self._lock:
            used = self._complete.get(key)
        if used is not None and time.time() - used.touched_s > TOUCH_S:
            used = None
        with self._index.reader(folder, used.touched_s if used is not None else None) as reader:
            evictions = self._index.evictions()
            if used is None or used.evictions != evictions:
                self._index.waiting(reader)
                wanted = Wanted.of(manifest, columns)
                transfer = Transfer(
                    self.folder, self._index, self.traffic, reader, folder, manifest, store, wanted, require
                )
                touched_s = self._complete_files(transfer)
                with self._lock:
                    self._complete[key] = _Used(evictions, touched_s)
            yield

    @contextmanager
    def planning(self, manifest: Manifest, store: ObjectStore, require: Callable[[], None] = _go_on) -> Iterator[None]:
        """Have what an engine's planner opens, as long as the block runs.

        That is the footer of the first file; all others are there, and empty. Raises as ``reading`` does.
        """
        if not manifest.files:
            yield
            return
        first = Manifest(manifest.fields, manifest.files[:1])
        folder = _folder_of(manifest)
        name = f"{first.files[0].path} {first.files[0].version}"
        with self.reading(name, first, store, frozenset(), require, folder):
            for file in manifest.files[1:]:
                if not os.path.exists(file.path):
                    make_empty(Path(file.path), file.bytes)
            yield

    def clear(self) -> int:
        """Give back all that nobody is reading, and return its bytes."""
        columns = self._evict(self.limit_bytes, {})
        frames = self._evict(self.limit_bytes, {})  # which had columns until now
        return sum(victim.bytes for victim in (*columns, *frames))

    def usage(self) -> Mapping[str, Usage]:
        """Return what lies here, by the folder of a table's copies."""
        return self._index.usage()

    def close(self) -> None:
        """Close the index; copies stay."""
        self._index.close()

    # ------------------------------------------------------------------ what is missing

    def _complete_files(self, transfer: Transfer) -> float:
        """Fetch what is missing, and return the time from which on it stays."""
        with ExitStack() as evicting:
            while True:
                with suppress(FileNotFoundError):  # a copy that was evicted meanwhile
                    touched_s = self._fetch_missing(transfer, evicting)
                    if touched_s is not None:
                        return touched_s
                transfer.require()

    def _fetch_missing(self, transfer: Transfer, evicting: ExitStack) -> float | None:
        """Fetch what is missing; None: some of it was evicted before the rest had come."""
        files = transfer.manifest.files
        present = self._present(files)
        framed = [file for file in files if FRAME not in present.get(file.path, ())]
        frames = {file.path: [FRAME] for file in files}
        self._make_room(transfer, sum(min(file.bytes, WHOLE_BYTES) for file in framed), frames, evicting)
        self._all(transfer, [partial(transfer.fetch_frame, file) for file in framed])
        if framed:
            present = self._present(files)
        needed = {file.path: transfer.needed(file) for file in files}
        names = {path: [part.name for part in parts] for path, parts in needed.items()}
        total_bytes = sum(part.bytes for parts in needed.values() for part in parts)
        if total_bytes > self.limit_bytes:
            raise CacheFull(total_bytes, self.limit_bytes)
        missing = [
            (file, [part for part in needed[file.path] if part.name not in present.get(file.path, ())])
            for file in files
        ]
        missing = [(file, parts) for file, parts in missing if parts]
        self._make_room(transfer, sum(part.bytes for _, parts in missing for part in parts), names, evicting)
        large: list[tuple[SnapshotFile, list[Part]]] = []
        small: list[tuple[SnapshotFile, list[Part]]] = []
        for file, parts in missing:
            (large if sum(part.bytes for part in parts) > 2 * REQUEST_BYTES else small).append((file, parts))
        self._all(transfer, [partial(transfer.fetch, file, parts) for file, parts in small])
        for file, parts in large:
            with transfer.writing(file, parts) as pieces:
                self._all(transfer, pieces)
        return self._index.claim(transfer.reader, names)

    def _present(self, files: Sequence[SnapshotFile]) -> dict[str, frozenset[str]]:
        """Return the names of the parts that are here, by file. Somebody may have deleted copies by hand."""
        versions = {file.path: file.version for file in files if file.version is not None}
        for path in self._index.replaced(versions):
            self._index.forget(path)
        present = dict(self._index.present([file.path for file in files]))
        for file in files:
            if file.path in present and not is_there(file):
                self._index.forget(file.path)
                del present[file.path]
        return present

    def _make_room(
        self, transfer: Transfer, need_bytes: int, needed: Mapping[str, Sequence[str]], evicting: ExitStack
    ) -> None:
        """Reserve room, and let parts go for it. Raises CacheFull.

        One statement at a time, among all processes, lets parts go, until it has all of its own: two that each need
        most of the room would take it from one another for ever. Where others are reading, it waits, for a time: they
        may wait for what this one has of another table.
        """
        until_s = time.monotonic() + ROOM_S
        while lacking := self._index.reserve(transfer.reader, need_bytes, self.limit_bytes):
            if not transfer.may_evict:
                evicting.enter_context(self._alone(transfer.require))
                transfer.may_evict = True
                continue
            if not self._evict(lacking, needed):
                transfer.require()
                if need_bytes > self.limit_bytes or time.monotonic() > until_s:
                    raise CacheFull(need_bytes, self.limit_bytes)
                time.sleep(POLL_S)

    def _evict(self, need_bytes: int, needed: Mapping[str, Sequence[str]]) -> Sequence[Victim]:
        """Let parts of at least so many bytes go, where there are so many that may go, and return them."""
        victims = self._index.victims(need_bytes, needed)
        for victim in victims:
            evict(self._index, victim)
        for folder in {victim.folder for victim in victims if victim.part == FRAME}:
            if self._index.is_deserted(folder):
                sweep(Path(folder))
        return victims

    @contextmanager
    def _alone(self, require: Callable[[], None]) -> Iterator[None]:
        """Keep others from letting parts go."""
        with open(self.folder / "evicting", "ab") as lock:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                require()
                time.sleep(POLL_S)
            yield

    def _all(self, transfer: Transfer, calls: Iterable[Callable[[], None]]) -> None:
        """Run calls, as many at once as a store gets. Raises what one of them raises, after which no other one begins.

        Nobody waits for calls that have begun, whose store may not answer: what they fetch is there for others.
        """
        turns = self._turns_of(transfer.store)
        futures: set[Future[None]] = set()
        for call in calls:
            while not turns.acquire(timeout=POLL_S):
                transfer.require()
                futures = _pending(futures)
            future: Future[None] = Future()
            futures.add(future)
            self._threads.run(partial(_settle, future, call, turns))
        while futures:
            wait(futures, POLL_S, FIRST_EXCEPTION)
            transfer.require()
            futures = _pending(futures)

    def _turns_of(self, store: ObjectStore) -> threading.Semaphore:
        with self._lock:
            return self._turns.setdefault((type(store), store.endpoint), threading.Semaphore(THREADS))


def _folder_of(manifest: Manifest) -> str:
    return os.path.commonpath([os.path.dirname(file.path) for file in manifest.files])


def _settle(future: Future[None], call: Callable[[], None], turns: threading.Semaphore) -> None:
    """Run a call, put its outcome into a future, and give its turn back."""
    try:
        settle(future, call)
    finally:
        turns.release()


def _pending(futures: Iterable[Future[None]]) -> set[Future[None]]:
    """Return the futures that are not settled. Raises the error of one that is."""
    for future in futures:
        if future.done():
            future.result()
    return {future for future in futures if not future.done()}
