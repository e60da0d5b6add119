"""A query's life in sentences, also where two attempts overlapped."""

from __future__ import annotations

import datetime as dt

import pytest

from gateway.drivers.hs2 import timeline as log_of_drivers
from gateway.presentation.timeline import Tone, failed_over, headline, steps
from gateway.statements.statement import Run, Statement
from metastore.records import Attempt, QueryRecord, QueryState

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def attempt(ordinal: int, engine: str, state: QueryState, failure: str | None = None, wall_s: float = 2.0) -> Attempt:
    rows = 3 if state is QueryState.FINISHED else None
    started_at = AT + dt.timedelta(seconds=ordinal)
    return Attempt(ordinal, engine, state, started_at, wall_s=wall_s, failure=failure, rows=rows)


def record(state: QueryState, engine: str, *attempts: Attempt) -> QueryRecord:
    return QueryRecord("q", "SELECT 1", "spark", "u", "auto", state, AT, engine=engine, attempts=attempts)


BROKEN_OFF = attempt(1, "duckdb", QueryState.CANCELLED, "BROKEN_OFF")
LOST = attempt(1, "duckdb", QueryState.CANCELLED, "SUPERSEDED")
LATE = attempt(2, "spark", QueryState.CANCELLED, "SUPERSEDED", wall_s=0.5)
WON, ANSWERED = attempt(1, "duckdb", QueryState.FINISHED), attempt(2, "spark", QueryState.FINISHED)
MIDWAY = attempt(1, "duckdb", QueryState.RUNNING), attempt(2, "spark", QueryState.RUNNING)
OUT, IN_TIME = "was broken off, as it was about to run out of memory", "answered instead, under the same query id."


@pytest.mark.parametrize(
    ("told", "expected", "another"),
    [
        (record(QueryState.FINISHED, "spark", BROKEN_OFF, ANSWERED), f"duckdb {OUT}. spark {IN_TIME}", True),
        (
            record(QueryState.FINISHED, "spark", LOST, ANSWERED),
            f"duckdb was stopped, as another engine had ended the query first. spark {IN_TIME}",
            True,
        ),
        (record(QueryState.FINISHED, "duckdb", WON, LATE), "Answered by duckdb.", False),
        (record(QueryState.RUNNING, "spark", *MIDWAY), "Running on duckdb and spark now.", False),
    ],
    ids=["broken off", "the second won", "the first won", "both run"],
)
def test_what_became_of_two_attempts(told: QueryRecord, expected: str, another: bool) -> None:
    assert headline(told) == expected
    assert failed_over(told) is another


def test_who_lost_a_race_is_no_failure() -> None:
    won, late = steps(record(QueryState.FINISHED, "duckdb", WON, LATE), ())
    assert (won.tone, late.tone) == (Tone.GOOD, Tone.NOTE)
    assert late.code == "SUPERSEDED"
    assert "No row of it had reached the client." in late.text


def test_drivers_read_attempts_in_the_order_in_which_they_ended() -> None:
    run = Run(Statement("SELECT 1"))
    run.record = record(QueryState.FINISHED, "duckdb", attempt(1, "duckdb", QueryState.FINISHED, wall_s=9), LATE)
    lines = log_of_drivers.OperationLog(run).lines(None, rewind=True)
    assert [line.split(":")[0] for line in lines[1:3]] == ["attempt 2 on spark", "attempt 1 on duckdb"]
