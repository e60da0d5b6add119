"""Threads that are kept for the next piece of work, of which one computes at a time.

To start a thread takes longer than much of what runs in it, and so do changes from one to another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TypeAlias

IDLE_S = 10.0  # after which one ends that has nothing to do

Work: TypeAlias = Callable[[], object]


class Threads:
    """As many threads as there is work at once. Thread-safe. name: of all of them.

    The thread that came to its end last gets the next work: what it needs is still in the processor's cache.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Work]] = []  # each is one thread's, which waits for what comes into it

    def run(self, work: Work) -> None:
        """Have work done at once, in a thread of its own. What it raises goes to ``threading.excepthook``."""
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
                told = (type(error), error, error.__traceback__, threading.current_thread())
                threading.excepthook(threading.ExceptHookArgs(told))
            work = None  # or an idle thread kept all that it belongs to
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
            return own.get()  # which is on its way


class OneAtATime:
    """Threads that compute, one after the other. Thread-safe.

    Python runs one at a time anyway, and changes between those that can run at each call of SQLite, Arrow or a lock:
    thirty of them change forty times for a piece of work that one does without a change (a lock convoy).

    wait_s: after which a thread goes on beside the others. Where none of them came to its turn meanwhile, the one that
    has it waits for something: those that come later do not wait for it any more.
    """

    def __init__(self, *, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = threading.Lock()  # is held by who computes; another one once that waits for something
        self._replacing = threading.Lock()
        self._turns = 0

    @contextmanager
    def turn(self) -> Iterator[Callable[[], None]]:
        """Compute, once those before have. Yields what ends the turn early, from any thread."""
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
