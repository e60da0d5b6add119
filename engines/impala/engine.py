"""Impala as an engine: statements over HiveServer2 to one of several coordinators, rows as Arrow batches."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from engines.errors import (
    EngineError,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
)
from engines.impala import arrow_columns, profile, tables
from engines.impala.catalog import ImpalaCatalog, Settled
from engines.impala.connection import FAILED, RUNNING, Access, Address, Connection, Operation
from engines.impala.coordinators import Coordinator, Coordinators
from engines.impala.errors import CoordinatorLost, from_text, impala_errors
from engines.protocol import EXPLAIN_S, Actuals, EngineKind, EngineStatus, Lease, Snapshots, Watch, never, unwatched
from engines.running_statement import RunningStatement, StatementResult
from sql.tables import TableSource

log = logging.getLogger(__name__)

FETCH_ROWS = 16_384
FETCH_WAIT_MS = 1_000  # an answer without rows after that, so that a cancel is heard
EXPLAIN_LEVEL = 2  # EXTENDED: reservations, row sizes and cardinalities of every operator

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.005, 0.1


class ImpalaEngine:
    """Impala behind one or several coordinators. Calls block; only EngineError escapes; thread-safe.

    addresses: host and port of HiveServer2 on each coordinator. slots: statements at once. mt_dop: MT_DOP of each
    statement. request_pool: of admission; Impala chooses without it. options: further query options by name.
    refresh_s: how old Impala's list of a table's files may be. check_s: between two looks at the coordinators.
    acts_for_users: statements of users run as they; the gateway's own, plans and the declaration of tables, do not.
    """

    kind = EngineKind.FAST
    writer = "engines.impala.writer"
    backtracks = False  # it has RE2
    cost_model: str | None = "engines.impala.cost"
    formats = tables.FORMATS

    def __init__(
        self,
        addresses: Sequence[Address],
        access: Access | None = None,
        *,
        name: str = "impala",
        slots: int = 8,
        mt_dop: int = 0,
        request_pool: str | None = None,
        options: Mapping[str, str] | None = None,
        refresh_s: float = 60.0,
        check_s: float = 15.0,
        acts_for_users: bool = False,
    ) -> None:
        self.acts_for_users = acts_for_users
        if not addresses:
            raise ValueError("Impala needs the address of a coordinator")
        self.name = name
        self.slots = slots
        access = access or Access()
        self._options = {
            "MT_DOP": str(mt_dop),
            "TIMEZONE": "UTC",
            "PARQUET_FALLBACK_SCHEMA_RESOLUTION": "NAME",  # by position otherwise, unlike every other engine
            "ORC_SCHEMA_RESOLUTION": "NAME",
            "FETCH_ROWS_TIMEOUT_MS": str(FETCH_WAIT_MS),
            **({"REQUEST_POOL": request_pool} if request_pool else {}),
            **(options or {}),
        }
        self._catalog = ImpalaCatalog(access.database, refresh_s=refresh_s)
        self._coordinators = Coordinators(addresses, access, check_s=check_s)
        self._lock = threading.Lock()
        self._running: dict[str, RunningStatement] = {}

    def use_tables(self, sources: Sequence[TableSource]) -> None:
        """Replace the tables. Impala learns of each, and of its files, when a statement next names it."""
        self._catalog.want(sources)

    def explain(
        self,
        sql: str,
        *,
        deadline_s: float = EXPLAIN_S,
        cancelled: Callable[[], bool] = never,
        snapshots: Snapshots = (),
    ) -> str:
        """Return the plan at the EXTENDED level, with the options that the statement would run with."""
        options = {**self._options, "EXPLAIN_LEVEL": str(EXPLAIN_LEVEL)}
        with self._statement(_own_id(), deadline_s) as statement, self._connection(statement) as (_, connection):
            settled = self._settled(connection, sql, statement)
            lines = self._table(connection, f"EXPLAIN {settled.sql}", {**options, **settled.options}, statement)
        return "\n".join(line or "" for line in lines.column(0).to_pylist())

    def execute(
        self,
        sql: str,
        *,
        query_id: str,
        lease: Lease,
        deadline_s: float,
        watch: Watch = unwatched,
        snapshots: Snapshots = (),
        user: str | None = None,
    ) -> ImpalaResult:
        """Run a statement; returns when its first rows can be fetched. MEM_LIMIT, per host, is the lease.

        user: as whom it runs, in a session of its own; None: as the gateway's own user.
        """
        options = {
            **self._options,
            "MEM_LIMIT": str(lease.memory_bytes),
            "EXEC_TIME_LIMIT_S": str(max(1, math.ceil(deadline_s))),
            "CLIENT_IDENTIFIER": f"fusion-sql-gateway {query_id}",
        }
        with contextlib.ExitStack() as undo:
            statement = undo.enter_context(self._statement(query_id, deadline_s))
            if user is not None:  # tables are declared by the gateway's own user
                with self._connection(statement) as (_, own):
                    settled = self._settled(own, sql, statement)
            coordinator, connection = undo.enter_context(self._connection(statement, user))
            if user is None:
                settled = self._settled(connection, sql, statement)
            operation = undo.enter_context(_open(connection, settled.sql, {**options, **settled.options}, statement))
            with _ended_or_impalas(statement):
                columns = operation.columns()
            result = ImpalaResult(operation, columns, statement, undo.pop_all())
        log.debug("query %s runs on Impala's coordinator %s", query_id, coordinator)
        return result

    def cancel(self, query_id: str) -> None:
        """End a running statement; an unknown id is not an error."""
        with self._lock:
            statement = self._running.get(query_id)
        if statement is not None:
            statement.end(StatementCancelled("The statement was cancelled."))

    def status(self) -> EngineStatus:
        """Report what the last looks at the coordinators found; asks nobody."""
        if self._coordinators.closed:
            return EngineStatus(False, "closed")
        awake, detail = self._coordinators.describe()
        return EngineStatus(awake > 0, detail)

    def close(self) -> None:
        """End running statements and close all connections."""
        self._coordinators.close()
        with self._lock:
            running = list(self._running.values())
        for statement in running:
            statement.end(EngineUnavailable("Impala's adapter was closed."))

    def _settled(self, connection: Connection, sql: str, statement: RunningStatement) -> Settled:
        return self._catalog.settle(sql, lambda ddl: self._table(connection, ddl, {"SYNC_DDL": "1"}, statement))

    def _table(
        self, connection: Connection, sql: str, options: Mapping[str, str], statement: RunningStatement
    ) -> pa.Table:
        """Run a statement of the adapter's own, and return all its rows."""
        with _open(connection, sql, options, statement) as operation, _ended_or_impalas(statement):
            columns = operation.columns()
            return pa.Table.from_batches(_batches(operation, columns, statement), arrow_columns.schema_of(columns))

    @contextmanager
    def _statement(self, query_id: str, deadline_s: float) -> Iterator[RunningStatement]:
        statement = RunningStatement(query_id, deadline_s)
        with self._lock:
            self._running[query_id] = statement
        try:
            yield statement
        finally:
            statement.finish()
            with self._lock:
                if self._running.get(query_id) is statement:
                    del self._running[query_id]

    @contextmanager
    def _connection(
        self, statement: RunningStatement, user: str | None = None
    ) -> Iterator[tuple[Coordinator, Connection]]:
        """Hold a connection to a coordinator that answers. It is kept for others, unless it broke meanwhile.

        user: user as whom its statements run; None: the gateway's own.
        """
        coordinator, connection = self._connect(statement, user)
        healthy = False
        try:
            statement.stop_by(lambda: None, break_off=connection.break_off)  # whoever waits sees that it ended
            yield coordinator, connection
            healthy = True
        except CoordinatorLost as error:
            connection.broken = True
            coordinator.failed(error)
            raise
        except EngineError:
            healthy = not statement.ended.is_set()
            raise
        finally:
            if healthy:
                coordinator.succeeded()
                coordinator.give_back(connection)
            else:
                connection.close()

    def _connect(self, statement: RunningStatement, user: str | None) -> tuple[Coordinator, Connection]:
        """Try the coordinators in turn until one opens a session: nothing has run yet."""
        refused: EngineUnavailable | None = None
        for coordinator in self._coordinators.in_turn():
            statement.raise_if_ended()
            try:
                return coordinator, self._living(coordinator) if user is None else coordinator.connect_as(user)
            except EngineUnavailable as error:
                refused = error
        raise refused or EngineUnavailable("No coordinator of Impala answers.")

    def _living(self, coordinator: Coordinator) -> Connection:
        """Return a connection that works: one that was idle may have been closed on the other side."""
        connection, used = coordinator.connect()
        if used and not connection.alive():
            connection.close()
            connection, _ = coordinator.connect(fresh=True)
        return connection


