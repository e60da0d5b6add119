"""What can go wrong in the gateway: one tree, each error with its code, its SQLSTATE and its words.

GatewayError
  SqlError              a statement is refused before any engine sees it
  SessionError          what a session refuses
  RequestError          a call that cannot be as it is, or asks for what is not there
  Unavailable           not now; the same may work soon
  CommandFailed         a command that was accepted came to nothing
  WriteFailed           a write that was accepted came to nothing
  ResultError           rows that cannot be kept, or are kept no more
  ScheduleError         a schedule that cannot be as asked
  AuthenticationFailed  who asks is not known
  QueryFailed           a query that a client waited for came to nothing; its code is that of what it failed with

A new error is a class here, and a line in the status table of each door whose default does not fit (``http/errors.py``,
``drivers/flight/errors.py``). What engines raise has a tree of its own (``engines/errors.py``).

It is long because it is one list, to be read side by side.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import ClassVar

from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from engines.errors import EngineError
from metastore.records import Failure, Position

log = logging.getLogger(__name__)


class GatewayError(Exception):
    """Base. message: for the person who asked. position: where in the statement, if it is one place.

    code: stable, for programs. sqlstate: for drivers. why_refused completes "Refused: ...", where a statement was not
    accepted; how_failed completes "The gateway ...", where it was.
    """

    code: ClassVar[str]
    sqlstate: ClassVar[str] = "HY000"
    why_refused: ClassVar[str | None] = None
    how_failed: ClassVar[str | None] = None

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position

    @property
    def failure(self) -> Failure:
        """What is put on record of it."""
        return Failure(self.code, self.message, self.position)


# ---------------------------------------------------------------------- statements


class SqlError(GatewayError):
    """A statement is refused before any engine sees it."""


class EmptyStatement(SqlError):
    """Nothing but white space, comments or semicolons."""

    code = "EMPTY_STATEMENT"
    sqlstate = "42601"
    why_refused = "it is empty"


class MultipleStatements(SqlError):
    """More than one statement in one request."""

    code = "MULTIPLE_STATEMENTS"
    sqlstate = "42601"
    why_refused = "it is more than one statement"


class StatementTooLong(SqlError):
    """The text is longer than the gateway accepts."""

    code = "STATEMENT_TOO_LONG"
    sqlstate = "54000"
    why_refused = "it is too long"


class StatementTooDeep(SqlError):
    """Brackets or sub-queries are nested too deep."""

    code = "STATEMENT_TOO_DEEP"
    sqlstate = "54001"
    why_refused = "it is nested too deep"


class StatementTooComplex(SqlError):
    """Planning the statement would take too much time or memory, however short its text is."""

    code = "STATEMENT_TOO_COMPLEX"
    sqlstate = "54001"
    why_refused = "planning it would take too much time or memory"


class UnknownDialect(SqlError):
    """The request named a dialect that the gateway does not read."""

    code = "UNKNOWN_DIALECT"
    why_refused = "its dialect is not known"


class SyntaxInvalid(SqlError):
    """The text is not SQL of its dialect."""

    code = "SYNTAX_ERROR"
    sqlstate = "42601"
    why_refused = "it cannot be parsed"


class UnknownTable(SqlError):
    """A table is not registered. name: as it was asked for, where a command did."""

    code = "UNKNOWN_TABLE"
    sqlstate = "42S02"
    why_refused = "it names a table that is not registered"
    how_failed = "found the table gone"

    def __init__(self, message: str, position: Position | None = None, *, name: str | None = None) -> None:
        super().__init__(message, position)
        self.name = name


class TableUnreadable(SqlError):
    """The files of a table, or what is stored of it or of a view, cannot be used."""

    code = "TABLE_UNREADABLE"
    why_refused = "what is stored of a table or view that it names cannot be used"
    how_failed = "could not read the table's files"


class UnknownDatabase(SqlError):
    """There is no database of this name."""

    code = "UNKNOWN_DATABASE"
    sqlstate = "3D000"
    why_refused = "it names a database that is not there"
    how_failed = "found the database gone"


class DatabaseExists(SqlError):
    """A database that a statement would make is there already."""

    code = "DATABASE_EXISTS"
    sqlstate = "42P04"
    why_refused = "it makes a database that is there already"
    how_failed = "found a database of that name already"


class DatabaseNotEmpty(SqlError):
    """A database that is to be dropped holds tables or views."""

    code = "DATABASE_NOT_EMPTY"
    sqlstate = "2BP01"
    why_refused = "it drops a database that holds tables or views"
    how_failed = "found tables or views in the database"


class TableExists(SqlError):
    """A table that a statement would make is there already."""

    code = "TABLE_EXISTS"
    why_refused = "it makes what is there already"
    how_failed = "found a table or view of that name already"


class TableInMotion(SqlError):
    """Others register the table in another way each time that its files are looked at."""

    code = "TABLE_CHANGED"
    why_refused = "others were registering its table anew at the same time"


class UnknownColumn(SqlError):
    """A column is in none of the tables it could come from."""

    code = "UNKNOWN_COLUMN"
    sqlstate = "42S22"
    why_refused = "it names a column that is not there"


class UnknownPartition(SqlError):
    """No partition of the table matches the conditions."""

    code = "UNKNOWN_PARTITION"
    sqlstate = "42000"
    why_refused = "it names a partition that is not there"
    how_failed = "found no such partition"


class PartitionExists(SqlError):
    """A partition is to be added that the table has."""

    code = "PARTITION_EXISTS"
    sqlstate = "42000"
    why_refused = "there is such a partition"


class UnknownVariable(SqlError):
    """A variable has no value in the session."""

    code = "UNKNOWN_VARIABLE"
    sqlstate = "42000"
    why_refused = "it names a variable that its session has not set"


class UnknownProperty(SqlError):
    """A key in SET TBLPROPERTIES or SET COLUMN STATS is none of those that can be set."""

    code = "UNKNOWN_PROPERTY"
    sqlstate = "42000"
    why_refused = "it sets a property that cannot be set"


class ValueOutOfRange(SqlError):
    """A value is not of its kind, or outside of what makes sense in its place."""

    code = "VALUE_OUT_OF_RANGE"
    sqlstate = "22003"
    why_refused = "it holds a value that makes no sense in its place"


class NotAllowed(SqlError):
    """The statement does something that this endpoint does not do."""

    code = "NOT_ALLOWED"
    sqlstate = "42501"
    why_refused = "it does what is not allowed here"


class LocationRefused(NotAllowed):
    """A table must not lie there."""


class RootsRequired(LocationRefused):
    """Users log in, but nobody said where tables may lie."""

    code = "ROOTS_REQUIRED"
    why_refused = "nobody said where tables may lie"


class AccessDenied(SqlError):
    """The user may not do this; the message says what is missing and whom to ask."""

    code = "ACCESS_DENIED"
    sqlstate = "42501"
    why_refused = "its user may not do that"


class RuleDenied(SqlError):
    """A routing rule denies the statement. rule: its name."""

    code = "RULE_DENIED"
    sqlstate = "42501"
    why_refused = "a routing rule denies it"

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class RuleForbidsEngine(RuleDenied):
    """A routing rule keeps the statement from the engine that its client asked for by name."""

    code = "RULE_FORBIDS_ENGINE"
    why_refused = "a routing rule keeps it from the engine that it asks for"


# ---------------------------------------------------------------------- sessions and logins


class AuthenticationFailed(GatewayError):
    """The login is missing or wrong; the message does not say which part of it."""

    code = "AUTHENTICATION_FAILED"
    sqlstate = "28000"


class SessionError(GatewayError):
    """What a session refuses."""


class InvalidSetting(SessionError):
    """A setting of ours that there is not, or a value that it cannot have."""

    code = "INVALID_SETTING"
    sqlstate = "42000"


class SettingNotObeyed(SessionError):
    """A setting of another product that would change what statements do, and does not here."""

    code = "SETTING_NOT_OBEYED"
    sqlstate = "0A000"


class SessionFull(SessionError):
    """The session's settings and temporary views take as much as they may."""

    code = "SESSION_FULL"
    sqlstate = "54000"


