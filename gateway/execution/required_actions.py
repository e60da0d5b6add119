"""What a statement needs: the actions that its user must be allowed, with the owners of what it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, assert_never

from engines.protocol import TableSource
from engines.table_names import database_of
from gateway.security.policy import Action, Need, Owned
from gateway.sql.commands.commands import (
    DESCRIPTIONS,
    LISTINGS,
    Command,
    ComputeIncrementalStats,
    ComputeStats,
    CreateDatabase,
    CreateView,
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
    ShowOptions,
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
)
from gateway.sql.compiled import CompiledStatement
from metastore.records import Database, View


class OwnedCatalog(Protocol):
    """Tables and views, with the owners of the tables."""

    @property
    def tables(self) -> Mapping[str, TableSource]:
        """Tables by name."""

    @property
    def views(self) -> Mapping[str, View]:
        """Views by name, without those of a session."""

    @property
    def databases(self) -> Mapping[str, Database]:
        """Databases by name."""

    @property
    def owners(self) -> Mapping[str, str | None]:
        """Owners of tables by name."""


def required_actions(checked: CompiledStatement | Command | Write, catalog: OwnedCatalog) -> Iterator[Need]:
    """Yield the actions that a statement needs."""
    yield Need(Action.QUERY)
    if isinstance(checked, LISTINGS + DESCRIPTIONS):
        return
    match checked:
        case Explain(statement=statement):
            yield from required_actions(statement, catalog)
        case InsertInto(target=target) | ChangeRows(target=target):
            yield Need(Action.WRITE_ROWS, _relation(target.name, catalog))
        case InsertIntoSeveral(inserts=inserts):
            for insert in inserts:
                yield Need(Action.WRITE_ROWS, _relation(insert.table, catalog))
        case Truncate(table=name):
            yield Need(Action.WRITE_ROWS, _relation(name, catalog))
        case CreateTable(table=name, replace=replaces):
            yield Need(Action.CREATE)
            if replaces:
                yield Need(Action.REPLACE, _relation(name, catalog))
        case RegisterTable():
            yield Need(Action.REGISTER)
        case Rename(name=name):
            yield Need(Action.CREATE)
            yield Need(Action.ALTER, _relation(name, catalog))
        case AddColumns(target=target):
            yield Need(Action.ALTER, _relation(target.name, catalog))
        case SetComment() | SetProperties() | UnsetProperties():
            yield Need(Action.ALTER, _owned(checked.kind, checked.name, catalog))
            if isinstance(checked, SetProperties) and checked.rows is not None:
                yield Need(Action.CHANGE_STATISTICS, _relation(checked.name, catalog))
        case AddPartitions():
            yield Need(Action.REFRESH)
        case DropTable(table=name):
            yield Need(Action.DROP, _relation(name, catalog))
        case DropView(view=name, temporary=False):
            yield Need(Action.DROP, _relation(name, catalog))
        case CreateDatabase():
            yield Need(Action.CREATE)
        case DropDatabase(database=name, cascade=cascade):
            yield Need(Action.DROP, _database(name, catalog))
            held = [each for each in (*catalog.tables, *catalog.views) if database_of(each) == name] if cascade else []
            for each in held:
                yield Need(Action.DROP, _relation(each, catalog))
        case SetOwner(name=name, kind=OwnedKind.DATABASE):
            yield Need(Action.SET_OWNER, _database(name, catalog))
        case CreateView(temporary=False, view=name, replace=replaces):
            yield Need(Action.CREATE)
            if replaces:
                yield Need(Action.REPLACE, _relation(name, catalog))
        case SetOwner(name=name):
            yield Need(Action.SET_OWNER, _relation(name, catalog))
        case ComputeStats() | ComputeIncrementalStats() | AnalyzeTables():
            yield Need(Action.COMPUTE_STATISTICS)
        case (
            DropStats(table=name) | DropIncrementalStats(table=name) | SetRows(table=name) | SetColumnStats(table=name)
        ):
            yield Need(Action.CHANGE_STATISTICS, _relation(name, catalog))
        case Refresh():
            yield Need(Action.REFRESH)
        case (
            CompiledStatement()
            | CreateView()
            | DropView()
            | ResetOptions()
            | SetOption()
            | ShowOptions()
            | UseDatabase()
        ):
            return
        case _:
            assert_never(checked)


def _owned(kind: OwnedKind, name: str, catalog: OwnedCatalog) -> Owned:
    return _database(name, catalog) if kind is OwnedKind.DATABASE else _relation(name, catalog)


def _database(name: str, catalog: OwnedCatalog) -> Owned:
    """Return a database with its owner; one that is not there is nobody's."""
    known = catalog.databases.get(name)
    return Owned("database", name, known.owner if known is not None else None)


def _relation(name: str, catalog: OwnedCatalog) -> Owned:
    """Return a table or a view with its owner; one that is not there is nobody's."""
    view = catalog.views.get(name.lower())
    if view is not None:
        return Owned("view", view.name, view.owner)
    return Owned("table", name, catalog.owners.get(name.lower()))
