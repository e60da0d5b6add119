"""What an error says, in the house's own terms: a code, a message, an SQLSTATE. The same through every interface.

Which status of its protocol an error has is each interface's own affair, in its ``errors.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sqlalchemy.exc import SQLAlchemyError

from engines.errors import EngineError
from gateway.admission import TooManyQueries
from gateway.coordinator import NO_ENGINE, TOO_MANY, Stopping, UnknownEngine
from gateway.downloads import TooManyDownloads
from gateway.results import ResultGone
from gateway.security.authentication import AuthenticationFailed
from gateway.sessions import SessionError
from gateway.sql.errors import SqlError
from metastore.records import Failure

log = logging.getLogger(__name__)

GENERAL = "HY000"
SQLSTATES: Mapping[str, str] = {
    **{kind.code: kind.sqlstate for kind in EngineError.__subclasses__()},
    "SYNTAX_ERROR": "42601",
    "EMPTY_STATEMENT": "42601",
    "MULTIPLE_STATEMENTS": "42601",
    "STATEMENT_TOO_LONG": "54000",
    "STATEMENT_TOO_DEEP": "54001",
    "STATEMENT_TOO_COMPLEX": "54001",
    "UNKNOWN_TABLE": "42S02",
    "UNKNOWN_COLUMN": "42S22",
    "UNKNOWN_DATABASE": "3D000",
    "UNKNOWN_PARTITION": "42000",
    "UNKNOWN_PROPERTY": "42000",
    "UNKNOWN_VARIABLE": "42000",
    "VALUE_OUT_OF_RANGE": "22003",
    "NOT_ALLOWED": "42501",
    "ACCESS_DENIED": "42501",
    "ROOTS_REQUIRED": "42501",
    "INVALID_SETTING": "42000",
    "SETTING_NOT_OBEYED": "0A000",
    "AUTHENTICATION_FAILED": "28000",
    "SESSION_FULL": "54000",
    "TOO_MANY_SESSIONS": "53300",
    "TOO_MANY_CALLS": "53300",
    TooManyDownloads.code: "53300",
    TOO_MANY: "53300",
    NO_ENGINE: "57P03",
    "GATEWAY_STOPPED": "57P01",
}
DEFECT = Failure("INTERNAL", "The gateway failed; its log says why.")


class CallFailed(Exception):
    """An error that a call raises by itself."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(code, message)


class QueryFailed(Exception):
    """A query that a client waited for came to nothing."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class NotFinished(QueryFailed):
    """A query that a client wants rows of has not come to its end."""


MAPPED = (
    CallFailed,
    QueryFailed,
    SqlError,
    EngineError,
    SessionError,
    AuthenticationFailed,
    TooManyQueries,
    TooManyDownloads,
    Stopping,
    UnknownEngine,
    ResultGone,
    SQLAlchemyError,
)
"""What calls fail with. Anything else is a defect."""


def failure_of(error: Exception) -> Failure:
    """Return what an error says. Whatever is not one of MAPPED is a defect, and stays in the log."""
    match error:
        case CallFailed() | QueryFailed():
            return error.failure
        case SqlError():
            return Failure(error.code, error.message, error.position)
        case EngineError():
            return Failure(error.code, error.message)
        case SessionError():
            return Failure(error.code, str(error))
        case AuthenticationFailed():
            return Failure("AUTHENTICATION_FAILED", str(error))
        case TooManyQueries():
            return Failure(TOO_MANY, str(error))
        case TooManyDownloads():
            return Failure(error.code, str(error))
        case Stopping():
            return Failure(error.code, str(error))
        case UnknownEngine():
            return Failure("UNKNOWN_ENGINE", str(error))
        case ResultGone():
            return Failure("RESULT_GONE", "The result is no longer kept.")
        case SQLAlchemyError():
            log.error("the metastore failed", exc_info=error)
            return Failure("METASTORE_UNAVAILABLE", "The metastore does not answer; try again soon.")
        case _:
            log.error("a call failed", exc_info=error)
            return DEFECT


def message(failure: Failure) -> str:
    """Return what a driver shows: our message, with the place, for which its protocol has no field of its own."""
    if failure.position is None:
        return failure.message
    return f"{failure.message} (line {failure.position.line}, column {failure.position.column})"


def sqlstate(failure: Failure) -> str:
    """Return the SQLSTATE of a failure."""
    return SQLSTATES.get(failure.code, GENERAL)
