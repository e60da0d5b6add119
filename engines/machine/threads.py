"""Threads that are kept for the next piece of work: to start one takes longer than much of what runs in them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

IDLE_S = 10.0  # after which one ends that has nothing to do


class Threads:
    """As many threads as there is work at once. Thread-safe. name: of all of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._idle = 0  # that no work in the queue is for

    def run(self, work: Callable[[], object]) -> None:
        """Have work done at once, in a thread of its own. What it raises goes to ``threading.excepthook``."""
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._work.put(work)
                return
        threading.Thread(target=self._serve, args=(work,), name=self._name, daemon=True).start()

    def _serve(self, work: Callable[[], object] | None) -> None:
        while work is not None:
            try:
                work()
            except BaseException as error:
                told = (type(error), error, error.__traceback__, threading.current_thread())
                threading.excepthook(threading.ExceptHookArgs(told))
            work = self._next()

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            self._idle += 1
        try:
            return self._work.get(timeout=IDLE_S)
        except Empty:
            with self._lock:
                if self._idle:
                    self._idle -= 1
                    return None
            return self._work.get()  # which is on its way
