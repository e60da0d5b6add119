"""Errors of the gateway itself, each with its code, kind, SQLSTATE and words.

FusionError             sql/errors.py
  SqlError              sql/errors.py: a statement is refused before any engine sees it
  EngineError           engines/errors.py: an engine failed
  SessionError          a session refuses a setting or a statement
  RequestError          a request is wrong, or asks for something that does not exist
  Unavailable           not now; the same may work soon
  CommandFailed         an accepted command failed
  WriteFailed           an accepted write failed
  ResultError           rows cannot be kept, or are not kept any more
  QueryFailed           a query that a client waited for failed; it has the code of its failure

A new error is a class with a kind: each door knows the status of every kind (``http/errors.py``,
``drivers/flight/errors.py``).

It is long because it is one list, to be read side by side.
"""

from __future__ import annotations

from collections.abc import Mapping

from engines.errors import EngineFault
from sql.errors import ErrorKind, Failure, FusionError

# ---------------------------------------------------------------------- sessions and logins


class AuthenticationFailed(FusionError):
    """The login is missing or wrong; the message does not say which part of it."""

    code = "AUTHENTICATION_FAILED"
    kind = ErrorKind.UNAUTHENTICATED
    sqlstate = "28000"


class LoginExpired(AuthenticationFailed):
    """The token has expired, or the session has lasted as long as a session of its login may."""

    code = "LOGIN_EXPIRED"


class SessionError(FusionError):
    """A session refuses a setting or a statement."""

    kind = ErrorKind.INVALID


class InvalidSetting(SessionError):
    """A setting of the gateway does not exist, or cannot have this value."""

    code = "INVALID_SETTING"
    sqlstate = "42000"


class SettingNotObeyed(SessionError):
    """A setting of another product would change how statements run there, and does not here."""

    code = "SETTING_NOT_OBEYED"
    sqlstate = "0A000"


class SessionFull(SessionError):
    """The session's settings and temporary views are as large as they may be."""

    code = "SESSION_FULL"
    kind = ErrorKind.EXHAUSTED
    sqlstate = "54000"


class TooManySessions(SessionError):
    """As many sessions are open as the settings allow, of one user or in total."""

    code = "TOO_MANY_SESSIONS"
    kind = ErrorKind.EXHAUSTED
    sqlstate = "53300"


class TooManyOperations(SessionError):
    """A session has as many statements as it may."""

    code = "TOO_MANY_OPERATIONS"
    kind = ErrorKind.EXHAUSTED


# ---------------------------------------------------------------------- calls


class RequestError(FusionError):
    """A request is wrong, or asks for something that does not exist."""

    kind = ErrorKind.INVALID

    def __init__(self, message: str, query_id: str | None = None) -> None:
        super().__init__(message)
        self.query_id = query_id
        """Query that the request was about; None: no query."""


class BadRequest(RequestError):
    """The request does not follow its protocol."""

    code = "BAD_REQUEST"


class InvalidBody(RequestError):
    """A field of the request is missing or has an invalid value."""

    code = "INVALID_BODY"


class WrongContentType(RequestError):
    """The address does not take bodies of this content type."""

    code = "WRONG_CONTENT_TYPE"


class NotFound(RequestError):
    """Nothing has this name or id."""

    code = "NOT_FOUND"
    kind = ErrorKind.NOT_FOUND


class NameInUse(RequestError):
    """Another user has the name already."""

    code = "NAME_IN_USE"
    kind = ErrorKind.EXISTS


class MethodNotAllowed(RequestError):
    """The address exists, but does not take this method."""

    code = "METHOD_NOT_ALLOWED"


class NotOffered(RequestError):
    """A part of a protocol that the gateway does not implement; clients fall back to another part."""

    code = "NOT_ALLOWED"
    kind = ErrorKind.DENIED
    sqlstate = "42501"


class UnknownEngine(RequestError):
    """A statement asked for an engine that is not configured."""

    code = "UNKNOWN_ENGINE"


class NotYourQuery(RequestError):
    """The query belongs to somebody else."""

    code = "NOT_YOUR_QUERY"
    kind = ErrorKind.DENIED


class NotFinished(RequestError):
    """The query has no result, or none yet."""

    code = "NOT_FINISHED"
    kind = ErrorKind.FAILED_PRECONDITION


