"""Threads that are kept for the next piece of work: to start one takes longer than much of what runs in them."""

from __future__ import annotations

import threading
from collections.abc import Callable
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
