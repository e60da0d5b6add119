"""The one place that knows which status of HiveServer2 an error has.

A driver shows the message; the SQLSTATE is for programs. Whatever a query failed with has its code behind it, as over
HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gateway.drivers.hs2.protocol.messages import Status, StatusCode
from gateway.errors import GENERAL, SqlError, UnknownDatabase, UnknownTable, failure_of, message, sqlstate
from gateway.sql.dialects.names import IMPALA
from metastore.records import Failure

# Hive's own exception, in the only form that its driver reads: class, message, and a stack trace of no lines. The hive
# dialect of SQLAlchemy looks for exactly these words to learn that there is no such table.
_HIVE_SAYS_NO_TABLE = "*org.apache.hadoop.hive.ql.parse.SemanticException:Table not found {name}:0:-1"


# What other tools look for in a message to learn the same: those of dbt for Spark and for Impala, which then go on.
_SPARKS_WORDS: Mapping[str, str] = {
    UnknownDatabase.code: "[SCHEMA_NOT_FOUND]",
    UnknownTable.code: "[TABLE_OR_VIEW_NOT_FOUND]",
}
_IMPALAS_WORDS: Mapping[str, str] = {
    UnknownDatabase.code: "[Database does not exist]",
    UnknownTable.code: "[Could not resolve path]",
}


class _Told(Exception):
    """An error, with the dialect of the client that it is told to."""

    def __init__(self, error: SqlError, dialect: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.dialect = dialect


class InvalidHandle(Exception):
    """A session or an operation that there is not, or that belongs to somebody else."""


@contextmanager
def told_in(dialect: str) -> Iterator[None]:
    """Have errors be told in the words by which tools know them that speak a dialect."""
    try:
        yield
    except (UnknownDatabase, UnknownTable) as error:
        raise _Told(error, dialect) from error


def message_in(dialect: str, failure: Failure) -> str:
    """Return what a driver shows, with the words by which tools know it that speak a dialect."""
    words = (_IMPALAS_WORDS if dialect == IMPALA else _SPARKS_WORDS).get(failure.code)
    return f"{message(failure)} {words}" if words else message(failure)


def status_of(error: Exception) -> Status:
    """Return the status that tells a client of an error. Of a defect nothing is told but that there is one."""
    if isinstance(error, InvalidHandle):
        return Status(StatusCode.INVALID_HANDLE, sqlstate=GENERAL, error_code=0, message=str(error))
    if isinstance(error, _Told):
        status = status_of(error.error)
        status.message = message_in(error.dialect, failure_of(error.error))
        return status
    failure = failure_of(error)
    status = Status(StatusCode.ERROR, sqlstate=sqlstate(failure), error_code=0, message=message(failure))
    if isinstance(error, UnknownTable) and error.name is not None:
        status.info_messages = [_HIVE_SAYS_NO_TABLE.format(name=error.name)]
    return status
