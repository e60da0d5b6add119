"""Tells how much memory a worker's statement holds: one more thread of the worker, which looks and sends.

A hash join fills 1.5 GB of memory in a second, so it is looked at every 8 ms. A look takes 0.16 ms, on a busy machine
0.4: where that is more than a hundredth of the time of the threads that work, the next one waits longer, as the
statement gets on more slowly then, too. What ends within 20 ms is not looked at at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from engines.duckdb import wire
from engines.duckdb.worker.instance import Instance

FIRST_S = 0.02
SHORTEST_S = 0.008
LONGEST_S = 0.05
LARGEST_SHARE = 0.01  # of the threads' time, that looking may take
MOVED_BYTES = 1 << 20
MOVED_PART = 1 / 32  # of what was told last, so that a statement which grows for long tells that a few hundred times


class Sampler:
    """Looks at the instance that runs a statement, and sends what has changed."""

    def __init__(self, sender: wire.Sender) -> None:
        self._sender = sender
        self._changed = threading.Condition()
        self._watched: Instance | None = None
        self._is_asleep = False  # until a statement wakes it up; none does so while it looks, nor at its end
        self._statements = 0
        threading.Thread(target=self._run, name="memory", daemon=True).start()

    @contextmanager
    def watching(self, instance: Instance) -> Iterator[None]:
        """Watch a statement of this instance; nothing more is sent once this has ended."""
        with self._changed:
            self._watched = instance
            self._statements += 1
            if self._is_asleep:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._watched = None

    def _run(self) -> None:
        with self._changed:
            while True:
                self._is_asleep = True
                self._changed.wait_for(lambda: self._watched is not None)
                self._is_asleep = False
                self._follow()

    def _follow(self) -> None:
        """Look at what runs until nothing does; the lock is held but while waiting.

        Short statements come and go between two looks, without a switch of threads for any of them.
        """
        sent_bytes, statement, gap_s = 0, self._statements, FIRST_S
        while True:
            self._changed.wait(gap_s)
            if self._watched is None:
                return
            if self._statements != statement:
                sent_bytes, statement, gap_s = 0, self._statements, FIRST_S
                continue
            begun_s = time.thread_time()
            try:
                held_bytes = self._watched.query_bytes()
                has_moved = abs(held_bytes - sent_bytes) >= max(MOVED_BYTES, int(MOVED_PART * sent_bytes))
                if has_moved and self._sender.offer(wire.Frame.HELD, {"bytes": held_bytes}):
                    sent_bytes = held_bytes
            except (duckdb.Error, MemoryError, wire.PeerGone):  # no memory to look with, or nobody to tell
                pass
            looked_s = time.thread_time() - begun_s
            gap_s = min(LONGEST_S, max(SHORTEST_S, looked_s / LARGEST_SHARE / self._watched.threads))
