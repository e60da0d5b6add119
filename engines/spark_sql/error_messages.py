"""Errors of Spark over any protocol: SQLSTATE and message -> the error tree.

Most of Spark's errors have a SQLSTATE, which decides first; the message comes next.
"""

from __future__ import annotations

import re

from engines.errors import (
    EngineBusy,
    EngineError,
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
    ("08", EngineUnavailable),  # the session is gone: the server was restarted, or the session expired
    ("HY000", EngineUnavailable),  # INVALID_HANDLE
    ("HY109", EngineUnavailable),  # INVALID_CURSOR
    ("0A", UnsupportedFeature),
    ("56038", UnsupportedFeature),  # codec or feature that this server lacks
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
    ("KD", StatementError),  # files that do not match the table
    ("P0", StatementError),  # raise_error()
)
"""SQLSTATE prefix -> class; the first match counts."""

_FORMAT_ERRORS = ("MissingFormat", "IllegalFormat", "UnknownFormat", "FormatFlags", "DuplicateFormat")
"""Beginnings of the names of Java's exceptions about the arguments of ``format_string``."""

BY_TEXT: tuple[tuple[str, type[EngineError]], ...] = (
    ("OutOfMemoryError", MemoryExceeded),
    ("spark.driver.maxResultSize", MemoryExceeded),
    ("is bigger than local result size limit", MemoryExceeded),
    *((f"java.util.{name}", StatementError) for name in _FORMAT_ERRORS),
    ("java.lang.IllegalArgumentException", StatementError),  # a value that a function cannot take
)

_MESSAGE_LIMIT = 500
_EXCEPTION_NAME = re.compile(r"^\([\w.$]+\) ")
_SQLSTATE_TAIL = re.compile(r"\.?\s*SQLSTATE: (?P<state>\w{5})(?P<position>;? \(?line \d+,? pos \d+\)?)?")
_PATH = re.compile(r"(?:\b[a-z][a-z0-9]*:/+|(?<![\w./])/)(?:[^\s'\"`,;)\]/]+/)+[^\s'\"`,;:)\]]*")


def by_sqlstate(sqlstate: str) -> type[EngineError] | None:
    """Return the class of a SQLSTATE; None: unknown."""
    return next((kind for prefix, kind in BY_SQLSTATE if sqlstate.startswith(prefix)), None)


def by_text(text: str) -> type[EngineError] | None:
    """Return the class of a message by known parts of it; None: unknown."""
    return next((kind for part, kind in BY_TEXT if part in text), None)


def short_message(text: str) -> str:
    """Return the first sentence of Spark's message, without plan, SQL, stack trace and paths."""
    text = _EXCEPTION_NAME.sub("", text.strip())
    tail = _SQLSTATE_TAIL.search(text)
    position = (tail["position"] or "").strip("; ()") if tail else ""
    sentence = text[: tail.start()] if tail else text
    sentence = _PATH.sub("...", sentence.split("\n", 1)[0].strip())
    if len(sentence) > _MESSAGE_LIMIT:
        sentence = sentence[: _MESSAGE_LIMIT - 3] + "..."
    return f"{sentence} ({position})" if position else sentence
