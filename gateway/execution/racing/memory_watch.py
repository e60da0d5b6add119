"""A running attempt's memory: its lease is raised before it is full, and somebody hears how it stands."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from engines.protocol import Elastic, Engine, Progress
from gateway.routing.admission.admission import Grant
from selector.forecast.continuation import Standing

FILLED = 0.5  # share of a lease, from which it is raised: memory fills at up to 1.5 GB/s, and is looked at every 10 ms
STEPS = (2.0, 1.5, 1.25)  # by which a lease is raised, the largest for which there is room
WINDOW_S = 0.25  # over which growth is measured
AGAIN_S = 0.02  # after a raise for which there was no room


class MemoryWatch:
    """Hears how much memory an attempt holds. limit_bytes: that it may get at most.

    judge: hears how it stands; None where nobody would do anything about it.

    Called by one thread at a time, and only read by others.
    """

    def __init__(
        self, query_id: str, engine: Engine, grant: Grant, limit_bytes: int, judge: Callable[[Standing], None] | None
    ) -> None:
        self._query_id = query_id
        self._engine = engine
        self._grant = grant
        self._limit_bytes = limit_bytes
        self._judge = judge
        self._begun_s = time.monotonic()
        self._asked_s = 0.0
        self._recent: deque[tuple[float, int]] = deque()
        self.leased_bytes = grant.lease.memory_bytes
        self.most_bytes: int | None = None

    @property
    def may_act(self) -> bool:
        """Whether anything follows from what it hears: its lease can be raised, or somebody judges."""
        can_raise = isinstance(self._engine, Elastic) and self.leased_bytes < self._limit_bytes
        return can_raise or self._judge is not None

    def __call__(self, progress: Progress) -> None:
        """Take in how far the attempt is."""
        held_bytes = progress.held_bytes
        if held_bytes is None:
            return
        now_s = time.monotonic()
        self.most_bytes = max(held_bytes, self.most_bytes or 0)
        self._recent.append((now_s, held_bytes))
        while now_s - self._recent[0][0] > WINDOW_S and len(self._recent) > 1:
            self._recent.popleft()
        has_room = True
        if self.leased_bytes < self._limit_bytes and held_bytes >= FILLED * self.leased_bytes:
            has_room = self._raise(now_s)
        if self._judge is None:
            return
        within_bytes = self._limit_bytes if has_room else self.leased_bytes
        elapsed_s = now_s - self._begun_s
        self._judge(Standing(self.most_bytes, within_bytes, elapsed_s, self._growth(now_s), progress.share))

    def _raise(self, now_s: float) -> bool:
        """Raise the lease as far as there is room; returns whether there was any."""
        if not isinstance(self._engine, Elastic) or now_s - self._asked_s < AGAIN_S:
            return False
        for step in STEPS:
            wanted_bytes = min(self._limit_bytes, int(step * self.leased_bytes))
            if self._grant.raise_to(wanted_bytes):
                self._engine.raise_limit(self._query_id, wanted_bytes)
                self.leased_bytes = wanted_bytes
                return True
        self._asked_s = now_s
        return False

    def _growth(self, now_s: float) -> float:
        """Return the bytes a second by which the attempt grew of late, on average; since it began, if that is short."""
        first_s, first_bytes = self._recent[0] if len(self._recent) > 1 else (self._begun_s, 0)
        return (self._recent[-1][1] - first_bytes) / max(1e-3, now_s - first_s)
