"""What a statement is, and whether its user may do it: before it is on its way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from engines.protocol import TableSource
from gateway.catalog.registration import Registration
from gateway.catalog.snapshot import CatalogSnapshot, CatalogView
from gateway.errors import NotAllowed
from gateway.execution.required_actions import required_actions
from gateway.routing.engines import EngineRegistry
from gateway.routing.rules.kinds import Understood
from gateway.security.policy import Policy
from gateway.sql.commands.commands import CreateView, Explain
from gateway.sql.commands.writes import ChangeRows, CreateTable, InsertInto, InsertIntoSeveral, reads
from gateway.sql.compiled import CompiledStatement
from gateway.sql.parsing import ParserLimits
from gateway.sql.planning.fairness import Requester
from gateway.sql.planning.statement_reader import StatementReader
from gateway.sql.planning.work import Text
from gateway.statements.statement import Statement

Result = TypeVar("Result")


class AuthorizedReader:
    """Reads statements against the catalog. Thread-safe."""

    def __init__(
        self,
        parser: StatementReader,
        catalog: CatalogView,
        engines: EngineRegistry,
        registration: Registration,
        policy: Policy,
        limits: ParserLimits,
    ) -> None:
        self._parser = parser
        self._catalog = catalog
        self._engines = engines
        self._registration = registration
        self._policy = policy
        self.limits = limits

    def understand(self, statement: Statement, asker: Requester) -> tuple[CatalogSnapshot, Understood]:
        """Read a statement and require that its user may do what it says. Raises SqlError, EngineError."""
        snapshot = self._catalog.current()
        own = statement.session.views if statement.session is not None else {}
        text = Text(
            statement.sql,
            statement.dialect,
            self.limits,
            own,
            statement.partitions,
            database=statement.database,
            user=statement.user,
        )
        understood = self._parser.understand(text, snapshot, asker)
        asked = understood.statement if isinstance(understood, Explain) else understood
        if isinstance(asked, CompiledStatement):
            self._require_hinted_engine(asked)
        self._policy.require_all(statement.principal, required_actions(understood, snapshot))
        self._registration.require_unchanged(_used(understood))
        return snapshot, understood

    def call(self, asker: Requester, function: Callable[..., Result], *arguments: object) -> Result:
        """Have a function run where it holds up nobody: for all that parses what clients sent. Raises as it does."""
        found: Result = self._parser.call(asker, function, *arguments)
        return found

    def _require_hinted_engine(self, query: CompiledStatement) -> None:
        if query.engine is not None and query.engine not in self._engines:
            raise NotAllowed(f"A hint asks for the engine {query.engine}; there are {', '.join(self._engines)}.")


def asker_of(statement: Statement) -> Requester:
    """Return who waits for a statement that is not recorded."""
    return Requester(statement.principal.account, time.monotonic() + statement.deadline_s)


def _used(understood: Understood) -> tuple[TableSource, ...]:
    """Return the tables whose files a statement reads or adds to; of a query, whoever opens them looks at them."""
    match understood:
        case CreateView():
            return understood.query.tables
        case InsertInto():
            return (*reads(understood), understood.target)
        case InsertIntoSeveral():
            return (*reads(understood), *(insert.target for insert in understood.inserts))
        case CreateTable() | ChangeRows():
            return reads(understood)
        case _:
            return ()
