"""Errors of engines, and what happens after each.

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
  EngineFault         anything not recognised         never fails over

Each adapter turns its driver's exceptions into this tree exactly once. An unknown exception becomes an ``EngineFault``:
to run such a statement again on another engine could do harm twice.
"""

from __future__ import annotations

from typing import ClassVar

from sql.errors import ErrorKind, FusionError


class EngineError(FusionError):
    """Base of all errors that leave an adapter."""

    fails_over: ClassVar[bool] = False
    """Another engine may run the statement."""
    remembered: ClassVar[bool] = False
    """The statement does not come to this engine again with the same memory."""
    trips_breaker: ClassVar[bool] = False
    """Several in a row stop all statements from coming to this engine for a while."""

    def __init__(self, message: str, *, peak_bytes: int | None = None) -> None:
        super().__init__(message)
        self.peak_bytes = peak_bytes
        """Memory that the failed attempt had reached; None: the engine cannot tell."""


class StatementError(EngineError):
    """The statement is wrong, or its data does not allow it (a division by zero, a failed cast)."""

    code = "STATEMENT_ERROR"
    kind = ErrorKind.INVALID
    how_failed = "found the statement or its data wrong"
    sqlstate = "42000"


class DataError(StatementError):
    """A value does not allow the statement on this engine; an engine that reads values differently may run it."""

    fails_over = True


class UserRefused(StatementError):
    """The engine runs statements as the users who sent them, and cannot or may not do so for this one."""


class UnsupportedFeature(EngineError):
    """The statement may be right, but this engine cannot run it."""

    code = "UNSUPPORTED_FEATURE"
    kind = ErrorKind.INVALID
    how_failed = "cannot run this statement"
    sqlstate = "0A000"
    fails_over = True


class NoEquivalent(UnsupportedFeature):
    """The engine has no verified equivalent of a part of the statement; the message names the part."""


class MemoryExceeded(EngineError):
    """The engine ran out of the memory that it was given.

    while_planning: before it ran the statement, so that more careful settings do not help.
    """

    code = "MEMORY_EXCEEDED"
    kind = ErrorKind.EXHAUSTED
    how_failed = "ran out of memory"
    sqlstate = "53200"
    fails_over = True
    remembered = True

    def __init__(self, message: str, *, peak_bytes: int | None = None, while_planning: bool = False) -> None:
        super().__init__(message, peak_bytes=peak_bytes)
        self.while_planning = while_planning


class EngineBusy(EngineError):
    """The engine is alive and refuses more work for now."""

    code = "ENGINE_BUSY"
    kind = ErrorKind.UNAVAILABLE
    how_failed = "had no free slot"
    sqlstate = "53300"
    fails_over = True


class EngineUnavailable(EngineError):
    """The engine refused the connection, was lost or crashed."""

    code = "ENGINE_UNAVAILABLE"
    kind = ErrorKind.UNAVAILABLE
    how_failed = "could not be reached or was lost"
    sqlstate = "08006"
    fails_over = True
    trips_breaker = True


class EngineRestarted(EngineUnavailable):
    """The engine was restarted while the statement ran, for another reason."""

    trips_breaker = False


class DeadlineExceeded(EngineError):
    """The statement's time is spent."""

    code = "DEADLINE_EXCEEDED"
    kind = ErrorKind.TIMED_OUT
    how_failed = "ran out of time"
    sqlstate = "57014"


class StatementCancelled(EngineError):
    """Somebody cancelled the statement."""

    code = "CANCELLED"
    kind = ErrorKind.CANCELLED
    how_failed = "was cancelled"
    sqlstate = "57014"


class EngineFault(EngineError):
    """The engine failed with an error that the adapter does not know."""

    code = "ENGINE_FAULT"
    kind = ErrorKind.INTERNAL
    how_failed = "failed with an unknown error"
    sqlstate = "XX000"
