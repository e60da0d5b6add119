"""Sail behind the ``Engine`` protocol: one server per statement, a session of Spark Connect per statement."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from engines.errors import (
    DataError,
    EngineError,
    EngineFault,
    EngineUnavailable,
    StatementCancelled,
    UnsupportedFeature,
)
from engines.protocol import (
    EXPLAIN_S,
    EngineKind,
    EngineStatus,
    Lease,
    TableSource,
    Watch,
    never,
    unwatched,
)
from engines.running_statement import RunningStatement, StatementResult
from engines.sail.errors import sail_errors
from engines.sail.plan_text import with_table_names
from engines.sail.servers import Server, Servers, Shape, Spilling
from engines.spark_sql.connect import ConnectSession, as_batches, statement_plan

DIALECT = "sail"
FORMATS = frozenset({"parquet"})
"""What it reads with the same values as Spark."""

PLANNER_BYTES = 64 << 20
"""Of the server that plans; plans read nothing but the files' footers."""

_KILL_AFTER_S = 2.0  # of a statement that was told to end
_CANCEL_CHECK_S = 0.1


class _Statement(RunningStatement):
    """One statement on its way to a server of its own. complete: it came to its own end."""

    def __init__(self, query_id: str, deadline_s: float, tables: tuple[TableSource, ...]) -> None:
        super().__init__(query_id, deadline_s)
        self.tables = tables
        self.tag = f"fusion-{uuid.uuid4().hex}"
        self.server: Server | None = None
        self.session: ConnectSession | None = None
        self.complete = False

    def use(self, server: Server, session: ConnectSession) -> None:
        """From here on ``end`` interrupts the session, and kills its server where that does not help."""
        self.server, self.session = server, session
        self.stop_by(lambda: self._begin_stop(server, session), break_off=session.break_off)

    def _begin_stop(self, server: Server, session: ConnectSession) -> None:
        """Stop it in threads of their own: whoever ends a statement need not wait, and a busy server may not answer."""
        threading.Thread(target=self._interrupt, args=(session,), name=f"interrupt {self.tag}", daemon=True).start()
        threading.Thread(target=self._kill_late, args=(server,), name=f"kill {self.tag}", daemon=True).start()

    def _interrupt(self, session: ConnectSession) -> None:
        try:
            with sail_errors():
                session.interrupt(self.tag)
        except EngineError:
            return  # whoever reads the result meets the same trouble

    def _kill_late(self, server: Server) -> None:
        if not self.finished.wait(_KILL_AFTER_S):
            server.kill()


