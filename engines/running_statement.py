"""One running statement for adapters of remote engines: the causes of its end, and its rows.

Work of the gateway itself has a ``Deadline`` instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa

from engines.errors import DeadlineExceeded, EngineError, StatementCancelled
from engines.protocol import Actuals

BREAK_OFF_AFTER_S = 10.0
"""A statement that does not end within this time after it was stopped is abandoned."""


class RunningStatement:
    """A statement that other threads may end: by a cancel, its deadline, the engine's end. The first cause counts."""

    def __init__(self, query_id: str, deadline_s: float) -> None:
        self.query_id = query_id
        self.finished = threading.Event()
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._ended_by: EngineError | None = None
        self._stop: Callable[[], None] | None = None
        self._break_off: Callable[[], None] | None = None
        self._timers: list[threading.Timer] = []
        late = DeadlineExceeded(f"The statement did not end within {deadline_s:.3g} s")
        self._after(min(max(deadline_s, 0.0), threading.TIMEOUT_MAX), lambda: self.end(late))

    @property
    def ended_by(self) -> EngineError | None:
        """The cancel or the deadline that ended it; a new error each time, as it may be raised twice."""
        with self._lock:
            return type(self._ended_by)(self._ended_by.message) if self._ended_by else None

    def raise_if_ended(self) -> None:
        """Raise the cause of its end, if it was ended."""
        if error := self.ended_by:
            raise error

    def stop_by(self, stop: Callable[[], None], *, break_off: Callable[[], None]) -> None:
        """Set the functions that ``end`` calls: stop at once, and break_off if the statement is not finished later.

        Raises the cause if the statement was ended before.
        """
        with self._lock:
            self._stop, self._break_off = stop, break_off
        self.raise_if_ended()

    def end(self, error: EngineError) -> None:
        """End the statement for this reason, unless it has ended already."""
        with self._lock:
            if self._ended_by is not None or self.finished.is_set():
                return
            self._ended_by = error
            stop = self._stop
        self.ended.set()
        self._after(BREAK_OFF_AFTER_S, self._give_up)
        if stop is not None:
            stop()

    def finish(self) -> None:
        """Mark it as finished: it cannot be ended any more."""
        with self._lock:
            self.finished.set()
            timers, self._timers = self._timers, []
        for timer in timers:
            timer.cancel()

    def _give_up(self) -> None:
        with self._lock:
            break_off = None if self.finished.is_set() else self._break_off
        if break_off is not None:
            break_off()

    def _after(self, wait_s: float, action: Callable[[], None]) -> None:
        timer = threading.Timer(wait_s, action)
        timer.daemon = True
        with self._lock:
            if self.finished.is_set():
                return
            self._timers.append(timer)
        timer.start()


class StatementResult:
    """A statement's batches while they arrive. One thread reads; any thread may close.

    errors: context manager that lets only EngineError escape from reading.
    settle: returns the real error for an error of reading.
    release: ends the work on the server and releases its resources; called once, with the error; None: it succeeded.
    """

    def __init__(
        self,
        statement: RunningStatement,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        *,
        errors: Callable[[], AbstractContextManager[None]],
        settle: Callable[[EngineError], EngineError],
        release: Callable[[EngineError | None], None],
    ) -> None:
        self._statement = statement
        self._schema = schema
        self._batches = batches
        self._errors = errors
        self._settle = settle
        self._release = release
        self._failure: EngineError | None = None
        self._reading = threading.Lock()

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the result."""
        return self._schema

    @property
    def actuals(self) -> Actuals:
        """Empty: neither Spark Connect nor HiveServer2 returns a statement's peak memory."""
        return Actuals()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._reading:
            if self._failure is not None:
                raise self._failure
            if self._statement.finished.is_set():
                raise StopIteration
            try:
                self._statement.raise_if_ended()
                with self._errors():
                    batch = next(self._batches, None)
            except EngineError as error:
                self._failure = self._settle(error)
                self._finish(error)
                raise self._failure from None
            if batch is None:
                self._finish(None)
                raise StopIteration
            return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the statement; may be called twice."""
        if not self._reading.acquire(blocking=False):
            self._statement.end(StatementCancelled("The result was closed"))
            self._reading.acquire()
        try:
            self._finish(None)
        finally:
            self._reading.release()

    def _finish(self, error: EngineError | None) -> None:
        if not self._statement.finished.is_set():
            self._release(error)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of a request's time, for work of the gateway itself, which checks it between its steps.

    A thread cannot be ended from outside; work without a deadline goes on.

    until_s: on the monotonic clock.
    cancelled: returns True once nobody waits any more.
    """

    until_s: float
    cancelled: Callable[[], bool]

    def require(self) -> None:
        """Raise StatementCancelled or DeadlineExceeded if the work has to end."""
        if self.cancelled():
            raise StatementCancelled("The request was cancelled: its client has left.")
        if time.monotonic() >= self.until_s:
            raise DeadlineExceeded("The time of the request is over: ask for less at once.")


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def within(deadline: Deadline) -> Iterator[None]:
    """Set the deadline for the work of this block, and of threads that it starts with its context."""
    token = _current.set(deadline)
    try:
        yield
    finally:
        _current.reset(token)


def current_deadline() -> Deadline | None:
    """Return the deadline of this work; None: it has none."""
    return _current.get()


def require_time() -> None:
    """Raise StatementCancelled or DeadlineExceeded if this work has to end."""
    deadline = _current.get()
    if deadline is not None:
        deadline.require()
