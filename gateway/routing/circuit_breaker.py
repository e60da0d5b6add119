"""A circuit breaker per engine: after several failures of the engine itself it rests before it is tried again.

An operator opens it too, for as long as the engine is drained (``drains.py``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from engines.errors import EngineError, EngineUnavailable

FAILURES_TO_OPEN = 3
OPEN_S = 15.0
TRIAL_S = 5.0


class CircuitBreaker:
    """Closed while an engine works; open for a while after failures in a row; then one statement tries it. Thread-safe.

    trial_s: after which a trial that has not failed lets others in: it may be a long statement.
    """

    def __init__(
        self, *, failures_to_open: int = FAILURES_TO_OPEN, open_s: float = OPEN_S, trial_s: float = TRIAL_S
    ) -> None:
        self._failures_to_open = failures_to_open
        self._open_s = open_s
        self._trial_s = trial_s
        self._failures = 0
        self._open_until = 0.0
        self._trial_until = 0.0
        self._last = ""
        self._drained: str | None = None
        self._changed = threading.Condition()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Run a statement and record the engine's outcome. After a rest one is let in, and others wait for its end.

        Raises EngineUnavailable while the engine rests.
        """
        self._enter()
        try:
            yield
        except EngineError as error:
            self._record_outcome(error)
            raise
        except BaseException:
            self._record_outcome(None, worked=False)
            raise
        self._record_outcome(None)

    def _enter(self) -> None:
        with self._changed:
            while (trial_s := self._trial_until - time.monotonic()) > 0 and self._is_broken and not self._drained:
                self._changed.wait(trial_s)
            if (why := self._why_open()) is not None:
                raise EngineUnavailable(f"The engine is left alone: {why}.")
            if self._is_broken:
                self._trial_until = time.monotonic() + self._trial_s

    def _record_outcome(self, error: EngineError | None, *, worked: bool = True) -> None:
        with self._changed:
            self._trial_until = 0.0
            if error is None:
                self._failures = 0 if worked else self._failures
            elif error.trips_breaker:
                self._failures += 1
                self._last = error.message
                if self._is_broken:
                    self._open_until = time.monotonic() + self._open_s
            self._changed.notify_all()

    @property
    def drained(self) -> str | None:
        """Why the engine takes no new statements until somebody resumes it; None: it takes them."""
        return self._drained

    def drain(self, why: str | None) -> None:
        """Keep new statements off the engine, or let them in again: why is None."""
        with self._changed:
            self._drained = why
            self._changed.notify_all()

    def open_for_s(self) -> float:
        """Return the seconds until the engine may be used again; 0 if it may be now, or if nobody knows when."""
        with self._changed:
            until = max(self._open_until, self._trial_until)
            return max(0.0, until - time.monotonic()) if self._is_broken and self._drained is None else 0.0

    def why_open(self) -> str | None:
        """Return why the engine is to be left alone, None if it may be used."""
        with self._changed:
            return self._why_open()

    @property
    def _is_broken(self) -> bool:
        return self._failures >= self._failures_to_open

    def _why_open(self) -> str | None:
        if self._drained is not None or not self._is_broken:
            return self._drained
        failed = f"it failed {self._failures} times in a row"
        remaining = self._open_until - time.monotonic()
        if remaining > 0:
            return f"{failed}; next try in {remaining:.0f} s ({self._last})"
        return f"{failed}; one statement tries it now" if self._trial_until > time.monotonic() else None