class TooManySessions(SessionError):
    """As many sessions are open as the settings allow, of one user or in total."""

    code = "TOO_MANY_SESSIONS"
    sqlstate = "53300"


class TooManyOperations(SessionError):
    """A session has as many statements as it may."""

    code = "TOO_MANY_OPERATIONS"


# ---------------------------------------------------------------------- calls


class RequestError(GatewayError):
    """A call that cannot be as it is, or asks for what is not there. query_id: that it was about."""

    def __init__(self, message: str, query_id: str | None = None) -> None:
        super().__init__(message)
        self.query_id = query_id


class BadRequest(RequestError):
    """What was sent is not of its protocol."""

    code = "BAD_REQUEST"


class InvalidBody(RequestError):
    """A field of the request is missing, or has a value that it cannot have."""

    code = "INVALID_BODY"


class WrongContentType(RequestError):
    """The body is of a kind that the address does not take."""

    code = "WRONG_CONTENT_TYPE"


class NotFound(RequestError):
    """There is nothing of that name or id."""

    code = "NOT_FOUND"


class MethodNotAllowed(RequestError):
    """The address is there, and does not do that."""

    code = "METHOD_NOT_ALLOWED"


class NotOffered(RequestError):
    """A part of a protocol that is not here; clients take another way, where there is one."""

    code = "NOT_ALLOWED"
    sqlstate = "42501"


