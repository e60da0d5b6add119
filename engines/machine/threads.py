"""Threads that are kept for the next piece of work, and one that computes at a time.

To start one takes longer than much of what runs in them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
            threading.Thread(target=self._serve, args=(work,), name=self._name, daemon=True).start()

    def _serve(self, work: Work | None) -> None:
        own: SimpleQueue[Work] = SimpleQueue()
        while work is not None:
            try:
                work()
            except BaseException as error:
                told = (type(error), error, error.__traceback__, threading.current_thread())
                threading.excepthook(threading.ExceptHookArgs(told))
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


class SingleFile:
    """Threads that compute, one after the other. Thread-safe.

    Python runs one at a time anyway, and changes between those that can run at each call of SQLite, Arrow or a lock:
    thirty of them change forty times for a piece of work that one does without a change (a lock convoy).

    wait_s: after which a thread goes on beside the one that computes, which may wait for something: nobody is held up
    for longer.
    """

    def __init__(self, *, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[Callable[[], None]]:
        """Compute, once those before have. Yields what ends the turn early, before something is waited for."""
        is_held = self._lock.acquire(timeout=self._wait_s)

        def leave() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._lock.release()

        try:
            yield leave
        finally:
            leave()
