"""Views: what a statement that makes or forgets one does. Which columns a view has is asked of an engine once."""

from __future__ import annotations

import dataclasses
import datetime as dt
from contextlib import AbstractContextManager

import pyarrow as pa

from engines.arrow_types import spark_type
from engines.errors import EngineError, EngineUnavailable, StatementError
from engines.protocol import Column, InvalidTable
from gateway.errors import NoSession, TableExists, UnknownDatabase
from gateway.routing.admission.admission import Admission, Grant
from gateway.routing.admission.values import Request
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.security.policy import Action, Policy
from gateway.security.principals import Principal
from gateway.sql.commands.commands import CreateView, DropView
from gateway.sql.compiled import CompiledStatement
from gateway.statements.statement import Run
from metastore.records import NOT_ANNOTATED, Annotations, View
from metastore.repositories.catalog import AlreadyExists, NoDatabase
from metastore.store import Metastore
from selector.forecast.lease import LEAST_BYTES


class ViewMaker:
    """Makes and forgets views. Thread-safe. queue_s: longest wait for an engine that tells a view's columns."""

    def __init__(
        self, metastore: Metastore, engines: EngineRegistry, policy: Policy, admission: Admission, *, queue_s: float
    ) -> None:
        self._metastore = metastore
        self._policy = policy
        self._engines = engines
        self._admission = admission
        self._queue_s = queue_s

    def make(self, command: CreateView, run: Run) -> None:
        """Make a view, of the session's or of everybody's. Raises NoSession, SessionFull, TableExists, EngineError."""
        session = run.statement.session
        if command.temporary and session is None:
            raise NoSession("There is no session here that could keep a temporary view.")
        columns = self._columns(command, run)
        view = View(
            command.view,
            command.sql,
            command.dialect,
            columns,
            temporary=command.temporary,
            database=command.database,
            annotations=self._kept(command) if command.annotations is None else command.annotations,
        )
        if command.temporary and session is not None:
            kept = session.keep_view(view, replace=command.replace)
        else:
            kept = self._keep(view, run.statement.principal, replace=command.replace)
        if not kept and not command.if_not_exists:
            raise TableExists(f"There is a table or view {command.view} already.")

    def drop(self, command: DropView, run: Run) -> None:
        """Forget a view, of the session's or everybody's."""
        session = run.statement.session
        if command.temporary and session is not None:
            session.drop_view(command.view)
        else:
            check = self._policy.owner_check(run.statement.principal, Action.DROP, "view", command.view)
            self._metastore.views.remove(command.view, check=check)

    def _kept(self, command: CreateView) -> Annotations:
        """Return what is said of a view that gets another query."""
        known = (view for view in self._metastore.views.list() if view.name == command.view)
        return next((view.annotations for view in known), NOT_ANNOTATED)

    def _keep(self, view: View, principal: Principal, *, replace: bool) -> bool:
        made = dataclasses.replace(view, owner=principal.owner)
        check = self._policy.owner_check(principal, Action.REPLACE, "view", view.name)
        try:
            self._metastore.views.put(made, at=dt.datetime.now(dt.UTC), replace=replace, check=check)
        except AlreadyExists:
            return False
        except NoDatabase as error:
            raise UnknownDatabase(f"The database {error} is gone.") from error
        return True

    def _columns(self, command: CreateView, run: Run) -> tuple[Column, ...]:
        schema = self._schema(command, run)
        assert isinstance(command.query, CompiledStatement)  # as all that a planner read
        selected = command.query.outputs
        starred = selected is None
        if starred and command.columns not in ((), tuple(schema.names)):
            raise StatementError("A view that renames its columns has to list them in its query, too: it selects *.")
        names = command.columns or (tuple(schema.names) if selected is None else selected)
        if len(names) != len(schema):
            raise StatementError(f"The view names {len(names)} columns, its query has {len(schema)}.")
        twice = next((name for at, name in enumerate(names) if name.lower() in map(str.lower, names[:at])), None)
        if twice is not None:
            raise StatementError(f"The view would have two columns {twice}; give one of them another name.")
        try:
            return tuple(Column(name, spark_type(field.type)) for name, field in zip(names, schema, strict=True))
        except InvalidTable as error:
            raise StatementError(f"The view cannot be made: {error}.") from error

    def _schema(self, command: CreateView, run: Run) -> pa.Schema:
        """Have the first engine that can, and may, run the query without rows, which tells its columns."""
        failure: EngineError = EngineUnavailable("No engine is available.")
        for entry in self._engines.values():
            if entry.why_down() is not None or (run.only is not None and entry.name not in run.only):
                continue
            try:
                sql = f"SELECT * FROM ({command.query.sql(entry.engine.dialect)}) AS described LIMIT 0"  # noqa: S608 - checked
                with self._lease(entry, run) as grant, entry.breaker.watched(), run.on(entry.name):
                    run.require()
                    with entry.engine.execute(
                        sql, query_id=run.id, lease=grant.lease, deadline_s=run.remaining_s
                    ) as result:
                        return result.schema
            except EngineError as error:
                if not error.fails_over:
                    raise
                failure = error
        raise failure

    def _lease(self, entry: EngineEntry, run: Run) -> AbstractContextManager[Grant]:
        """Hold a slot like a query's; without rows it needs hardly any memory."""
        memory_bytes = min(LEAST_BYTES, entry.limit_bytes or 0)
        asked = Request(entry.name, memory_bytes, run.statement.principal, run.statement.pool, run.id)
        wait_s = min(self._queue_s, max(0.0, run.remaining_s))
        return self._admission.lease(asked, wait_s=wait_s, cancelled=lambda: run.cancelled)
