"""What is kept of results and of the past: by age, by count, by bytes; the oldest goes first."""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gateway.execution.spooling.results import Spool
from gateway.server.retention import Retention
from gateway.settings import HistorySettings, ResultSettings
from metastore.records import Attempt, Misestimate, QueryRecord, QueryState
from metastore.store import Metastore
from tests.metastore.writing import at_once

KIB = 1 << 10
SMALL, LARGE = 1, 4
"""Times ten rows of a KiB: with others in a database, and in a file."""


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[Metastore]:
    with Metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as opened:
        yield opened


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "results", limit_bytes=1 << 30, row_bytes=1 << 20)


def query(metastore: Metastore, name: str, *, user: str = "ann", age_s: float = 0.0, open: bool = False) -> None:
    at = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age_s)
    at_once(metastore.queries).open(QueryRecord(name, f"SELECT {name}", "spark", user, "auto", QueryState.QUEUED, at))
    attempt = Attempt(1, "duckdb", QueryState.RUNNING, started_at=at)
    at_once(metastore.queries).attempt_started(name, attempt)
    if not open:
        at_once(metastore.queries).close(name, QueryState.FINISHED, at=at, attempt=attempt)


def result(metastore: Metastore, spool: Spool, name: str, *, times: int, user: str, age_s: float) -> int:
    query(metastore, name, user=user, age_s=age_s)
    size = spool.write(name, pa.table({"text": ["x" * 1_024] * 10 * times}).to_reader()).bytes
    assert spool.path(name).exists() is (times == LARGE)
    if times == LARGE:
        os.utime(spool.path(name), (time.time() - age_s,) * 2)
    else:
        with spool._small._writing() as connection:
            connection.execute("UPDATE results SET came_s = came_s - ? WHERE id = ?", (age_s, name))
    return size


def retention(metastore: Metastore, spool: Spool, *, history: Any = None, **results: Any) -> Retention:
    return Retention(
        spool,
        metastore,
        results=ResultSettings(**results),
        history=history or HistorySettings(),
        stopping=threading.Event(),
    )


@pytest.mark.parametrize("times", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({}, {"new", "old", "bobs"}),
        ({"count": 2}, {"new", "bobs"}),
        ({"keep_s": 60}, {"new", "bobs"}),
        ({"total": 25 * KIB}, {"new", "bobs"}),
        ({"per_user": 12 * KIB}, {"new", "bobs"}),
    ],
)
def test_results_are_kept_by_age_count_and_bytes(
    metastore: Metastore, spool: Spool, limits: dict[str, Any], left: set[str], times: int
) -> None:
    sizes = [
        result(metastore, spool, name, times=times, user=user, age_s=age_s)
        for name, user, age_s in (("old", "ann", 300), ("bobs", "bob", 20), ("new", "ann", 10))
    ]
    assert all(10 * KIB < size / times < 12 * KIB for size in sizes)
    limits = {name: limit * times if name in ("total", "per_user") else limit for name, limit in limits.items()}
    assert retention(metastore, spool, **limits).sweep_results() == 3 - len(left)
    assert spool.query_ids() == left


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({}, {"q0", "q1", "q2", "runs"}),
        ({"keep_s": 1_500}, {"q0", "q1", "runs"}),
        ({"queries": 3}, {"q0", "q1", "runs"}),
        ({"queries": 1}, {"runs"}),
        ({"bytes": 20}, {"q0", "runs"}),
    ],
)
def test_the_past_is_kept_by_age_count_and_bytes(
    metastore: Metastore, spool: Spool, limits: dict[str, Any], left: set[str]
) -> None:
    query(metastore, "runs", age_s=9_000, open=True)
    for number in range(3):
        query(metastore, f"q{number}", age_s=1_000.0 * number)
    retention(metastore, spool, history=HistorySettings(**limits)).sweep_history()
    assert {record.id for record in metastore.queries.search(limit=10)} == left


def test_more_than_a_batch_goes_with_all_that_belongs_to_it(metastore: Metastore, spool: Spool) -> None:
    for number in range(450):
        query(metastore, f"q{number}", age_s=5_000)
    metastore.misestimates.remember(
        Misestimate(
            "f", "duckdb", "v", 1, "q0", "SELECT 1", None, None, dt.datetime.now(dt.UTC) - dt.timedelta(seconds=5_000)
        )
    )
    assert retention(metastore, spool, history=HistorySettings(keep_s=60)).sweep_history() == 451
    assert metastore.queries.search(limit=10) == ()
    assert metastore.misestimates.list() == ()
