"""One attempt while it runs: who watches it, what ends it before its time, and whether its answer counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from engines.errors import EngineError, StatementCancelled, Superseded
from engines.protocol import Watch, unwatched
from gateway.execution.failover import PlannedAttempt
from gateway.execution.racing.memory_watch import MemoryWatch
from gateway.execution.streaming.early_result import EarlyResult
from gateway.routing.admission.admission import Grant
from gateway.routing.engines import EngineEntry
from gateway.statements.statement import Run
from metastore.records import Attempt, QueryState
from selector.forecast.continuation import Standing

CANCEL_REPEAT_S = 0.25


class FinishLine:
    """Where the first whole answer of a query wins. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._crossed = False

    def cross(self, rename: Callable[[], None]) -> None:
        """Make an answer the query's. Raises Superseded where there is one."""
        with self._lock:
            if self._crossed:
                raise Superseded("Another engine answered first.")
            rename()
            self._crossed = True


class Runner:
    """One attempt. Thread-safe. started: hears once it holds its lease.

    judge: hears how it stands, again and again; None where nobody would do anything about it. early: what takes its
    rows, where they may be read, or were before; settled: they may be now.
    """

    def __init__(
        self,
        run: Run,
        this: PlannedAttempt,
        attempt: Attempt,
        finish: FinishLine,
        *,
        started: Callable[[Runner], None],
        judge: Callable[[Runner, Standing], None] | None,
        early: EarlyResult | None = None,
        settled: bool = False,
    ) -> None:
        self.run = run
        self.this = this
        self.attempt = attempt
        self.finish = finish
        self.early = early
        self.settled = settled
        self.waited_s = 0.0
        self.watch: Watch = unwatched
        self._started = started
        self._judge = judge
        self._begun_s = time.monotonic()
        self._memory: MemoryWatch | None = None
        self._threads: int | None = None
        self._entry: EngineEntry | None = None
        self._ending: StatementCancelled | None = None
        self._ended = threading.Event()

    def begin(self) -> None:
        """Note that it begins, with its wait for a lease: it was put on record before."""
        self._begun_s = time.monotonic()

    @contextmanager
    def holding(self, entry: EngineEntry, grant: Grant, limit_bytes: int | None) -> Iterator[None]:
        """Run on an engine, which hears for as long as this lasts if the attempt or its query is to end.

        limit_bytes: that one statement may get there at most; None where it spills.
        """
        self.waited_s = time.monotonic() - self._begun_s
        self._threads = grant.lease.threads or entry.threads
        if limit_bytes is not None:
            judge = partial(self._judge, self) if self._judge is not None else None
            self._memory = MemoryWatch(self.run.id, entry.engine, grant, limit_bytes, judge)
            if self._memory.may_act:
                self.watch = self._memory
        self._entry = entry
        with self.run.on(entry.name):
            self._started(self)
            self.require()
            yield

    @property
    def is_unwanted(self) -> bool:
        """Whether it, or its whole query, is to end."""
        return self._ending is not None or self.run.cancelled

    @property
    def held_bytes(self) -> int | None:
        """The most that it has held; None where nobody told."""
        return self._memory.most_bytes if self._memory else None

    def require(self) -> None:
        """Raise StatementCancelled or DeadlineExceeded where nobody waits for it any more."""
        if self._ending is not None:
            raise self._ending
        self.run.require()

    def end(self, reason: StatementCancelled) -> Attempt:
        """End it, and return it as it ends, whatever the engine still says of it. The first reason counts."""
        if self._ending is None:
            self._ending = reason
            threading.Thread(target=self._cancel_until_ended, name=f"end {self.run.id}", daemon=True).start()
        ended = replace(
            self.attempt,
            state=QueryState.CANCELLED,
            wall_s=time.monotonic() - self._begun_s,
            failure=self._ending.code,
            message=self._ending.message,
            peak_bytes=self.held_bytes,
        )
        return self.noted(ended)

    def noted(self, attempt: Attempt) -> Attempt:
        """Return the attempt with what it got of its engine. What it had to fit into is the lease, if that bound it."""
        lease_bytes, expected = self._memory.leased_bytes if self._memory else None, attempt.expected
        bound = lease_bytes is not None and (attempt.peak_bytes or 0) <= lease_bytes
        if bound and expected.limit_bytes is not None:
            expected = replace(expected, limit_bytes=lease_bytes)
        waited_s, threads = self.waited_s, self._threads
        return replace(attempt, waited_s=waited_s, lease_bytes=lease_bytes, threads=threads, expected=expected)

    def ended(self) -> None:
        """Note that nothing of it runs any more."""
        self._ended.set()

    def reason(self, error: EngineError) -> EngineError:
        """Return what an attempt that was cancelled really ended of."""
        if self._ending is None or self.run.cancelled or not isinstance(error, StatementCancelled):
            return error
        return self._ending

    def _cancel_until_ended(self) -> None:
        """Repeat a cancel until it is heard: it may come while the engine is just about to start the statement."""
        while not self._ended.is_set():
            if self._entry is not None:
                self._entry.engine.cancel(self.run.id)
            self._ended.wait(CANCEL_REPEAT_S)
