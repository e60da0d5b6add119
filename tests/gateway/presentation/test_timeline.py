"""A query's life in sentences."""

from __future__ import annotations

import datetime as dt

import pytest

from gateway.drivers.hs2 import timeline as log_of_drivers
from gateway.presentation.timeline import Tone, failed_over, headline, steps
from gateway.statements.statement import Run, Statement
from metastore.records import Attempt, QueryRecord, QueryState

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def attempt(ordinal: int, engine: str, state: QueryState, failure: str | None = None) -> Attempt:
    rows = 3 if state is QueryState.FINISHED else None
    started_at = AT + dt.timedelta(seconds=ordinal)
    return Attempt(ordinal, engine, state, started_at, wall_s=2.0, failure=failure, rows=rows)


def record(state: QueryState, engine: str, *attempts: Attempt) -> QueryRecord:
    return QueryRecord("q", "SELECT 1", "spark", "u", "auto", state, AT, engine=engine, attempts=attempts)


MISSED, ANSWERED = attempt(1, "duckdb", QueryState.FAILED, "MEMORY_EXCEEDED"), attempt(2, "spark", QueryState.FINISHED)
ALONE, NOW = attempt(1, "duckdb", QueryState.FINISHED), attempt(2, "spark", QueryState.RUNNING)


@pytest.mark.parametrize(
    ("told", "expected", "another"),
    [
        (
            record(QueryState.FINISHED, "spark", MISSED, ANSWERED),
            "duckdb ran out of memory. spark answered instead, under the same query id.",
            True,
        ),
        (record(QueryState.FINISHED, "duckdb", ALONE), "Answered by duckdb.", False),
        (record(QueryState.RUNNING, "spark", MISSED, NOW), "duckdb ran out of memory. Running on spark now.", True),
    ],
    ids=["failed over", "alone", "fails over"],
)
def test_what_became_of_a_query(told: QueryRecord, expected: str, another: bool) -> None:
    assert headline(told) == expected
    assert failed_over(told) is another


def test_an_attempt_that_failed_showed_no_row() -> None:
    missed, answered, _ = steps(record(QueryState.FINISHED, "spark", MISSED, ANSWERED), ())
    assert (missed.tone, answered.tone) == (Tone.BAD, Tone.GOOD)
    assert missed.code == "MEMORY_EXCEEDED"
    assert "No row of it had reached the client." in missed.text


def test_drivers_read_attempts_in_their_order() -> None:
    run = Run(Statement("SELECT 1"))
    run.record = record(QueryState.FINISHED, "spark", MISSED, ANSWERED)
    lines = log_of_drivers.OperationLog(run).lines(None, rewind=True)
    assert [line.split(":")[0] for line in lines[1:3]] == ["attempt 1 on duckdb", "attempt 2 on spark"]
