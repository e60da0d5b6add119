"""Statements in random order by many clients at once, over a real DuckDB with little memory: nobody misses twice."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.errors import MemoryExceeded
from engines.protocol import EngineKind
from gateway import settings as settings_module
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.statements.statement import Statement
from metastore.records import QueryRecord, QueryState
from tests.engines.toy import ToyEngine
from tests.gateway.conftest import register

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

from engines.duckdb.engine import DuckDBEngine

MIB = 1 << 20
LIMIT = 24 * MIB
ROWS = 400_000
CLIENTS = 8
TEMPLATES = (
    "SELECT k % {n} AS g, count(*) AS c FROM events GROUP BY k % {n} ORDER BY c DESC, g LIMIT 5",
    "SELECT word, max(k) AS m FROM events WHERE k < {n} * 40 GROUP BY word ORDER BY m DESC LIMIT 5",
    "SELECT count(*) AS c FROM events a JOIN events b ON a.k = b.k WHERE a.k < {n} * 40",
    "SELECT k, word FROM events WHERE k > {n} ORDER BY word, k LIMIT 5",
)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """Build one with a real DuckDB that gives a statement little, and behind it an engine that has enough."""
    folder = tmp_path / "data" / "events"
    folder.mkdir(parents=True)
    ids = list(range(ROWS))
    random.Random(7).shuffle(ids)  # noqa: S311 - not for secrets
    words = [f"a word that is long enough to lie elsewhere {i % 90_000}" for i in ids]
    pq.write_table(pa.table({"k": pa.array(ids, pa.int64()), "word": words}), folder / "part-0.parquet")
    fast = DuckDBEngine(workers=2, threads=2)
    dependable = ToyEngine("dependable", EngineKind.DEPENDABLE)
    entries = [
        EngineEntry(fast, limit_bytes=LIMIT, guests=fast.guests, threads=2),
        EngineEntry(dependable),
    ]
    built = wiring.assemble(settings_module.load(tmp_path / "home"), EngineRegistry(entries))
    register(built, folder.parent)
    built.start()
    yield built
    built.close()


@pytest.mark.parametrize("count", [160, pytest.param(1_000, marks=pytest.mark.thorough)])
def test_nobody_runs_out_of_memory_twice_on_the_same_ground(gateway: Gateway, count: int) -> None:
    chance = random.Random(11)  # noqa: S311 - not for secrets
    texts = [template.format(n=n) for template in TEMPLATES for n in (10, 900, 4_000, 9_000)]
    asked = [chance.choice(texts) for _ in range(count)]
    lock = threading.Lock()
    records: list[QueryRecord] = []

    def ask(sql: str) -> None:
        record = gateway.coordinator.submit(Statement(sql)).done.result(timeout=120)
        with lock:
            records.append(record)

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(ask, asked))
    assert {record.state for record in records} == {QueryState.FINISHED}
    missed = Counter(
        record.fingerprint
        for record in records
        for attempt in record.attempts
        if attempt.failure == MemoryExceeded.code
    )
    answered = Counter(record.engine for record in records)
    assert missed, "no statement ran out of memory, so that nothing was shown"
    assert set(missed.values()) == {1}
    assert min(answered["duckdb"], answered["dependable"]) > count // 10