class UnknownEngine(RequestError):
    """A statement asked for an engine that is not configured."""

    code = "UNKNOWN_ENGINE"


class NotYourQuery(RequestError):
    """The query belongs to somebody else."""

    code = "NOT_YOUR_QUERY"


class NotFinished(RequestError):
    """A query that a client wants rows of has not come to its end."""

    code = "NOT_FINISHED"


class UnknownHost(RequestError):
    """The request names a host that the gateway is not."""

    code = "UNKNOWN_HOST"


class CrossSiteRequest(RequestError):
    """A page of another site asks a browser to change something here."""

    code = "CROSS_SITE_REQUEST"


class InternalError(RequestError):
    """A defect; the gateway's log says more."""

    code = "INTERNAL"
    how_failed = "failed; its log says why"


class QueryFailed(GatewayError):
    """A query that a client waited for came to nothing. Its code is that of what it failed with."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message, failure.position)
        self._failure = failure

    @property
    def failure(self) -> Failure:
        """What the query failed with."""
        return self._failure


# ---------------------------------------------------------------------- not now


class Unavailable(GatewayError):
    """Not now; the same may work soon."""


class TooManyQueries(Unavailable):
    """As many queries are alive as the settings allow, of one user or in total."""

    code = "TOO_MANY_QUERIES"
    sqlstate = "53300"


class PoolFull(Unavailable):
    """The statement's pool has no room, and is set up to refuse what it has no room for."""

    code = "POOL_FULL"
    sqlstate = "53300"
    how_failed = "found its pool full"


class TooManyDownloads(Unavailable):
    """As many replies of rows are under way as the settings allow, of one user or in total."""

    code = "TOO_MANY_DOWNLOADS"
    sqlstate = "53300"


class TooManyCalls(Unavailable):
    """As many calls are open as one user may have."""

    code = "TOO_MANY_CALLS"
    sqlstate = "53300"


class NoEngineAvailable(Unavailable):
    """No engine that may run the statement is there."""

    code = "NO_ENGINE_AVAILABLE"
    sqlstate = "57P03"


class MetastoreUnavailable(Unavailable):
    """The metastore does not answer."""

    code = "METASTORE_UNAVAILABLE"


class GatewayStopped(Unavailable):
    """The gateway is about to stop and takes nothing new, or stopped before a query ended."""

    code = "GATEWAY_STOPPED"
    sqlstate = "57P01"
    how_failed = "was interrupted when the gateway stopped"


# ---------------------------------------------------------------------- commands, writes, results


class CommandFailed(GatewayError):
    """A command that was accepted came to nothing."""


class StatisticsFailed(CommandFailed):
    """A job of statistics came to nothing."""

    code = "STATISTICS_FAILED"
    how_failed = "could not compute the statistics"


class JobRunning(CommandFailed):
    """A table's statistics are being computed already."""

    code = "JOB_RUNNING"
    how_failed = "found the statistics being computed already"


class JobElsewhere(CommandFailed):
    """The job runs in a process that this gateway did not start and does not end."""

    code = "JOB_ELSEWHERE"


class NothingToAmend(CommandFailed):
    """A value that is set by hand would stand alone."""

    code = "NOTHING_TO_AMEND"
    how_failed = "knew nothing that the value could stand beside"


class NoSession(CommandFailed):
    """A temporary view needs a session that keeps it."""

    code = "NO_SESSION"
    how_failed = "has no session here that could keep it"


class WriteFailed(GatewayError):
    """A write that was accepted came to nothing; the table is as it was."""

    code = "WRITE_FAILED"
    how_failed = "could not put the rows into the table, which is as it was"


