"""DuckDB and a real Spark run one query at once: the answer is one and right, whichever of them is killed meanwhile."""

from __future__ import annotations

import datetime as dt
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.duckdb.pool import DuckDBEngine
from engines.spark.embedded.server import SparkConnectServer
from engines.spark.engine import SparkConnectEngine
from gateway.execution.racing import race
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.settings import RoutingSettings, load
from gateway.statements.statement import Run, Statement
from metastore.discovery.inspection import inspect
from metastore.records import QueryRecord, QueryState
from selector.decision import Rule
from selector.forecast import continuation
from selector.forecast.continuation import Continuation, Weighed
from tests.waiting import wait_until

pytestmark = pytest.mark.spark

LIMIT = 1_024 << 20
ROWS = 3_000_000
SQL = "SELECT count(*) AS n, max(w) AS w FROM (SELECT k, max(word) AS w FROM events GROUP BY k)"
WITHIN_S = 120.0
ANYWHERE = RoutingSettings(policy=Rule.SAFE, safe_miss=0.999)


@pytest.fixture
def duckdb() -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(workers=1, threads=1, spare=1)
    yield engine
    engine.close()


@pytest.fixture
def gateway(tmp_path: Path, duckdb: DuckDBEngine, spark_engine: SparkConnectEngine) -> Iterator[Gateway]:
    (tmp_path / "events").mkdir()
    words = pa.array([f"a word that is long enough to lie elsewhere {i % 90_000}" for i in range(ROWS)])
    pq.write_table(pa.table({"k": pa.array(range(ROWS), pa.int64()), "word": words}), tmp_path / "events" / "0.parquet")
    entries = [EngineEntry(duckdb, limit_bytes=LIMIT), EngineEntry(spark_engine)]
    built = wiring.assemble(load(tmp_path / "home", routing=ANYWHERE), EngineRegistry(entries))
    built.metastore.catalog.put(inspect("events", tmp_path / "events"), at=dt.datetime.now(dt.UTC))
    built.coordinator.recover()
    built.catalog.current()
    spark_engine.warm_up()
    yield built
    built.coordinator.stop(grace_s=10)
    built.planners.close()
    built.metastore.close()


@pytest.fixture
def race_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Spark start beside DuckDB as soon as that holds some memory."""
    weigh = continuation.weigh

    def both(*told: Any) -> Weighed:
        return replace(weigh(*told), choice=Continuation.RACE)

    monkeypatch.setattr(race, "WORTH_A_LOOK", 0.01)
    monkeypatch.setattr(race, "weigh", both)


def racing(gateway: Gateway) -> Run:
    """Send the statement, and wait until both run it."""
    run = gateway.coordinator.submit(Statement(SQL))
    wait_until(lambda: set(run.engines) == {"duckdb", "spark"} or run.done.done(), "both run", within_s=WITHIN_S)
    assert not run.done.done(), run.record
    return run


def answer(gateway: Gateway, record: QueryRecord) -> list[dict[str, Any]]:
    assert record.state is QueryState.FINISHED, record.error
    page = gateway.spool.page(record.id, max_rows=9)
    rows: list[dict[str, Any]] = pa.Table.from_batches(page.batches, page.schema).to_pylist()
    return rows


def is_idle(gateway: Gateway) -> bool:
    return not any(engine.slots_held for engine in gateway.admission.describe().engines)


@pytest.mark.usefixtures("race_at_once")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("lost", ["neither", "duckdb", "spark"])
def test_the_answer_is_one_and_right(
    gateway: Gateway,
    duckdb: DuckDBEngine,
    spark_engine: SparkConnectEngine,
    spark_server: SparkConnectServer,
    lost: str,
) -> None:
    alone = gateway.coordinator.submit(Statement(SQL, engine="spark")).done.result(WITHIN_S)
    expected = answer(gateway, alone)
    assert expected[0]["n"] == ROWS
    run = racing(gateway)
    for pid in {"duckdb": duckdb.worker_pids(), "spark": (spark_server.pid,), "neither": ()}[lost]:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    record = run.done.result(WITHIN_S)
    assert answer(gateway, record) == expected
    won = [each.engine for each in record.attempts if each.state is QueryState.FINISHED]
    assert won == [record.engine] and record.engine != lost
    ended = {each.failure for each in record.attempts if each.engine != record.engine}
    assert ended <= {"SUPERSEDED", "ENGINE_UNAVAILABLE"}
    wait_until(lambda: is_idle(gateway), "all slots are free", within_s=WITHIN_S)
    files = list(gateway.spool.path(record.id).parent.glob(f"{record.id}*"))
    assert gateway.spool.has(record.id)
    assert not files, "one result, which is small, and nothing that is not finished"
    spark_engine.warm_up()  # whoever uses it next finds it as it was
