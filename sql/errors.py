"""Base of all errors that clients see, and the reasons to refuse a statement before any engine sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a statement, both counted from one."""

    line: int
    column: int


class ErrorKind(StrEnum):
    """Kinds of errors, by what a client can do. Each door has one table from kinds to its own statuses."""

    INVALID = "invalid"
    """The statement or request is wrong; correct it."""
    UNAUTHENTICATED = "unauthenticated"
    """The login is missing or wrong; log in."""
    DENIED = "denied"
    """The user, or everybody, may not do this; ask for the right, or leave it."""
    NOT_FOUND = "not_found"
    """Nothing has this name or id, or it is gone."""
    EXISTS = "exists"
    """The name is in use; choose another one."""
    FAILED_PRECONDITION = "failed_precondition"
    """Something must change first, such as a query that has not finished; then try again."""
    CONFLICT = "conflict"
    """Others changed the same thing at the same time; send it again."""
    EXHAUSTED = "exhausted"
    """A limit of memory, size or number is reached; ask for less, or close something."""
    UNAVAILABLE = "unavailable"
    """A service or a place in a queue is missing at the moment; try again soon."""
    CANCELLED = "cancelled"
    """Somebody cancelled the statement."""
    TIMED_OUT = "timed_out"
    """The statement's time is spent."""
    INTERNAL = "internal"
    """The gateway or an engine failed; the operator finds the cause in the logs."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as clients see it and as the metastore keeps it."""

    code: str
    message: str
    position: Position | None = None


