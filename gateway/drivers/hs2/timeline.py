"""A statement's decision and attempts for drivers: lines of a log, bars of progress."""

from __future__ import annotations

import datetime as dt
import threading

from gateway.drivers.hs2.protocol.messages import JobStatus, Progress
from gateway.presentation.disclosure import shown_to_its_user
from gateway.presentation.formatting import counted, duration, memory
from gateway.presentation.waits import Wait, waits_for
from gateway.statements.statement import Admitted, Run
from metastore.records import Attempt, QueryRecord, QueryState
from selector.decision import Decision

HEADINGS = ("ENGINE", "ATTEMPT", "STATUS", "TOTAL", "COMPLETED", "RUNNING", "PENDING", "FAILED", "KILLED")
SHORTEST_SHOWN_S = 0.1  # of waits that have ended


class OperationLog:
    """Log of a run; lines are only added at the end. Thread-safe.

    A wait adds a line each time that a client reads the log and its place or need has changed.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._read = 0  # lines that the client has read
        self._heads = self._admitted = self._attempts = 0  # numbers of each that are in the lines
        self._place: tuple[object, ...] | None = None
        self._ended = False

    def lines(self, wait: Wait | None, *, rewind: bool) -> list[str]:
        """Return new lines, or all lines. wait: the run's wait of now."""
        with self._lock:
            self._update(wait)
            new = self._lines[0 if rewind else self._read :]
            self._read = len(self._lines)
            return new

    def _update(self, wait: Wait | None) -> None:
        record, session = shown_to_its_user(self._run.record), self._run.statement.session
        if not self._lines and session is not None:
            self._lines += session.warnings
        head = _head(record)
        self._lines += head[self._heads :]
        self._heads = len(head)
        admitted = self._run.admitted
        attempts = record.attempts
        leases = list(admitted[self._admitted :])
        for attempt in attempts[self._attempts :]:  # each after its lease
            at = next((place for place, lease in enumerate(leases, 1) if lease.engine == attempt.engine), 0)
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
    """Tell whether a wait for a lease was long enough to be shown."""
    return admitted.waited_s >= SHORTEST_SHOWN_S


def admission(admitted: Admitted) -> str:
    """Return a lease in words: ``admitted on duckdb after 3.20 s with 512 MiB, 2 threads``."""
    with_ = [] if admitted.memory_bytes is None else [memory(admitted.memory_bytes)]
    with_ += [] if admitted.threads is None else [counted(admitted.threads, "thread")]
    line = f"admitted on {admitted.engine} after {duration(admitted.waited_s)}"
    return f"{line} with {', '.join(with_)}" if with_ else line


def completion(record: QueryRecord) -> str:
    """Return the progress of a query in the form of Impala's log, which Superset parses."""
    return f"Query {record.id}: {100 if record.state.ended else 0}% Complete"


def failures(record: QueryRecord) -> list[str]:
    """Return a line per failed attempt."""
    return [attempted(attempt) for attempt in record.attempts if attempt.failure is not None]


def decided(decision: Decision) -> str:
    """Return the basis of a decision: ``estimate 212 MiB of 1,024 MiB limit``, or ``a result of duckdb's``."""
    if decision.is_cached:
        return f"a result of {decision.engine}'s"
    estimate = f"estimate {memory(decision.estimate.peak_bytes)}"
    return estimate if decision.limit_bytes is None else f"{estimate} of {memory(decision.limit_bytes)} limit"


def attempted(attempt: Attempt) -> str:
    """Return the result of an attempt in words."""
    line = f"attempt {attempt.ordinal} on {attempt.engine}: "
    if attempt.failure is not None:
        line += f"{attempt.failure} after {duration(attempt.wall_s)}"
    else:
        line += f"{counted(attempt.rows or 0, 'row')} in {duration(attempt.wall_s)}"
    return line if attempt.peak_bytes is None else f"{line}, peak {memory(attempt.peak_bytes)}"


def elapsed_s(record: QueryRecord) -> float:
    """Return the time that a query took, or has taken so far."""
    return ((record.finished_at or dt.datetime.now(dt.UTC)) - record.submitted_at).total_seconds()


def progress(run: Run) -> Progress:
    """Return a bar per ended attempt, and one for each engine on which it runs, or for which it waits."""
    record = run.record
    rows = [_bar(attempt.engine, attempt.ordinal, attempt.state) for attempt in record.attempts]
    if not record.state.ended:
        open_on = [] if run.engine is None else [(run.engine, QueryState.RUNNING)]
        open_on += [(wait.engine, QueryState.QUEUED) for wait in run.pending if wait.engine is not None]
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
    columns = (
        *(QueryState.FINISHED, QueryState.RUNNING, QueryState.QUEUED),  # in the order of HEADINGS
        *(QueryState.FAILED, QueryState.CANCELLED),
    )
    return [engine, str(ordinal), state.value, "1", *(str(int(state is column)) for column in columns)]
