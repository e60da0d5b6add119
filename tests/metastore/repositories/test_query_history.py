"""The query log as it is read back for replays: what ended, the newest, oldest first."""

from __future__ import annotations

import datetime as dt

import pytest

from metastore.records import Attempt, QueryState
from metastore.repositories import queries
from metastore.store import Metastore
from selector.decision import Decision, Reason, ReasonCode
from selector.estimate import UNKNOWN
from tests.metastore.examples import MINUTE, NOON, query
from tests.metastore.writing import at_once

DECISION = Decision("duckdb", ("duckdb",), (Reason(ReasonCode.PINNED, "Asked for."),), UNKNOWN, None)


def ran(store: Metastore, name: str, at: dt.datetime, *, ended: bool = True) -> None:
    at_once(store.queries).open(query(name, at))
    attempt = Attempt(1, "duckdb", QueryState.RUNNING, at)
    at_once(store.queries).decided(
        name, fingerprint=name, template="t", statistics_version="", decision=DECISION, first=attempt
    )
    if ended:
        finished = Attempt(1, "duckdb", QueryState.FINISHED, at, wall_s=1.0)
        at_once(store.queries).close(name, QueryState.FINISHED, at=at + MINUTE, attempt=finished)


def names(store: Metastore, **wanted: object) -> list[list[str]]:
    return [[record.id for record in batch] for batch in store.queries.history(**wanted)]  # type: ignore[arg-type]


def test_history_is_what_was_decided_about_and_has_ended(store: Metastore) -> None:
    for number in range(4):
        ran(store, f"q{number}", NOON + number * MINUTE)
    ran(store, "running", NOON + 9 * MINUTE, ended=False)
    at_once(store.queries).open(query("refused", NOON + 10 * MINUTE))
    at_once(store.queries).close("refused", QueryState.FAILED, at=NOON + 11 * MINUTE)
    assert names(store, limit=10) == [["q0", "q1", "q2", "q3"]]
    assert names(store, limit=2) == [["q2", "q3"]]
    assert names(store, limit=10, since=NOON + MINUTE) == [["q1", "q2", "q3"]]
    assert names(store, limit=10, since=NOON + 20 * MINUTE) == []


def test_history_comes_in_batches(store: Metastore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "READ_AT_ONCE", 2)
    for number in range(5):
        ran(store, f"q{4 - number}", NOON + (4 - number) * MINUTE)
    assert names(store, limit=10) == [["q0", "q1"], ["q2", "q3"], ["q4"]]


def test_runs_of_before_a_moment(store: Metastore) -> None:
    for number in range(4):
        ran(store, f"q{number}", NOON + number * MINUTE)
    told = [run.subject.fingerprint for run in store.queries.runs(limit=2, before=NOON + 3 * MINUTE)]
    assert told == ["q1", "q2"]
    assert [run.subject.fingerprint for run in store.queries.runs(limit=2)] == ["q2", "q3"]
