"""Calls that have begun and sent no message yet: they have limited time, and some are ended where there are too many.

A call has a thread from its first header on, so a client that opens calls and sends no message could take all threads.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.drivers.flight.messages import Malformed

FIRST_MESSAGE_S = 10.0
NEXT_MESSAGE_S = 60.0
LOOK_S = 0.5


@dataclass(slots=True, eq=False)
class _Awaited:
    """A message that is awaited. key: quota key of its user; end: ends its call."""

    key: str
    end: Callable[[], object]
    until_s: float


class Arrivals:
    """Waits for messages. most: number of calls that may wait at once. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._awaited: dict[_Awaited, None] = {}  # in the order in which they began
        self._stopping = threading.Event()

    def start(self) -> None:
        """Begin to end calls that take too long."""
        threading.Thread(target=self._keep_time, name="flight arrivals", daemon=True).start()

    def stop(self) -> None:
        """Stop ending calls."""
        self._stopping.set()

    def first(self, requests: Iterator[bytes], key: str, end: Callable[[], object]) -> bytes:
        """Return a call's first message. Raises Malformed where it has none, and gRPC's error where it was ended."""
        with self._waiting(key, end, FIRST_MESSAGE_S):
            for message in requests:
                return message
        raise Malformed("The call holds no message.")

    def rest(self, requests: Iterator[bytes], key: str, end: Callable[[], object]) -> Iterator[bytes]:
        """Yield the messages after the first one."""
        while True:
            with self._waiting(key, end, NEXT_MESSAGE_S):
                message = next(requests, None)
            if message is None:
                return
            yield message

    @contextmanager
    def _waiting(self, key: str, end: Callable[[], object], limit_s: float) -> Iterator[None]:
        awaited = _Awaited(key, end, time.monotonic() + limit_s)
        with self._lock:
            gives_way = self._least_missed() if len(self._awaited) >= self._most else None
            self._awaited[awaited] = None
            if gives_way is not None:
                del self._awaited[gives_way]
        if gives_way is not None:
            gives_way.end()
        try:
            yield
        finally:
            with self._lock:
                self._awaited.pop(awaited, None)

    def _least_missed(self) -> _Awaited:
        """Return the oldest of the user with most of them."""
        (key, _), *_ = Counter(awaited.key for awaited in self._awaited).most_common(1)
        return next(awaited for awaited in self._awaited if awaited.key == key)

    def _keep_time(self) -> None:
        while not self._stopping.wait(LOOK_S):
            now = time.monotonic()
            with self._lock:
                late = [awaited for awaited in self._awaited if awaited.until_s < now]
                for awaited in late:
                    del self._awaited[awaited]
            for awaited in late:
                awaited.end()
