"""Claim: a large result reaches a slow client while its query runs, its first row as soon as the engine has it.

A cross join of DuckDB's, which takes its time over many rows, is read through each door: a batch or a reply now and
then until the query has ended, and then the rest at once. The first row stands beside the engine's own first batch,
read from its worker without a gateway. The same with ``fusion.early_rows = off``, as it is for an engine with another
one behind it: rows come at the end. What the gateway's memory grows by is measured from outside, over all of a read.
"""

from __future__ import annotations

import io
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import adbc_driver_flightsql.dbapi as adbc
import httpx
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from benchmarks.claim import Claim, RunFailed, at_most, conditions, run_command, show_table, step
from benchmarks.hs2_client import RawClient, call_bytes
from benchmarks.server_process import GatewayProcess, gateway_process
from engines.duckdb.engine import DuckDBEngine
from engines.protocol import Lease
from gateway.drivers.hs2.protocol import thrift
from gateway.drivers.hs2.protocol.messages import ExecuteRequest, FetchRequest, OperationReply
from gateway.drivers.hs2.protocol.thrift import Wire
from gateway.statements.statement import new_query_id
from sql.tables import Column, TableSource

ROWS = 100_000_000
SIDE = 10_000  # rows of the table that is joined with itself
WARM_ROWS = 1_000_000
SLOW_S = 0.05  # between two reads of a slow client
LOOK_S = 0.05  # between two looks at the gateway's memory
FETCH_ROWS = 10_000
MIB = 1 << 20
FIRST_ROW_S = 0.2
GROWTH_MIB = 64.0
USER, LOOPBACK = "bench", "127.0.0.1"
_CLIENT = httpx.Client(timeout=600.0)  # to make one takes longer than the first row does
EARLY, WHOLE = {"fusion.early_rows": "on"}, {"fusion.early_rows": "off"}
_FIRST_COLUMN = thrift.field_head(Wire.STRUCT, 5) + thrift.field_head(Wire.LIST, 1) + thrift.list_head(Wire.I64, 0)[:-4]

Rows = Iterator[int]
"""Rows of each batch that is read, the first of them once there is one."""


@dataclass(frozen=True, slots=True)
class Read:
    """One result, read. first_s: from its statement to the first row; ran_s: of the query, all_s: of the whole read.

    engine_s: to the engine's own first batch, right before. early_rows: that were read before the query had ended.
    growth_bytes: of the gateway's memory, at most.
    """

    first_s: float
    engine_s: float
    ran_s: float
    all_s: float
    early_rows: int
    growth_bytes: int


def run(
    rows: Annotated[int, typer.Option(help="Rows of two columns.", min=SIDE)] = ROWS,
    repeats: Annotated[int, typer.Option(help="Reads through each door, in turns.", min=1)] = 1,
) -> Claim:
    """Read a large result slowly while its query runs."""
    where = conditions(rows=f"{rows:,}", repeats=repeats)
    with tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        table = _table(work / "side")
        with closing(DuckDBEngine(workers=1)) as engine, gateway_process(work) as gateway:
            engine.use_tables([table])
            _first_s(engine, _sql(WARM_ROWS))
            told = {"name": "side", "location": table.location}
            httpx.post(f"{gateway.url}/v1/tables", json=told, timeout=60.0).raise_for_status()
            reads: dict[str, list[Read]] = {}
            for name, door in DOORS.items():
                step(f"{name}: warm-up")
                for _ in door(gateway, _sql(WARM_ROWS), EARLY):
                    pass
            for number in range(repeats):
                for way, settings in (("early", EARLY), ("at the end", WHOLE)):
                    for name, door in DOORS.items():
                        step(f"{number + 1} of {repeats}: {name}, {way}")
                        engine_s = _first_s(engine, _sql(rows))
                        read = _read(gateway, door(gateway, _sql(rows), settings), rows, engine_s)
                        reads.setdefault(f"{name}, {way}", []).append(read)
            spooled = max(_spooled(work))
    return _claim(reads, spooled, rows, where)


def _claim(reads: Mapping[str, list[Read]], spooled: int, rows: int, where: str) -> Claim:
    engine_s = median(read.engine_s for each in reads.values() for read in each)
    figures = {"engine.first_s": engine_s, "spool.mib": spooled / MIB}
    targets = {}
    lines = []
    for name, each in reads.items():
        key = name.replace(", ", ".").replace(" ", "_")
        behind_s = median(read.first_s - read.engine_s for read in each)
        growth = max(read.growth_bytes for read in each) / MIB
        figures |= {f"{key}.first_behind_engine_s": behind_s, f"{key}.growth_mib": growth}
        figures[f"{key}.read_early"] = median(read.early_rows for read in each) / rows
        targets[f"{key}.growth_mib"] = at_most(GROWTH_MIB)
        if name.endswith("early"):
            targets[f"{key}.first_behind_engine_s"] = at_most(FIRST_ROW_S)
        lines.append(
            [
                name,
                f"{median(read.first_s for read in each):.2f}",
                f"{behind_s:+.2f}",
                f"{median(read.ran_s for read in each):.1f}",
                f"{median(read.all_s for read in each):.1f}",
                f"{figures[f'{key}.read_early']:.1%}",
                f"{growth:.0f}",
            ]
        )
    head = ["door", "first row", "behind engine", "query", "whole read", "rows read before its end", "growth, MiB"]
    show_table(f"{rows:,} rows read slowly, seconds; the engine's own first batch {engine_s:.2f}", head, lines)
    print(f"{spooled / MIB:,.0f} MiB of each result in the spool. {where}")
    return Claim("streaming", figures, targets)


