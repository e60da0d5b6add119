"""A statement's decision and attempts as drivers can show them: lines of a log, bars of progress."""

from __future__ import annotations

import datetime as dt

from gateway.drivers.hs2.protocol.messages import JobStatus, Progress
from gateway.presentation.formatting import counted, duration, memory
from gateway.statements.statement import Run
from metastore.records import Attempt, QueryRecord, QueryState
from selector.decision import Decision

HEADINGS = ("ENGINE", "ATTEMPT", "STATUS", "TOTAL", "COMPLETED", "RUNNING", "PENDING", "FAILED", "KILLED")


def log_lines(record: QueryRecord) -> list[str]:
    """Return what has happened so far; lines are only ever added at the end while the query lives."""
    lines = [f"query {record.id}"]
    if record.decision is not None:
        lines.append(f"routed to {record.decision.engine}: {decided(record.decision)}")
        lines += [f"  {reason.code.value}: {reason.text}" for reason in record.decision.reasons]
    lines += [attempted(attempt) for attempt in sorted(record.attempts, key=_ended_s)]
    if record.state.ended:
        lines.append(f"{record.state.value.lower()} after {duration(elapsed_s(record))}")
    return lines


def completion(record: QueryRecord) -> str:
    """Return how far a query is, in the form of Impala's log that its drivers' users look for; Superset draws it."""
    return f"Query {record.id}: {100 if record.state.ended else 0}% Complete"


def failures(record: QueryRecord) -> list[str]:
    """Return a line per attempt that failed, of a query that goes on or went on elsewhere."""
    return [attempted(attempt) for attempt in record.attempts if attempt.failure is not None]


def decided(decision: Decision) -> str:
    """Say what a decision rests on: ``estimate 212 MiB of 1,024 MiB limit``."""
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
    """Return a bar per attempt that has ended, and one for each engine on which it runs now."""
    record = run.record
    rows = [_bar(each.engine, each.ordinal, each.state) for each in record.attempts]
    if not record.state.ended:
        rows += [_bar(engine, len(rows) + at, QueryState.RUNNING) for at, engine in enumerate(run.engines, 1)]
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
    return [engine, str(ordinal), state.value, *map(str, (1, *counts, 0, *ends))]
