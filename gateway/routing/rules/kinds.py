"""What kind of statement it is, and which tables it is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from engines.table_names import database_of
from gateway.sql.commands.commands import (
    DESCRIPTIONS,
    LISTINGS,
    Command,
    ComputeIncrementalStats,
    ComputeStats,
    CreateView,
    Describe,
    DropIncrementalStats,
    DropStats,
    DropView,
    Explain,
    Refresh,
    ResetOptions,
    SetColumnStats,
    SetOption,
    SetOwner,
    SetRows,
    ShowColumns,
    ShowColumnStats,
    ShowCreate,
    ShowFiles,
    ShowOptions,
    ShowPartitions,
    ShowProperties,
    ShowTableStats,
    UseDatabase,
)
from gateway.sql.commands.definitions import (
    AddPartitions,
    AnalyzeTables,
    OwnedKind,
    RegisterTable,
    Rename,
    SetComment,
    SetProperties,
    UnsetProperties,
)
from gateway.sql.commands.writes import (
    AddColumns,
    ChangeRows,
    CreateTable,
    DropDatabase,
    DropTable,
    InsertInto,
    InsertIntoSeveral,
    Truncate,
    Write,
    reads,
)
from gateway.sql.compiled import CompiledStatement

Understood = CompiledStatement | Command | Write


class Kind(StrEnum):
    """Kinds of statements, as rules name them."""

    SELECT = "select"
    WRITE = "write"
    """Rows are added, changed or taken away."""

    DDL = "ddl"
    """Tables, views and databases are made, altered and dropped."""

    STATISTICS = "statistics"
    SHOW = "show"
    """The catalog is looked at: SHOW, DESCRIBE."""

    EXPLAIN = "explain"
    SESSION = "session"
    """SET, RESET and USE, which drivers send by themselves."""


USUAL = frozenset({Kind.SELECT, Kind.WRITE, Kind.DDL, Kind.STATISTICS})
"""What a rule that names no kind is about: not what drivers and tools send by themselves."""

_STATISTICS = (
    ComputeStats,
    ComputeIncrementalStats,
    DropStats,
    DropIncrementalStats,
    SetRows,
    SetColumnStats,
    AnalyzeTables,
    Refresh,
)
_SESSION = (UseDatabase, SetOption, ShowOptions, ResetOptions)


def kinds_of(statement: Understood) -> frozenset[Kind]:
    """Return the kinds that a statement is of: one, or two where it makes a table and fills it."""
    match statement:
        case CompiledStatement():
            return frozenset({Kind.SELECT})
        case CreateTable(query=query) if query is not None:
            return frozenset({Kind.WRITE, Kind.DDL})
        case InsertInto() | InsertIntoSeveral() | ChangeRows() | Truncate():
            return frozenset({Kind.WRITE})
        case Explain():
            return frozenset({Kind.EXPLAIN})
    if isinstance(statement, _SESSION):
        return frozenset({Kind.SESSION})
    if isinstance(statement, LISTINGS + DESCRIPTIONS):
        return frozenset({Kind.SHOW})
    return frozenset({Kind.STATISTICS if isinstance(statement, _STATISTICS) else Kind.DDL})


def tables_of(statement: Understood, catalog: Iterable[str]) -> tuple[str, ...]:
    """Return the full names of what a statement reads or changes. catalog: all there are, of which some may go."""
    return tuple(dict.fromkeys(name.lower() for name in _tables(statement, catalog)))


def _tables(statement: Understood, catalog: Iterable[str]) -> Iterator[str]:
    match statement:
        case CompiledStatement(tables=tables):
            yield from (table.name for table in tables)
        case Explain(statement=explained):
            yield from _tables(explained, catalog)
        case CreateView(view=view, query=query):
            yield view
            yield from (table.name for table in query.tables)
        case DropView(view=view):
            yield view
        case InsertIntoSeveral(inserts=inserts):
            yield from (insert.table for insert in inserts)
            yield from (table.name for table in reads(statement))
        case InsertInto() | ChangeRows() | CreateTable():
            yield statement.table
            yield from (table.name for table in reads(statement))
        case DropDatabase(database=database, cascade=cascade):
            yield from (name for name in catalog if cascade and database_of(name) == database)
        case Rename(name=name, new_name=new_name):
            yield from (name, new_name)
        case AnalyzeTables(tables=names):
            yield from names
        case Refresh(table=table):
            yield from catalog if table is None else (table,)
        case SetOwner() | SetComment() | SetProperties() | UnsetProperties():
            if statement.kind is not OwnedKind.DATABASE:
                yield statement.name
        case (
            AddColumns()
            | AddPartitions()
            | ComputeIncrementalStats()
            | ComputeStats()
            | Describe()
            | DropIncrementalStats()
            | DropStats()
            | DropTable()
            | RegisterTable()
            | SetColumnStats()
            | SetRows()
            | ShowColumns()
            | ShowColumnStats()
            | ShowCreate()
            | ShowFiles()
            | ShowPartitions()
            | ShowProperties()
            | ShowTableStats()
            | Truncate()
        ):
            yield statement.table
        case _:
            return
