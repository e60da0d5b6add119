"""What a query waits for: as a value, in words, and as the state that it is shown in.

The metastore says of a query that was decided about that it runs; whether it has its lease, only the gateway that runs
it knows.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field, replace

from gateway.presentation.formatting import memory
from gateway.presentation.wording import ordinal
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.values import DEFAULT_POOL, Need, Waiting
from gateway.statements.statement import Pending, Run, WaitsFor
from metastore.records import QueryRecord, QueryState
from selector.wording import seconds_of

FRESH_S = 0.25  # that a list of all who wait is as good as a new one
FRESH_ENOUGH_S = 0.02  # the same for one that began to wait after it was made


@dataclass(frozen=True, slots=True)
class Wait:
    """What a query waits for, and since when.

    needs: a ``Need``, or a ``WaitsFor`` where it is no lease. engine: None where it is any. pool, memory_bytes, place
    (1 is next), expected_s (from now): of a lease alone; memory_bytes is None on an engine that spills.
    """

    needs: Need | WaitsFor
    since: dt.datetime
    engine: str | None
    pool: str | None = None
    memory_bytes: int | None = None
    place: int | None = None
    expected_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Listed:
    """All who waited at one moment of the monotonic clock, by query and engine."""

    at_s: float = -FRESH_S
    by_query: Mapping[tuple[str, str], Waiting] = field(default_factory=dict)


class Waits:
    """Tells what queries of this gateway wait for. Thread-safe.

    find: a query that is alive in this process. is_shared: admission tells of the queries of other processes, too.
    """

    def __init__(self, find: Callable[[str], Run | None], admission: Admission, *, is_shared: bool = False) -> None:
        self._is_shared = is_shared
        self._find = find
        self._admission = admission
        self._lock = threading.Lock()
        self._listed = _Listed()

    def of(self, query_id: str) -> Wait | None:
        """Return what a query waits for; None where it runs, has ended, or is being planned."""
        run = self._find(query_id)
        if run is None and self._is_shared:
            return next((_lease(each) for each in self._all_waiting() if each.query_id == query_id), None)
        if run is None or run.state is not QueryState.QUEUED:
            return None
        return next((wait for pending in run.pending if (wait := self._told(run, pending)) is not None), None)

    def seen(self, record: QueryRecord) -> QueryRecord:
        """Return a query in the state that it is in: one that waits for a lease does not run, nor does its attempt."""
        run = None if record.state.ended else self._find(record.id)
        if run is None and self._is_shared and not record.state.ended:
            return self._seen_elsewhere(record)
        state = run.state if run is not None else record.state
        if run is None or state.ended:
            return record
        return _with(record, state, {each.engine for each in run.pending} - set(run.engines))

    def _seen_elsewhere(self, record: QueryRecord) -> QueryRecord:
        """Return a query of another process in the state that it is in, as far as admission knows."""
        waiting = {each.engine for each in self._all_waiting() if each.query_id == record.id}
        is_running = any(not each.state.ended and each.engine not in waiting for each in record.attempts)
        return record if is_running or not waiting else _with(record, QueryState.QUEUED, waiting)

    def _told(self, run: Run, pending: Pending) -> Wait | None:
        if pending.reason is not WaitsFor.LEASE or pending.engine is None:
            return Wait(pending.reason, pending.since, pending.engine)
        waiting = self._find_waiting((run.id, pending.engine))
        return None if waiting is None else _lease(waiting)  # it has just got its lease, or is about to ask for it

    def _find_waiting(self, key: tuple[str, str]) -> Waiting | None:
        """Look somebody up in a list that is fresh: to make one holds up admission, so that polls share it."""
        with self._lock:
            age_s = time.monotonic() - self._listed.at_s
            if age_s > (FRESH_S if key in self._listed.by_query else FRESH_ENOUGH_S):
                self._list()
            return self._listed.by_query.get(key)

    def _all_waiting(self) -> Collection[Waiting]:
        """Return all who wait, by a list that is fresh."""
        with self._lock:
            if time.monotonic() - self._listed.at_s > FRESH_ENOUGH_S:
                self._list()
            return self._listed.by_query.values()

    def _list(self) -> None:
        found = {(each.query_id, each.engine): each for each in self._admission.waiting()}
        self._listed = _Listed(time.monotonic(), found)


def _lease(waiting: Waiting) -> Wait:
    place, expected_s = waiting.place, round(waiting.expected_s, 3)
    told = waiting.engine, waiting.pool, waiting.memory_bytes or None, place, expected_s
    return Wait(waiting.needs, waiting.since, *told)


def _with(record: QueryRecord, state: QueryState, waiting: Set[str | None]) -> QueryRecord:
    """Return a query in a state, and its attempts on engines for which it waits."""
    attempts = tuple(
        replace(each, state=QueryState.QUEUED) if each.engine in waiting and not each.state.ended else each
        for each in record.attempts
    )
    return replace(record, state=state, attempts=attempts)


def waits_for(wait: Wait) -> str:
    """Say what a query waits for: ``waits for 512 MiB of duckdb in pool etl: 3rd in line, expected 4.0 s``."""
    engine = wait.engine or "an engine"
    match wait.needs:
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