class UnknownHost(RequestError):
    """The request names a host that is not the gateway."""

    code = "UNKNOWN_HOST"


class CrossSiteRequest(RequestError):
    """A page of another site made a browser send a request that changes something."""

    code = "CROSS_SITE_REQUEST"
    kind = ErrorKind.DENIED


class InternalError(RequestError):
    """A defect; the gateway's log says more."""

    code = "INTERNAL"
    kind = ErrorKind.INTERNAL
    how_failed = "failed; its log says why"


class QueryFailed(FusionError):
    """A query that a client waited for failed. It has the code and the words of that failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message, failure.position)
        self._failure = failure

    @property
    def failure(self) -> Failure:
        """Return the failure of the query."""
        return self._failure


# ---------------------------------------------------------------------- not now


class Unavailable(FusionError):
    """Not now; the same may work soon."""

    kind = ErrorKind.UNAVAILABLE


class TooManyQueries(Unavailable):
    """As many queries are running or waiting as the settings allow, of one user or in total."""

    code = "TOO_MANY_QUERIES"
    sqlstate = "53300"


class PoolFull(Unavailable):
    """The statement's pool is full, and its settings refuse statements then."""

    code = "POOL_FULL"
    sqlstate = "53300"
    how_failed = "found its pool full"


class ObjectStoreUnavailable(Unavailable):
    """An object store does not answer, or answers with an error of its own."""

    code = "OBJECT_STORE_UNAVAILABLE"
    sqlstate = "08006"
    how_failed = "could not reach the store of the tables' files"


class ObjectCacheFull(Unavailable):
    """A statement reads more of object stores than may lie on the gateway's machine."""

    code = "OBJECT_CACHE_FULL"
    kind = ErrorKind.EXHAUSTED
    sqlstate = "53100"
    how_failed = "had no room for the columns of the tables"


class TooManyDownloads(Unavailable):
    """As many results are being downloaded as the settings allow, of one user or in total."""

    code = "TOO_MANY_DOWNLOADS"
    kind = ErrorKind.EXHAUSTED
    sqlstate = "53300"


class TooManyCalls(Unavailable):
    """The user has as many calls open as one user may have."""

    code = "TOO_MANY_CALLS"
    kind = ErrorKind.EXHAUSTED
    sqlstate = "53300"


class TooManyRequests(Unavailable):
    """As many requests other than statements are running as the settings allow, of one user or in total."""

    code = "TOO_MANY_REQUESTS"
    sqlstate = "53300"


class BodiesFull(Unavailable):
    """There is no memory left for the bodies of requests, of one user or in total."""

    code = "BODIES_FULL"
    sqlstate = "53200"


class NoEngineAvailable(Unavailable):
    """No engine that may run the statement is available."""

    code = "NO_ENGINE_AVAILABLE"
    sqlstate = "57P03"


class IdentityProviderUnavailable(Unavailable):
    """The identity provider or the directory that has to prove a login does not answer."""

    code = "IDENTITY_PROVIDER_UNAVAILABLE"
    sqlstate = "08006"


class MetastoreUnavailable(Unavailable):
    """The metastore does not answer."""

    code = "METASTORE_UNAVAILABLE"


class GatewayStopped(Unavailable):
    """The gateway is stopping and accepts nothing new, or stopped before a query ended."""

    code = "GATEWAY_STOPPED"
    sqlstate = "57P01"
    how_failed = "was interrupted when the gateway stopped"


class GatewayLost(Unavailable):
    """The gateway that ran a query gave no sign of life, and the others took it for dead."""

    code = "GATEWAY_LOST"
    sqlstate = "57P01"
    how_failed = "was interrupted when its gateway died"


# ---------------------------------------------------------------------- commands, writes, results


class CommandFailed(FusionError):
    """An accepted command failed."""

    kind = ErrorKind.INTERNAL


class StatisticsFailed(CommandFailed):
    """A statistics job failed."""

    code = "STATISTICS_FAILED"
    how_failed = "could not compute the statistics"


class JobRunning(CommandFailed):
    """A table's statistics are being computed already."""

    code = "JOB_RUNNING"
    kind = ErrorKind.FAILED_PRECONDITION
    how_failed = "found the statistics being computed already"


class NothingToAmend(CommandFailed):
    """A value set by hand needs another one that is not known, such as the table's rows."""

    code = "NOTHING_TO_AMEND"
    kind = ErrorKind.INVALID
    how_failed = "knew nothing that the value could stand beside"


