"""What Spark says when something goes wrong, over whatever protocol: SQLSTATE and words -> the error tree.

Spark names most of its errors by a SQLSTATE, so that decides first; the words come next.
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

BY_TEXT: tuple[tuple[str, type[EngineError]], ...] = (
    ("OutOfMemoryError", MemoryExceeded),
    ("spark.driver.maxResultSize", MemoryExceeded),
    ("is bigger than local result size limit", MemoryExceeded),
)

_MESSAGE_LIMIT = 500
_EXCEPTION_NAME = re.compile(r"^\([\w.$]+\) ")
_SQLSTATE_TAIL = re.compile(r"\.?\s*SQLSTATE: (?P<state>\w{5})(?P<position>;? \(?line \d+,? pos \d+\)?)?")
_PATH = re.compile(r"(?:\b[a-z][a-z0-9]*:/+|(?<![\w./])/)(?:[^\s'\"`,;)\]/]+/)+[^\s'\"`,;:)\]]*")


def by_sqlstate(sqlstate: str) -> type[EngineError] | None:
    """Return what a SQLSTATE means; None where it says nothing."""
    return next((kind for prefix, kind in BY_SQLSTATE if sqlstate.startswith(prefix)), None)


def by_text(text: str) -> type[EngineError] | None:
    """Return what words mean that stand anywhere in a message."""
    return next((kind for part, kind in BY_TEXT if part in text), None)


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
