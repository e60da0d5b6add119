"""Spark's and gRPC's exceptions -> the tree in ``engines/errors.py``, in one place.

What Spark itself says (``spark_sql/error_messages.py``) decides first; then the exception's class, and last the gRPC
status of a call that never reached Spark. The rest is an ``EngineFault``.
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
from engines.spark_sql.grpc_status import by_grpc_status

BY_CONDITION: dict[str, type[EngineError]] = {
    "UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION": UnsupportedFeature,
    "UNSUPPORTED_OPERATION": UnsupportedFeature,
    "RESPONSE_ALREADY_RECEIVED": EngineUnavailable,  # a new server does not know our statement
    "NO_ACTIVE_SESSION": EngineUnavailable,
    "FAILED_READ_FILE.FILE_NOT_EXIST": EngineBusy,  # somebody replaced a table's files while they were read
}
"""Error conditions whose SQLSTATE says too little; those of the client itself carry none."""

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

_MESSAGES: dict[type[EngineError], str] = {
    EngineUnavailable: "The connection to Spark was lost or refused",
    StatementCancelled: "The statement was cancelled",
}
"""What a reader needs instead of the driver's words."""


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
        if condition := BY_CONDITION.get(error.getCondition() or ""):
            return condition
        if found := by_sqlstate(error.getSqlState() or ""):
            return found
    if found := by_text(text):
        return found
    if found := next((kind for name, kind in BY_CLASS if isinstance(error, name)), None):
        return found
    return by_grpc_status(error) or EngineFault
