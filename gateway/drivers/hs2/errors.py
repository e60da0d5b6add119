"""The one place that knows which status of HiveServer2 an error has.

A driver shows the message; the SQLSTATE is for programs. Whatever a query failed with has its code behind it, as over
HTTP.
"""

from __future__ import annotations

from gateway.drivers.hs2.protocol.messages import Status, StatusCode
from gateway.errors import GENERAL, UnknownTable, failure_of, message, sqlstate

# Hive's own exception, in the only form that its driver reads: class, message, and a stack trace of no lines. The hive
# dialect of SQLAlchemy looks for exactly these words to learn that there is no such table.
_HIVE_SAYS_NO_TABLE = "*org.apache.hadoop.hive.ql.parse.SemanticException:Table not found {name}:0:-1"


class InvalidHandle(Exception):
    """A session or an operation that there is not, or that belongs to somebody else."""


def status_of(error: Exception) -> Status:
    """Return the status that tells a client of an error. Of a defect nothing is told but that there is one."""
    if isinstance(error, InvalidHandle):
        return Status(StatusCode.INVALID_HANDLE, sqlstate=GENERAL, error_code=0, message=str(error))
    failure = failure_of(error)
    status = Status(StatusCode.ERROR, sqlstate=sqlstate(failure), error_code=0, message=message(failure))
    if isinstance(error, UnknownTable) and error.name is not None:
        status.info_messages = [_HIVE_SAYS_NO_TABLE.format(name=error.name)]
    return status
