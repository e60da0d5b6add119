"""The one place that knows which status of HiveServer2 an error has.

A driver shows the message; the SQLSTATE is for programs. Whatever a query failed with has its code behind it, as over
HTTP; what is raised before there is a query is mapped here too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sqlalchemy.exc import SQLAlchemyError

from engines.errors import EngineError
from gateway.authentication import AuthenticationFailed
from gateway.coordinator import NO_ENGINE, TOO_MANY, TooManyQueries, UnknownEngine
from gateway.hs2.messages import Status, StatusCode
from gateway.results import ResultGone
from gateway.sessions import SessionError
from gateway.sql.errors import SqlError, UnknownTable
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
    "UNKNOWN_TABLE": "42S02",
    "UNKNOWN_COLUMN": "42S22",
    "UNKNOWN_DATABASE": "3D000",
    "UNKNOWN_PARTITION": "42000",
    "UNKNOWN_PROPERTY": "42000",
    "VALUE_OUT_OF_RANGE": "22003",
    "NOT_ALLOWED": "42501",
    "INVALID_SETTING": "42000",
    "AUTHENTICATION_FAILED": "28000",
    "TOO_MANY_SESSIONS": "53300",
    TOO_MANY: "53300",
    NO_ENGINE: "57P03",
    "GATEWAY_STOPPED": "57P01",
}
# Hive's own exception, in the only form that its driver reads: class, message, and a stack trace of no lines. The hive
# dialect of SQLAlchemy looks for exactly these words to learn that there is no such table.
_HIVE_SAYS_NO_TABLE = "*org.apache.hadoop.hive.ql.parse.SemanticException:Table not found {name}:0:-1"


class Hs2Error(Exception):
    """An error that a call raises by itself."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(code, message)


class InvalidHandle(Exception):
    """A session or an operation that there is not, or that belongs to somebody else."""


class QueryFailed(Exception):
    """A query that a client waited for came to nothing."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


MAPPED = (
    Hs2Error,
    InvalidHandle,
    QueryFailed,
    SqlError,
    SessionError,
    AuthenticationFailed,
    TooManyQueries,
    UnknownEngine,
    ResultGone,
    SQLAlchemyError,
)


def status_of(error: Exception) -> Status:
    """Return the status that tells a client of an error, which is one of MAPPED."""
    if isinstance(error, InvalidHandle):
        return Status(StatusCode.INVALID_HANDLE, sqlstate=GENERAL, error_code=0, message=str(error))
    status = failed(failure_of(error))
    if isinstance(error, UnknownTable) and error.name is not None:
        status.info_messages = [_HIVE_SAYS_NO_TABLE.format(name=error.name)]
    return status


def failed(failure: Failure) -> Status:
    """Return the status of a failure."""
    return Status(StatusCode.ERROR, sqlstate=sqlstate(failure), error_code=0, message=message(failure))


def message(failure: Failure) -> str:
    """Return what a driver shows: our message, with the place, for which the protocol has no field of its own."""
    if failure.position is None:
        return failure.message
    return f"{failure.message} (line {failure.position.line}, column {failure.position.column})"


def sqlstate(failure: Failure) -> str:
    """Return the SQLSTATE of a failure."""
    return SQLSTATES.get(failure.code, GENERAL)


def failure_of(error: Exception) -> Failure:
    """Return what an error says, which is one of MAPPED, in the house's own terms."""
    match error:
        case Hs2Error() | QueryFailed():
            return error.failure
        case SqlError():
            return Failure(error.code, error.message, error.position)
        case SessionError():
            return Failure(error.code, str(error))
        case AuthenticationFailed():
            return Failure("AUTHENTICATION_FAILED", str(error))
        case TooManyQueries():
            return Failure(TOO_MANY, str(error))
        case UnknownEngine():
            return Failure("UNKNOWN_ENGINE", str(error))
        case ResultGone():
            return Failure("RESULT_GONE", "The result is no longer kept.")
        case _:
            log.error("the metastore failed", exc_info=error)
            return Failure("METASTORE_UNAVAILABLE", "The metastore does not answer; try again soon.")
