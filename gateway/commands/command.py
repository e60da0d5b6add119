"""Base classes of commands, and what a family of them tells the registry.

A command says what it is and needs (``gateway/statements/command.py``), does it, and replies. Families are imported by
planners' processes, too, for their grammar: what only runs a command is imported for its types alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from engines.compiled import CompiledStatement
from gateway.security.policy import Action, Need
from gateway.statements.command import Command, Kind, OwnedCatalog, OwnedKind, owned, owned_relation
from sql.dialects.names import IMPALA
from sql.errors import UnknownTable
from sql.tables import Annotations, TableSource

if TYPE_CHECKING:
    from gateway.commands.grammar.reader import Reader
    from gateway.commands.services import CommandServices

DONE = pa.schema([]).empty_table()
"""Reply of a command that has nothing to tell."""

OWN_NAMES = ".."
"""Beginning of names that only queries of ours have: no table, view or column of a client has such a name."""

_SUMMARY = pa.schema([("summary", pa.string())])


def summary(text: str) -> pa.Table:
    """Return the reply of one sentence, as Impala gives it."""
    return pa.table([[text]], schema=_SUMMARY)


class RunnableCommand(Command):
    """A command that the gateway carries out."""

    __slots__ = ()

    can_be_explained: ClassVar[bool] = False
    """EXPLAIN takes it."""

    def run(self, services: CommandServices) -> pa.Table:
        """Do it, and return its rows. Raises CommandFailed, SqlError, StatementCancelled, DeadlineExceeded."""
        raise NotImplementedError

    def reply(self, dialect: str, rows: pa.Table) -> pa.Table:
        """Return the rows that a client of a dialect sees. rows: of ``run``."""
        words = self.impala_reply() if dialect == IMPALA else None
        return rows if words is None else summary(words)


RunnableStatement = CompiledStatement | RunnableCommand
"""A statement that was read, as its execution has it."""


class TableCommand(RunnableCommand):
    """A command about one table or view."""

    __slots__ = ()

    table_action: ClassVar[Action | None] = None
    """Action on the table that its user must be allowed."""

    if TYPE_CHECKING:  # a field of most, a property of those that know more of the table than its name

        @property
        def table(self) -> str:
            """Full name of the table or view."""

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the actions that its user must be allowed, beside running queries."""
        yield from super().required_actions(catalog)
        if self.table_action is not None:
            yield Need(self.table_action, owned_relation(self.table, catalog))

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield the table's name, and those of the tables that it reads."""
        yield self.table
        yield from (table.name for table in self.reads)


class TargetCommand(TableCommand):
    """A command about one table, of which it knows more than the name."""

    __slots__ = ()

    if TYPE_CHECKING:  # a field of all

        @property
        def target(self) -> TableSource:
            """The table."""

    @property
    def table(self) -> str:
        """Full name of the table."""
        return self.target.name


class ShowCommand(RunnableCommand):
    """A command that looks at the catalog."""

    __slots__ = ()

    rule_kind = Kind.SHOW


class StatisticsCommand(RunnableCommand):
    """A command about the statistics of tables."""

    __slots__ = ()

    rule_kind = Kind.STATISTICS


class Definition(RunnableCommand):
    """A command that changes what the catalog says."""

    __slots__ = ()

    rule_kind = Kind.DDL
    returns_rows = False


class OwnedCommand(Definition):
    """A command about something that has an owner."""

    __slots__ = ()

    owner_action: ClassVar[Action] = Action.ALTER
    """Action that its user must be allowed, checked again at the moment at which it changes something."""

    if TYPE_CHECKING:  # fields of all

        @property
        def kind(self) -> OwnedKind:
            """Kind of what it changes."""

        @property
        def name(self) -> str:
            """Full name of what it changes."""

    def impala_reply(self) -> str:
        """Return the sentence with which Impala says that this one is done."""
        return f"Updated {self.kind}."

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the actions that its user must be allowed, beside running queries."""
        yield from super().required_actions(catalog)
        yield Need(self.owner_action, owned(self.kind, self.name, catalog))

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield the name of a table or view."""
        if self.kind is not OwnedKind.DATABASE:
            yield self.name

    def owner_check(self, services: CommandServices) -> Callable[[str | None], None]:
        """Return the check of the owner at that moment. It raises AccessDenied."""
        return services.policy.owner_check(services.principal, self.owner_action, self.kind, self.name)

    def annotate(self, services: CommandServices, change: Callable[[Annotations], Annotations]) -> None:
        """Change the annotations of a table or view. Raises UnknownTable."""
        relations = services.metastore.views if self.kind is OwnedKind.VIEW else services.metastore.catalog
        if not relations.annotate(self.name, change, check=self.owner_check(services)):
            raise UnknownTable(f"The {self.kind} {self.name} is gone.")


class Write(RunnableCommand):
    """A statement whose files an engine or the gateway writes or deletes (``gateway/execution/writing.py``)."""

    __slots__ = ()

    rule_kind = Kind.WRITE
    returns_rows = False
    can_be_explained = True

    @property
    def reads(self) -> tuple[TableSource, ...]:
        """The tables whose rows its queries read."""
        return tables_read(self.queries)

    @property
    def writes_rows(self) -> bool:
        """Tell whether it has a query."""
        return bool(self.queries)

    def run(self, services: CommandServices) -> pa.Table:
        """Have it carried out without an engine."""
        return services.writer.write(self, services.run)


def tables_read(queries: Iterable[CompiledStatement]) -> tuple[TableSource, ...]:
    """Return the tables that queries read."""
    tables = {table.name: table for query in queries for table in query.tables}
    return tuple(table for name, table in tables.items() if not name.startswith(OWN_NAMES))


@dataclass(frozen=True, slots=True)
class Family:
    """Commands that one module brings."""

    verbs: str
    """First words of their texts, in capitals."""

    parse: Callable[[Reader], RunnableCommand | None]
    """Returns the command that a text asks for; None where it is none of the family's. Raises SqlError."""

    word: str = ""
    """A word that stands in all of their texts, too."""

    def may_read(self, verb: str, sql: str) -> bool:
        """Tell whether a text may be one of the family's. verb: its first word."""
        return verb in self.verbs.split() and (not self.word or self.word in sql.upper())
