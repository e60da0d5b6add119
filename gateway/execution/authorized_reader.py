"""Classification and authorization of a statement, before it is routed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from engines.compiled import CompiledStatement
from engines.running_statement import current_deadline
from gateway.catalog.lake.lake_catalogs import LakeCatalogs
from gateway.catalog.registration import Registration
from gateway.catalog.snapshot import CatalogSnapshot, CatalogView
from gateway.commands.classification import Text
from gateway.commands.command import RunnableStatement
from gateway.commands.statement_reader import StatementReader
from gateway.planning.fairness import Requester
from gateway.routing.engines import EngineRegistry
from gateway.security import audit
from gateway.security.access.user_access import UserAccess
from gateway.security.policy import Policy
from gateway.security.principals import Principal
from gateway.statements.command import required_actions
from gateway.statements.statement import Statement
from metastore.lake.values import At, SnapshotName
from sql.errors import (
    AccessDenied,
    NotAllowed,
    SnapshotNeeded,
    TableChangedConcurrently,
    UnknownColumn,
    UnknownDatabase,
    UnknownTable,
)
from sql.parsing import ParserLimits

Result = TypeVar("Result")

TRIES = 3
"""Times that a statement is read again because the columns of a lake table have changed."""
MOST_SNAPSHOTS = 32
"""Older snapshots that one statement may name."""


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
        catalogs: LakeCatalogs,
    ) -> None:
        self._parser = parser
        self._catalog = catalog
        self._engines = engines
        self._registration = registration
        self._policy = policy
        self.limits = limits
        self._catalogs = catalogs

    def classify(self, statement: Statement, requester: Requester) -> tuple[CatalogSnapshot, RunnableStatement]:
        """Classify a statement and require that its user may run it. Raises SqlError, EngineError.

        A query's tables have the snapshots that all its attempts read.
        """
        for _ in range(TRIES):
            with suppress(TableChangedConcurrently):
                return self._classify(statement, requester)
        return self._classify(statement, requester)

    def _classify(self, statement: Statement, requester: Requester) -> tuple[CatalogSnapshot, RunnableStatement]:
        snapshot = self._catalog.current()
        own = statement.session.views if statement.session is not None else {}
        access = self._catalog.rights.of(statement.principal, snapshot)
        text = Text(
            statement.sql,
            statement.dialect,
            self.limits,
            own,
            statement.partitions,
            database=statement.database,
            user=statement.user,
            groups=statement.principal.groups,
            access=access,
        )
        try:
            classified = self._with_snapshots(text, snapshot, requester)
        except AccessDenied as denied:
            if access is not None:
                _note(statement.principal, access, allowed=False, what=f"do this: {denied.message}")
            raise
        except (UnknownTable, UnknownDatabase):
            if self._catalogs.look(f"{statement.sql} {statement.database}.", requester):
                raise TableChangedConcurrently("The tables of a catalog have just come.") from None
            raise
        except UnknownColumn:
            named = (table for name, table in snapshot.tables.items() if name in statement.sql.lower())
            self._registration.pinned([table for table in named if table.is_lake], requester)
            raise
        command = None if isinstance(classified, CompiledStatement) else classified
        if access is not None:
            _note_read(statement.principal, access, classified)
        query = classified if isinstance(classified, CompiledStatement) else classified.explained_query
        if query is not None:
            self._require_hinted_engine(query)
        self._policy.require_all(statement.principal, required_actions(classified, snapshot))
        if command is not None:
            self._registration.require_unchanged(command.uses)
            of_lake = [table for table in command.uses if table.is_lake and table not in command.reads]
            self._registration.pinned((*command.reads, *of_lake), requester)
        elif query is not None:
            classified = self._registration.pinned_query(query, requester)
        return snapshot, classified

    def _with_snapshots(self, text: Text, snapshot: CatalogSnapshot, requester: Requester) -> RunnableStatement:
        """Classify a statement, with the older snapshots that it names. Raises SqlError, EngineError."""
        for _ in range(MOST_SNAPSHOTS):
            try:
                return self._parser.classify(text, snapshot, requester)
            except SnapshotNeeded as needed:
                table = snapshot.tables[needed.table]
                if not needed.at:  # only its name was known
                    self._registration.pinned((table,), requester)
                    raise TableChangedConcurrently(f"The columns of {table.name} have just come.") from None
                self._registration.require_unchanged((table,))
                name = SnapshotName(At(needed.at), needed.value)
                older = self._registration.older(table, name, requester)
                text = replace(text, snapshots={**text.snapshots, older.name: older})
        return self._parser.classify(text, snapshot, requester)

    def call(self, requester: Requester, function: Callable[..., Result], *arguments: object) -> Result:
        """Run a function that parses client text in a planner process. Raises what the function raises."""
        result: Result = self._parser.call(requester, function, *arguments)
        return result

    def _require_hinted_engine(self, query: CompiledStatement) -> None:
        if query.engine is not None and query.engine not in self._engines:
            raise NotAllowed(f"A hint asks for the engine {query.engine}; there are {', '.join(self._engines)}.")


def _note_read(user: Principal, access: UserAccess, statement: RunnableStatement) -> None:
    """Log which tables and views a statement reads whole, and of which it reads the part that its user may see."""
    queries = (statement,) if isinstance(statement, CompiledStatement) else statement.queries
    parts = sorted({name for query in queries for name in query.restricted})
    whole = sorted({table.name for query in queries for table in query.tables} - set(parts))
    if parts or (whole and audit.is_kept()):
        read = [f"a part of {name}" for name in parts] + whole
        _note(user, access, allowed=True, what=f"read {', '.join(read)}")


def _note(user: Principal, access: UserAccess, *, allowed: bool, what: str) -> None:
    audit.note("access", user.name, user.address, allowed=allowed, what=what, policy=access.rules.version)


def requester_of(user: Principal, time_s: float) -> Requester:
    """Return the requester of an unrecorded statement: it waits for ``deadline_s``, and no longer than its request."""
    until_s, deadline = time.monotonic() + time_s, current_deadline()
    if deadline is None:
        return Requester(user.account, until_s)
    return Requester(user.account, min(until_s, deadline.until_s), deadline.cancelled)
