"""What can be wrong with a statement before any engine sees it.

SqlError
  EmptyStatement      nothing to run
  MultipleStatements  one at a time
  StatementTooLong    more bytes than the gateway reads
  StatementTooDeep    nested deeper than engines' parsers survive
  StatementTooComplex takes too long, or too much memory, to plan
  UnknownDialect      no such dialect
  SyntaxInvalid       cannot be parsed
  UnknownTable        not in the catalog
  TableUnreadable     what is stored of a table or view cannot be used
  UnknownDatabase     not the one that there is
  TableExists         of a table that is to be made
  TableInMotion       registered anew while its files are looked at
  UnknownColumn       not in the tables that the statement names
  UnknownPartition    no folder of the table matches
  UnknownVariable     ${...} without a value in the session
  UnknownProperty     a key that cannot be set
  ValueOutOfRange     a number that makes no sense in its place
  NotAllowed          understood, and refused
  AccessDenied        understood, and refused to this user (gateway/security/policy.py)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

from engines.protocol import TableSource
from metastore.records import Position

SUGGESTIONS = 3


class SqlError(Exception):
    """Base. message: for the person who sent the statement. position: where, if it is one place."""

    code: ClassVar[str] = "SQL_ERROR"

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


class EmptyStatement(SqlError):
    """Nothing but white space, comments or semicolons."""

    code = "EMPTY_STATEMENT"


class MultipleStatements(SqlError):
    """More than one statement in one request."""

    code = "MULTIPLE_STATEMENTS"


class StatementTooLong(SqlError):
    """The text is longer than the gateway accepts."""

    code = "STATEMENT_TOO_LONG"


class StatementTooDeep(SqlError):
    """Brackets or sub-queries are nested too deep."""

    code = "STATEMENT_TOO_DEEP"


class StatementTooComplex(SqlError):
    """Planning the statement would take too much time or memory, however short its text is."""

    code = "STATEMENT_TOO_COMPLEX"


class UnknownDialect(SqlError):
    """The request named a dialect that the gateway does not read."""

    code = "UNKNOWN_DIALECT"


class SyntaxInvalid(SqlError):
    """The text is not SQL of its dialect."""

    code = "SYNTAX_ERROR"


class UnknownTable(SqlError):
    """A table is not registered. name: as it was asked for, where a command did."""

    code = "UNKNOWN_TABLE"

    def __init__(self, message: str, position: Position | None = None, *, name: str | None = None) -> None:
        super().__init__(message, position)
        self.name = name


class TableUnreadable(SqlError):
    """What is stored of a table or view is not safe to use; nobody but its readers is concerned."""

    code = "TABLE_UNREADABLE"


class UnknownDatabase(SqlError):
    """There is one database only."""

    code = "UNKNOWN_DATABASE"


class TableExists(SqlError):
    """A table that a statement would make is there already."""

    code = "TABLE_EXISTS"


class TableInMotion(SqlError):
    """Others register the table in another way each time that its files are looked at."""

    code = "TABLE_CHANGED"


class UnknownColumn(SqlError):
    """A column is in none of the tables it could come from."""

    code = "UNKNOWN_COLUMN"


class UnknownPartition(SqlError):
    """No partition of the table matches the conditions."""

    code = "UNKNOWN_PARTITION"


class UnknownVariable(SqlError):
    """A variable has no value in the session."""

    code = "UNKNOWN_VARIABLE"


class UnknownProperty(SqlError):
    """A key in SET TBLPROPERTIES or SET COLUMN STATS is none of those that can be set."""

    code = "UNKNOWN_PROPERTY"


class ValueOutOfRange(SqlError):
    """A value is not of its kind, or outside of what makes sense in its place."""

    code = "VALUE_OUT_OF_RANGE"


class NotAllowed(SqlError):
    """The statement does something that this endpoint does not do."""

    code = "NOT_ALLOWED"


def require_usable(table: TableSource, position: Position | None = None) -> TableSource:
    """Return a table as it is. Raises TableUnreadable where what is stored of it cannot be used."""
    if table.defect:
        message = f"The table {table.name} cannot be used: {table.defect}. REFRESH it, register it again, or drop it."
        raise TableUnreadable(message, position)
    return table


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the nearest known names as the end of a message."""
    near = difflib.get_close_matches(name.lower(), sorted(known), n=SUGGESTIONS, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else "."
