"""A circuit breaker per engine: after several failures of the engine itself it rests before it is tried again."""

from __future__ import annotations

import threading
import time

FAILURES_TO_OPEN = 3
OPEN_S = 15.0


class CircuitBreaker:
    """Closed while an engine works; open for a while after failures in a row; then one statement tries it."""

    def __init__(self, *, failures_to_open: int = FAILURES_TO_OPEN, open_s: float = OPEN_S) -> None:
        self._failures_to_open = failures_to_open
        self._open_s = open_s
        self._failures = 0
        self._open_until = 0.0
        self._last = ""
        self._lock = threading.Lock()

    def succeeded(self) -> None:
        """Note that the engine did its work."""
        with self._lock:
            self._failures = 0

    def failed(self, message: str) -> None:
        """Note that the engine itself failed."""
        with self._lock:
            self._failures += 1
            self._last = message
            if self._failures >= self._failures_to_open:
                self._open_until = time.monotonic() + self._open_s

    def open_for_s(self) -> float:
        """Return the seconds until the engine may be used again; 0 if it may be now."""
        with self._lock:
            broken = self._failures >= self._failures_to_open
            return max(0.0, self._open_until - time.monotonic()) if broken else 0.0

    def why_open(self) -> str | None:
        """Return why the engine is to be left alone, None if it may be used."""
        with self._lock:
            remaining = self._open_until - time.monotonic()
            if self._failures < self._failures_to_open or remaining <= 0:
                return None
            return f"it failed {self._failures} times in a row; next try in {remaining:.0f} s ({self._last})"
