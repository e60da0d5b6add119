"""Files of plain tables that come, go and change while a statement runs: all attempts read what was listed for it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest

from engines.duckdb.engine import DuckDBEngine, PooledStatement
from engines.files.manifest import read_manifest
from engines.protocol import Lease
from metastore.records import QueryRecord, QueryState
from sql.tables import Column
from tests.gateway.house import House, opened

COUNT = "SELECT count(*) AS n, sum(id) AS total FROM t"
COLUMNS = (Column("id", "bigint"),)
FIRST, SECOND, LATER, MORE = [1, 2], [3, 4], [50, 60], [7, 8, 9]
LITTLE_BYTES = 64 << 10
"""Memory that DuckDB does not get through any statement with."""
spark = pytest.mark.spark
both_engines = pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=spark)])


def put(path: Path, ids: list[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    match path.suffix:
        case ".parquet":
            pq.write_table(rows, path)
        case ".orc":
            pa_orc.write_table(rows, path)
        case ".json":
            path.write_text("".join(json.dumps({"id": number}) + "\n" for number in ids), encoding="utf-8")
        case _:
            path.write_text("".join(f"{number}\n" for number in ids), encoding="utf-8")


@pytest.fixture
def house(tmp_path: Path, duckdb: DuckDBEngine, request: pytest.FixtureRequest) -> Iterator[House]:
    """Open a gateway, over a real Spark too where the test wants one."""
    wants_spark = request.node.get_closest_marker("spark") is not None
    engines = (duckdb, request.getfixturevalue("spark_engine")) if wants_spark else (duckdb,)
    with opened(tmp_path / "home", *engines) as house:
        yield house


def table(house: House, tmp_path: Path, ending: str = "parquet", under: tuple[str, str] = ("", "")) -> Path:
    """Register a table ``t`` of two files; returns its folder."""
    folder = tmp_path / "t"
    for name, below, ids in (("a", under[0], FIRST), ("b", under[1], SECOND)):
        put(folder / below / f"{name}.{ending}", ids)
    fields = {"columns": COLUMNS, "format": ending} if ending in ("csv", "json") else {}
    house.register("t", folder, **fields)
    return folder


def between(house: House, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Have something happen once, when a statement's files are listed and no engine has read them."""
    executor = house.gateway.coordinator._executor
    query = executor.query

    def after_it(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(executor, "query", query)
        happens()
        return query(*arguments, **named)

    monkeypatch.setattr(executor, "query", after_it)


def refused(house: House, engine: str, sql: str = COUNT) -> QueryRecord:
    """Return a query that failed as its files changed, which is nobody's fault."""
    record = house.ended(sql, engine=engine)
    assert record.state is QueryState.FAILED and record.error is not None
    assert record.error.code == "TABLE_UNREADABLE", record.error
    assert record.error.message.startswith("t cannot be read: its file ")
    assert record.error.message.endswith("Send the statement again: it reads the files as they are then.")
    assert [attempt.failure for attempt in record.attempts] == ["TABLE_UNREADABLE"]
    assert house.gateway.engines[engine].why_down() is None
    assert not house.gateway.metastore.misestimates.list()
    return record


# ---------------------------------------------------------------------- failover


@spark
@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_a_failover_reads_the_files_of_the_first_attempt(
    house: House, tmp_path: Path, duckdb: DuckDBEngine, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    folder, execute = table(house, tmp_path, ending), duckdb.execute

    def in_little(sql: str, *, lease: Lease, **named: Any) -> PooledStatement:
        return execute(sql, lease=replace(lease, memory_bytes=LITTLE_BYTES), **named)

    monkeypatch.setattr(duckdb, "execute", in_little)
    between(house, monkeypatch, lambda: put(folder / f"c.{ending}", LATER))
    record = house.ended(COUNT.replace("count(*)", "count(DISTINCT id)"))  # for which DuckDB needs a hash table
    assert record.error is None, record.error
    *failed, last = record.attempts
    assert {(attempt.engine, attempt.failure) for attempt in failed} == {("duckdb", "MEMORY_EXCEEDED")}
    page = house.gateway.spool.page(record.id, max_rows=10)
    assert pa.Table.from_batches(page.batches).to_pylist() == [{"n": 4, "total": sum(FIRST + SECOND)}]
    assert last.engine == "spark"
    assert house.done(COUNT, engine="spark") == [{"n": 6, "total": sum(FIRST + SECOND + LATER)}]


# ---------------------------------------------------------------------- files that go or change


def deleted(folder: Path) -> None:
    (folder / "b.parquet").unlink()


def replaced(folder: Path) -> None:
    """Put a file with the same size and time in the place of one."""
    before = (folder / "b.parquet").stat()
    put(folder.parent / "other.parquet", LATER)
    other = folder.parent / "other.parquet"
    assert other.stat().st_size == before.st_size
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(folder / "b.parquet")


def rewritten(folder: Path) -> None:
    put(folder / "b.parquet", [*LATER, *MORE])


@both_engines
@pytest.mark.parametrize(
    ("change", "said", "others"),
    [
        (deleted, "is gone", 0),
        (replaced, "has changed", sum(LATER)),
        (rewritten, "has changed", sum(LATER) + sum(MORE)),
    ],
)
def test_a_file_that_goes_or_changes_is_told(
    house: House,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    change: Callable[[Path], None],
    said: str,
    others: int,
) -> None:
    folder = table(house, tmp_path)
    between(house, monkeypatch, lambda: change(folder))
    assert f"b.parquet {said}" in str(refused(house, engine).error)
    (row,) = house.done(COUNT, engine=engine)
    assert row["total"] == sum(FIRST) + others


@both_engines
@pytest.mark.parametrize("ending", ["orc", "csv", "json"])
def test_a_file_of_any_format_that_goes_is_told(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, ending: str
) -> None:
    folder = table(house, tmp_path, ending)
    between(house, monkeypatch, (folder / f"b.{ending}").unlink)
    assert f"b.{ending} is gone" in str(refused(house, engine).error)


@both_engines
def test_a_folder_that_is_emptied_or_renamed_is_told(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    folder = table(house, tmp_path)

    def empty() -> None:
        for file in folder.iterdir():
            file.unlink()

    between(house, monkeypatch, empty)
    assert "a.parquet is gone" in str(refused(house, engine).error)
    put(folder / "a.parquet", FIRST)
    between(house, monkeypatch, lambda: folder.rename(tmp_path / "elsewhere"))
    assert "a.parquet is gone" in str(refused(house, engine).error)


@both_engines
def test_partition_folders_and_others_are_read_as_they_were_listed(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    folder = table(house, tmp_path, under=("p=1/deep", "p=2"))
    (folder / "p=2" / "empty.parquet").touch()
    by_partition = "SELECT p, sum(id) AS total FROM t GROUP BY p ORDER BY p"
    expected = [{"p": 1, "total": sum(FIRST)}, {"p": 2, "total": sum(SECOND)}]

    def grow() -> None:
        put(folder / "p=1" / "c.parquet", LATER)
        put(folder / "p=3" / "d.parquet", LATER)
        shutil.copy(folder / "p=1" / "c.parquet", folder / "p=2" / "empty.parquet")

    between(house, monkeypatch, grow)
    assert house.done(by_partition, engine=engine) == expected
    assert [row["p"] for row in house.done(by_partition, engine=engine)] == [1, 2, 3]
    between(house, monkeypatch, lambda: (folder / "p=2").rename(folder / "p=9"))
    assert "p=2/b.parquet is gone" in str(refused(house, engine, by_partition).error)
    assert [row["p"] for row in house.done(by_partition, engine=engine)] == [1, 3, 9]


def test_a_file_that_goes_once_it_was_read_does_no_harm(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = table(house, tmp_path)
    spool = house.gateway.coordinator._executor._spool
    write = spool.write

    def written(query_id: str, stream: Any, *, publish: Any) -> Any:
        def publish_late(make_result: Any) -> None:
            (folder / "b.parquet").unlink()
            publish(make_result)

        return write(query_id, stream, publish=publish_late)

    monkeypatch.setattr(spool, "write", written)
    record = house.ended(COUNT)
    assert record.state is QueryState.FINISHED, record.error


@both_engines
def test_a_table_that_is_one_file(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    file = tmp_path / "one.parquet"
    put(file, FIRST)
    house.register("t", file)
    assert house.done(COUNT, engine=engine) == [{"n": 2, "total": sum(FIRST)}]
    between(house, monkeypatch, lambda: put(file, LATER))
    assert "its file one.parquet has changed" in str(refused(house, engine).error)


# ---------------------------------------------------------------------- the gateway's own writes


@spark
def test_a_query_does_not_see_what_is_written_beside_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.done("CREATE TABLE t AS SELECT 1 AS id")
    for engine in ("duckdb", "spark"):
        (before,) = house.done(COUNT)
        between(house, monkeypatch, lambda: house.done("INSERT INTO t VALUES (10)"))
        assert house.done(COUNT, engine=engine) == [before]
        assert house.both(COUNT) == [{"n": before["n"] + 1, "total": before["total"] + 10}]
        between(house, monkeypatch, lambda: house.done("INSERT OVERWRITE t VALUES (1)"))
        assert "is gone" in str(refused(house, engine).error)
        assert house.both(COUNT) == [{"n": 1, "total": 1}]


@spark
def test_a_write_reads_the_files_that_were_listed_for_it(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = table(house, tmp_path)
    house.done("CREATE TABLE copied (id BIGINT)")
    writer = house.gateway.coordinator._executor._writer
    write = writer.write

    def written(statement: Any, run: Any, produce: Any, *read: Any) -> Any:
        put(folder / "c.parquet", LATER)
        return write(statement, run, produce, *read)

    monkeypatch.setattr(writer, "write", written)
    assert house.done("INSERT INTO copied SELECT id FROM t") == [{"rows_written": 4}]

    def too_late(statement: Any, run: Any, produce: Any, *read: Any) -> Any:
        (folder / "c.parquet").unlink()
        return write(statement, run, produce, *read)

    monkeypatch.setattr(writer, "write", too_late)
    assert house.failed("INSERT INTO copied SELECT id FROM t") == "TABLE_UNREADABLE"
    assert house.both("SELECT count(*) AS n FROM copied") == [{"n": 4}]


# ---------------------------------------------------------------------- what a query read


def ask(client: httpx.Client, sql: str) -> dict[str, Any]:
    reply: dict[str, Any] = client.post("/v1/queries", json={"sql": sql}).json()
    assert reply["error"] is None, reply
    return reply


def test_the_files_that_a_query_read(client: httpx.Client, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    put(folder / "p=1" / "a.parquet", FIRST)
    put(folder / "p=2" / "b.parquet", SECOND)
    size = sum(file.stat().st_size for file in folder.glob("*/*"))
    assert client.post("/v1/tables", json={"name": "listed", "location": str(folder)}).status_code == 201
    first, again = (ask(client, "SELECT count(*) FROM listed") for _ in range(2))
    put(folder / "p=3" / "c.parquet", LATER)
    later = ask(client, "SELECT count(*) FROM listed")
    reads = [reply["decision"]["reads"]["listed"] for reply in (first, again, later)]
    assert reads[0] == reads[1] != reads[2]
    assert (reads[0]["files"], reads[0]["bytes"], reads[2]["files"]) == (2, size, 3)
    (found,) = client.get(f"/v1/queries/{first['id']}/files").json()["tables"]
    assert {**reads[0], "table": "listed"}.items() <= found.items()
    assert [file["path"] for file in found["listed"]] == ["p=1/a.parquet", "p=2/b.parquet"]
    assert sum(file["bytes"] for file in found["listed"]) == size
    (found,) = client.get(f"/v1/queries/{later['id']}/files?limit=1").json()["tables"]
    assert (found["files"], [file["path"] for file in found["listed"]]) == (3, ["p=1/a.parquet"])
    assert client.get("/v1/queries/nothing/files").status_code == 404
    assert client.get(f"/v1/queries/{ask(client, 'SHOW TABLES')['id']}/files").json() == {"tables": []}


def test_a_list_that_is_no_longer_kept(house: House, tmp_path: Path) -> None:
    table(house, tmp_path)
    record = house.ended(COUNT)
    assert record.decision is not None
    files, read = house.gateway.registration.files, record.decision.reads["t"]
    assert files.manifest_of(read) is not None
    for path in (tmp_path / "home" / "snapshots").iterdir():
        path.unlink()
    read_manifest.cache_clear()
    assert files.manifest_of(read) is None
    assert house.done(COUNT) == [{"n": 4, "total": sum(FIRST + SECOND)}]
    assert files.manifest_of(read) is not None
