"""A gate for statements: several at once, one alone after it ran out of memory, none while Spark restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

RESERVED_FOR_S = 30.0
"""Limit of the wait for running statements to end; after that, the waiting statement does not run alone."""

ALONE_FOR_S = 120.0
"""Limit of the time in which a statement runs alone. It may run for hours; others wait no longer than this for it."""

_STEP_S = 0.1


class Gate:
    """A gate for statements. Thread-safe. Each statement that enters has to leave."""

    def __init__(self, *, reserved_for_s: float = RESERVED_FOR_S, alone_for_s: float = ALONE_FOR_S) -> None:
        self._reserved_for_s = reserved_for_s
        self._alone_for_s = alone_for_s
        self._changed = threading.Condition()
        self._inside: dict[object, float] = {}  # until when others stay out; 0: it does not run alone
        self._waiting_alone = 0
        self._reserved_until_s = 0.0
        self._closed = False

    @property
    def inside(self) -> int:
        """Number of statements inside."""
        with self._changed:
            return len(self._inside)

    def enter(self, who: object, *, alone: bool, give_up: Callable[[], None]) -> None:
        """Wait until the statement may enter. give_up: called repeatedly; its error ends the wait."""
        since_s = time.monotonic()
        with self._changed:
            if alone:
                if not self._waiting_alone:
                    self._reserved_until_s = since_s + self._reserved_for_s
                self._waiting_alone += 1
            try:
                while not self._is_free(alone, since_s):
                    self._changed.wait(_STEP_S)
                    give_up()
            finally:
                if alone:
                    self._waiting_alone -= 1
                    self._changed.notify_all()
            self._inside[who] = time.monotonic() + self._alone_for_s if alone else 0.0

    def leave(self, who: object) -> None:
        """Leave, if inside."""
        with self._changed:
            was_alone = self._inside.pop(who, 0.0) > 0.0
            if was_alone and self._waiting_alone:
                self._reserved_until_s = time.monotonic() + self._reserved_for_s
            self._changed.notify_all()

    @contextmanager
    def closed(self, *, wait_s: float) -> Iterator[bool]:
        """Close the gate; yields True if all statements inside left in time. One caller at a time."""
        until_s = time.monotonic() + wait_s
        with self._changed:
            self._closed = True
            while self._inside and time.monotonic() < until_s:
                self._changed.wait(_STEP_S)
            empty = not self._inside
        try:
            yield empty
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()

    def _is_free(self, alone: bool, since_s: float) -> bool:
        now_s = time.monotonic()
        if self._closed or any(until_s > now_s for until_s in self._inside.values()):
            return False
        if alone:
            return not self._inside or now_s > since_s + self._reserved_for_s
        return not self._waiting_alone or now_s > self._reserved_until_s
