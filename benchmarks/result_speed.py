"""Claim: rows come out of an engine as Arrow nearly as fast as it makes them (a million rows of six columns).

DuckDB's worker process is compared with DuckDB in this process, read in batches of the same size; the Hive adapter with
PyHive's own fetch of the same statement from the same server, a Spark Thrift Server that is started for this. PyHive
makes Python objects of the rows, the adapter Arrow columns.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Annotated

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pyhive import hive  # type: ignore[import-untyped]

from benchmarks.claim import Claim, RunFailed, at_least, conditions, run_command, show_table, step
from engines.duckdb.pool import DuckDBEngine
from engines.duckdb.worker import BATCH_ROWS
from engines.hive.engine import FETCH_ROWS, HiveEngine
from engines.hive.views import view_statements
from engines.protocol import Column, Engine, Lease, TableSource
from tests.engines.thrift_server import LOOPBACK, serving

ROWS = 1_000_000
REPEATS = 5
OF_IN_PROCESS = 0.8
OF_PYHIVE = 1.0
LEASE = Lease(2 << 30)
DEADLINE_S = 600.0
SQL = "SELECT id, kind, price, title, day, moment FROM result"


def run(
    rows: Annotated[int, typer.Option(help="Rows of the result.", min=1_000)] = ROWS,
    repeats: Annotated[int, typer.Option(help="Repeats of each side, in alternation.", min=1)] = REPEATS,
    threads: Annotated[int, typer.Option(help="DuckDB's threads on either side.", min=1)] = 1,
) -> Claim:
    """Compare how fast results arrive."""
    with tempfile.TemporaryDirectory(prefix="fusion-bench-") as home:
        table = _table(Path(home) / "result", rows)
        where = conditions(rows=f"{rows:,}", columns=len(table.columns), repeats=repeats, DuckDB_threads=threads)
        step("DuckDB")
        worker, in_process = _duckdb(table, rows, repeats, threads)
        step("Spark Thrift Server")
        ours, pyhives = _thrift(table, rows, repeats, Path(home) / "thrift")
    figures = {
        "duckdb.of_in_process": median(_ratios(in_process, worker)),
        "duckdb.worker_s": median(worker),
        "duckdb.in_process_s": median(in_process),
        "hive.of_pyhive": median(_ratios(pyhives, ours)),
        "hive.ours_s": median(ours),
        "hive.pyhive_s": median(pyhives),
    }
    targets = {"duckdb.of_in_process": at_least(OF_IN_PROCESS), "hive.of_pyhive": at_least(OF_PYHIVE)}
    show_table(
        "Median seconds for the whole result, and how many times as fast",
        ["from", "ours", "anchor", "speed", "target"],
        [
            _row("DuckDB's worker, against DuckDB in process", figures, "duckdb.worker_s", "duckdb.in_process_s", 0.8),
            _row("HiveServer2, against PyHive's fetch", figures, "hive.ours_s", "hive.pyhive_s", 1.0),
        ],
    )
    print(where)
    return Claim("result_speed", figures, targets)


def _row(name: str, figures: dict[str, float], ours: str, anchor: str, target: float) -> list[str]:
    speed = figures[anchor] / figures[ours]
    return [name, f"{figures[ours]:.3f}", f"{figures[anchor]:.3f}", f"{speed:.2f} x", f"at least {target:g} x"]


def _ratios(anchor: Sequence[float], ours: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(anchor, ours, strict=True)]


def _table(folder: Path, rows: int) -> TableSource:
    """Write a table with numbers, text, dates and moments, a tenth of them null."""
    folder.mkdir()
    ids = np.arange(rows)
    moments = np.datetime64("2024-01-01", "us") + ids * np.timedelta64(1_000_003, "us")
    pq.write_table(
        pa.table(
            {
                "id": pa.array(ids),
                "kind": pa.array(ids % 100, pa.int32(), mask=ids % 10 == 0),
                "price": pa.array(ids * 0.25),
                "title": pa.array([f"a title of number {number}" if number % 10 else None for number in range(rows)]),
                "day": pa.array(moments.astype("datetime64[D]")),
                "moment": pa.array(moments, pa.timestamp("us", tz="UTC")),
            }
        ),
        folder / "part.parquet",
    )
    types = ("bigint", "int", "double", "string", "date", "timestamp")
    names = ("id", "kind", "price", "title", "day", "moment")
    return TableSource("result", str(folder), "parquet", tuple(map(Column, names, types)))


def _duckdb(table: TableSource, rows: int, repeats: int, threads: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each repeat through a worker, and in this process."""
    with closing(DuckDBEngine(workers=1, threads=threads)) as engine, duckdb.connect() as connection:
        engine.use_tables([table])
        connection.execute(f"SET threads = {threads}; SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW result AS SELECT * FROM read_parquet('{table.location}/*.parquet')")

        def in_process() -> int:
            reader: pa.RecordBatchReader = connection.sql(SQL).to_arrow_reader(BATCH_ROWS)
            return sum(batch.num_rows for batch in reader)

        return _alternating(lambda: _read(engine), in_process, rows, repeats)


def _thrift(table: TableSource, rows: int, repeats: int, folder: Path) -> tuple[list[float], list[float]]:
    """Return the seconds of each repeat through the adapter, and with PyHive alone."""
    with serving(folder, ["sasl"]) as server:
        port = server.ports["sasl"]
        with closing(HiveEngine([(LOOPBACK, port)], whole_results=True)) as engine:
            engine.use_tables([table])
            with hive.connect(LOOPBACK, port, username="bench") as connection:
                for statement in view_statements(table):
                    connection.cursor().execute(statement)

                def pyhives() -> int:
                    with connection.cursor(arraysize=FETCH_ROWS) as cursor:
                        cursor.execute(SQL)
                        return len(cursor.fetchall())

                return _alternating(lambda: _read(engine), pyhives, rows, repeats)


def _alternating(
    ours: Callable[[], int], anchor: Callable[[], int], rows: int, repeats: int
) -> tuple[list[float], list[float]]:
    """Time both in turns, after a first time of each that does not count."""
    for side in (ours, anchor):
        if side() != rows:
            raise RunFailed("the result has not all rows")
    pairs = [(_timed(ours), _timed(anchor)) for _ in range(repeats)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _timed(side: Callable[[], int]) -> float:
    begun = time.perf_counter()
    side()
    return time.perf_counter() - begun


def _read(engine: Engine) -> int:
    with engine.execute(SQL, query_id=uuid.uuid4().hex, lease=LEASE, deadline_s=DEADLINE_S) as result:
        return sum(batch.num_rows for batch in result)


if __name__ == "__main__":
    run_command(run)
