"""Spark as the dependable engine: an embedded or a remote server, both through Spark Connect.

The client of Spark Connect is imported by the first statement: it brings pandas along, which takes a second.
"""

from __future__ import annotations

import functools
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa

from engines.errors import (
    EngineError,
    EngineFault,
    EngineRestarted,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
)
from engines.protocol import EXPLAIN_S, EngineKind, EngineStatus, Lease, Snapshots, Watch, WriteTarget, never, unwatched
from engines.running_statement import StatementResult
from engines.spark.embedded.gate import Gate
from engines.spark.embedded.health import OWN_DEADLINE_S, HealthThresholds, HealthWatch
from engines.spark.embedded.orphaned_jobs import OrphanedJobs
from engines.spark.embedded.server import ServerState, SparkConnectServer
from engines.spark.errors import spark_errors
from engines.spark.running import SparkStatement
from engines.spark.staging import can_be_staged, may_be_large, staged_rows
from engines.spark_sql.session_settings import FORMATS
from sql.tables import LAKE_FORMATS, TableSource

if TYPE_CHECKING:
    from engines.spark.remote import RemoteServer
    from engines.spark_sql.connect import ConnectSession, Plan

_WARM_UP_DEADLINE_S = 300.0
_SESSION_IDLE_S = 600.0  # the server forgets a session after twenty minutes
_WAIT_STEP_S = 0.05
_INTERRUPT_FOR_S = 5.0
_END_FOR_S = 300.0
_WRITES = 11  # tries of one statement whose server was restarted; as many as for queries
_PLANNING_FAILED = "Error occurred during query planning:"


