"""Waits of queries: as values, in words, and in the states of queries that users see.

In the metastore a query runs from its decision on. Only the gateway that runs it knows whether it has its lease yet.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace

from gateway.presentation.formatting import memory, ordinal
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.values import DEFAULT_POOL, Need, Waiting
from gateway.statements.statement import Pending, Run, WaitsFor
from metastore.records import QueryRecord, QueryState
from selector.wording import seconds_of

LISTED_S = 0.25  # age up to which a list of all waiting statements serves those in it
UNLISTED_S = 0.02  # the same for a statement that is not in the list: it may have begun to wait since


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait of a query. The fields after engine are of waits for a lease alone."""

    needs: Need | WaitsFor
    """``Need``: of a lease; ``WaitsFor``: of anything else."""
    since: dt.datetime
    engine: str | None
    """None: any engine."""
    pool: str | None = None
    memory_bytes: int | None = None
    """None: the engine spills."""
    place: int | None = None
    """1: the next one."""
    expected_s: float | None = None
    """From now."""


class Waits:
    """Waits of this gateway's queries. Thread-safe.

    find: returns a query that is alive in this gateway.
    """

    def __init__(self, find: Callable[[str], Run | None], admission: Admission) -> None:
        self._find = find
        self._admission = admission
        self._lock = threading.Lock()
        self._listed: dict[tuple[str, str], Waiting] = {}  # by query and engine
        self._listed_at_s = -LISTED_S

    def of(self, query_id: str) -> Wait | None:
        """Return the wait of a query; None where it runs, has ended, or is being planned."""
        run = self._find(query_id)
        if run is None or run.state is not QueryState.QUEUED:
            return None
        return next((wait for pending in run.pending if (wait := self._wait(run, pending)) is not None), None)

    def seen(self, record: QueryRecord) -> QueryRecord:
        """Return a query in its state of now: while it waits for a lease, neither it nor its attempt runs."""
        run = None if record.state.ended else self._find(record.id)
        state = run.state if run is not None else record.state
        if run is None or state.ended:
            return record
        return _with(record, state, {pending.engine for pending in run.pending} - {run.engine})

    def _wait(self, run: Run, pending: Pending) -> Wait | None:
        if pending.reason is not WaitsFor.LEASE or pending.engine is None:
            return Wait(pending.reason, pending.since, pending.engine)
        key = run.id, pending.engine
        waiting = self._list(LISTED_S if key in self._listed else UNLISTED_S).get(key)
        return None if waiting is None else _lease(waiting)  # it has just got its lease, or is about to ask for it

    def _list(self, oldest_s: float) -> Mapping[tuple[str, str], Waiting]:
        """Return all waiting statements, by a list not older than ``oldest_s``: to make one holds up admission."""
        with self._lock:
            if time.monotonic() - self._listed_at_s > oldest_s:
                self._listed = {(waiting.query_id, waiting.engine): waiting for waiting in self._admission.waiting()}
                self._listed_at_s = time.monotonic()
            return self._listed


def _lease(waiting: Waiting) -> Wait:
    return Wait(
        waiting.needs,
        waiting.since,
        waiting.engine,
        waiting.pool,
        waiting.memory_bytes or None,
        waiting.place,
        round(waiting.expected_s, 3),
    )


def _with(record: QueryRecord, state: QueryState, engines: Set[str | None]) -> QueryRecord:
    """Return a query in a state, and its attempts on engines for which it waits."""
    attempts = tuple(
        replace(attempt, state=QueryState.QUEUED) if attempt.engine in engines and not attempt.state.ended else attempt
        for attempt in record.attempts
    )
    return replace(record, state=state, attempts=attempts)


def waits_for(wait: Wait) -> str:
    """Return a wait in words: ``waits for 512 MiB of duckdb in pool etl: 3rd in line, expected 4.0 s``."""
    engine = wait.engine or "an engine"
    match wait.needs:
        case WaitsFor.OBJECTS:
            return "waits for columns that come from an object store"
        case WaitsFor.FIRST_TRY:
            return f"waits until another run of the same text has shown whether it fits into {engine}"
        case WaitsFor.PLANNER:
            return "waits to be planned, behind other statements"
        case WaitsFor.ENGINE | WaitsFor.LEASE:
            return f"waits until {engine} is available again"
        case Need.MEMORY | Need.POOL_MEMORY:
            what = f"{memory(wait.memory_bytes)} of {engine}"
        case Need.SLOT | Need.POOL_SLOT:
            what = f"a slot of {engine}"
        case Need.PROCESSORS:
            what = f"processors of {engine}, which other statements keep busy"
        case Need.TURN:
            what = f"its turn on {engine}"
    if wait.needs.of_pool or wait.pool not in (None, DEFAULT_POOL):
        what += f" in pool {wait.pool}"
    line = f"waits for {what}"
    if wait.place is not None:
        line += f": {ordinal(wait.place)} in line"
    return line if wait.expected_s is None else f"{line}, expected {seconds_of(wait.expected_s)}"