class SailEngine:
    """Sail behind the ``Engine`` protocol. Calls block; only EngineError escapes; thread-safe.

    folder: belongs to it alone. memory_bytes: of one statement, where its lease says nothing else. spilling: where a
    dependable one writes what does not fit; without it, it is a fast one. slots: statements at once. threads: of one.
    """

    dialect = DIALECT
    formats = FORMATS

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "sail",
        memory_bytes: int,
        spilling: Spilling | None = None,
        slots: int = 2,
        threads: int = 1,
    ) -> None:
        self.name = name
        self.slots = slots
        self.kind = EngineKind.FAST if spilling is None else EngineKind.DEPENDABLE
        self.cost_model: str | None = "selector.cost.sail" if spilling is None else None
        self._threads = threads
        self._lock = threading.Lock()
        self._tables: tuple[TableSource, ...] = ()
        self._running: dict[str, _Statement] = {}
        self._closed = False
        self._servers = Servers(Shape(memory_bytes, threads), folder / "running", spilling, size=slots)
        self._planners = Servers(Shape(PLANNER_BYTES, threads), folder / "planning", spilling, size=1)

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Replace the tables; statements that start from now on see them, for each names its own."""
        readable = tuple(table for table in tables if table.format in self.formats and not table.defect)
        with self._lock:
            self._tables = readable

    def explain(self, sql: str, *, deadline_s: float = EXPLAIN_S, cancelled: Callable[[], bool] = never) -> str:
        """Return the text of EXPLAIN COST, where scans name tables instead of files."""
        planning = f"{self.name}-{uuid.uuid4().hex}"
        looking = threading.Event()

        def look() -> None:
            while not looking.wait(_CANCEL_CHECK_S):
                if cancelled():
                    self.cancel(planning)
                    return

        if cancelled is not never:
            threading.Thread(target=look, name="sail-explain", daemon=True).start()
        try:
            tables = self._tables
            with self._execute(
                f"EXPLAIN COST {sql}", planning, deadline_s, self._planners, self._planners.usual
            ) as result:
                plan = pa.Table.from_batches(result, result.schema)
        finally:
            looking.set()
        return with_table_names(str(plan[0][0].as_py()), tables)

    def execute(
        self, sql: str, *, query_id: str, lease: Lease, deadline_s: float, watch: Watch = unwatched
    ) -> StatementResult:
        """Run a statement on a server that has the lease's memory; a dependable one has its own."""
        threads = lease.threads or self._threads
        if self.kind is EngineKind.FAST:
            shape = Shape(lease.memory_bytes, threads)
        else:
            # What several threads sort at once is more than the pool's smallest shares.
            shape = Shape(self._servers.usual.memory_bytes, 1 if lease.careful else threads)
        return self._execute(sql, query_id, deadline_s, self._servers, shape)

    def cancel(self, query_id: str) -> None:
        """End a running statement; an unknown id is not an error."""
        with self._lock:
            statement = self._running.get(query_id)
        if statement is not None:
            statement.end(StatementCancelled("The statement was cancelled"))

    def status(self) -> EngineStatus:
        """Report the servers."""
        if self._closed:
            return EngineStatus(alive=False, detail="closed")
        alive, detail = self._servers.describe()
        return EngineStatus(alive=alive, detail=detail)

    def server_pids(self) -> tuple[int, ...]:
        """Return the process ids of the servers that run statements."""
        return self._servers.pids()

    def close(self) -> None:
        """End every statement and all servers; may be called twice."""
        with self._lock:
            self._closed = True
            running = list(self._running.values())
        for statement in running:
            statement.end(StatementCancelled("The engine was closed"))
        self._servers.close()
        self._planners.close()

    def _execute(self, sql: str, query_id: str, deadline_s: float, servers: Servers, shape: Shape) -> StatementResult:
        statement = self._admit(query_id, deadline_s)
        try:
            server = servers.take(shape, give_up=statement.raise_if_ended)
            statement.server = server
            with sail_errors():
                session = ConnectSession(server.address)
                statement.use(server, session)
                session.configure()
                for name, table in _named(sql, statement.tables):
                    _require_place(table)
                    session.name_table(name, table)
                statement.raise_if_ended()
                schema, tables = session.run(statement_plan(sql, ()), statement.tag)
        except EngineError as error:
            reason = statement.ended_by or error
            self._release(statement, servers, error)
            raise reason from None

        def release(error: EngineError | None) -> None:
            tables.close()
            self._release(statement, servers, error)

        return StatementResult(
            statement,
            schema,
            _all_batches(statement, tables, schema),
            errors=sail_errors,
            settle=lambda error: statement.ended_by or error,
            release=release,
        )

    def _admit(self, query_id: str, deadline_s: float) -> _Statement:
        with self._lock:
            if self._closed:
                raise EngineUnavailable("Sail was closed")
            if query_id in self._running:
                raise EngineFault(f"The statement {query_id} runs already")
            statement = _Statement(query_id, deadline_s, self._tables)
            self._running[query_id] = statement
        return statement

    def _release(self, statement: _Statement, servers: Servers, error: EngineError | None) -> None:
        """Take note that a statement ended. A server keeps nothing of it, or is replaced by a new one."""
        harmless = statement.complete or (isinstance(error, UnsupportedFeature) and statement.ended_by is None)
        statement.finish()
        with self._lock:
            del self._running[statement.query_id]
        if statement.session is not None:
            if harmless:
                statement.session.close()
            else:
                statement.session.break_off()
        if statement.server is not None:
            servers.give_back(statement.server, healthy=harmless)


def _named(sql: str, tables: Sequence[TableSource]) -> Iterator[tuple[str, TableSource]]:
    """Yield the tables that a text can mean, under each spelling that it has there: Sail tells views apart by case."""
    for table in tables:
        # A backtick within a name is written twice; the name of a view is taken as it is.
        written = re.escape(table.name.replace("`", "``"))
        for spelled in {found.group() for found in re.finditer(written, sql, re.IGNORECASE)}:
            yield spelled.replace("``", "`"), table


def _require_place(table: TableSource) -> None:
    """Raise DataError for a table whose place is gone, which would have no rows."""
    if not Path(table.location.removeprefix("file:")).exists():
        raise DataError(f"There is nothing any more where the table {table.name} was.")


def _all_batches(
    statement: _Statement, tables: Generator[pa.Table, None, None], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from as_batches(table, schema)
    statement.complete = True
