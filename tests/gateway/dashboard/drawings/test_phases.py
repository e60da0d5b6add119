"""Phases of a query on one time line."""

from __future__ import annotations

import datetime as dt

from gateway.dashboard.drawings.phases import phase_bars
from metastore.records import Attempt, QueryRecord, QueryState

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


def record(*attempts: Attempt, ended_s: float | None) -> QueryRecord:
    ended = None if ended_s is None else NOON + ended_s * SECOND
    state = QueryState.RUNNING if ended is None else QueryState.FINISHED
    return QueryRecord("id", "SELECT 1", "spark", "ann", "auto", state, NOON, attempts=attempts, finished_at=ended)


MISSED = Attempt(
    1, "duckdb", QueryState.FAILED, NOON + SECOND, wall_s=4.0, waited_s=1.0, failure="MEMORY_EXCEEDED", peak_bytes=1
)
ANSWERED = Attempt(2, "spark", QueryState.FINISHED, NOON + 5 * SECOND, wall_s=4.0, rows=10)


def test_a_failover_is_its_decision_a_wait_two_runs_and_the_end() -> None:
    bars = phase_bars(record(MISSED, ANSWERED, ended_s=10.0), NOON + 60 * SECOND)
    assert [(bar.label, bar.start, bar.width, bar.style, bar.note) for bar in bars] == [
        ("Parsed, checked, decided", "0.00%", "10.00%", "prepared", ""),
        ("Waited for duckdb", "10.00%", "10.00%", "waited", ""),
        ("Ran on duckdb", "20.00%", "30.00%", "failed", "MEMORY_EXCEEDED"),
        ("Ran on spark", "50.00%", "40.00%", "finished", ""),
        ("Recorded", "90.00%", "10.00%", "prepared", ""),
    ]


def test_what_runs_reaches_until_now() -> None:
    running = Attempt(1, "spark", QueryState.RUNNING, NOON + SECOND)
    bars = phase_bars(record(running, ended_s=None), NOON + 4 * SECOND)
    assert [(bar.label, bar.text, bar.note) for bar in bars][1:] == [("Ran on spark", "3.00 s", "so far")]


def test_a_short_phase_is_still_visible_inside_the_drawing() -> None:
    late = Attempt(1, "spark", QueryState.FINISHED, NOON + 1_000 * SECOND, wall_s=0.0)
    last = phase_bars(record(late, ended_s=1_000.0), NOON)[-1]
    assert float(last.width[:-1]) > 0
    assert float(last.start[:-1]) + float(last.width[:-1]) <= 100


def test_without_an_attempt_there_is_no_time_line() -> None:
    assert phase_bars(record(ended_s=1.0), NOON) == ()