class NoSession(CommandFailed):
    """A setting or a temporary view needs a session, and this interface has none."""

    code = "NO_SESSION"
    kind = ErrorKind.INVALID
    how_failed = "has no session here that could keep it"


class WriteFailed(FusionError):
    """An accepted write failed; the table is unchanged."""

    code = "WRITE_FAILED"
    kind = ErrorKind.INTERNAL
    how_failed = "could not put the rows into the table, which is as it was"


class WritePending(WriteFailed):
    """A write is committed and will appear later: it must not be sent again."""

    code = "WRITE_PENDING"
    how_failed = "could not put the rows into the table yet; they will come"


class TableBusy(WriteFailed):
    """Others kept committing to the table for longer than a statement waits."""

    code = "TABLE_BUSY"
    kind = ErrorKind.CONFLICT
    how_failed = "found others writing to the table for too long"


class WriteConflict(WriteFailed):
    """Others changed the table's files during each attempt to rewrite its rows."""

    code = "WRITE_CONFLICT"
    kind = ErrorKind.CONFLICT
    sqlstate = "40001"
    how_failed = "found the table changed by others while it rewrote rows of it, again and again"


class SeveralMatches(WriteFailed):
    """A row of a MERGE's target matches several rows of its source, so it is not clear which one applies."""

    code = "MERGE_CARDINALITY_VIOLATION"
    kind = ErrorKind.INVALID
    sqlstate = "23K01"
    how_failed = "found a row that meets several rows of the source; the table is as it was"


class ResultError(FusionError):
    """Rows cannot be kept, or are not kept any more."""

    kind = ErrorKind.EXHAUSTED


class ResultTooLarge(ResultError):
    """A result, or one of its rows, is larger than the settings allow."""

    code = "RESULT_TOO_LARGE"
    how_failed = "gave a result that is larger than the gateway keeps"


class ResultStoreFull(ResultError):
    """The disk for results is full."""

    code = "RESULT_STORE_FULL"
    how_failed = "gave a result that the gateway had no room for"


class ResultInterrupted(ResultError):
    """A query failed after clients had read rows of its result, so no other engine can answer it."""

    code = "RESULT_INTERRUPTED"
    kind = ErrorKind.INTERNAL
    how_failed = "gave a part of the rows before the query failed"

    def __init__(self, sent_rows: int, why: str) -> None:
        super().__init__(f"The query failed after {sent_rows:,} rows of its result had been given: {why}")
        self.sent_rows = sent_rows


class ResultGone(ResultError):
    """The result of a query is no longer kept."""

    code = "RESULT_GONE"
    kind = ErrorKind.NOT_FOUND

    def __init__(self, query_id: str) -> None:
        super().__init__("The result is no longer kept.")
        self.query_id = query_id


# ---------------------------------------------------------------------- schedules


class ScheduleInvalid(FusionError):
    """A schedule cannot be defined like this; the message names the part that is wrong."""

    code = "INVALID_SCHEDULE"
    kind = ErrorKind.INVALID


class UnknownTimeZone(ScheduleInvalid):
    """There is no time zone of this name."""

    code = "UNKNOWN_TIME_ZONE"


class ScheduleTaken(FusionError):
    """There is already a schedule of this name."""

    code = "SCHEDULE_EXISTS"
    kind = ErrorKind.EXISTS


class SchedulePaused(FusionError):
    """Somebody paused the schedule; resume it first."""

    code = "SCHEDULE_PAUSED"
    kind = ErrorKind.FAILED_PRECONDITION


# ---------------------------------------------------------------------- any error, for a client


ERRORS: Mapping[str, type[FusionError]] = {error.code: error for error in reversed(tuple(FusionError.with_codes()))}
"""All errors by their codes."""


def error_class(code: str) -> type[FusionError]:
    """Return the class of a code. Codes of earlier releases and of other packages' engines count as faults."""
    return ERRORS.get(code, EngineFault)


def message(failure: Failure) -> str:
    """Return the message for a driver, whose protocol has no field for the place in the statement."""
    if failure.position is None:
        return failure.message
    return f"{failure.message} (line {failure.position.line}, column {failure.position.column})"


def sqlstate(failure: Failure) -> str:
    """Return the SQLSTATE of a failure."""
    return error_class(failure.code).sqlstate