class ImpalaResult(StatementResult):
    """A statement's batches while they arrive. One thread reads; any thread may close."""

    def __init__(
        self,
        operation: Operation,
        columns: list[tuple[Any, ...]],
        statement: RunningStatement,
        undo: contextlib.ExitStack,
    ) -> None:
        self._actuals = Actuals()

        def batches() -> Generator[pa.RecordBatch, None, None]:
            yield from _batches(operation, columns, statement)
            self._actuals = _actuals(operation)

        def release(error: EngineError | None) -> None:
            with contextlib.suppress(EngineError):
                undo.__exit__(type(error) if error else None, error, None)

        super().__init__(
            statement,
            arrow_columns.schema_of(columns),
            batches(),
            errors=lambda: _ended_or_impalas(statement, operation),
            settle=lambda error: error,
            release=release,
        )

    @property
    def actuals(self) -> Actuals:
        """Peak of the fullest host and rows per operator; complete after the last batch."""
        return self._actuals


def _own_id() -> str:
    """Return a name for what the adapter runs for itself."""
    return f"own-{uuid.uuid4().hex}"


@contextmanager
def _open(
    connection: Connection, sql: str, options: Mapping[str, str], statement: RunningStatement
) -> Iterator[Operation]:
    """Send a statement and wait for its first rows; at the end the coordinator is told to forget it."""
    statement.raise_if_ended()
    with _ended_or_impalas(statement):
        operation = connection.start(sql, options)
    try:
        with _ended_or_impalas(statement, operation):
            _wait(operation, statement)
        yield operation
    except CoordinatorLost:
        connection.broken = True
        raise
    finally:
        with contextlib.suppress(EngineError), impala_errors():
            if not connection.broken:
                operation.close()


