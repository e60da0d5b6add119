"""Commands: statements that are no queries, as all others of the gateway know them.

A family of commands is one file of ``gateway/commands/``. Nobody else needs to know it: what a command needs, names and
answers is asked of the command itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import ClassVar, Protocol

from engines.compiled import CompiledStatement
from gateway.security.policy import Action, Need, Owned
from metastore.records import Database
from sql.dialects.names import IMPALA
from sql.tables import TableSource, View


class Kind(StrEnum):
    """Kinds of statements, as routing rules name them."""

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
"""Kinds that a rule is about which names none: not those that drivers and tools send by themselves."""


class OwnedKind(StrEnum):
    """Kinds of things that have an owner and a name; the value is the word for it."""

    TABLE = "table"
    VIEW = "view"
    DATABASE = "database"


class OwnedCatalog(Protocol):
    """Tables, views and databases with their owners."""

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


class Command:
    """A statement that is no query, read and resolved against the catalog. Subclasses are frozen dataclasses."""

    __slots__ = ()

    rule_kind: ClassVar[Kind]
    """Kind of statement, for routing rules."""

    is_reading: ClassVar[bool] = False
    """It only looks something up, and may run for a client that prepares it."""

    returns_rows: ClassVar[bool] = True
    """Clients fetch its rows; without, they are told that it is done."""

    actions: ClassVar[tuple[Action, ...]] = ()
    """Actions that its user must be allowed, beside running queries, whatever they are done to."""

    impala_words: ClassVar[str | None] = None
    """Sentence with which Impala says that it is done; None where it says nothing."""

    @property
    def kinds(self) -> frozenset[Kind]:
        """Its kinds, for routing rules."""
        return frozenset({self.rule_kind})

    @property
    def queries(self) -> tuple[CompiledStatement, ...]:
        """The queries in it."""
        return ()

    @property
    def explained_query(self) -> CompiledStatement | None:
        """The query that is routed for it, though it does not run; None where there is none."""
        return None

    @property
    def reads(self) -> tuple[TableSource, ...]:
        """The tables whose rows it reads."""
        return ()

    @property
    def uses(self) -> tuple[TableSource, ...]:
        """The tables whose files must be as the catalog knows them before it starts."""
        return self.reads

    @property
    def writes_rows(self) -> bool:
        """Tell whether an engine writes rows for it."""
        return False

    def impala_reply(self) -> str | None:
        """Return the sentence with which Impala says that this one is done."""
        return self.impala_words

    def has_rows(self, dialect: str) -> bool:
        """Tell whether clients of a dialect fetch rows of it."""
        return self.returns_rows or (dialect == IMPALA and self.impala_reply() is not None)

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the actions that its user must be allowed, beside running queries."""
        return map(Need, self.actions)

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield the full names of what it reads or changes. catalog: names of all tables and views."""
        return iter(())


ClassifiedStatement = CompiledStatement | Command
"""A statement that was read."""


def kinds_of(statement: ClassifiedStatement) -> frozenset[Kind]:
    """Return the kinds that a statement is of: one, or two where it makes a table and fills it."""
    return statement.kinds if isinstance(statement, Command) else frozenset({Kind.SELECT})


def tables_of(statement: ClassifiedStatement, catalog: Iterable[str]) -> tuple[str, ...]:
    """Return the full names of what a statement reads or changes. catalog: names of all tables and views."""
    if isinstance(statement, Command):
        names = statement.table_names(catalog)
    else:
        names = (table.name for table in statement.tables)
    return tuple(dict.fromkeys(name.lower() for name in names))


def required_actions(statement: ClassifiedStatement, catalog: OwnedCatalog) -> Iterator[Need]:
    """Yield the actions that a statement's user must be allowed."""
    yield Need(Action.QUERY)
    if isinstance(statement, Command):
        yield from statement.required_actions(catalog)


def owned(kind: OwnedKind, name: str, catalog: OwnedCatalog) -> Owned:
    """Return a table, view or database with its owner."""
    if kind is not OwnedKind.DATABASE:
        return owned_relation(name, catalog)
    database = catalog.databases.get(name)
    return Owned(kind, name, database.owner if database is not None else None)


def owned_relation(name: str, catalog: OwnedCatalog) -> Owned:
    """Return a table or a view with its owner; one that does not exist belongs to nobody."""
    view = catalog.views.get(name.lower())
    if view is not None:
        return Owned("view", view.name, view.owner)
    return Owned("table", name, catalog.owners.get(name.lower()))
