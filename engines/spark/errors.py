"""Spark's and gRPC's exceptions -> the tree in ``engines/errors.py``, in one place.

Spark names most of its errors by a SQLSTATE, so that decides first; then the exception's class, its text, and
last the gRPC status of a call that never reached Spark. The rest is an ``EngineFault``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import grpc  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    PySparkAssertionError,
    PySparkException,
    UnsupportedOperationException,
)

from engines.errors import (
    EngineBusy,
    EngineError,
    EngineFault,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
    UnsupportedFeature,
)

BY_SQLSTATE: tuple[tuple[str, type[EngineError]], ...] = (
    ("HY008", StatementCancelled),
    ("XXKDA", StatementCancelled),  # the job was cancelled under the operation
    ("53200", MemoryExceeded),
    ("82", MemoryExceeded),  # aggregate, pointer array, spill
    ("53", EngineBusy),
    ("08", EngineUnavailable),  # the session is gone: the server was started again, or forgot us
    ("HY000", EngineUnavailable),  # INVALID_HANDLE
    ("HY109", EngineUnavailable),  # INVALID_CURSOR
    ("0A", UnsupportedFeature),
    ("56038", UnsupportedFeature),  # codec or feature that this server does not have
    ("02", StatementError),
    ("07", StatementError),
    ("21", StatementError),
    ("22", StatementError),
    ("23", StatementError),
    ("24", StatementError),
    ("2B", StatementError),
    ("38", StatementError),  # the statement's own function failed
    ("39", StatementError),
    ("3F", StatementError),
    ("42", StatementError),
    ("46", StatementError),
    ("51", StatementError),
    ("54", StatementError),
    ("KD", StatementError),  # files that do not hold what the table says
    ("P0", StatementError),  # raise_error()
)
"""SQLSTATE prefix -> class; the first match counts."""

BY_CONDITION: dict[str, type[EngineError]] = {
    "UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION": UnsupportedFeature,
    "UNSUPPORTED_OPERATION": UnsupportedFeature,
    "RESPONSE_ALREADY_RECEIVED": EngineUnavailable,  # a new server does not know our statement
    "NO_ACTIVE_SESSION": EngineUnavailable,
}
"""Error conditions of the client itself, which carry no SQLSTATE."""

BY_TEXT: tuple[tuple[str, type[EngineError]], ...] = (
    ("OutOfMemoryError", MemoryExceeded),
    ("spark.driver.maxResultSize", MemoryExceeded),
    ("is bigger than local result size limit", MemoryExceeded),
)

BY_CLASS: tuple[tuple[type[Exception], type[EngineError]], ...] = (
    (AnalysisException, StatementError),
    (ArithmeticException, StatementError),
    (ArrayIndexOutOfBoundsException, StatementError),
    (DateTimeException, StatementError),
    (NumberFormatException, StatementError),
    (UnsupportedOperationException, UnsupportedFeature),
    (PySparkAssertionError, EngineUnavailable),  # the answer of another server than the one we asked
    (UnicodeError, StatementError),  # text that has no UTF-8 form
    (pa.ArrowException, EngineFault),
    (OSError, EngineFault),  # a staged file that cannot be read
    (ValueError, EngineUnavailable),  # grpc's word for a closed channel
)

BY_GRPC_STATUS: dict[grpc.StatusCode, type[EngineError]] = {
    grpc.StatusCode.UNAVAILABLE: EngineUnavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: EngineUnavailable,
    grpc.StatusCode.CANCELLED: EngineUnavailable,
    grpc.StatusCode.UNAUTHENTICATED: EngineUnavailable,
    grpc.StatusCode.PERMISSION_DENIED: EngineUnavailable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: MemoryExceeded,
}

_MESSAGES: dict[type[EngineError], str] = {
    EngineUnavailable: "The connection to Spark was lost or refused",
    StatementCancelled: "The statement was cancelled",
}
"""What a reader needs instead of the driver's words."""

_MESSAGE_LIMIT = 500
_EXCEPTION_NAME = re.compile(r"^\([\w.$]+\) ")
_SQLSTATE_TAIL = re.compile(r"\.?\s*SQLSTATE: (?P<state>\w{5})(?P<position>;? \(?line \d+,? pos \d+\)?)?")
_PATH = re.compile(r"(?:\b[a-z][a-z0-9]*:/+|(?<![\w./])/)(?:[^\s'\"`,;)\]/]+/)+[^\s'\"`,;:)\]]*")


@contextmanager
def spark_errors() -> Iterator[None]:
    """Let only EngineError leave the block. Wrap every call of the driver, fetching too."""
    try:
        yield
    except (PySparkException, grpc.RpcError, pa.ArrowException, OSError, ValueError) as error:
        raise _translate(error) from None


def short_message(text: str) -> str:
    """Return the first thing that Spark said: no plan, no SQL, no stack trace, no paths."""
    text = _EXCEPTION_NAME.sub("", text.strip())
    tail = _SQLSTATE_TAIL.search(text)
    position = (tail["position"] or "").strip("; ()") if tail else ""
    said = text[: tail.start()] if tail else text
    said = _PATH.sub("...", said.split("\n", 1)[0].strip())
    if len(said) > _MESSAGE_LIMIT:
        said = said[: _MESSAGE_LIMIT - 3] + "..."
    return f"{said} ({position})" if position else said


def _translate(error: Exception) -> EngineError:
    text = error.getMessage() if isinstance(error, PySparkException) else str(error)
    engine_error = _classify(error, text or "")
    return engine_error(_MESSAGES.get(engine_error) or short_message(text or type(error).__name__))


def _classify(error: Exception, text: str) -> type[EngineError]:
    if isinstance(error, PySparkException):
        if condition := BY_CONDITION.get(error.getCondition() or ""):
            return condition
        sqlstate = error.getSqlState() or ""
        if found := next((kind for prefix, kind in BY_SQLSTATE if sqlstate.startswith(prefix)), None):
            return found
    if found := next((kind for part, kind in BY_TEXT if part in text), None):
        return found
    if found := next((kind for name, kind in BY_CLASS if isinstance(error, name)), None):
        return found
    status = _grpc_status(error)
    return BY_GRPC_STATUS.get(status, EngineFault) if status else EngineFault


def _grpc_status(error: Exception) -> grpc.StatusCode | None:
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return error.code()
    ask = getattr(error, "getGrpcStatusCode", None)
    return ask() if ask else None
