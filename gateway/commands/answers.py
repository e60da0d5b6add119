"""What statements that change something answer: nothing, how many rows they wrote, or, in Impala's dialect, words."""

from __future__ import annotations

from typing import TypeGuard

import pyarrow as pa

from gateway.sql.commands.commands import (
    WITHOUT_ROWS,
    Command,
    CreateDatabase,
    CreateView,
    DropView,
    SetOwner,
)
from gateway.sql.commands.definitions import (
    AddPartitions,
    OwnedKind,
    RegisterTable,
    Rename,
    SetComment,
    SetProperties,
    UnsetProperties,
)
from gateway.sql.commands.writes import (
    WRITES,
    AddColumns,
    ChangeRows,
    CreateTable,
    DropDatabase,
    DropTable,
    InsertInto,
    InsertIntoSeveral,
    Truncate,
    Write,
    queries_of,
)
from gateway.sql.dialects.names import IMPALA

SUMMARY = pa.schema([("summary", pa.string())])


def answer(command: Command | Write, dialect: str, table: pa.Table) -> pa.Table:
    """Return the rows that a client sees of a command's own."""
    if dialect != IMPALA:
        return table
    told: str | None
    if isinstance(command, CreateTable) and command.query is not None:
        rows = table.column(0)[0].as_py()
        told = "Inserted rows" if rows is None else f"Inserted {rows} row(s)"
    else:
        told = _impala_words(command)
    return table if told is None else pa.table([[told]], schema=SUMMARY)


def has_rows(command: Command | Write | None, dialect: str) -> bool:
    """Tell whether clients fetch rows of a statement; of what is not read yet, as if it were a query."""
    if not isinstance(command, WITHOUT_ROWS + WRITES):
        return True
    return dialect == IMPALA and (isinstance(command, CreateTable) or _impala_words(command) is not None)


def writes_rows(command: Command | Write | None) -> TypeGuard[Write]:
    """Tell whether a statement is one that has an engine write rows."""
    return isinstance(command, ChangeRows) or (isinstance(command, WRITES) and bool(queries_of(command)))


def _impala_words(command: Command | Write) -> str | None:
    """Return what Impala says when a statement is done, None where it says nothing."""
    match command:
        case InsertInto() | InsertIntoSeveral():
            return None
        case CreateTable() | RegisterTable():
            return "Table has been created."
        case DropTable(existing=existing):
            return "Table has been dropped." if existing else "Table does not exist."
        case Truncate(partitions=None):
            return "Table has been truncated."
        case Truncate():
            return "Dropped the partition(s)."
        case AddColumns():
            return "New column(s) have been added to the table."
        case AddPartitions():
            return "New partition has been added to the table."
        case CreateDatabase():
            return "Database has been created."
        case DropDatabase():
            return "Database has been dropped."
        case CreateView(replace=True):
            return "View has been altered."
        case CreateView():
            return "View has been created."
        case DropView():
            return "View has been dropped."
        case Rename():
            return "Renaming was successful."
        case SetComment(kind=kind) | SetProperties(kind=kind) | UnsetProperties(kind=kind) | SetOwner(kind=kind):
            return "Updated database." if kind is OwnedKind.DATABASE else f"Updated {kind}."
        case _:
            return None
