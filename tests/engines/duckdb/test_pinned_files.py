"""DuckDB reads exactly the files that a statement's list has, and hears of a list once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.duckdb import process
from engines.duckdb.engine import DuckDBEngine
from engines.duckdb.process import WorkerProcess
from engines.files.listing import DataFile, data_files
from engines.files.manifest import Manifest, SnapshotFile
from engines.protocol import Lease
from sql.tables import Column, Snapshot, TableSource

LEASE = Lease(memory_bytes=128 << 20)
COUNT = "SELECT sum(n)::BIGINT AS n FROM t"


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(workers=1, threads=1)
    yield engine
    engine.close()


@pytest.fixture
def table(tmp_path: Path) -> TableSource:
    folder = tmp_path / "t"
    folder.mkdir()
    for number in (1, 10, 100):
        pq.write_table(pa.table({"n": pa.array([number], pa.int64())}), folder / f"{number:03}.parquet")
    return TableSource("t", str(folder), "parquet", (Column("n", "bigint"),))


def pinned(table: TableSource, *numbers: int) -> TableSource:
    """Return the table with a list of some of its files."""
    files = [file for file in data_files(Path(table.location)) if int(file.path.stem) in numbers]
    path = Path(table.location).parent / f"{'-'.join(map(str, numbers))}.arrow"
    Manifest((), tuple(map(_listed, files)), folder=table.location).write(path)
    return replace(table, snapshot=Snapshot(path.stem, str(path), None, table.location, len(files), 0))


def _listed(file: DataFile) -> SnapshotFile:
    return SnapshotFile(str(file.path), file.bytes, None, {}, modified_ns=file.modified_ns, inode=file.inode)


def run(engine: DuckDBEngine, snapshots: Sequence[TableSource] = (), sql: str = COUNT) -> int:
    with engine.execute(sql, query_id="q", lease=LEASE, deadline_s=60, snapshots=snapshots) as result:
        return int(pa.Table.from_batches(list(result), result.schema)["n"][0].as_py())


def test_each_statement_reads_its_list(engine: DuckDBEngine, table: TableSource) -> None:
    engine.use_tables([table])
    first, other = pinned(table, 1, 100), pinned(table, 10)
    for _ in range(2):
        assert run(engine, [first]) == 101
        assert run(engine, [other]) == 10
        assert run(engine) == 111  # without a list: what is there
        engine.explain(COUNT, snapshots=[first])
    assert run(engine, [pinned(table, 1)], "SELECT count(*) AS n FROM t") == 1


def test_a_list_keeps_its_definition_though_the_table_was_defined_anew(
    engine: DuckDBEngine, table: TableSource, tmp_path: Path
) -> None:
    engine.use_tables([table])
    first = pinned(table, 1)
    assert run(engine, [first]) == 1
    (tmp_path / "elsewhere").mkdir()
    pq.write_table(pa.table({"n": pa.array([7], pa.int64())}), tmp_path / "elsewhere" / "1.parquet")
    engine.use_tables([replace(table, location=str(tmp_path / "elsewhere"))])
    assert [run(engine, [first]), run(engine), run(engine, [first])] == [1, 7, 1]


def test_a_worker_hears_of_a_list_once_and_remembers_a_bounded_number(
    engine: DuckDBEngine, table: TableSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    ask = WorkerProcess.ask

    def counted(worker: WorkerProcess, command: dict[str, Any]) -> dict[str, Any]:
        asked.append(command)
        return ask(worker, command)

    engine.use_tables([])
    first = pinned(table, 1)
    assert run(engine, [first]) == 1
    monkeypatch.setattr(WorkerProcess, "ask", counted)
    assert [run(engine, [replace(first)]) for _ in range(3)] == [1, 1, 1]
    assert asked == []
    monkeypatch.setattr(process, "MOST_PINNED", 3)
    for number in range(8):
        named = replace(first, name=f"t{number}")
        assert run(engine, [named], f"SELECT n FROM t{number}") == 1
    assert [len(command["pinned"]) for command in asked] == [1] * 8
    (worker,) = engine._workers
    assert len(worker._pinned) <= 3
    assert run(engine, [first]) == 1