class FusionError(Exception):
    """Base of all errors that clients see."""

    code: ClassVar[str]
    """Stable name, for programs."""
    kind: ClassVar[ErrorKind]
    """Decides the status at each door."""
    sqlstate: ClassVar[str] = "HY000"
    """Standard code, for drivers."""
    why_refused: ClassVar[str | None] = None
    """Completes "Refused: ..."; None: no statement is refused for this."""
    how_failed: ClassVar[str | None] = None
    """Completes "The gateway ..." or "The engine ...", where the statement had been accepted."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.message = message
        """One or two sentences for the person who sent the statement: no paths of the server, no stack traces."""
        self.position = position
        """Place in the statement; None: no single place."""

    @property
    def failure(self) -> Failure:
        """Return the error without its class, as it is recorded."""
        return Failure(self.code, self.message, self.position)

    @classmethod
    def with_codes(cls) -> Iterator[type[Self]]:
        """Yield this class and those below it that have a code of their own, each before those below it."""
        if "code" in vars(cls):
            yield cls
        for subclass in cls.__subclasses__():
            yield from subclass.with_codes()


# ---------------------------------------------------------------------- statements


class SqlError(FusionError):
    """A statement is refused before any engine sees it."""

    kind = ErrorKind.INVALID


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
    kind = ErrorKind.NOT_FOUND
    sqlstate = "42S02"
    why_refused = "it names a table that is not registered"
    how_failed = "found the table gone"

    def __init__(self, message: str, position: Position | None = None, *, name: str | None = None) -> None:
        super().__init__(message, position)
        self.name = name


class TableUnreadable(SqlError):
    """The files of a table, or the stored definition of a table or view, cannot be used."""

    code = "TABLE_UNREADABLE"
    why_refused = "it names a table or view whose files or definition cannot be used"
    how_failed = "could not read the table's files"


class SnapshotNeeded(TableUnreadable):
    """A statement names a snapshot that was not resolved yet; no client sees this error."""

    def __init__(
        self, message: str, position: Position | None = None, *, table: str = "", at: str = "", value: str = ""
    ) -> None:
        super().__init__(message, position)
        self.table = table
        self.at = at
        self.value = value


class UnknownDatabase(SqlError):
    """There is no database of this name."""

    code = "UNKNOWN_DATABASE"
    kind = ErrorKind.NOT_FOUND
    sqlstate = "3D000"
    why_refused = "it names a database that does not exist"
    how_failed = "found the database gone"


class DatabaseExists(SqlError):
    """A database that a statement creates exists."""

    code = "DATABASE_EXISTS"
    kind = ErrorKind.EXISTS
    sqlstate = "42P04"
    why_refused = "it creates a database that exists"
    how_failed = "found a database of that name already"


class DatabaseNotEmpty(SqlError):
    """A database cannot be dropped while it has tables or views."""

    code = "DATABASE_NOT_EMPTY"
    kind = ErrorKind.FAILED_PRECONDITION
    sqlstate = "2BP01"
    why_refused = "it drops a database that has tables or views"
    how_failed = "found tables or views in the database"


class TableExists(SqlError):
    """A table that a statement creates exists."""

    code = "TABLE_EXISTS"
    kind = ErrorKind.EXISTS
    why_refused = "it creates a table or view that exists"
    how_failed = "found a table or view of that name already"


class UnknownRole(SqlError):
    """There is no role of this name."""

    code = "UNKNOWN_ROLE"
    kind = ErrorKind.NOT_FOUND
    sqlstate = "0P000"
    why_refused = "it names a role that does not exist"
    how_failed = "found no such role"


class RoleExists(SqlError):
    """A role that a statement makes exists."""

    code = "ROLE_EXISTS"
    kind = ErrorKind.EXISTS
    sqlstate = "42710"
    why_refused = "it makes a role that exists"
    how_failed = "found a role of that name already"


class UnknownGrant(SqlError):
    """A right or role that a statement takes away was not given by a statement."""

    code = "UNKNOWN_GRANT"
    kind = ErrorKind.NOT_FOUND
    sqlstate = "42704"
    why_refused = "it takes away a right that no statement gave"
    how_failed = "found no such right"


class TableChangedConcurrently(SqlError):
    """Others register the table again each time that its files are inspected."""

    code = "TABLE_CHANGED"
    kind = ErrorKind.CONFLICT
    why_refused = "others registered its table again at the same time"


class UnknownColumn(SqlError):
    """A column is in none of the tables it could come from."""

    code = "UNKNOWN_COLUMN"
    sqlstate = "42S22"
    why_refused = "it names a column that does not exist"


class UnknownPartition(SqlError):
    """No partition of the table matches the conditions."""

    code = "UNKNOWN_PARTITION"
    sqlstate = "42000"
    why_refused = "it names a partition that does not exist"
    how_failed = "found no such partition"


class PartitionExists(SqlError):
    """A partition cannot be added because the table has it."""

    code = "PARTITION_EXISTS"
    kind = ErrorKind.EXISTS
    sqlstate = "42000"
    why_refused = "it adds a partition that exists"


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
    """A value has a wrong type, or is out of its range."""

    code = "VALUE_OUT_OF_RANGE"
    sqlstate = "22003"
    why_refused = "it has a value that is out of range"


class NotAllowed(SqlError):
    """The statement uses something that is not allowed here."""

    code = "NOT_ALLOWED"
    kind = ErrorKind.DENIED
    sqlstate = "42501"
    why_refused = "it uses something that is not allowed here"


class LocationRefused(NotAllowed):
    """A table must not have this location."""


class RootsRequired(LocationRefused):
    """Users log in, but no folders for tables are set."""

    code = "ROOTS_REQUIRED"
    why_refused = "no folders for tables are set"


class AccessDenied(SqlError):
    """The user may not do this; the message says what is missing and whom to ask."""

    code = "ACCESS_DENIED"
    kind = ErrorKind.DENIED
    sqlstate = "42501"
    why_refused = "its user may not do that"


class PolicyInvalid(SqlError):
    """A row filter or column mask cannot be applied; the statement is refused rather than run without it."""

    code = "ACCESS_POLICY_INVALID"
    kind = ErrorKind.FAILED_PRECONDITION
    sqlstate = "55000"
    why_refused = "an access policy of a table cannot be applied"


class RuleDenied(SqlError):
    """A routing rule denies the statement. rule: its name."""

    code = "RULE_DENIED"
    kind = ErrorKind.DENIED
    sqlstate = "42501"
    why_refused = "a routing rule denies it"

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class RuleForbidsEngine(RuleDenied):
    """A routing rule keeps the statement from the engine that its client asked for by name."""

    code = "RULE_FORBIDS_ENGINE"
    why_refused = "a routing rule keeps it from the engine that it asks for"
