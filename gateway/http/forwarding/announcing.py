"""Cached results of one process, told to the others of its home folder, so that each is computed once."""

from __future__ import annotations

import queue
import threading

from engines.machine.sharing import Caller, HostGone
from gateway.execution.caching.result_cache import CachedResult
from gateway.http.forwarding.siblings import Siblings

TAKE = "take"
"""Name of the call between processes."""
MOST_WAITING = 64
"""Results that wait to be told; whatever comes on top is computed again elsewhere."""


class Announcer:
    """A thread that tells the others."""

    def __init__(self, siblings: Siblings) -> None:
        self._others = [Caller(path) for path in siblings.other_sockets()]
        self._waiting: queue.Queue[CachedResult] = queue.Queue(MOST_WAITING)
        threading.Thread(target=self._tell_all, name="cached results", daemon=True).start()

    def tell(self, cached: CachedResult) -> None:
        """Tell the others of a result soon."""
        try:
            self._waiting.put_nowait(cached)
        except queue.Full:
            return

    def _tell_all(self) -> None:
        while True:
            cached = self._waiting.get()
            for other in self._others:
                try:
                    other.call(TAKE, cached)
                except HostGone:
                    continue
