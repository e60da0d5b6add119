"""Claim: lake tables cost next to nothing over plain files, and a snapshot is resolved in milliseconds.

The paper's queries Q1 to Q9 run on DuckDB through a gateway, over the bookstore as plain Parquet, as Delta and as
Iceberg: the same rows, in turns. Tables of many files in many partitions are resolved as a statement resolves them: by
a process that read another table before, again, and after somebody's commit. The floor of a commit is what Arrow
takes to write the same rows as one file. The same queries run over Delta tables in an object store of this machine.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pydantic import ByteSize, SecretStr

from benchmarks.bookstore import DEFAULT_DATA, TABLES, DataOption, ScaleOption, SeedOption, prepare
from benchmarks.claim import Claim, RunFailed, at_most, conditions, run_command, show_table, step
from benchmarks.object_store_server import running_object_store
from benchmarks.serving import serving
from engines.duckdb.adapter import DuckDBSettings
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.cli.client import Client
from gateway.cli.demo.paper_queries import PAPER_QUERIES
from gateway.planning.fairness import Requester
from gateway.settings import StoreSettings, load
from metastore.discovery.inspection import inspect
from metastore.lake import writing
from metastore.lake.values import LakeCommit
from metastore.objects.kinds.s3 import S3Store
from sql.tables import LAKE_FORMATS, Column, PartitionBy, TableSource
from statsproc.data.bookstore import Bookstore

PLAIN, LOCAL, REMOTE = "plain", "local", "remote"
MEMORY = ByteSize(3 << 30)
OVER_PLAIN, COLD_MS, REPEATED_MS = 1.1, 300.0, 20.0
PARTITIONS, COMMITS = 200, 50  # each commit has a file in every partition
TIMED = ("first", "cold", "repeated", "after_commit")
WIDE = (Column("p", "int"), *(Column(f"c{number}", "bigint") for number in range(20)))


def run(
    data: DataOption = DEFAULT_DATA,
    scale: ScaleOption = 0.01,
    seed: SeedOption = 42,
    repeats: Annotated[int, typer.Option(help="Times that each query runs; the median counts.", min=1)] = 5,
    commits: Annotated[int, typer.Option(help="Commits that make up the tables that are resolved.", min=1)] = COMMITS,
) -> Claim:
    """Compare queries over lake tables with those over plain files, and time resolutions and commits."""
    bookstore = prepare(data, Bookstore(scale=scale, seed=seed))
    print(conditions(scale=scale, seed=seed, repeats=repeats, files=commits * PARTITIONS, partitions=PARTITIONS))
    with tempfile.TemporaryDirectory(prefix="lake-") as name:
        work = Path(name)
        figures = _queries(bookstore, work, repeats) | _remote_queries(bookstore, work, repeats)
        figures |= _resolutions(work, commits) | _commits(bookstore, work)
    targets = {f"{format}.over_plain": at_most(OVER_PLAIN) for format in LAKE_FORMATS}
    targets["objects.warm_over_local"] = at_most(OVER_PLAIN)
    targets |= {f"{format}.cold_ms": at_most(COLD_MS) for format in LAKE_FORMATS}
    targets |= {f"{format}.repeated_ms": at_most(REPEATED_MS) for format in LAKE_FORMATS}
    return Claim("lake", figures, targets)


# ---------------------------------------------------------------------- queries


def _queries(bookstore: Path, work: Path, repeats: int) -> dict[str, float]:
    """Return the median over the queries of their seconds by those over plain files."""
    step("writing the bookstore as Delta and Iceberg")
    for table in TABLES:
        for format in LAKE_FORMATS:
            _copy(inspect(table, bookstore / table).source, work / format / table, format)
    settings = load(work / "home", duckdb=DuckDBSettings(memory_limit=MEMORY, workers=1, spare_workers=0))
    with serving(settings) as (_, client):
        for kind in (PLAIN, *LAKE_FORMATS):
            client.query(f"CREATE DATABASE {kind}")
            for table in TABLES:
                folder = bookstore / table if kind == PLAIN else work / kind / table
                client.post("/v1/tables", {"name": f"{kind}.{table}", "location": str(folder)})
        seconds = {name: _turns(client, sql, repeats) for name, sql in PAPER_QUERIES.items()}
    show_table(
        "The paper's queries on DuckDB, median seconds",
        ["", PLAIN, *(f"{format}, by plain" for format in LAKE_FORMATS)],
        [
            [
                name,
                f"{own[PLAIN]:.3f}",
                *(f"{own[format]:.3f}, {own[format] / own[PLAIN]:.2f}" for format in LAKE_FORMATS),
            ]
            for name, own in seconds.items()
        ],
    )
    return {
        f"{format}.over_plain": statistics.median(own[format] / own[PLAIN] for own in seconds.values())
        for format in LAKE_FORMATS
    }


def _copy(source: TableSource, folder: Path, format: str) -> None:
    folder.mkdir(parents=True)
    table = TableSource(source.name, str(folder), format, source.columns)
    writing.create(table, (), {})
    files = sorted(str(path) for path in Path(source.location).glob("*.parquet"))
    writing.commit(table, LakeCommit("copy", "INSERT", tuple(files)))


def _turns(client: Client, sql: str, repeats: int) -> dict[str, float]:
    """Return the median seconds of a query over each kind of tables, which take turns; the first turn warms up."""
    seconds: dict[str, list[float]] = {kind: [] for kind in (PLAIN, *LAKE_FORMATS)}
    counted = "LIMIT 10" not in sql or "ORDER BY" in sql
    for turn in range(repeats + 1):
        answers = []
        for kind, own in seconds.items():
            begun = time.perf_counter()
            request = {"sql": sql, "engine": "duckdb", "database": kind, "settings": {"fusion.cache": "off"}}
            reply = client.post("/v1/queries", {**request, "wait_s": 60.0})
            if turn:
                own.append(time.perf_counter() - begun)
            answers.append(reply["rows"])
        if counted and any(answer != answers[0] for answer in answers):
            raise RunFailed(f"{sql}: the formats give different rows")
    return {kind: statistics.median(own) for kind, own in seconds.items()}


def _remote_queries(bookstore: Path, work: Path, repeats: int) -> dict[str, float]:
    """Return the median over the queries of their seconds over tables in an object store by those on this machine.

    Cold: nothing of the tables is here. Warm: what the query reads is here.
    """
    step("writing the bookstore as Delta into an object store")
    with running_object_store(work / "server") as server:
        store = server.store()
        stores = {"plain": StoreSettings(prefix=store.prefix, endpoint=store.endpoint, **_secrets(store))}
        settings = load(
            work / "remote", duckdb=DuckDBSettings(memory_limit=MEMORY, workers=1, spare_workers=0), stores=stores
        )
        for table in TABLES:
            source = inspect(table, bookstore / table).source
            remote = TableSource(table, f"{store.prefix}/{table}", "delta", source.columns)
            writing.create(remote, (), {}, settings.object_access)
            files = tuple(sorted(str(path) for path in Path(source.location).glob("*.parquet")))
            writing.commit(remote, LakeCommit("copy", "INSERT", files), settings.object_access)
        with serving(settings) as (gateway, client):
            cache = gateway.objects.cache
            assert cache is not None
            for kind in (LOCAL, REMOTE):
                client.query(f"CREATE DATABASE {kind}")
                for table in TABLES:
                    location = f"{store.prefix}/{table}" if kind == REMOTE else str(work / "delta" / table)
                    client.post("/v1/tables", {"name": f"{kind}.{table}", "location": location})
            rows, ratios, cold = [], [], []
            for name, sql in PAPER_QUERIES.items():
                _seconds(client, sql, LOCAL)
                cache.clear()
                before = cache.traffic.requests, cache.traffic.bytes
                cold_s = _seconds(client, sql, REMOTE)
                requests, size = cache.traffic.requests - before[0], cache.traffic.bytes - before[1]
                own: dict[str, list[float]] = {LOCAL: [], REMOTE: []}
                for _ in range(repeats):
                    for kind, seconds in own.items():
                        seconds.append(_seconds(client, sql, kind))
                local_s, warm_s = (statistics.median(seconds) for seconds in own.values())
                ratios.append(warm_s / local_s)
                cold.append(cold_s / local_s)
                figures = (f"{local_s:.3f}", f"{warm_s / local_s:.2f}", f"{cold_s / local_s:.2f}")
                rows.append([name, *figures, str(requests), f"{size / 1e6:.1f}"])
    show_table(
        "The paper's queries over Delta tables in an object store (SeaweedFS on this machine), by local ones",
        ["", "local s", "warm", "cold", "requests cold", "MB cold"],
        rows,
    )
    return {"objects.warm_over_local": statistics.median(ratios), "objects.cold_over_local": statistics.median(cold)}


def _secrets(store: S3Store) -> dict[str, SecretStr]:
    return {"access_key": SecretStr(store.access_key), "secret_key": SecretStr(store.secret_key)}


def _seconds(client: Client, sql: str, database: str) -> float:
    begun = time.perf_counter()
    request = {"sql": sql, "engine": "duckdb", "database": database, "settings": {"fusion.cache": "off"}}
    client.post("/v1/queries", {**request, "wait_s": 60.0})
    return time.perf_counter() - begun


# ---------------------------------------------------------------------- resolution


def _resolutions(work: Path, commits: int) -> dict[str, float]:
    """Return milliseconds until a snapshot of many files is resolved."""
    figures = {}
    for format in LAKE_FORMATS:
        step(f"writing a table in {format} of {commits * PARTITIONS} files")
        small = _partitioned(work / f"small-{format}", format, 1)
        large = _partitioned(work / f"large-{format}", format, commits)
        lake = LakeTables(work / f"manifests-{format}", wait_s=60.0)
        try:
            figures[f"{format}.first_ms"] = _resolved_ms(lake, small)
            figures[f"{format}.cold_ms"] = _resolved_ms(lake, large)
            figures[f"{format}.repeated_ms"] = statistics.median(_resolved_ms(lake, large) for _ in range(20))
            _commit(large, work, "one more", [0])
            figures[f"{format}.after_commit_ms"] = _resolved_ms(lake, large)
        finally:
            lake.close()
    show_table(
        "Milliseconds to resolve a snapshot",
        ["", "first of a process, small", "cold", "repeated", "after a commit"],
        [
            [
                format,
                *(f"{figures[f'{format}.{what}_ms']:.1f}" for what in ("first", "cold", "repeated", "after_commit")),
            ]
            for format in LAKE_FORMATS
        ],
    )
    return figures


def _partitioned(folder: Path, format: str, commits: int) -> TableSource:
    """Make a table with a file of each commit in every partition."""
    folder.mkdir(parents=True)
    table = TableSource(folder.name, str(folder), format, WIDE)
    writing.create(table, (PartitionBy("p"),), {})
    for number in range(commits):
        _commit(table, folder.parent, f"c{number}", range(PARTITIONS))
    return table


def _commit(table: TableSource, work: Path, query_id: str, partitions: Sequence[int]) -> None:
    rows = {column.name: pa.array(partitions, pa.int32() if column.name == "p" else pa.int64()) for column in WIDE}
    path = work / "rows.parquet"
    pq.write_table(pa.table(rows), path)
    writing.commit(table, LakeCommit(query_id, "INSERT", (str(path),)))


def _resolved_ms(lake: LakeTables, table: TableSource) -> float:
    begun = time.perf_counter()
    lake.state(table, Requester("benchmark", time.monotonic() + 600.0))
    return 1e3 * (time.perf_counter() - begun)


# ---------------------------------------------------------------------- commits


def _commits(bookstore: Path, work: Path) -> dict[str, float]:
    """Return seconds of a commit of the transactions by those that Arrow takes to write them."""
    source = inspect("transactions", bookstore / "transactions").source
    files = sorted(Path(source.location).glob("*.parquet"))
    rows = pa.concat_tables([pq.read_table(path) for path in files])
    begun = time.perf_counter()
    pq.write_table(rows, work / "floor.parquet")
    floor_s = time.perf_counter() - begun
    figures = {"commit_floor_s": floor_s}
    for format in LAKE_FORMATS:
        folder = work / f"committed-{format}"
        begun = time.perf_counter()
        _copy(source, folder, format)
        figures[f"{format}.commit_over_floor"] = (time.perf_counter() - begun) / floor_s
        shutil.rmtree(folder)
    return figures


if __name__ == "__main__":
    run_command(run)
