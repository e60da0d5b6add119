"""Spark's and gRPC's exceptions -> the tree in ``engines/errors.py``, in one place.

Spark's own error (``spark_sql/error_messages.py``) decides first; then the exception's class, and last the gRPC status
of a call that did not reach Spark. The rest is an ``EngineFault``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pyarrow as pa
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
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
    StatementCancelled,
    StatementError,
    UnsupportedFeature,
)
from engines.spark_sql.error_messages import by_sqlstate, by_text, short_message
from engines.spark_sql.grpc_status import by_closed_channel, by_grpc_status

BY_CONDITION: dict[str, type[EngineError]] = {
    "UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION": UnsupportedFeature,
    "UNSUPPORTED_OPERATION": UnsupportedFeature,
    "RESPONSE_ALREADY_RECEIVED": EngineUnavailable,  # a new server does not know the statement
    "NO_ACTIVE_SESSION": EngineUnavailable,
    "FAILED_READ_FILE.FILE_NOT_EXIST": EngineBusy,  # a table's files were replaced while they were read
}
"""Error conditions with a vague SQLSTATE, or without one, as those of the client itself."""

BY_CLASS: tuple[tuple[type[Exception], type[EngineError]], ...] = (
    (AnalysisException, StatementError),
    (ArithmeticException, StatementError),
    (ArrayIndexOutOfBoundsException, StatementError),
    (DateTimeException, StatementError),
    (IllegalArgumentException, StatementError),  # of Java: a value that a function cannot take
    (NumberFormatException, StatementError),
    (UnsupportedOperationException, UnsupportedFeature),
    (PySparkAssertionError, EngineUnavailable),  # the answer of another server
    (UnicodeError, StatementError),  # text that has no UTF-8 form
    (pa.ArrowException, EngineFault),
    (OSError, EngineFault),  # a staged file that cannot be read
    (ValueError, EngineFault),  # a value that Python or Arrow cannot hold
)

_MESSAGES: dict[type[EngineError], str] = {
    EngineUnavailable: "The connection to Spark was lost or refused",
    StatementCancelled: "The statement was cancelled",
}
"""Messages that replace the driver's."""


@contextmanager
def spark_errors() -> Iterator[None]:
    """Let only EngineError leave the block. Wrap every call of the driver, fetching too."""
    try:
        yield
    except (PySparkException, grpc.RpcError, pa.ArrowException, OSError, ValueError) as error:
        raise _translate(error) from None


def _translate(error: Exception) -> EngineError:
    text = error.getMessage() if isinstance(error, PySparkException) else str(error)
    engine_error = _classify(error, text or "")
    return engine_error(_MESSAGES.get(engine_error) or short_message(text or type(error).__name__))


def _classify(error: Exception, text: str) -> type[EngineError]:
    if isinstance(error, PySparkException):
        if by_spark := BY_CONDITION.get(error.getCondition() or "") or by_sqlstate(error.getSqlState() or ""):
            return by_spark
    by_class = next((kind for name, kind in BY_CLASS if isinstance(error, name)), None)
    return by_text(text) or by_closed_channel(error) or by_class or by_grpc_status(error) or EngineFault
