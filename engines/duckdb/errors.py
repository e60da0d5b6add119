"""DuckDB's errors -> the error tree. The only place that knows them; it runs inside the worker.

They are told apart by the words that every DuckDB message starts with, because an error in the middle of a result
arrives through Arrow as an OSError with nothing but that text.

DuckDB sees no text from a client: only statements that were parsed, checked against the catalog and written
anew in its dialect. What it cannot parse or bind is therefore most likely a gap between dialects, so it is an
UnsupportedFeature, as is a file that it cannot read; a value that it cannot convert may be none to Spark: DataError.
The dependable engine has the last word on whether the statement or the data is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from engines.errors import (
    DataError,
    EngineBusy,
    EngineError,
    EngineFault,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
    UnsupportedFeature,
)
from sql.guards import DIVISION_BY_ZERO, OTHER_MEANING

_BY_PREFIX: dict[str, type[EngineError]] = {
    "out of memory error": MemoryExceeded,
    "interrupt error": StatementCancelled,
    "parser error": UnsupportedFeature,
    "syntax error": UnsupportedFeature,
    "binder error": UnsupportedFeature,
    "catalog error": UnsupportedFeature,
    "not implemented error": UnsupportedFeature,
    "invalid type error": UnsupportedFeature,
    "conversion error": DataError,
    "out of range error": DataError,
    "mismatch type error": DataError,
    "invalid input error": DataError,
    "permission error": StatementError,
    "fatal error": EngineUnavailable,
    "internal error": EngineUnavailable,
}
_PREFIX = re.compile(r"^\s*([A-Za-z ]+ error)\b", re.IGNORECASE)
_USED = re.compile(r"\(([\d.]+) (bytes|KiB|MiB|GiB|TiB)/([\d.]+ \w+) used\)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_PATH = re.compile(r"(?<![\w.])(?:file:)?/[^\s\"',;)]+")
_END_OF_TEXT = re.compile(r"['\"\n]")
_OUR_SQL = re.compile(r"\nLINE \d+:")
_VANISHED = re.compile(r"^IO Error: No files found that match|No such file or directory|Stale file handle")
_UNREADABLE = re.compile(
    r"CSV Error on Line|JSON transform error|Malformed JSON|Parquet file|No magic bytes"
    r"|^TProtocolException|^TTransportException|^don't know what type"
)
_NO_TYPE = re.compile(r"Unimplemented type for cast \([^\n]*BLOB[^\n]*\) when casting from source column ([^\n]*)")
_BAD_ALLOC = re.compile(r"bad_alloc|bad allocation|malloc|Cannot allocate memory", re.IGNORECASE)


@contextmanager
def translated() -> Iterator[None]:
    """Let only EngineError out of a block that calls DuckDB."""
    try:
        yield
    except EngineError:
        raise
    except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
        raise translate(error) from error


def translate(error: BaseException) -> EngineError:
    """Return what an exception means to the gateway."""
    text = _OUR_SQL.split(str(error), maxsplit=1)[0]  # what it quotes of our SQL says nothing about the error
    _, given_up, what = text.partition(OTHER_MEANING)
    if what.startswith(DIVISION_BY_ZERO):
        return DataError("Division by zero; try_divide(a, b) gives NULL instead.")
    if given_up:
        return UnsupportedFeature(f"it handles {_END_OF_TEXT.split(what, maxsplit=1)[0]} differently from Spark.")
    if (untyped := _NO_TYPE.search(text)) is not None:
        return UnsupportedFeature(
            f"it cannot read the column {untyped[1]}: what its files hold (an interval, or a decimal of more than 38 "
            "digits) has no type here. Leave the column out."
        )
    prefix = _PREFIX.match(text)
    kind = _BY_PREFIX.get(prefix.group(1).lower(), EngineFault) if prefix else EngineFault
    if isinstance(error, MemoryError) or (kind is not DataError and _BAD_ALLOC.search(text)):
        # The process's own cap was reached, in memory that DuckDB does not count.
        return MemoryExceeded("DuckDB ran out of memory outside its own limit.")
    if kind is MemoryExceeded:
        used = _USED.search(text)
        limit = f" of {used.group(3)}" if used else ""
        return MemoryExceeded(f"DuckDB ran out of its memory limit{limit}.", peak_bytes=used_bytes(text))
    if kind is EngineFault and _VANISHED.search(text):
        return EngineBusy("A file of a table went away while it was read, as when rows are replaced.")
    if kind in (EngineFault, DataError) and _UNREADABLE.search(text):
        return UnsupportedFeature(f"it cannot read a file of a table: {readable(text)}")
    return kind(readable(text) or type(error).__name__)


def readable(text: str) -> str:
    """Return the first paragraph, without the server's paths and without the place in our generated SQL."""
    paragraph = re.split(rf"\n\s*\n|{_OUR_SQL.pattern}", text, maxsplit=1)[0]
    return _PATH.sub("(file)", " ".join(paragraph.split()))


def used_bytes(text: str) -> int | None:
    """Return the memory in use that an out-of-memory message states."""
    match = _USED.search(text)
    return int(float(match.group(1)) * _UNITS[match.group(2)]) if match else None
