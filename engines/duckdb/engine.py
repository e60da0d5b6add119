"""The DuckDB engine: a warm pool of worker processes, one statement each, and a few for planning.

There are as many workers as statements run, between a smallest and a largest number, and some spare ones ahead: a
process takes a second to start. Those that a burst of statements leaves behind end once they were idle for a while.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import pyarrow as pa

from engines.duckdb.explain_workers import ExplainWorkers
from engines.duckdb.process import Statement, WorkerProcess
from engines.duckdb.worker import tables as duckdb_tables
from engines.errors import (
    DeadlineExceeded,
    EngineBusy,
    EngineError,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
)
from engines.protocol import EXPLAIN_S, Actuals, EngineKind, EngineStatus, Lease, Snapshots, Watch, never, unwatched
from sql.tables import TableSource

log = logging.getLogger(__name__)

WORKER_WAIT_S = 30.0  # admission keeps statements out while all are busy; this covers a worker being replaced
WORKER_NICE = 5  # so that statements which keep all processors busy do not keep the gateway from answering
RESPAWN_BACKOFF_S = 1.0
RECYCLE_AFTER = 20_000  # statements: to start a worker takes a third of a second of a processor
RECYCLE_GROWTH_BYTES = 512 << 20
IDLE_S = 60.0
LOOKS = 4  # at idle workers, in the time after which one ends
STARTING_AT_ONCE = max(1, (os.cpu_count() or 1))  # each takes a processor for a second; more would all be ready later


class DuckDBEngine:
    """DuckDB in worker processes. Calls block; only EngineError escapes; thread-safe.

    workers: that stand ready at least. most_workers: statements at once, as many as ``workers`` where it is not given.
    threads: of each worker, for a statement whose lease names none. planners: statements that are planned at once.
    spare: workers more, ready for the next statement or to take the place of one that ends. idle_s: after which one of
    too many ends. recycle_after: statements after which a worker is replaced; recycle_growth_bytes: memory that it may
    hold between statements beyond what a new one holds. Tables whose form DuckDB cannot read are left out.
    """

    kind = EngineKind.FAST
    writer = "engines.duckdb.writer.statement"
    backtracks = False
    cost_model: str | None = "engines.duckdb.cost"
    formats = duckdb_tables.FORMATS

    def __init__(
        self,
        *,
        workers: int = 2,
        most_workers: int | None = None,
        threads: int | None = None,
        planners: int = 1,
        spare: int = 0,
        idle_s: float = IDLE_S,
        recycle_after: int = RECYCLE_AFTER,
        recycle_growth_bytes: int = RECYCLE_GROWTH_BYTES,
    ) -> None:
        self.name = "duckdb"
        self.slots = max(workers, most_workers or 0)
        self.guests = min(1, spare)  # statements more, as long as a spare worker stands ready
        self._threads = threads or os.cpu_count() or 1
        self._least = workers
        self._spare = spare
        self._idle_s = idle_s
        self._recycle_after = recycle_after
        self._recycle_growth_bytes = recycle_growth_bytes
        self._tables: Mapping[str, TableSource] = {}
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._idle: list[tuple[WorkerProcess, float]] = []  # and since when, the longest first
        self._workers: set[WorkerProcess] = set()
        self._starting = 0
        self._waiting = 0  # statements that no worker is free for
        self._running: dict[str, Statement | None] = {}
        self._cancelled: set[str] = set()
        self._raised: dict[str, int] = {}  # bytes, of statements that no worker has yet
        self._failure: str | None = None
        self._starts = 0
        self._closed = False
        self._ended = threading.Event()
        self._planners = ExplainWorkers(self._spawn, self._update, size=planners)
        self._fill()
        threading.Thread(target=self._tend, name="duckdb-idle", daemon=True).start()

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Replace the tables. A worker hears what changed before its next statement: many changes cost nothing."""
        readable = {table.name.lower(): table for table in tables if table.format in self.formats and not table.is_lake}
        with self._changed:
            if readable != self._tables:
                self._tables = readable

    def explain(
        self,
        sql: str,
        *,
        deadline_s: float = EXPLAIN_S,
        cancelled: Callable[[], bool] = never,
        snapshots: Snapshots = (),
    ) -> str:
        """Return the physical plan as JSON (EXPLAIN (FORMAT JSON)). A planner that is lost says nothing about it."""
        return self._planners.explain(sql, snapshots, deadline_s=deadline_s, cancelled=cancelled)

    def execute(
        self,
        sql: str,
        *,
        query_id: str,
        lease: Lease,
        deadline_s: float,
        watch: Watch = unwatched,
        snapshots: Snapshots = (),
    ) -> PooledStatement:
        """Run a statement in a worker of its own."""
        with self._changed:
            self._running[query_id] = None
        try:
            worker, statement = self._send(sql, query_id, lease, deadline_s, watch, snapshots)
            try:
                with self._changed:
                    self._running[query_id] = statement
                    cancelled = query_id in self._cancelled
                    raised_bytes = self._raised.get(query_id)
                if raised_bytes is not None:
                    statement.raise_limit(raised_bytes)
                if cancelled:
                    statement.cancel()
                statement.open()
            except BaseException as error:
                statement.close()  # it runs on where not the engine but who watches failed
                self._give_back(worker, error)
                raise
        except BaseException:
            self._forget(query_id)
            raise
        return PooledStatement(self, worker, statement, query_id)

    def cancel(self, query_id: str) -> None:
        """Interrupt a statement; its worker is killed if that does not help."""
        with self._changed:
            if query_id not in self._running:
                return
            statement = self._running[query_id]
            self._cancelled.add(query_id)
            self._changed.notify_all()
        if statement is not None:
            statement.cancel()

    def raise_limit(self, query_id: str, memory_bytes: int) -> None:
        """Let a statement take more memory, from now on or once a worker has it; one that has ended is no error."""
        with self._changed:
            if query_id not in self._running:
                return
            statement = self._running[query_id]
            if statement is None:
                self._raised[query_id] = max(memory_bytes, self._raised.get(query_id, 0))
        if statement is not None:
            statement.raise_limit(memory_bytes)

    def status(self) -> EngineStatus:
        """Report the pool."""
        with self._changed:
            alive = sum(worker.alive for worker in self._workers)
            if self._closed:
                return EngineStatus(False, "closed")
            if not alive and self._failure:
                return EngineStatus(False, self._failure, self._starts)
            busy = max(0, alive - len(self._idle))
            detail = f"{alive} of {self._wanted()} workers, {busy} busy, {self._starting} starting"
            return EngineStatus(True, detail, self._starts)

    def worker_pids(self) -> tuple[int, ...]:
        """Return the process ids of the workers that run statements."""
        with self._changed:
            return tuple(worker.pid for worker in self._workers)

    def planner_pids(self) -> tuple[int, ...]:
        """Return the process ids of those that plan, as far as none of them does."""
        return self._planners.pids()

    def close(self) -> None:
        """End all worker processes."""
        with self._changed:
            self._closed = True
            workers, self._idle = list(self._workers), []
            self._ended.set()
            self._workers.clear()
            self._changed.notify_all()
        for worker in workers:
            worker.close()
        self._planners.close()

    def _send(
        self, sql: str, query_id: str, lease: Lease, deadline_s: float, watch: Watch, snapshots: Snapshots
    ) -> tuple[WorkerProcess, Statement]:
        """Send a statement to a worker; one that died while it was idle has run nothing, so the next is taken."""
        until = time.monotonic() + deadline_s
        while True:
            remaining_s = until - time.monotonic()
            if remaining_s <= 0:
                raise DeadlineExceeded("The statement's time is spent.")
            worker = self._take(min(remaining_s, WORKER_WAIT_S), query_id)
            try:
                self._update(worker, snapshots)
                return worker, Statement(worker, next(self._numbers), sql, lease, remaining_s, watch)
            except EngineError as error:
                self._give_back(worker, error)
                if not isinstance(error, EngineUnavailable):
                    raise

    def _update(self, worker: WorkerProcess, snapshots: Snapshots) -> None:
        """Tell a worker the tables as they are, and the snapshots of its next statement. Raises EngineError."""
        with self._changed:
            tables = self._tables
        worker.use_tables(tables, snapshots)

    def _take(self, wait_s: float, query_id: str) -> WorkerProcess:
        until = time.monotonic() + wait_s
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    if self._closed:
                        raise EngineUnavailable("DuckDB is shutting down.")
                    if query_id in self._cancelled:
                        raise StatementCancelled("The statement was cancelled.")
                    worker = self._take_idle()
                    if worker is not None:
                        return worker
                    self._fill()
                    if self._failure and not self._starting and not self._workers:
                        raise EngineUnavailable(self._failure)
                    remaining = until - time.monotonic()
                    if remaining <= 0:
                        raise EngineBusy("No DuckDB worker became free in time.")
                    self._changed.wait(remaining)
            finally:
                self._waiting -= 1
                self._fill()  # a spare one in place of the one that was taken

    def _take_idle(self) -> WorkerProcess | None:
        """Return the worker that was busy last, whose memory is warm, and leave the others to become superfluous."""
        while self._idle and self._busy() < self.slots + self.guests:
            worker, _ = self._idle.pop()
            if worker.alive and not self._is_outworn(worker):
                return worker
            self._retire(worker)
        return None

    def _give_back(self, worker: WorkerProcess, error: BaseException | None) -> None:
        """Keep a healthy worker. One that ran out of memory starts afresh: allocators keep what they took."""
        healthy = error is None or (worker.alive and not isinstance(error, MemoryExceeded | EngineUnavailable))
        with self._changed:
            if healthy and not self._closed:
                self._idle.append((worker, time.monotonic()))
                self._changed.notify_all()
                return
            self._retire(worker)

    def _busy(self) -> int:
        return len(self._workers) - len(self._idle)

    def _wanted(self) -> int:
        """Return how many workers there are to be now."""
        return max(self._least, min(self._busy() + self._waiting, self.slots)) + self._spare

    def _tend(self) -> None:
        """Replace idle workers that were killed, and end those that have been idle for long and are too many."""
        while not self._ended.wait(self._idle_s / LOOKS):
            before = time.monotonic() - self._idle_s
            with self._changed:
                lost = [(worker, since) for worker, since in self._idle if not worker.alive]
                self._idle = [entry for entry in self._idle if entry not in lost]
                while self._idle and len(self._workers) > self._wanted() + len(lost) and self._idle[0][1] < before:
                    lost.append(self._idle.pop(0))
                for worker, _ in lost:
                    self._retire(worker)

    def _is_outworn(self, worker: WorkerProcess) -> bool:
        return worker.statements >= self._recycle_after or worker.growth_bytes > self._recycle_growth_bytes

    def _retire(self, worker: WorkerProcess) -> None:
        self._workers.discard(worker)
        threading.Thread(target=worker.close, name="duckdb-retire", daemon=True).start()
        self._fill()

    def _forget(self, query_id: str) -> None:
        with self._changed:
            self._running.pop(query_id, None)
            self._cancelled.discard(query_id)
            self._raised.pop(query_id, None)

    def _fill(self) -> None:
        """Start as many workers as are missing, each in a thread of its own."""
        with self._changed:
            missing = 0 if self._closed else self._wanted() - len(self._workers) - self._starting
            missing = max(0, min(missing, STARTING_AT_ONCE - self._starting))
            self._starting += missing
        for _ in range(missing):
            threading.Thread(target=self._start_worker, name="duckdb-start", daemon=True).start()

    def _start_worker(self) -> None:
        worker = None
        try:
            worker = self._spawn(nice=WORKER_NICE)
        except (EngineError, OSError) as error:
            log.warning("a DuckDB worker did not start: %s", error)
            time.sleep(RESPAWN_BACKOFF_S)
            with self._changed:
                self._failure = f"DuckDB workers do not start: {error}"
        with self._changed:
            self._starting -= 1
            if worker is not None and not self._closed:
                self._failure = None
                self._workers.add(worker)
                self._idle.append((worker, time.monotonic()))
                worker = None
            self._changed.notify_all()
        if worker is not None:
            worker.close()
        self._fill()

    def _spawn(self, nice: int = 0) -> WorkerProcess:
        with self._changed:
            tables = self._tables
            self._starts += 1
        return WorkerProcess(threads=self._threads, tables=tables, nice=nice)


class PooledStatement:
    """A statement's ResultStream that gives its worker back when it ends."""

    def __init__(self, pool: DuckDBEngine, worker: WorkerProcess, statement: Statement, query_id: str) -> None:
        self._pool = pool
        self._worker: WorkerProcess | None = worker
        self._statement = statement
        self._query_id = query_id

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the result."""
        return self._statement.schema

    @property
    def actuals(self) -> Actuals:
        """Peak and rows per operator; complete after the last batch."""
        return self._statement.actuals

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._statement)
        except StopIteration:
            self._release(None)
            raise
        except EngineError as error:
            self._release(error)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the statement and give the worker back."""
        try:
            with contextlib.suppress(EngineError):
                self._statement.close()
        finally:
            self._release(None)

    def _release(self, error: EngineError | None) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            self._pool._forget(self._query_id)
            self._pool._give_back(worker, error)
