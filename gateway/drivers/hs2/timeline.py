"""A statement's decision and attempts as drivers can show them: lines of a log, bars of progress."""

from __future__ import annotations

import datetime as dt
import threading

from gateway.drivers.hs2.protocol.messages import JobStatus, Progress
from gateway.presentation.formatting import counted, duration, memory
from gateway.presentation.waits import Wait, waits_for
from gateway.statements.statement import Admitted, Run
from metastore.records import Attempt, QueryRecord, QueryState
from selector.decision import Decision

HEADINGS = ("ENGINE", "ATTEMPT", "STATUS", "TOTAL", "COMPLETED", "RUNNING", "PENDING", "FAILED", "KILLED")
SHORTEST_TOLD_S = 0.1  # of waits that have ended


class OperationLog:
    """What is told of a run, line by line; lines are only ever added at the end. Thread-safe.

    Of a wait a line is added each time that a client looks and another place, or another need, is found.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._told = 0  # lines that a client has seen
        self._heads = self._admitted = self._attempts = 0  # of each, those that are among the lines
        self._place: tuple[object, ...] | None = None
        self._ended = False

    def lines(self, wait: Wait | None, *, rewind: bool) -> list[str]:
        """Return what was not told before, or everything. wait: what the run waits for now."""
        with self._lock:
            self._look(wait)
            new = self._lines[0 if rewind else self._told :]
            self._told = len(self._lines)
            return new

    def _look(self, wait: Wait | None) -> None:
        record, session = self._run.record, self._run.statement.session
        if not self._lines and session is not None:
            self._lines += session.warnings
        head = _head(record)
        self._lines += head[self._heads :]
        self._heads = len(head)
        admitted = self._run.admitted
        attempts = sorted(record.attempts, key=_ended_s)
        leases = list(admitted[self._admitted :])
        for attempt in attempts[self._attempts :]:  # each after the lease that it was given
            at = next((place for place, each in enumerate(leases, 1) if each.engine == attempt.engine), 0)
            self._lines += [*map(admission, filter(waited, leases[:at])), attempted(attempt)]
            del leases[:at]
        self._lines += map(admission, filter(waited, leases))
        self._admitted, self._attempts = len(admitted), len(attempts)
        place = None if wait is None else (wait.engine, wait.needs, wait.place)
        if wait is not None and place != self._place:
            self._lines.append(waits_for(wait))
        self._place = place
        if record.state.ended and not self._ended:
            self._ended = True
            self._lines.append(f"{record.state.value.lower()} after {duration(elapsed_s(record))}")


def _head(record: QueryRecord) -> list[str]:
    lines = [f"query {record.id}"]
    if record.decision is not None:
        where = "answered from the cache" if record.decision.is_cached else f"routed to {record.decision.engine}"
        lines.append(f"{where}: {decided(record.decision)}")
        lines += [f"  {reason.code.value}: {reason.text}" for reason in record.decision.reasons]
    return lines


def waited(admitted: Admitted) -> bool:
    """Tell whether a wait for a lease is worth a word."""
    return admitted.waited_s >= SHORTEST_TOLD_S


def admission(admitted: Admitted) -> str:
    """Say what a run was admitted with: ``admitted on duckdb after 3.20 s with 512 MiB, 2 threads``."""
    with_ = [] if admitted.memory_bytes is None else [memory(admitted.memory_bytes)]
    with_ += [] if admitted.threads is None else [counted(admitted.threads, "thread")]
    line = f"admitted on {admitted.engine} after {duration(admitted.waited_s)}"
    return f"{line} with {', '.join(with_)}" if with_ else line


def completion(record: QueryRecord) -> str:
    """Return how far a query is, in the form of Impala's log that its drivers' users look for; Superset draws it."""
    return f"Query {record.id}: {100 if record.state.ended else 0}% Complete"


def failures(record: QueryRecord) -> list[str]:
    """Return a line per attempt that failed, of a query that goes on or went on elsewhere."""
    return [attempted(attempt) for attempt in record.attempts if attempt.failure is not None]


def decided(decision: Decision) -> str:
    """Say what a decision rests on: ``estimate 212 MiB of 1,024 MiB limit``, or ``a result of duckdb's``."""
    if decision.is_cached:
        return f"a result of {decision.engine}'s"
    estimate = f"estimate {memory(decision.estimate.peak_bytes)}"
    return estimate if decision.limit_bytes is None else f"{estimate} of {memory(decision.limit_bytes)} limit"


def attempted(attempt: Attempt) -> str:
    """Say how an attempt ended."""
    told = f"attempt {attempt.ordinal} on {attempt.engine}: "
    if attempt.failure is not None:
        told += f"{attempt.failure} after {duration(attempt.wall_s)}"
    else:
        told += f"{counted(attempt.rows or 0, 'row')} in {duration(attempt.wall_s)}"
    return told if attempt.peak_bytes is None else f"{told}, peak {memory(attempt.peak_bytes)}"


def _ended_s(attempt: Attempt) -> float:
    return attempt.started_at.timestamp() + (attempt.wall_s or 0.0)


def elapsed_s(record: QueryRecord) -> float:
    """Return how long a query has taken, or takes by now."""
    return ((record.finished_at or dt.datetime.now(dt.UTC)) - record.submitted_at).total_seconds()


def progress(run: Run) -> Progress:
    """Return a bar per attempt that has ended, and one for each engine on which it runs now, or for which it waits."""
    record = run.record
    rows = [_bar(each.engine, each.ordinal, each.state) for each in record.attempts]
    if not record.state.ended:
        open_on = [(engine, QueryState.RUNNING) for engine in run.engines]
        open_on += [(each.engine, QueryState.QUEUED) for each in run.pending if each.engine is not None]
        rows += [_bar(engine, len(rows) + at, state) for at, (engine, state) in enumerate(open_on, 1)]
    return Progress(
        list(HEADINGS),
        rows,
        1.0 if record.state.ended else 0.0,
        JobStatus.COMPLETE if record.state.ended else JobStatus.IN_PROGRESS,
        f"ELAPSED TIME: {elapsed_s(record):.2f} s",
        int(record.submitted_at.timestamp() * 1_000),
    )


def _bar(engine: str, ordinal: int, state: QueryState) -> list[str]:
    counts = [int(state is each) for each in (QueryState.FINISHED, QueryState.RUNNING)]
    ends = [int(state is each) for each in (QueryState.FAILED, QueryState.CANCELLED)]
    return [engine, str(ordinal), state.value, *map(str, (1, *counts, int(state is QueryState.QUEUED), *ends))]
