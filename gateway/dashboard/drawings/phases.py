"""Phases of a query on one time line: its decision, and what it waited for and ran on, attempt by attempt."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.presentation.formatting import duration
from metastore.records import Attempt, QueryRecord

SHORTEST_SHARE = 0.004  # of the width, so that every phase is visible
SHORTEST_WAIT_S = 0.001  # that is a phase of its own


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a query's time. start_s, seconds: from its submission, and its length."""

    label: str
    start_s: float
    seconds: float
    style: str
    """CSS class: prepared, waited, finished, failed or running."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class PhaseBar:
    """A phase as a bar. start, width: in percent of the whole time."""

    label: str
    start: str
    width: str
    text: str
    style: str
    note: str


def phase_bars(record: QueryRecord, now: dt.datetime) -> tuple[PhaseBar, ...]:
    """Return the phases of a query, one below the other on the same scale; empty where no engine was tried."""
    if not record.attempts:
        return ()
    phases = list(_phases(record, now))
    whole_s = max(max(phase.start_s + phase.seconds for phase in phases), 1e-9)
    return tuple(
        PhaseBar(
            phase.label,
            _percent(min(phase.start_s / whole_s, 1.0 - SHORTEST_SHARE)),
            _percent(max(phase.seconds / whole_s, SHORTEST_SHARE)),
            duration(phase.seconds),
            phase.style,
            phase.note,
        )
        for phase in phases
    )


def _phases(record: QueryRecord, now: dt.datetime) -> Iterator[Phase]:
    def since(moment: dt.datetime) -> float:
        return max(0.0, (moment - record.submitted_at).total_seconds())

    yield Phase("Parsed, checked, decided", 0.0, since(record.attempts[0].started_at), "prepared")
    for attempt in record.attempts:
        yield from _of_attempt(attempt, since(attempt.started_at), since(now))
    if record.finished_at is not None:
        last = record.attempts[-1]
        ended_s = since(last.started_at) + (last.wall_s or 0.0)
        if since(record.finished_at) - ended_s >= SHORTEST_WAIT_S:
            yield Phase("Recorded", ended_s, since(record.finished_at) - ended_s, "prepared")


def _of_attempt(attempt: Attempt, start_s: float, now_s: float) -> Iterator[Phase]:
    seconds = attempt.wall_s if attempt.wall_s is not None else max(0.0, now_s - start_s)
    waited_s = min(attempt.waited_s or 0.0, seconds)
    if waited_s >= SHORTEST_WAIT_S:
        yield Phase(f"Waited for {attempt.engine}", start_s, waited_s, "waited")
    note = attempt.failure or ("" if attempt.state.ended else "so far")
    yield Phase(f"Ran on {attempt.engine}", start_s + waited_s, seconds - waited_s, attempt.state.value.lower(), note)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