def _wait(operation: Operation, statement: RunningStatement) -> None:
    """Return once rows can be fetched; raises why there are none."""
    wait_s = _FIRST_WAIT_S
    while True:
        statement.raise_if_ended()
        state, message = operation.state()
        if state == FAILED:
            raise from_text(message)
        if state not in RUNNING:
            return
        statement.ended.wait(wait_s)
        wait_s = min(_LONGEST_WAIT_S, wait_s * 1.5)


def _batches(
    operation: Operation, columns: list[tuple[Any, ...]], statement: RunningStatement
) -> Iterator[pa.RecordBatch]:
    """Yield the rows as they come; empty answers only mean that there are none yet."""
    schema = arrow_columns.schema_of(columns)
    more = bool(columns)
    while more:
        statement.raise_if_ended()
        rows, more = operation.fetch(FETCH_ROWS)
        batch = arrow_columns.batch_of(rows, schema)
        if batch is not None:
            yield batch
    statement.raise_if_ended()


@contextmanager
def _ended_or_impalas(statement: RunningStatement, operation: Operation | None = None) -> Iterator[None]:
    """Let only EngineError leave the block: what ended the statement if something did, else what Impala says.

    operation: asked for its peak if it ran out of memory without telling.
    """
    try:
        with impala_errors():
            yield
    except EngineError as error:
        if ended := statement.ended_by:
            raise ended from error
        if operation is not None and isinstance(error, MemoryExceeded) and error.peak_bytes is None:
            error.peak_bytes = _actuals(operation).peak_bytes
        raise


def _actuals(operation: Operation) -> Actuals:
    """Return what Impala measured; unknown where it does not answer any more, for the rows are there already."""
    try:
        with impala_errors():
            return Actuals(profile.peak_bytes(operation.profile()), profile.operators(operation.summary()))
    except EngineError as error:
        log.info("Impala did not tell what a statement took: %s", error.message)
        return Actuals()
