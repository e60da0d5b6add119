"""Admission: each engine's ledger of memory and slots.

What a statement holds, it holds until its result is closed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engines.errors import EngineBusy, StatementCancelled
from engines.protocol import Lease

POLL_S = 0.25


class Ledger:
    """One engine's slots and memory. capacity_bytes: None where memory is not counted."""

    def __init__(self, engine: str, *, slots: int, capacity_bytes: int | None) -> None:
        self._engine = engine
        self._slots = slots
        self._capacity = capacity_bytes
        self._held_slots = 0
        self._held_bytes = 0
        self._changed = threading.Condition()

    @contextmanager
    def lease(self, memory_bytes: int, *, wait_s: float, cancelled: Callable[[], bool]) -> Iterator[Lease]:
        """Hold a slot and memory. Raises EngineBusy when none is free in time, StatementCancelled."""
        self._acquire(memory_bytes, wait_s, cancelled)
        try:
            yield Lease(memory_bytes)
        finally:
            with self._changed:
                self._held_slots -= 1
                self._held_bytes -= memory_bytes
                self._changed.notify_all()

    def _acquire(self, memory_bytes: int, wait_s: float, cancelled: Callable[[], bool]) -> None:
        until = time.monotonic() + wait_s
        with self._changed:
            while not self._fits(memory_bytes):
                if cancelled():
                    raise StatementCancelled("The statement was cancelled while it waited.")
                remaining = until - time.monotonic()
                if remaining <= 0:
                    raise EngineBusy(f"No slot of {self._engine} became free within {wait_s:.0f} s.")
                self._changed.wait(min(remaining, POLL_S))
            self._held_slots += 1
            self._held_bytes += memory_bytes

    def _fits(self, memory_bytes: int) -> bool:
        enough_memory = self._capacity is None or self._held_bytes + memory_bytes <= self._capacity
        return self._held_slots < self._slots and enough_memory

    def describe(self) -> dict[str, int | None]:
        """Return what is held now and what there is."""
        with self._changed:
            return {
                "slots": self._slots,
                "slots_held": self._held_slots,
                "capacity_bytes": self._capacity,
                "bytes_held": self._held_bytes,
            }
