"""Engines die at random while people ask: every query has its right answer or an error with a code, and nothing leaks.

FUSION_KILLED_QUERIES sets how many queries there are; the suite asks a few, a release five hundred.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.duckdb.engine import DuckDBEngine
from engines.errors import EngineBusy, EngineUnavailable
from engines.spark.embedded.server import SparkConnectServer
from engines.spark.engine import SparkConnectEngine
from gateway.errors import NoEngineAvailable
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.settings import load
from gateway.statements.statement import Statement
from metastore.discovery.inspection import inspect
from metastore.records import QueryRecord, QueryState

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

QUERIES = int(os.environ.get("FUSION_KILLED_QUERIES", "40"))
CLIENTS = 4
ROWS = 300_000
GROUPS = 10
LIMIT = 128 << 20
SEED = 7
SPARK_SHARE = 0.1  # of the kills; each costs its server's start
PAUSES_S = (0.2, 1.5)
WHOLE_WITHIN_S = 120.0
ALLOWED = {EngineUnavailable.code, EngineBusy.code, NoEngineAvailable.code}


@pytest.fixture
def duckdb() -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(workers=2, threads=1, spare=1)
    yield engine
    engine.close()


@pytest.fixture
def gateway(tmp_path: Path, duckdb: DuckDBEngine, spark_engine: SparkConnectEngine) -> Iterator[Gateway]:
    (tmp_path / "numbers").mkdir()
    ids = pa.array(range(ROWS), pa.int64())
    groups = pa.array([number % GROUPS for number in range(ROWS)], pa.int32())
    pq.write_table(pa.table({"id": ids, "grp": groups}), tmp_path / "numbers" / "part.parquet")
    entries = [
        EngineEntry(duckdb, limit_bytes=LIMIT),
        EngineEntry(spark_engine),
    ]
    built = wiring.assemble(load(tmp_path / "home"), EngineRegistry(entries))
    built.metastore.catalog.put(inspect("numbers", tmp_path / "numbers"), at=dt.datetime.now(dt.UTC))
    built.coordinator.recover()
    built.catalog.current()
    yield built
    built.coordinator.stop(grace_s=10)
    built.planners.close()
    built.metastore.close()


@pytest.mark.timeout(1_800)
def test_no_answer_is_wrong_and_nothing_is_left(
    gateway: Gateway, duckdb: DuckDBEngine, spark_engine: SparkConnectEngine, spark_server: SparkConnectServer
) -> None:
    spark_engine.warm_up()
    with ThreadPoolExecutor(CLIENTS) as clients:  # pools are filled before anything is counted
        records = list(clients.map(lambda number: ask(gateway, number, ("duckdb", "spark")[number % 2]), range(12)))
    assert [rows(gateway, record) for record in records] == [[group_of(number)] for number in range(12)]
    before = held(gateway)
    chance, stopped = random.Random(SEED), threading.Event()  # noqa: S311 - which engine dies is no secret
    killed: Counter[str] = Counter()

    def kill_at_random() -> None:
        while not stopped.wait(chance.uniform(*PAUSES_S)):
            spark = chance.random() < SPARK_SHARE
            pids = [spark_server.pid] if spark else list(duckdb.worker_pids())
            pid = chance.choice(pids) if pids else None
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed["spark" if spark else "duckdb"] += 1

    killer = threading.Thread(target=kill_at_random)
    killer.start()
    try:
        with ThreadPoolExecutor(CLIENTS) as clients:
            engines = [("auto", "auto", "auto", "duckdb", "spark")[number % 5] for number in range(QUERIES)]
            records = list(clients.map(lambda at: ask(gateway, at[0], at[1]), enumerate(engines)))
    finally:
        stopped.set()
        killer.join()
    whole_s = time.monotonic() + WHOLE_WITHIN_S
    outcomes = Counter(record.error.code if record.error else record.state.value for record in records)
    assert killed["duckdb"] > 0, "nothing was killed"
    assert set(outcomes) <= ALLOWED | {QueryState.FINISHED.value}, outcomes
    for number, record in enumerate(records):
        if record.state is QueryState.FINISHED:
            assert rows(gateway, record) == [group_of(number)]
        elif record.requested_engine == "auto":
            assert {attempt.engine for attempt in record.attempts} != {"duckdb"}, "it could have gone to Spark"
    while (last := ask(gateway, 1, "auto")).error is not None:  # a circuit breaker may be open for a while
        assert last.error.code in ALLOWED, last.error
        assert time.monotonic() < whole_s, last.error
        time.sleep(1)
    assert rows(gateway, last) == [group_of(1)]
    print(f"{QUERIES} queries, {dict(killed)} killed: {dict(outcomes)}")
    settled_s = time.monotonic() + 30
    while any(held(gateway)[what] > before[what] + 2 for what in before):
        assert time.monotonic() < settled_s, f"{before} became {held(gateway)}"
        time.sleep(0.5)


def ask(gateway: Gateway, number: int, engine: str) -> QueryRecord:
    group = number % GROUPS
    sql = f"SELECT COUNT(*) AS n, SUM(a.id) AS total FROM numbers a JOIN numbers b ON a.id = b.id WHERE a.grp = {group}"
    return gateway.coordinator.submit(Statement(sql=sql, engine=engine)).done.result(timeout=300)


def rows(gateway: Gateway, record: QueryRecord) -> list[tuple[int, int]]:
    assert record.state is QueryState.FINISHED, record.error
    page = gateway.spool.page(record.id, max_rows=10)
    answered = pa.Table.from_batches(page.batches, page.schema)
    return [(int(row["n"]), int(row["total"])) for row in answered.to_pylist()]


def group_of(number: int) -> tuple[int, int]:
    entries = range(number % GROUPS, ROWS, GROUPS)
    return len(entries), sum(entries)


def held(gateway: Gateway) -> dict[str, int]:
    """Count what could leak: files and connections, threads, processes, unfinished result files."""
    process = psutil.Process()
    return {
        "files and connections": process.num_fds(),
        "threads": process.num_threads(),
        "processes": len(process.children(recursive=True)),
        "unfinished results": len(list((gateway.settings.home / "results").glob("*.part"))),
    }
