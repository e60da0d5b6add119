"""A pool of threads, and turns by which one of them computes at a time.

To start a thread, and to switch between threads, takes longer than much of their work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TypeAlias

IDLE_S = 10.0  # an idle thread ends after this time

Work: TypeAlias = Callable[[], object]


class Threads:
    """A pool with as many threads as there is work at once. Thread-safe. name: of all threads.

    The thread that finished last gets the next work: its data is still in the processor's cache.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Work]] = []  # one of each waiting thread

    def run(self, work: Work) -> None:
        """Do work at once in its own thread. Its errors go to ``threading.excepthook``."""
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            idle.put(work)
        else:
            own: SimpleQueue[Work] = SimpleQueue()
            own.put(work)  # not as an argument, which a thread keeps
            threading.Thread(target=self._serve, args=(own,), name=self._name, daemon=True).start()

    def _serve(self, own: SimpleQueue[Work]) -> None:
        work: Work | None = own.get()
        while work is not None:
            try:
                work()
            except BaseException as error:
                description = (type(error), error, error.__traceback__, threading.current_thread())
                threading.excepthook(threading.ExceptHookArgs(description))
            work = None  # else an idle thread would keep its objects alive
            work = self._next(own)

    def _next(self, own: SimpleQueue[Work]) -> Work | None:
        with self._lock:
            self._idle.append(own)
        try:
            return own.get(timeout=IDLE_S)
        except Empty:
            with self._lock:
                if own in self._idle:
                    self._idle.remove(own)
                    return None
            return own.get()  # put right now


class OneAtATime:
    """Turns by which threads compute one after the other. Thread-safe.

    Python runs one thread at a time anyway, and switches between runnable threads at each call of SQLite, Arrow or a
    lock: thirty of them switch forty times for work that one does without a switch (a lock convoy).

    wait_s: a thread that waited so long goes on beside the others. If no thread got its turn meanwhile, the one with
        the turn waits for something else, and later threads do not wait for it any more.
    """

    def __init__(self, *, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = threading.Lock()  # held by the thread that computes; replaced once that waits for something else
        self._replacing = threading.Lock()
        self._turns = 0

    @contextmanager
    def turn(self) -> Iterator[Callable[[], None]]:
        """Wait for the turn. Yields a function that ends it early, from any thread."""
        lock = self._taken()
        held = [] if lock is None else [lock]

        def leave() -> None:
            with suppress(IndexError):  # it has ended
                held.pop().release()

        try:
            yield leave
        finally:
            leave()

    def _taken(self) -> threading.Lock | None:
        turns, until_s = self._turns, time.monotonic() + self._wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            lock = self._lock
            if lock.acquire(timeout=left_s):
                if lock is self._lock:
                    self._turns += 1
                    return lock
                lock.release()
        with self._replacing:
            if self._turns != turns:
                return None
            self._turns += 1
            lock = self._lock = threading.Lock()
            lock.acquire()
            return lock
