"""A worker of DuckDB is killed while its rows are read."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.duckdb.adapter import DuckDBSettings
from engines.duckdb.engine import DuckDBEngine
from engines.spark.adapter import SparkSettings
from gateway import settings as settings_module
from gateway.errors import QueryFailed
from gateway.execution.spooling.results import ResultFile
from gateway.execution.streaming.early_result import EarlyResult
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.statements.statement import Run, Statement
from metastore.records import QueryState
from tests.gateway.conftest import register

SIDE = 600
ROWS = SIDE * SIDE
SQL = f"SELECT a.id * {SIDE} + b.id AS n FROM side a CROSS JOIN side b"


@dataclass(frozen=True, slots=True)
class House:
    """A gateway over DuckDB alone. go: lets it write on once there are rows to be read."""

    gateway: Gateway
    duckdb: DuckDBEngine
    table: Path
    go: threading.Event

    def start(self) -> Run:
        """Start the query, which waits in the middle of its rows."""
        run = self.gateway.coordinator.submit(Statement(SQL))
        run.ready.result(60)
        assert not run.done.done()
        return run

    def kill(self) -> None:
        for pid in self.duckdb.worker_pids():
            os.kill(pid, signal.SIGKILL)
        self.go.set()

    @contextmanager
    def opened(self, run: Run) -> Iterator[ResultFile]:
        early = self.gateway.coordinator.early_results.find(run.id)
        assert early is not None
        with early.open() as result:
            yield result


def write_side(folder: Path, first: int) -> None:
    """Write the numbers that are multiplied with themselves, in the place of others, and so that nobody notices it."""
    folder.mkdir(exist_ok=True)
    file = folder / "part-0.parquet"
    content = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": pa.array(range(first, first + SIDE), pa.int64())}), content, compression="none")
    before = file.stat() if file.exists() else None
    with file.open("r+b" if before else "wb") as out:
        out.write(content.getvalue())
    if before is not None:
        assert file.stat().st_size == before.st_size
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Path]]:
    settings = settings_module.load(
        tmp_path_factory.mktemp("home"),
        duckdb=DuckDBSettings(workers=1, threads=2, spare_workers=0),
        spark=SparkSettings(enabled=False),
    )
    tables = tmp_path_factory.mktemp("tables")
    write_side(tables / "side", 0)
    gateway = wiring.build(settings)
    register(gateway, tables)
    gateway.start()
    yield gateway, tables / "side"
    gateway.close()


@pytest.fixture
def house(served: tuple[Gateway, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    gateway, table = served
    engine = gateway.engines["duckdb"].engine
    assert isinstance(engine, DuckDBEngine)
    go, tell = threading.Event(), EarlyResult._tell

    def tell_and_wait(early: EarlyResult) -> None:
        tell(early)
        if early.is_readable:
            assert go.wait(60)

    monkeypatch.setattr(EarlyResult, "_tell", tell_and_wait)
    yield House(gateway, engine, table, go)
    go.set()


def read(result: ResultFile, found: list[pa.RecordBatch], *, until: int | None = None) -> None:
    """Read batches behind those that were found, until there are so many, or none are left."""
    while until is None or len(found) < until:
        if result.is_behind:
            time.sleep(0.01)
        elif result.next_bytes() is None:
            break
        else:
            found.append(result.read_batch())


def test_a_killed_worker_loses_no_query_whose_rows_come_again(house: House) -> None:
    run = house.start()
    with house.opened(run) as result:
        found = list[pa.RecordBatch]()
        read(result, found, until=1)
        house.kill()
        read(result, found)
    record = run.done.result(60)
    assert record.state is QueryState.FINISHED
    assert [attempt.failure for attempt in record.attempts] == ["ENGINE_UNAVAILABLE", None]
    numbers = pa.Table.from_batches(found)["n"]
    assert numbers.combine_chunks().sort().equals(pa.array(range(ROWS))), "no row is missing, and none is there twice"
    with house.gateway.spool.open(run.id) as whole:
        assert pa.Table.from_batches(list(whole))["n"].equals(numbers)


def test_a_killed_worker_ends_a_query_whose_rows_are_others_the_second_time(house: House) -> None:
    run = house.start()
    with house.opened(run) as result:
        found = list[pa.RecordBatch]()
        read(result, found, until=1)
        write_side(house.table, 1)
        house.kill()
        with pytest.raises(QueryFailed) as failed:
            read(result, found)
    write_side(house.table, 0)
    record = run.done.result(60)
    assert record.error is not None
    assert failed.value.failure == record.error
    assert record.error.code == "RESULT_INTERRUPTED"
    assert f"after {sum(batch.num_rows for batch in found):,} rows" in record.error.message
    assert [attempt.failure for attempt in record.attempts] == ["ENGINE_UNAVAILABLE", "RESULT_INTERRUPTED"]


def test_a_killed_worker_ends_a_query_whose_table_has_changed(house: House) -> None:
    run = house.start()
    file = house.table / "part-0.parquet"
    before = file.stat().st_mtime_ns
    os.utime(file, ns=(before, before + 1))
    house.kill()
    record = run.done.result(60)
    os.utime(file, ns=(before, before))
    assert record.error is not None
    assert record.error.code == "TABLE_UNREADABLE"
    assert "part-0.parquet" in record.error.message


def test_a_killed_worker_loses_nothing_that_nobody_has_read(house: House) -> None:
    run = house.start()
    write_side(house.table, 1)
    house.kill()
    record = run.done.result(60)
    write_side(house.table, 0)
    assert (record.state, record.rows) == (QueryState.FINISHED, ROWS)
    with house.gateway.spool.open(run.id) as whole:
        assert next(iter(whole))["n"][0].as_py() >= SIDE, "they are those of the second try"
