"""Attempts on a real DuckDB that are broken off or raced: answers stay right, and workers whole."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.protocol import EngineKind
from gateway import settings as settings_module
from gateway.execution.racing import race
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.settings import RoutingSettings
from gateway.statements.statement import Run, Statement
from metastore.records import QueryRecord, QueryState
from selector.decision import Rule
from selector.forecast import continuation
from selector.forecast.continuation import Continuation, Weighed
from tests.engines.toy import ToyEngine
from tests.gateway.conftest import register
from tests.gateway.execution.racing.test_race import is_idle
from tests.waiting import wait_until

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

from engines.duckdb.pool import DuckDBEngine

MIB = 1 << 20
LIMIT = 512 * MIB
ROWS = 1_500_000
SQL = "SELECT count(*) AS c, max(w) AS w FROM (SELECT k, max(word) AS w FROM events GROUP BY k)"
ANYWHERE = RoutingSettings(policy=Rule.SAFE, safe_miss=0.999)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[tuple[Gateway, DuckDBEngine, ToyEngine]]:
    """Build a gateway over a real DuckDB, and behind it an engine that has enough."""
    folder = tmp_path / "data" / "events"
    folder.mkdir(parents=True)
    words = pa.array([f"a word that is long enough to lie elsewhere {i % 90_000}" for i in range(ROWS)])
    pq.write_table(pa.table({"k": pa.array(range(ROWS), pa.int64()), "word": words}), folder / "part-0.parquet")
    fast = DuckDBEngine(workers=1, threads=1)
    dependable = ToyEngine("dependable", EngineKind.DEPENDABLE)
    entries = [
        EngineEntry(fast, limit_bytes=LIMIT),
        EngineEntry(dependable),
    ]
    built = wiring.assemble(settings_module.load(tmp_path / "home", routing=ANYWHERE), EngineRegistry(entries))
    register(built, folder.parent)
    built.start()
    yield built, fast, dependable
    built.close()


@pytest.fixture
def doubting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Continuation], None]:
    """Choose what becomes of attempts as soon as their memory is looked at."""
    monkeypatch.setattr(race, "WORTH_A_LOOK", 0.02)

    def choose(choice: Continuation) -> None:
        weigh = continuation.weigh
        monkeypatch.setattr(race, "weigh", lambda *told: replace(weigh(*told), choice=choice))

    return choose


def ended(run: Run) -> QueryRecord:
    return run.done.result(timeout=60)


def answer(gateway: Gateway, record: QueryRecord) -> list[dict[str, object]]:
    page = gateway.spool.page(record.id, max_rows=9)
    rows: list[dict[str, object]] = pa.Table.from_batches(page.batches, page.schema).to_pylist()
    return rows


@pytest.mark.parametrize("choice", [Continuation.SWITCH, Continuation.RACE])
def test_the_answer_is_one_and_right_and_the_engine_goes_on(
    house: tuple[Gateway, DuckDBEngine, ToyEngine], doubting: Callable[[Continuation], None], choice: Continuation
) -> None:
    gateway, duckdb, _ = house
    alone = ended(gateway.coordinator.submit(Statement(SQL, engine="duckdb")))
    expected = answer(gateway, alone)
    doubting(choice)
    record = ended(gateway.coordinator.submit(Statement(SQL)))
    assert record == gateway.metastore.queries.get(record.id)
    assert record.state is QueryState.FINISHED
    assert {attempt.engine for attempt in record.attempts} == {"duckdb", "dependable"}
    first = record.attempts[0]
    if choice is Continuation.SWITCH:
        assert (first.failure, record.engine) == ("BROKEN_OFF", "dependable")
        assert (first.peak_bytes or 0) > 0.02 * LIMIT
    else:
        assert [each.failure for each in record.attempts if each.engine != record.engine] == ["SUPERSEDED"]
    assert answer(gateway, record) == expected
    wait_until(lambda: is_idle(gateway), "DuckDB's slot is free")
    pids = duckdb.worker_pids()
    again = ended(gateway.coordinator.submit(Statement(SQL, engine="duckdb")))
    assert answer(gateway, again) == expected
    assert duckdb.worker_pids() == pids, "a worker that was interrupted is used again"


def test_a_worker_that_is_killed_in_a_race_is_no_error(
    house: tuple[Gateway, DuckDBEngine, ToyEngine], doubting: Callable[[Continuation], None]
) -> None:
    gateway, duckdb, dependable = house
    doubting(Continuation.RACE)
    execute = dependable.execute

    def kill_first(*arguments: object, **options: object) -> object:
        for pid in duckdb.worker_pids():
            os.kill(pid, signal.SIGKILL)
        return execute(*arguments, **options)  # type: ignore[arg-type]

    dependable.execute = kill_first  # type: ignore[method-assign,assignment]
    record = ended(gateway.coordinator.submit(Statement(SQL)))
    assert (record.state, record.engine) == (QueryState.FINISHED, "dependable")
    assert record.attempts[0].failure in ("ENGINE_UNAVAILABLE", "SUPERSEDED")
    wait_until(lambda: is_idle(gateway), "DuckDB's slot is free")


def test_a_worker_that_is_killed_before_what_takes_its_place_has_begun_is_no_error(
    house: tuple[Gateway, DuckDBEngine, ToyEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, duckdb, _ = house
    expected = answer(gateway, ended(gateway.coordinator.submit(Statement(SQL, engine="duckdb"))))
    monkeypatch.setattr(race, "WORTH_A_LOOK", 0.02)
    weigh = continuation.weigh

    def killed_in_doubt(*told: Any) -> Weighed:
        for pid in duckdb.worker_pids():
            os.kill(pid, signal.SIGKILL)
        return replace(weigh(*told), choice=Continuation.SWITCH)

    monkeypatch.setattr(race, "weigh", killed_in_doubt)
    record = ended(gateway.coordinator.submit(Statement(SQL)))
    assert (record.state, record.engine) == (QueryState.FINISHED, "dependable")
    assert [each.engine for each in record.attempts] == ["duckdb", "dependable"]
    assert record.attempts[0].failure in ("ENGINE_UNAVAILABLE", "BROKEN_OFF")
    assert answer(gateway, record) == expected
    wait_until(lambda: is_idle(gateway), "DuckDB's slot is free")
    again = ended(gateway.coordinator.submit(Statement(SQL, engine="duckdb")))
    assert answer(gateway, again) == expected
