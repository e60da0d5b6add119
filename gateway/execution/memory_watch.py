"""A running attempt's memory: its lease is raised before it is full."""

from __future__ import annotations

import time

from engines.protocol import Elastic, Engine
from gateway.routing.admission.admission import Grant

FILLED = 0.5  # share of a lease, from which it is raised: memory fills at up to 1.5 GB/s, and is looked at every 10 ms
STEPS = (2.0, 1.5, 1.25)  # by which a lease is raised, the largest for which there is room
AGAIN_S = 0.02  # after a raise for which there was no room


class MemoryWatch:
    """Raises the lease of one attempt while it runs. Called by one thread at a time.

    limit_bytes: the most that the attempt may get.
    """

    def __init__(self, query_id: str, engine: Engine, grant: Grant, limit_bytes: int) -> None:
        self._query_id = query_id
        self._engine = engine
        self._grant = grant
        self._limit_bytes = limit_bytes
        self._raised_s = 0.0
        self.leased_bytes = grant.lease.memory_bytes

    @property
    def can_raise(self) -> bool:
        """Tell whether the lease can be raised at all."""
        return isinstance(self._engine, Elastic) and self.leased_bytes < self._limit_bytes

    def __call__(self, held_bytes: int) -> None:
        """Raise the lease if the attempt has filled enough of it."""
        if held_bytes >= FILLED * self.leased_bytes:
            self._raise(time.monotonic())

    def _raise(self, now_s: float) -> None:
        """Raise the lease as far as there is room."""
        if not isinstance(self._engine, Elastic) or not self.can_raise or now_s - self._raised_s < AGAIN_S:
            return
        for step in STEPS:
            wanted_bytes = min(self._limit_bytes, int(step * self.leased_bytes))
            if self._grant.raise_to(wanted_bytes):
                self._engine.raise_limit(self._query_id, wanted_bytes)
                self.leased_bytes = wanted_bytes
                return
        self._raised_s = now_s