def _sql(rows: int) -> str:
    return f"SELECT a.id * {SIDE} + b.id AS n, b.id AS m FROM side a CROSS JOIN side b WHERE a.id < {rows // SIDE}"


def _table(folder: Path) -> TableSource:
    folder.mkdir()
    pq.write_table(pa.table({"id": pa.array(range(SIDE), pa.int64())}), folder / "part.parquet")
    return TableSource("side", str(folder), "parquet", (Column("id", "bigint"),))


def _spooled(work: Path) -> list[int]:
    return [file.stat().st_size for file in (work / "home" / "results").glob("*.arrow")]


def _first_s(engine: DuckDBEngine, sql: str) -> float:
    """Return the seconds to the first batch out of a worker of DuckDB's."""
    begun = time.perf_counter()
    with engine.execute(sql, query_id=new_query_id(), lease=Lease(2 << 30), deadline_s=600.0) as stream:
        next(stream)
        return time.perf_counter() - begun


def _read(gateway: GatewayProcess, door: Rows, rows: int, engine_s: float) -> Read:
    """Read a result slowly until its query has ended, then the rest."""
    found = early = 0
    begun = time.perf_counter()
    first_s = ran_s = 0.0
    with _growth(gateway.process) as growth:
        for count in door:
            first_s = first_s or time.perf_counter() - begun
            found += count
            if not ran_s and not _runs(gateway):
                ran_s = time.perf_counter() - begun
            if not ran_s:
                early += count
                time.sleep(SLOW_S)
        all_s = time.perf_counter() - begun
    if found != rows:
        raise RunFailed(f"{found:,} rows instead of {rows:,}")
    return Read(first_s, engine_s, ran_s or all_s, all_s, early, growth[0])


def _runs(gateway: GatewayProcess) -> bool:
    (query,) = _CLIENT.get(f"{gateway.url}/v1/queries", params={"limit": 1}).json()["queries"]
    return str(query["state"]) in ("QUEUED", "RUNNING")


@contextmanager
def _growth(process: psutil.Process) -> Iterator[list[int]]:
    """Yield by how many bytes a process has grown at most since now, which is known at the end."""
    ended, before = threading.Event(), process.memory_info().rss
    peak = [0]

    def look() -> None:
        while not ended.wait(LOOK_S):
            peak[0] = max(peak[0], process.memory_info().rss - before)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield peak
    finally:
        ended.set()
        looking.join()


# ---------------------------------------------------------------------- doors


class _Body(io.RawIOBase):
    """The body of a reply as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def _http(gateway: GatewayProcess, sql: str, settings: Mapping[str, str]) -> Rows:
    body = {"sql": sql, "wait_s": 0, "settings": dict(settings)}
    query = _CLIENT.post(f"{gateway.url}/v1/queries", json=body).raise_for_status().json()["id"]
    address = f"{gateway.url}/v1/queries/{query}/result"
    with _CLIENT.stream("GET", address, params={"format": "arrow", "wait_s": 600}) as reply:
        reply.raise_for_status()
        with pa.ipc.open_stream(io.BufferedReader(_Body(reply.iter_raw()), MIB)) as reader:
            yield from (batch.num_rows for batch in reader)


def _hs2(gateway: GatewayProcess, sql: str, settings: Mapping[str, str]) -> Rows:
    port = int(gateway.told["drivers"].rpartition(":")[2])
    with RawClient(LOOPBACK, port, user=USER, password=USER) as client:
        session = client.open_session({f"set:{name}": value for name, value in settings.items()})
        operation = client.ask("ExecuteStatement", ExecuteRequest(session, sql), OperationReply).operation
        if operation is None:
            raise RunFailed("the statement was refused")
        call = call_bytes("FetchResults", FetchRequest(operation, max_rows=FETCH_ROWS))
        while True:
            client.send(call)
            reply = client.frame()
            at = reply.find(_FIRST_COLUMN)
            if at < 0:
                raise RunFailed(f"no rows: {reply[:300]!r}")
            (count,) = struct.unpack_from(">i", reply, at + len(_FIRST_COLUMN))
            if not count:
                return
            yield count


def _flight(gateway: GatewayProcess, sql: str, settings: Mapping[str, str]) -> Rows:
    with closing(adbc.connect(f"grpc://{gateway.told['flight']}", autocommit=True)) as connection:
        with closing(connection.cursor()) as cursor:
            for name, value in settings.items():
                cursor.execute(f"SET {name} = {value}")
            cursor.adbc_statement.set_sql_query(sql)
            stream, _ = cursor.adbc_statement.execute_query()  # the cursor's own execute asks for the columns before
            with pa.RecordBatchReader.from_stream(stream) as reader:
                yield from (batch.num_rows for batch in reader)


DOORS: Mapping[str, Callable[[GatewayProcess, str, Mapping[str, str]], Rows]] = {
    "HTTP": _http,
    "HiveServer2": _hs2,
    "Flight SQL": _flight,
}


if __name__ == "__main__":
    run_command(run)
