"""One statement on its way, as adapters of remote engines need it: what may end it, and its rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

import pyarrow as pa

from engines.errors import DeadlineExceeded, EngineError, StatementCancelled
from engines.protocol import Actuals

BREAK_OFF_AFTER_S = 10.0
"""A statement that does not end this long after it was told to is left to itself."""


class RunningStatement:
    """What ends a statement from another thread: a cancel, its deadline, the engine's end. The first one counts."""

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
        """The cancel or the deadline that ended it; a fresh error each time, for it may be raised twice."""
        with self._lock:
            return type(self._ended_by)(self._ended_by.message) if self._ended_by else None

    def raise_if_ended(self) -> None:
        """Raise what ended it, if something did."""
        if error := self.ended_by:
            raise error

    def stop_by(self, stop: Callable[[], None], *, break_off: Callable[[], None]) -> None:
        """From here on ``end`` calls stop, and break_off if the statement is not finished a while later.

        Raises what ended the statement, if something did before.
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
        """Nothing is left to end."""
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

    errors: what lets only EngineError out of reading. settle: takes what reading met, gives what it really was.
    release: ends the work on the server and gives back what it took; called once, with the error if there was one.
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
        """Nothing: neither Spark Connect nor HiveServer2 tells a statement's peak memory."""
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
