"""What can go wrong in an engine, and what happens next.

EngineError
  StatementError      wrong statement or wrong data   never fails over
    DataError         data that is wrong to it alone  fails over
  UnsupportedFeature  this engine cannot              fails over
  MemoryExceeded      ran out of memory               fails over, remembered
  EngineBusy          queue full                      fails over
  EngineUnavailable   refused, lost, crashed          fails over, trips the breaker
    EngineRestarted   started again on purpose        fails over
  DeadlineExceeded    time is spent                   never fails over
  StatementCancelled  the client left                 never fails over
    BrokenOff         it would not have fitted        fails over, remembered
    Superseded        another engine answered first   its query has ended
  EngineFault         anything not recognised         never fails over

Each adapter turns its driver's exceptions into this tree exactly once. What it does not recognise becomes
an ``EngineFault``: running an unknown failure again somewhere else could do harm twice.
"""

from __future__ import annotations

from typing import ClassVar

OTHER_MEANING = "meant otherwise by Spark: "
"""What an engine's own error starts with where a statement, as we wrote it, gives up over a value."""


DIVISION_BY_ZERO = "division by zero"
"""What it says where that value is a divisor: an error to Spark, too."""


class EngineError(Exception):
    """Base of everything that leaves an adapter.

    message: one or two sentences for the person who sent the statement; no paths, no stack traces.
    peak_bytes: memory that the failed attempt had reached, where the engine can tell.
    how_failed: completes "The engine ...".
    """

    code: ClassVar[str]
    sqlstate: ClassVar[str] = "HY000"
    fails_over: ClassVar[bool] = False
    remembered: ClassVar[bool] = False
    trips_breaker: ClassVar[bool] = False
    how_failed: ClassVar[str | None] = None

    def __init__(self, message: str, *, peak_bytes: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.peak_bytes = peak_bytes


class StatementError(EngineError):
    """The statement is wrong, or its data does not allow it (a division by zero, a failed cast)."""

    code = "STATEMENT_ERROR"
    how_failed = "found the statement or its data wrong"
    sqlstate = "42000"


class DataError(StatementError):
    """A value does not allow the statement, as this engine sees it; one that sees values otherwise may be asked."""

    fails_over = True


class UnsupportedFeature(EngineError):
    """The statement may be right, but this engine cannot run it."""

    code = "UNSUPPORTED_FEATURE"
    how_failed = "cannot run this statement"
    sqlstate = "0A000"
    fails_over = True


class MemoryExceeded(EngineError):
    """The engine ran out of the memory that it was given."""

    code = "MEMORY_EXCEEDED"
    how_failed = "ran out of memory"
    sqlstate = "53200"
    fails_over = True
    remembered = True


class EngineBusy(EngineError):
    """The engine is alive and refuses more work for now."""

    code = "ENGINE_BUSY"
    how_failed = "had no free slot"
    sqlstate = "53300"
    fails_over = True


class EngineUnavailable(EngineError):
    """The engine refused the connection, was lost or crashed."""

    code = "ENGINE_UNAVAILABLE"
    how_failed = "could not be reached or was lost"
    sqlstate = "08006"
    fails_over = True
    trips_breaker = True


class EngineRestarted(EngineUnavailable):
    """The engine was started again under the statement, through no fault of the statement's."""

    trips_breaker = False


class DeadlineExceeded(EngineError):
    """The statement's time is spent."""

    code = "DEADLINE_EXCEEDED"
    how_failed = "ran out of time"
    sqlstate = "57014"


class StatementCancelled(EngineError):
    """Somebody cancelled the statement."""

    code = "CANCELLED"
    how_failed = "was told to stop"
    sqlstate = "57014"


class BrokenOff(StatementCancelled):
    """The gateway ended it, because it was about to run out of memory.

    peak_bytes: the most that it had held. limit_bytes: that it could have got.
    """

    code = "BROKEN_OFF"
    how_failed = "was broken off, as it was about to run out of memory"
    sqlstate = "53200"
    fails_over = True
    remembered = True

    def __init__(self, message: str, *, peak_bytes: int | None = None, limit_bytes: int) -> None:
        super().__init__(message, peak_bytes=peak_bytes)
        self.limit_bytes = limit_bytes


class Superseded(StatementCancelled):
    """Another engine ended the same query first."""

    code = "SUPERSEDED"
    how_failed = "was stopped, as another engine had ended the query first"


class EngineFault(EngineError):
    """The engine failed in a way that the adapter does not know."""

    code = "ENGINE_FAULT"
    how_failed = "failed in a way that is not recognised"
    sqlstate = "XX000"
