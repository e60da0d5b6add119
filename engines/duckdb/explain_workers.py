"""Processes that plan and run nothing, one statement each: one that takes long to plan holds up no other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from engines.duckdb.process import NoAnswer, WorkerLost, WorkerProcess
from engines.errors import (
    DeadlineExceeded,
    EngineBusy,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    UnsupportedFeature,
)
from engines.protocol import Snapshots

log = logging.getLogger(__name__)

PLANNING_S = 5.0  # plans take milliseconds; what folds huge constants is not worth more
PLANNER_BYTES = 256 << 20
POLL_S = 0.25  # between two looks at whether a statement that waits was cancelled


class ExplainWorkers:
    """A pool of planning processes. Thread-safe; a process starts when it is first needed.

    start: begins a process. update: tells one the tables as they are, and the snapshots of its next statement.
    """

    def __init__(
        self, start: Callable[[], WorkerProcess], update: Callable[[WorkerProcess, Snapshots], None], *, size: int
    ) -> None:
        self._start = start
        self._update = update
        self._places = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._closed = False

    def explain(self, sql: str, snapshots: Snapshots, *, deadline_s: float, cancelled: Callable[[], bool]) -> str:
        """Return a plan as JSON. One that a process was lost over is asked for once more. Raises EngineError."""
        until_s = time.monotonic() + deadline_s
        while not self._places.acquire(timeout=min(POLL_S, max(0.0, until_s - time.monotonic()))):
            if cancelled():
                raise StatementCancelled("The statement was cancelled while it was planned.")
            if time.monotonic() >= until_s:
                raise EngineBusy("No DuckDB process that plans became free in time.")
        try:
            try:
                return self._plan(sql, snapshots, until_s, cancelled)
            except WorkerLost as error:
                log.warning("a DuckDB process that plans was lost, asking another one: %s", error)
                return self._plan(sql, snapshots, until_s, cancelled)
        finally:
            self._places.release()

    def pids(self) -> tuple[int, ...]:
        """Return the process ids of those that wait for a statement."""
        with self._lock:
            return tuple(planner.pid for planner in self._idle)

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for planner in idle:
            planner.close()

    def _plan(self, sql: str, snapshots: Snapshots, until_s: float, cancelled: Callable[[], bool]) -> str:
        planner = self._take()
        limit_s = min(PLANNING_S, until_s - time.monotonic())
        healthy = True
        try:
            self._update(planner, snapshots)
            return planner.plan(sql, memory_bytes=PLANNER_BYTES, timeout_s=limit_s, cancelled=cancelled)
        except MemoryExceeded as error:
            healthy = False  # allocators keep what they took
            raise UnsupportedFeature("planning it takes too much memory.") from error
        except NoAnswer as error:
            healthy = False
            if limit_s < PLANNING_S:
                raise DeadlineExceeded("The statement's time was spent while it was planned.") from error
            # Of a machine that was busy rather than of the statement: nobody is to remember it.
            raise EngineBusy(f"DuckDB could not plan it within {PLANNING_S:g} s.") from error
        except (WorkerLost, StatementCancelled):
            healthy = False
            raise
        except EngineUnavailable as error:  # DuckDB's own: a defect that this statement meets
            healthy = False
            raise UnsupportedFeature(f"it cannot be planned: {error.message}") from error
        finally:
            self._give_back(planner, healthy=healthy)

    def _take(self) -> WorkerProcess:
        ended = []
        with self._lock:
            if self._closed:
                raise EngineUnavailable("DuckDB is shutting down.")
            alive = None
            while self._idle and alive is None:
                planner = self._idle.pop()
                if planner.alive:
                    alive = planner
                else:
                    ended.append(planner)
        for planner in ended:
            planner.close()
        if alive is not None:
            return alive
        try:
            return self._start()
        except OSError as error:
            raise EngineUnavailable(f"DuckDB's planner process does not start: {error}") from error

    def _give_back(self, planner: WorkerProcess, *, healthy: bool) -> None:
        with self._lock:
            if healthy and planner.alive and not self._closed:
                self._idle.append(planner)
                return
        planner.close()
