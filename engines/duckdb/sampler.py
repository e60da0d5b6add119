"""Tells how far a worker's statement is while it runs: one more thread of the worker, which looks and sends.

A hash join fills 1.5 GB of memory in a second. What moves is looked at every 8 ms, what stands still every 20. A look
takes 0.16 ms, on a busy machine 0.4: where that is more than a hundredth of the time of the threads that work, the next
one waits longer, as the statement gets on more slowly then, too. What ends within 20 ms is not looked at at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from engines.duckdb import wire
from engines.duckdb.instance import Instance
from engines.protocol import Progress

FIRST_S = 0.02
SHORTEST_S = 0.008
STILL_S = 0.02
LONGEST_S = 0.05
LARGEST_SHARE = 0.01  # of the threads' time, that looking may take
MOVED_BYTES = 1 << 20
MOVED_PART = 1 / 32  # of what was told last, so that a statement which grows for long tells that a few hundred times
MOVED_SHARE = 0.01


class Sampler:
    """Looks at the instance that runs a statement, and sends what has changed."""

    def __init__(self, sender: wire.Sender) -> None:
        self._sender = sender
        self._changed = threading.Condition()
        self._watched: Instance | None = None
        self._is_asleep = False  # until a statement wakes it up; none does so while it looks, nor at its end
        self._statements = 0
        threading.Thread(target=self._run, name="progress", daemon=True).start()

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
        told, statement, gap_s = Progress(), self._statements, FIRST_S
        while True:
            self._changed.wait(gap_s)
            if self._watched is None:
                return
            if self._statements != statement:
                told, statement, gap_s = Progress(), self._statements, FIRST_S
                continue
            gap_s, begun_s = STILL_S, time.thread_time()
            try:
                now = self._watched.progress()
                if _moved(told, now):
                    gap_s = SHORTEST_S
                    message = {"held_bytes": now.held_bytes, "share": now.share}
                    if self._sender.offer(wire.Frame.PROGRESS, message):
                        told = now
            except (duckdb.Error, MemoryError, wire.PeerGone):  # no memory to look with, or nobody to tell
                pass
            gap_s = min(LONGEST_S, max(gap_s, (time.thread_time() - begun_s) / LARGEST_SHARE / self._watched.threads))


def _moved(told: Progress, now: Progress) -> bool:
    """Whether a statement holds clearly other memory than was told, or is clearly further."""
    more_bytes = abs((now.held_bytes or 0) - (told.held_bytes or 0))
    further = abs((now.share or 0.0) - (told.share or 0.0))
    much_bytes = max(MOVED_BYTES, int(MOVED_PART * (told.held_bytes or 0)))
    return told == Progress() or more_bytes >= much_bytes or further >= MOVED_SHARE
