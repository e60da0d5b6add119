"""Spark as the dependable engine: an embedded server or a remote one, through Spark Connect alike."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import pyarrow as pa

from engines.errors import (
    DeadlineExceeded,
    EngineError,
    EngineFault,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
)
from engines.protocol import Actuals, EngineKind, EngineStatus, Lease, TableSource
from engines.spark.connect import ConnectSession, as_batches, statement_plan
from engines.spark.errors import spark_errors
from engines.spark.server import ServerState, SparkConnectServer
from engines.spark.staging import can_be_staged, may_be_large, staged_rows

FORMATS = frozenset({"parquet", "csv", "json", "orc"})

_DEFAULT_PORT = 15002
_EXPLAIN_DEADLINE_S = 60.0
_WARM_UP_DEADLINE_S = 300.0
_SESSION_IDLE_S = 600.0  # the server forgets a session after an hour
_WAIT_STEP_S = 0.05
_INTERRUPT_FOR_S = 5.0
_BREAK_OFF_AFTER_S = 10.0
_END_FOR_S = 300.0
_STATUS_TIMEOUT_S = 0.5
_PLANNING_FAILED = "Error occurred during query planning:"


class _Attempt:
    """One statement on its way: how it can be ended from another thread, and what ended it."""

    def __init__(self, query_id: str, deadline_s: float, tables: tuple[TableSource, ...], tables_version: int) -> None:
        self.query_id = query_id
        self.tables = tables
        self.tables_version = tables_version
        self.tag = f"fusion-{uuid.uuid4().hex}"
        self.finished = threading.Event()
        self.alone = True  # no other statement ran at any time of its life
        self.session: ConnectSession | None = None
        self._lock = threading.Lock()
        self._ended_by: EngineError | None = None
        late = DeadlineExceeded(f"The statement did not end within {deadline_s:.3g} s")
        self._timer = threading.Timer(min(max(deadline_s, 0.0), threading.TIMEOUT_MAX), self.end, [late])
        self._timer.daemon = True
        self._timer.start()

    @property
    def ended_by(self) -> EngineError | None:
        """The cancel or the deadline that ended it; a fresh error each time, for it may be raised twice."""
        with self._lock:
            return type(self._ended_by)(self._ended_by.message) if self._ended_by else None

    def raise_if_ended(self) -> None:
        """Raise what ended it, if something did."""
        if error := self.ended_by:
            raise error

    def use(self, session: ConnectSession) -> None:
        """From here on ``end`` interrupts the session."""
        with self._lock:
            self.session = session
        self.raise_if_ended()

    def end(self, error: EngineError) -> None:
        """End the statement for this reason, unless it has ended already."""
        with self._lock:
            if self._ended_by is not None or self.finished.is_set():
                return
            self._ended_by = error
            session = self.session
        if session is not None:
            self._interrupt(session)

    def finish(self) -> None:
        """Nothing is left to end."""
        self._timer.cancel()
        self.finished.set()

    def _interrupt(self, session: ConnectSession) -> None:
        last_resort = threading.Timer(_BREAK_OFF_AFTER_S, self._break_off, [session])
        last_resort.daemon = True
        last_resort.start()
        give_up_s = time.monotonic() + _INTERRUPT_FOR_S
        try:
            with spark_errors():
                # An interrupt that overtakes its statement finds nothing to stop.
                while not session.interrupt(self.tag) and time.monotonic() < give_up_s:
                    if self.finished.wait(_WAIT_STEP_S):
                        return
        except EngineError:
            return  # whoever reads the result meets the same trouble, and reports it

    def _break_off(self, session: ConnectSession) -> None:
        """Free a reader that waits for a server which does not answer, then the server of the statement."""
        if not self.finished.is_set():
            session.break_off()
            session.end_from_outside(_END_FOR_S)


class SparkResult:
    """A statement's batches while they arrive. One thread reads; any thread may close."""

    def __init__(
        self, engine: SparkConnectEngine, attempt: _Attempt, schema: pa.Schema, tables: Iterator[pa.Table]
    ) -> None:
        self._engine = engine
        self._attempt = attempt
        self._schema = schema
        self._tables = tables
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._failure: EngineError | None = None
        self._reading = threading.Lock()

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the result."""
        return self._schema

    @property
    def actuals(self) -> Actuals:
        """Nothing: Spark Connect does not tell a statement's peak memory."""
        return Actuals()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._reading:
            while (batch := next(self._batches, None)) is None:
                if self._failure is not None:
                    raise self._failure
                if self._attempt.finished.is_set():
                    raise StopIteration
                self._fetch()
            return batch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the statement; may be called twice."""
        if not self._reading.acquire(blocking=False):
            self._attempt.end(StatementCancelled("The result was closed"))
            self._reading.acquire()
        try:
            self._batches = iter(())
            self._finish(None)
        finally:
            self._reading.release()

    def _fetch(self) -> None:
        try:
            self._attempt.raise_if_ended()
            with spark_errors():
                table = next(self._tables, None)
                if table is not None:
                    self._batches = iter(as_batches(table, self._schema))
        except EngineError as error:
            self._failure = self._engine.reason_for(self._attempt, error)
            self._finish(error)
            raise self._failure from None
        if table is None:
            self._finish(None)

    def _finish(self, error: EngineError | None) -> None:
        if not self._attempt.finished.is_set():
            self._tables.close()  # type: ignore[attr-defined]  # a generator; ends the work on the server
            self._engine.release(self._attempt, error)


class SparkConnectEngine:
    """Spark behind the ``Engine`` protocol.

    server: the embedded server, which the engine then owns, or the address ``sc://host:port`` of a remote one.
    """

    def __init__(self, server: SparkConnectServer | str, *, name: str = "spark", slots: int = 2) -> None:
        if isinstance(server, str) and not urlsplit(server).hostname:
            raise ValueError(f"not a Spark Connect address: {server!r}; write sc://host:port")
        self._server = server
        self._name = name
        self._slots = slots
        self._lock = threading.Lock()
        self._tables: tuple[TableSource, ...] = ()
        self._tables_version = 0
        self._idle: list[tuple[int, ConnectSession]] = []  # with the version of the tables that it has seen
        self._running: dict[str, _Attempt] = {}
        self._closed = False

    @property
    def name(self) -> str:
        """The name that users pin a statement to."""
        return self._name

    @property
    def kind(self) -> EngineKind:
        """Spills to disk and tries tasks again."""
        return EngineKind.DEPENDABLE

    @property
    def dialect(self) -> str:
        """Spark SQL."""
        return "spark"

    @property
    def formats(self) -> frozenset[str]:
        """What Spark reads without further packages."""
        return FORMATS

    @property
    def slots(self) -> int:
        """Statements that may run at once; Spark itself would take more."""
        return self._slots

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Replace the tables; statements that start from now on see them."""
        with self._lock:
            self._tables = tuple(tables)
            self._tables_version += 1

    def warm_up(self) -> None:
        """Start the server and run a first statement, which takes seconds more than the next. Blocks."""
        self._collect("SELECT 1", deadline_s=_WARM_UP_DEADLINE_S)

    def explain(self, sql: str) -> str:
        """Return the text of EXPLAIN FORMATTED."""
        plan = str(self._collect(f"EXPLAIN FORMATTED {sql}", deadline_s=_EXPLAIN_DEADLINE_S)[0][0].as_py())
        if plan.startswith(_PLANNING_FAILED):
            # Spark answers a wrong statement with this row; DESCRIBE QUERY says why and runs nothing.
            self._collect(f"DESCRIBE QUERY {sql}", deadline_s=_EXPLAIN_DEADLINE_S)
            raise StatementError("Spark cannot plan the statement")
        return plan

    def execute(self, sql: str, *, query_id: str, lease: Lease, deadline_s: float) -> SparkResult:
        """Start a statement. The lease is not used: memory belongs to the server, which spills."""
        return self._execute(sql, query_id, deadline_s)

    def cancel(self, query_id: str) -> None:
        """End a running statement; an unknown id is not an error."""
        with self._lock:
            attempt = self._running.get(query_id)
        if attempt is not None:
            attempt.end(StatementCancelled("The statement was cancelled"))

    def status(self) -> EngineStatus:
        """Report at once. A server that was not started yet is alive: it starts with the first statement."""
        if self._closed:
            return EngineStatus(alive=False, detail="closed")
        if isinstance(self._server, str):
            return self._remote_status(self._server)
        state, detail = self._server.status()
        return EngineStatus(alive=state is ServerState.STARTING or self._server.may_start(), detail=detail)

    def close(self) -> None:
        """End every statement, give the sessions back and stop the embedded server; may be called twice."""
        with self._lock:
            self._closed = True
            running = list(self._running.values())
            idle, self._idle = self._idle, []
        for attempt in running:
            attempt.end(StatementCancelled("The engine was closed"))
        for _, session in idle:
            session.close()
        if isinstance(self._server, SparkConnectServer):
            self._server.stop()

    def reason_for(self, attempt: _Attempt, error: EngineError) -> EngineError:
        """Return what an attempt's error really was."""
        if ended_by := attempt.ended_by:
            return ended_by
        session = attempt.session
        if not isinstance(error, EngineUnavailable) or isinstance(self._server, str) or session is None:
            return error
        if not self._server.ran_out_of_memory(session.address):
            return error
        if attempt.alone:
            return MemoryExceeded("Spark ran out of memory")
        return EngineUnavailable("Spark ran out of memory while several statements ran")

    def release(self, attempt: _Attempt, error: EngineError | None) -> None:
        """Take note that an attempt ended, with this error if any, and keep its session for the next one."""
        attempt.finish()
        session = attempt.session
        with self._lock:
            del self._running[attempt.query_id]
            if session is None:
                return
            healthy = not session.is_closed and not isinstance(error, EngineUnavailable | EngineFault)
            if healthy and not self._closed:
                session.idle_since_s = time.monotonic()
                self._idle.append((attempt.tables_version, session))
                return
        if healthy:
            session.close()
        else:
            session.break_off()

    def _collect(self, sql: str, deadline_s: float) -> pa.Table:
        """Run one of our own statements; return its columns."""
        with self._execute(sql, f"{self._name}-{uuid.uuid4().hex}", deadline_s) as result:
            return pa.Table.from_batches(result, result.schema)

    def _execute(self, sql: str, query_id: str, deadline_s: float) -> SparkResult:
        attempt = self._admit(query_id, deadline_s)
        try:
            address = self._wait_for_server(attempt)
            with spark_errors():
                session = self._take_session(address, attempt.tables_version)
                attempt.use(session)
                attempt.raise_if_ended()
                schema, tables = self._start(session, sql, attempt)
        except EngineError as error:
            reason = self.reason_for(attempt, error)
            self.release(attempt, error)
            raise reason from None
        return SparkResult(self, attempt, schema, tables)

    def _start(self, session: ConnectSession, sql: str, attempt: _Attempt) -> tuple[pa.Schema, Iterator[pa.Table]]:
        plan = statement_plan(sql, attempt.tables)
        if isinstance(self._server, SparkConnectServer) and may_be_large(sql):
            schema = session.schema(plan)
            if can_be_staged(schema):
                folder = self._server.results_folder / attempt.tag
                return schema, staged_rows(session, plan, schema, folder=folder, tag=attempt.tag)
        return session.run(plan, attempt.tag)

    def _admit(self, query_id: str, deadline_s: float) -> _Attempt:
        with self._lock:
            if self._closed:
                raise EngineUnavailable("Spark was closed")
            if query_id in self._running:
                raise EngineFault(f"The statement {query_id} runs already")
            attempt = _Attempt(query_id, deadline_s, self._tables, self._tables_version)
            if self._running:
                attempt.alone = False
                for other in self._running.values():
                    other.alone = False
            self._running[query_id] = attempt
            return attempt

    def _wait_for_server(self, attempt: _Attempt) -> str:
        """Return the server's address once it runs; the statement may be ended meanwhile."""
        if isinstance(self._server, str):
            return self._server
        starting = self._server.begin()
        while True:
            attempt.raise_if_ended()
            try:
                return starting.result(timeout=_WAIT_STEP_S)
            except TimeoutError:
                continue

    def _take_session(self, address: str, tables_version: int) -> ConnectSession:
        oldest_s = time.monotonic() - _SESSION_IDLE_S
        while True:
            with self._lock:
                if not self._idle:
                    break
                version, session = self._idle.pop()
            if session.address != address:
                session.break_off()  # its server is gone
            elif version != tables_version or session.idle_since_s < oldest_s:
                session.close()
            else:
                return session
        return ConnectSession(address)

    def _remote_status(self, address: str) -> EngineStatus:
        parts = urlsplit(address)
        place = f"{parts.hostname}:{parts.port or _DEFAULT_PORT}"
        try:
            socket.create_connection((parts.hostname, parts.port or _DEFAULT_PORT), timeout=_STATUS_TIMEOUT_S).close()
        except OSError as error:
            return EngineStatus(alive=False, detail=f"{place} does not answer: {error.strerror or error}")
        return EngineStatus(alive=True, detail=f"{place} answers")