class SparkConnectEngine:
    """Spark behind the ``Engine`` protocol.

    server: the embedded server, which the engine then owns, or the address ``sc://host:port`` of a remote one.
    thresholds: of the health checks of an embedded server.
    gate: shared by several processes; None: a new one.
    """

    def __init__(
        self,
        server: SparkConnectServer | str,
        *,
        name: str = "spark",
        slots: int = 2,
        thresholds: HealthThresholds | None = None,
        gate: Gate | None = None,
    ) -> None:
        if isinstance(server, str) and not urlsplit(server).hostname:
            raise ValueError(f"not a Spark Connect address: {server!r}; write sc://host:port")
        self._server = server
        self._name = name
        self._slots = slots
        self._lock = threading.Lock()
        self._tables: tuple[TableSource, ...] = ()
        self._idle: list[ConnectSession] = []
        self._running: dict[str, SparkStatement] = {}
        self._gate = gate or Gate()
        self._orphaned, self._health = None, None
        self._remote: RemoteServer | None = None
        if isinstance(server, str):
            from engines.spark.remote import RemoteServer

            self._remote = RemoteServer(server)
            self._remote.start()
        if isinstance(server, SparkConnectServer):
            self._orphaned = OrphanedJobs(server.web_ui)
            self._health = HealthWatch(server, self._gate, self._run_own, thresholds=thresholds)
        self._closed = False

    @property
    def name(self) -> str:
        """The name by which users pin a statement to it."""
        return self._name

    @property
    def kind(self) -> EngineKind:
        """Dependable: it spills to disk and retries tasks."""
        return EngineKind.DEPENDABLE

    @property
    def writer(self) -> str:
        """Spark SQL."""
        return "engines.spark_sql.writer"

    @property
    def backtracks(self) -> bool:
        """True: its matcher is Java's."""
        return True

    @property
    def cost_model(self) -> str | None:
        """None: it spills, so that its memory is not estimated."""
        return None

    @property
    def formats(self) -> frozenset[str]:
        """Formats that Spark reads without further packages."""
        return FORMATS.union(LAKE_FORMATS)

    @property
    def slots(self) -> int:
        """Statements that may run at once; Spark itself accepts more."""
        return self._slots

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Replace the tables for statements that start from now on; each plan names its own."""
        with self._lock:
            self._tables = tuple(table for table in tables if not table.is_lake)

    def warm_up(self) -> None:
        """Start the server and run a first statement, which takes seconds longer than later ones. Blocks."""
        self._collect("SELECT 1", deadline_s=_WARM_UP_DEADLINE_S)

    def explain(
        self,
        sql: str,
        *,
        deadline_s: float = EXPLAIN_S,
        cancelled: Callable[[], bool] = never,
        snapshots: Snapshots = (),
    ) -> str:
        """Return the text of EXPLAIN FORMATTED."""
        plan = str(self._collect(f"EXPLAIN FORMATTED {sql}", deadline_s=deadline_s, snapshots=snapshots)[0][0].as_py())
        if plan.startswith(_PLANNING_FAILED):
            # Spark's row for a wrong statement; DESCRIBE QUERY raises the reason and runs nothing.
            self._collect(f"DESCRIBE QUERY {sql}", deadline_s=deadline_s, snapshots=snapshots)
            raise StatementError("Spark cannot plan the statement")
        return plan

    def execute(
        self,
        sql: str,
        *,
        query_id: str,
        lease: Lease,
        deadline_s: float,
        watch: Watch = unwatched,
        snapshots: Snapshots = (),
    ) -> StatementResult:
        """Start a statement. Of the lease only ``careful`` counts: the server has its own memory, and spills."""
        return self._execute(sql, query_id, deadline_s, careful=lease.careful, snapshots=snapshots)

    def write(self, sql: str, target: WriteTarget, *, query_id: str, deadline_s: float) -> pa.Schema:
        """Write a query's rows into a folder; the last partition column's folders are the innermost.

        If the embedded server ran out of memory or was restarted, the folder is emptied and written again.
        """
        until_s = time.monotonic() + deadline_s
        careful = False
        for retries in reversed(range(_WRITES)):
            try:
                return self._write(sql, target, query_id, until_s - time.monotonic(), careful=careful)
            except (MemoryExceeded, EngineRestarted) as error:
                out_of_memory = isinstance(error, MemoryExceeded)
                planned_only = isinstance(error, MemoryExceeded) and error.while_planning
                if not retries or planned_only or (careful and out_of_memory) or isinstance(self._server, str):
                    raise
                careful = careful or out_of_memory
        raise AssertionError("the last one returns or raises")

    def _write(self, sql: str, target: WriteTarget, query_id: str, deadline_s: float, *, careful: bool) -> pa.Schema:
        from engines.spark.writing import selected, storable
        from engines.spark_sql.connect import statement_plan

        statement = self._admit(query_id, deadline_s, careful=careful)
        failure: EngineError | None = None
        try:
            address = self._enter(statement)
            shutil.rmtree(target.folder, ignore_errors=True)  # of an earlier try, whose server is gone
            with spark_errors():
                session = self._take_session(address, statement)
                statement.use(session, break_off=functools.partial(self._abandon, statement, session))
                session.configure()
                statement.raise_if_ended()
                query_names = session.names(statement_plan(sql, statement.tables, (*target.snapshots, *target.read)))
                text, names = selected(sql, query_names, target)
                plan = statement_plan(text, statement.tables, (*target.snapshots, *target.read))
                schema = storable(session, plan)
                session.write(
                    plan,
                    names,
                    target.folder,
                    statement.tag,
                    format=target.format,
                    partition_columns=target.partition_columns,
                )
                statement.complete = True
        except EngineError as error:
            failure = error
            raise self._reason_for(statement, error) from None
        finally:
            self._release(statement, failure)
        return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])

    def cancel(self, query_id: str) -> None:
        """End a running statement; an unknown id is not an error."""
        with self._lock:
            statement = self._running.get(query_id)
        if statement is not None:
            statement.end(StatementCancelled("The statement was cancelled"))

    def status(self) -> EngineStatus:
        """Return the status without waiting. A server that was not started yet is alive: a statement starts it."""
        if self._closed:
            return EngineStatus(alive=False, detail="closed")
        if self._remote is not None:
            return EngineStatus(*self._remote.status())
        assert isinstance(self._server, SparkConnectServer)
        state, detail = self._server.status()
        if state is ServerState.RUNNING and self._health is not None:
            return EngineStatus(alive=self._health.answers, detail=self._health.describe())
        return EngineStatus(alive=state is ServerState.STARTING or self._server.may_start(), detail=detail)

    def close(self) -> None:
        """End every statement, release the sessions and stop the embedded server; may be called twice."""
        with self._lock:
            self._closed = True
            running = list(self._running.values())
            idle, self._idle = self._idle, []
        if self._remote is not None:
            self._remote.close()
        if self._health is not None:
            self._health.close()
        for statement in running:
            statement.end(StatementCancelled("The engine was closed"))
        for session in idle:
            session.close()
        if isinstance(self._server, SparkConnectServer):
            self._server.stop()

    def _reason_for(self, statement: SparkStatement, error: EngineError) -> EngineError:
        """Return the cause of a statement's error."""
        if ended_by := statement.ended_by:
            return ended_by
        session = statement.session
        if isinstance(self._server, str) or session is None:
            return error
        if self._server.was_restarted(session.address) and not isinstance(error, StatementError):
            return EngineRestarted("Spark was restarted while the statement ran")  # with any message
        if not isinstance(error, EngineUnavailable) or not self._server.ran_out_of_memory(session.address):
            return error
        if statement.alone:  # else another statement may have delayed its first job
            return MemoryExceeded("Spark ran out of memory", while_planning=session.planned_only)
        together = "Spark ran out of memory while several statements ran"
        return EngineUnavailable(together) if statement.careful else MemoryExceeded(together)

    def _release(self, statement: SparkStatement, error: EngineError | None) -> None:
        """Remove a statement that ended, and keep its session for the next one. error: None: it succeeded."""
        statement.finish()
        session = statement.session
        if session is not None and (statement.ended_by or (error is None and not statement.complete)):
            self._watch_for_orphans(statement)
        elif statement.complete and self._health is not None:
            self._health.served()
        self._gate.leave(statement)
        with self._lock:
            del self._running[statement.query_id]
            if session is None:
                return
            healthy = not session.is_closed and not isinstance(error, EngineUnavailable | EngineFault)
            if healthy and not session.careful and not self._closed:
                session.idle_since_s = time.monotonic()
                self._idle.append(session)
                return
        if healthy:
            session.close()
        else:
            session.break_off()

    def _collect(self, sql: str, deadline_s: float, *, gated: bool = True, snapshots: Snapshots = ()) -> pa.Table:
        """Run a statement of the gateway. Returns its columns."""
        query_id = f"{self._name}-{uuid.uuid4().hex}"
        with self._execute(sql, query_id, deadline_s, gated=gated, snapshots=snapshots) as result:
            return pa.Table.from_batches(result, result.schema)

    def _run_own(self, sql: str) -> pa.Table:
        """Run a statement of the gateway without the gate."""
        return self._collect(sql, OWN_DEADLINE_S, gated=False)

    def _execute(
        self,
        sql: str,
        query_id: str,
        deadline_s: float,
        *,
        careful: bool = False,
        gated: bool = True,
        snapshots: Snapshots = (),
    ) -> StatementResult:
        statement = self._admit(query_id, deadline_s, careful=careful)
        statement.snapshots = snapshots
        try:
            address = self._enter(statement) if gated else self._wait_for_server(statement)
            with spark_errors():
                session = self._take_session(address, statement)
                statement.use(session, break_off=functools.partial(self._abandon, statement, session))
                session.configure()
                statement.raise_if_ended()
                schema, tables = self._start(session, sql, statement)
        except EngineError as error:
            reason = self._reason_for(statement, error)
            self._release(statement, error)
            raise reason from None

        def release(error: EngineError | None) -> None:
            tables.close()
            self._release(statement, error)

        return StatementResult(
            statement,
            schema,
            _all_batches(statement, tables, schema),
            errors=spark_errors,
            settle=functools.partial(self._reason_for, statement),
            release=release,
        )

    def _start(
        self, session: ConnectSession, sql: str, statement: SparkStatement
    ) -> tuple[pa.Schema, Generator[pa.Table, None, None]]:
        from engines.spark_sql.connect import statement_plan
        from engines.spark_sql.results import TextsInResult, as_texts

        plan = statement_plan(sql, statement.tables, statement.snapshots)
        try:
            return self._start_plan(session, plan, sql, statement)
        except TextsInResult as columns:
            return self._start_plan(session, as_texts(plan, columns), sql, statement)

    def _start_plan(
        self, session: ConnectSession, plan: Plan, sql: str, statement: SparkStatement
    ) -> tuple[pa.Schema, Generator[pa.Table, None, None]]:
        if isinstance(self._server, SparkConnectServer) and self._server.shares_files and may_be_large(sql):
            schema = session.schema(plan)
            if can_be_staged(schema):
                folder = self._server.results_folder / statement.tag
                return schema, staged_rows(session, plan, schema, folder=folder, tag=statement.tag)
        return session.run(plan, statement.tag)

    def _admit(self, query_id: str, deadline_s: float, *, careful: bool) -> SparkStatement:
        with self._lock:
            if self._closed:
                raise EngineUnavailable("Spark was closed")
            if query_id in self._running:
                raise EngineFault(f"The statement {query_id} is already running")
            statement = SparkStatement(query_id, deadline_s, self._tables, careful=careful)
            self._running[query_id] = statement
        if self._health is not None:
            self._health.start()
        return statement

    def _enter(self, statement: SparkStatement) -> str:
        """Wait until the statement may run. Returns the server's address."""
        self._gate.enter(statement, alone=statement.careful, give_up=statement.raise_if_ended)
        with self._lock:
            others = [other for other in self._running.values() if other.inside]
            for one in (statement, *others) if others else ():
                one.alone = False
            statement.inside = True
        return self._wait_for_server(statement)

    def _abandon(self, statement: SparkStatement, session: ConnectSession) -> None:
        """Close the connection to a server that does not answer, and end the statement once it answers again."""
        session.break_off()
        session.end_from_outside(_END_FOR_S)
        self._watch_for_orphans(statement)

    def _watch_for_orphans(self, statement: SparkStatement) -> None:
        if self._orphaned is not None:
            self._orphaned.watch(statement.tag)
        if self._health is not None:
            self._health.suspect(statement.tag)

    def _wait_for_server(self, statement: SparkStatement) -> str:
        """Return the server's address once it runs; the statement may be ended meanwhile."""
        if isinstance(self._server, str):
            return self._server
        starting = self._server.begin()
        while True:
            statement.raise_if_ended()
            try:
                return starting.result(timeout=_WAIT_STEP_S)
            except TimeoutError:
                continue

    def _take_session(self, address: str, statement: SparkStatement) -> ConnectSession:
        from engines.spark_sql.connect import ConnectSession

        if statement.careful:
            return ConnectSession(address, careful=True)
        oldest_s = time.monotonic() - _SESSION_IDLE_S
        while True:
            with self._lock:
                if not self._idle:
                    break
                session = self._idle.pop()
            if session.address != address:
                session.break_off()  # its server is gone
            elif session.idle_since_s < oldest_s:
                session.close()
            else:
                return session
        return ConnectSession(address)


def _all_batches(
    statement: SparkStatement, tables: Generator[pa.Table, None, None], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    from engines.spark_sql.results import as_batches

    for table in tables:
        yield from as_batches(table, schema)
    statement.complete = True
