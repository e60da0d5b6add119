"""Views: what a statement that makes or forgets one does. Which columns a view has is asked of an engine once."""

from __future__ import annotations

import dataclasses
import datetime as dt

import pyarrow as pa

from engines.arrow_types import spark_type
from engines.errors import EngineError, EngineUnavailable, StatementError
from engines.protocol import Column, InvalidTable, Lease
from gateway.fleet import Fleet
from gateway.security.policy import Action, Policy
from gateway.security.principals import Principal
from gateway.sessions import SessionFull
from gateway.sql.commands import CreateView, DropView
from gateway.sql.compiled import CompiledStatement
from gateway.statements import Run
from metastore.catalog import AlreadyThere
from metastore.records import Failure, View
from metastore.store import Metastore

TABLE_EXISTS = "TABLE_EXISTS"
NO_SESSION = "NO_SESSION"


class ViewFailed(Exception):
    """A view could not be made."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(code, message)


class ViewMaker:
    """Makes and forgets views. Thread-safe."""

    def __init__(self, metastore: Metastore, fleet: Fleet, policy: Policy) -> None:
        self._metastore = metastore
        self._policy = policy
        self._fleet = fleet

    def make(self, command: CreateView, run: Run) -> None:
        """Make a view, of the session's or of everybody's. Raises ViewFailed, EngineError."""
        session = run.statement.session
        if command.temporary and session is None:
            raise ViewFailed(NO_SESSION, "There is no session here that could keep a temporary view.")
        columns = self._columns(command, run)
        view = View(command.view, command.sql, command.dialect, columns, temporary=command.temporary)
        if command.temporary and session is not None:
            try:
                kept = session.keep_view(view, replace=command.replace)
            except SessionFull as error:
                raise ViewFailed(error.code, str(error)) from error
        else:
            kept = self._keep(view, run.statement.principal, replace=command.replace)
        if not kept and not command.if_not_exists:
            raise ViewFailed(TABLE_EXISTS, f"There is a table or view {command.view} already.")

    def drop(self, command: DropView, run: Run) -> None:
        """Forget a view: the session's own of that name, or else everybody's."""
        session = run.statement.session
        if session is None or not session.drop_view(command.view):
            check = self._policy.owner_check(run.statement.principal, Action.DROP, "view", command.view)
            self._metastore.views.remove(command.view, check=check)

    def _keep(self, view: View, principal: Principal, *, replace: bool) -> bool:
        made = dataclasses.replace(view, owner=principal.owner)
        check = self._policy.owner_check(principal, Action.REPLACE, "view", view.name)
        try:
            self._metastore.views.put(made, at=dt.datetime.now(dt.UTC), replace=replace, check=check)
        except AlreadyThere:
            return False
        return True

    def _columns(self, command: CreateView, run: Run) -> tuple[Column, ...]:
        schema = self._schema(command, run)
        assert isinstance(command.query, CompiledStatement)  # as all that a planner read
        selected = command.query.outputs
        starred = selected is None
        if command.columns and starred:
            raise StatementError("A view that names its columns has to list them in its query, too: it selects *.")
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
        """Have the first engine that can run the query without rows, which tells its columns."""
        failure: EngineError = EngineUnavailable("No engine takes work.")
        for member in self._fleet.values():
            if member.why_down() is not None:
                continue
            try:
                sql = f"SELECT * FROM ({command.query.sql(member.engine.dialect)}) AS described LIMIT 0"  # noqa: S608 - checked
                lease = Lease(member.limit_bytes or 0)
                with member.engine.execute(sql, query_id=run.id, lease=lease, deadline_s=run.remaining_s) as result:
                    return result.schema
            except EngineError as error:
                if not error.fails_over:
                    raise
                failure = error
        raise failure
