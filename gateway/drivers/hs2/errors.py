"""HiveServer2 statuses of errors.

The protocol has one status for all kinds of errors, ERROR. A driver shows the message; the SQLSTATE is for programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gateway.drivers.hs2.protocol.messages import Status, StatusCode
from gateway.errors import message, sqlstate
from gateway.failures import failure_of
from sql.dialects.names import IMPALA
from sql.errors import Failure, FusionError, SqlError, UnknownDatabase, UnknownTable

# Hive's own exception, in the only form that its driver reads: class, message, and an empty stack trace. SQLAlchemy's
# dialect for Hive looks for exactly these words to learn that a table does not exist.
_HIVES_TABLE_NOT_FOUND = "*org.apache.hadoop.hive.ql.parse.SemanticException:Table not found {name}:0:-1"


# dbt's adapters for Spark and Impala look for these words in a message to learn the same, and then go on.
_SPARKS_WORDS: Mapping[str, str] = {
    UnknownDatabase.code: "[SCHEMA_NOT_FOUND]",
    UnknownTable.code: "[TABLE_OR_VIEW_NOT_FOUND]",
}
_IMPALAS_WORDS: Mapping[str, str] = {
    UnknownDatabase.code: "[Database does not exist]",
    UnknownTable.code: "[Could not resolve path]",
}


class _InDialect(Exception):
    """An error, with the dialect of the client that reads it."""

    def __init__(self, error: SqlError, dialect: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.dialect = dialect


class InvalidHandle(Exception):
    """There is no session or operation of this handle, or it belongs to another user."""


@contextmanager
def errors_in(dialect: str) -> Iterator[None]:
    """Add to errors the words by which tools of a dialect recognise them."""
    try:
        yield
    except (UnknownDatabase, UnknownTable) as error:
        raise _InDialect(error, dialect) from error


def message_in(dialect: str, failure: Failure) -> str:
    """Return the message for a driver, with the words by which tools of a dialect recognise the error."""
    words = (_IMPALAS_WORDS if dialect == IMPALA else _SPARKS_WORDS).get(failure.code)
    return f"{message(failure)} {words}" if words else message(failure)


def status_of(error: Exception) -> Status:
    """Return the status for an error. A defect shows no details."""
    if isinstance(error, InvalidHandle):
        return Status(StatusCode.INVALID_HANDLE, sqlstate=FusionError.sqlstate, error_code=0, message=str(error))
    if isinstance(error, _InDialect):
        status = status_of(error.error)
        status.message = message_in(error.dialect, failure_of(error.error))
        return status
    failure = failure_of(error)
    status = Status(StatusCode.ERROR, sqlstate=sqlstate(failure), error_code=0, message=message(failure))
    if isinstance(error, UnknownTable) and error.name is not None:
        status.info_messages = [_HIVES_TABLE_NOT_FOUND.format(name=error.name)]
    return status