class WritePending(WriteFailed):
    """A write is committed and only late: it must not be sent again."""

    code = "WRITE_PENDING"
    how_failed = "could not put the rows into the table yet; they will come"


class TableBusy(WriteFailed):
    """Somebody else commits to the table for longer than one waits."""

    code = "TABLE_BUSY"
    how_failed = "found others writing to the table for too long"


class WriteConflict(WriteFailed):
    """Others change the table's files each time that its rows are rewritten."""

    code = "WRITE_CONFLICT"
    sqlstate = "40001"
    how_failed = "found the table changed by others while it rewrote rows of it, again and again"


class SeveralMatches(WriteFailed):
    """A row of a MERGE's target meets several rows of its source, so that it is not clear which of them counts."""

    code = "MERGE_CARDINALITY_VIOLATION"
    sqlstate = "23K01"
    how_failed = "found a row that meets several rows of the source; the table is as it was"


class ResultError(GatewayError):
    """Rows that cannot be kept, or are kept no more."""


class ResultTooLarge(ResultError):
    """A result, or a row of it, grew past what the gateway keeps of one query."""

    code = "RESULT_TOO_LARGE"
    how_failed = "gave a result that is larger than the gateway keeps"


class ResultStoreFull(ResultError):
    """The disk under the results cannot take this one."""

    code = "RESULT_STORE_FULL"
    how_failed = "gave a result that the gateway had no room for"


class ResultInterrupted(ResultError):
    """A query failed after rows of its result had been given, and what it failed with leaves no way to go on.

    given_rows: at most; the last ones may not have come to the client.
    """

    code = "RESULT_INTERRUPTED"
    how_failed = "gave a part of the rows before the query failed"

    def __init__(self, given_rows: int, why: str) -> None:
        super().__init__(f"The query failed after {given_rows:,} rows of its result had been given: {why}")
        self.given_rows = given_rows


class ResultGone(ResultError):
    """The result of a query is no longer kept."""

    code = "RESULT_GONE"

    def __init__(self, query_id: str) -> None:
        super().__init__("The result is no longer kept.")
        self.query_id = query_id


# ---------------------------------------------------------------------- schedules


class ScheduleError(GatewayError):
    """A schedule that cannot be as asked."""


class ScheduleInvalid(ScheduleError):
    """A schedule cannot be as it was asked for; the message says what is wrong with it."""

    code = "INVALID_SCHEDULE"


class UnknownTimeZone(ScheduleInvalid):
    """There is no time zone of this name."""

    code = "UNKNOWN_TIME_ZONE"


class ScheduleUnknown(ScheduleError):
    """There is no schedule of this name."""

    code = "NOT_FOUND"


class ScheduleTaken(ScheduleError):
    """A schedule of this name is there already."""

    code = "SCHEDULE_EXISTS"


class SchedulePaused(ScheduleError):
    """It is paused: somebody wants it not to run."""

    code = "SCHEDULE_PAUSED"


# ---------------------------------------------------------------------- what an error says


GENERAL = "HY000"
DEFECT = InternalError("The gateway failed; its log says why.").failure
NO_METASTORE = MetastoreUnavailable("The metastore does not answer; try again soon.").failure
MAPPED = (GatewayError, EngineError, SQLAlchemyError)
"""What calls fail with. Anything else is a defect."""


def kinds(root: type[GatewayError] | type[EngineError]) -> Iterator[type[GatewayError] | type[EngineError]]:
    """Yield a class and all below it, the nearest first, where they have a code."""
    if "code" in vars(root):
        yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


KINDS: Mapping[str, type[GatewayError] | type[EngineError]] = {
    kind.code: kind for root in (EngineError, GatewayError) for kind in reversed(tuple(kinds(root)))
}
"""All errors by their codes."""


def failure_of(error: Exception) -> Failure:
    """Return what an error says. Whatever is not one of MAPPED is a defect, and stays in the log."""
    match error:
        case GatewayError():
            return error.failure
        case EngineError():
            return Failure(error.code, error.message)
        case OperationalError() | InterfaceError():
            log.warning("the metastore does not answer: %s", error.orig)  # as it says of each statement meanwhile
            return NO_METASTORE
        case SQLAlchemyError():
            log.error("the metastore failed", exc_info=error)
            return NO_METASTORE
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
    return KINDS[failure.code].sqlstate if failure.code in KINDS else GENERAL
