"""Sail's errors -> the tree in ``engines/errors.py``, in one place.

Sail gives neither SQLSTATEs nor conditions, and the exception's class says little: running out of memory has come as
AnalysisException, too. So words decide first. A statement that Sail cannot plan was checked before it came here, so
that it is Sail which cannot, and what it finds wrong with a value, Spark shall have the last word on.
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
    ParseException,
    PySparkException,
    UnsupportedOperationException,
)

from engines.errors import (
    DataError,
    EngineBusy,
    EngineError,
    EngineFault,
    EngineUnavailable,
    MemoryExceeded,
    UnsupportedFeature,
)
from engines.spark_sql.connect import MonthsInResult
from engines.spark_sql.error_messages import short_message
from engines.spark_sql.grpc_status import by_grpc_status

BY_TEXT: tuple[tuple[str, type[EngineError]], ...] = (
    ("Resources exhausted", MemoryExceeded),
    ("Failed to allocate additional", MemoryExceeded),
    ("Memory Exhausted", MemoryExceeded),  # a sort that may not spill
    ("different attempt has already produced job output", MemoryExceeded),  # of an attempt that had run out of it
    ("memory allocation of", MemoryExceeded),
    ("No such file or directory", EngineBusy),  # somebody replaced a table's files while they were read
    ("Cast error", DataError),
    ("Cannot cast", DataError),
    ("overflow", DataError),
    ("by zero", DataError),
    ("Parser error", DataError),
    ("Compute error", DataError),
    ("Invalid argument error", DataError),
    ("Error during planning", UnsupportedFeature),
    ("Schema error", UnsupportedFeature),
    ("Internal error", UnsupportedFeature),  # as DataFusion calls plans that it cannot make
    ("not implemented", UnsupportedFeature),
    ("not supported", UnsupportedFeature),
)
"""Words anywhere in a message -> class; the first match counts."""

BY_CLASS: tuple[tuple[type[Exception], type[EngineError]], ...] = (
    (ArithmeticException, DataError),
    (ArrayIndexOutOfBoundsException, DataError),
    (DateTimeException, DataError),
    (NumberFormatException, DataError),
    (UnsupportedOperationException, UnsupportedFeature),
    (AnalysisException, UnsupportedFeature),
    (ParseException, UnsupportedFeature),
    (IllegalArgumentException, UnsupportedFeature),
    (MonthsInResult, UnsupportedFeature),
    (UnicodeError, UnsupportedFeature),
    (pa.ArrowException, EngineFault),
    (OSError, EngineUnavailable),
    (ValueError, EngineUnavailable),  # grpc's word for a closed channel
)

_MESSAGES: dict[type[EngineError], str] = {
    EngineUnavailable: "The connection to Sail was lost or refused",
    EngineBusy: "Files of a table are gone",
    MemoryExceeded: "Sail ran out of its memory limit",
}
"""What a reader needs instead of Sail's words."""


@contextmanager
def sail_errors() -> Iterator[None]:
    """Let only EngineError leave the block. Wrap every call of the driver, fetching too."""
    try:
        yield
    except (PySparkException, MonthsInResult, grpc.RpcError, pa.ArrowException, OSError, ValueError) as error:
        raise _translate(error) from None


def _translate(error: Exception) -> EngineError:
    text = (error.getMessage() if isinstance(error, PySparkException) else str(error)) or ""
    kind = _classify(error, text)
    return kind(_MESSAGES.get(kind) or short_message(text or type(error).__name__))


def _classify(error: Exception, text: str) -> type[EngineError]:
    if found := by_grpc_status(error):
        return found
    if found := next((kind for words, kind in BY_TEXT if words in text), None):
        return found
    return next((kind for name, kind in BY_CLASS if isinstance(error, name)), EngineFault)
