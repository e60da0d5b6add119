"""Rows through HiveServer2 and Flight SQL: beside the real Spark Thrift Server, and beside each client's own limit.

Both serve the same Parquet file to the same clients, one after the other: bytes drained without looking at them,
PyHive, Beeline; the gateway also to Beeline over HTTP, and to ADBC, through Arrow Flight SQL, which Spark's server does
not speak. What a server costs is the CPU of its own process while its rows are drained; the gateway's does not include
DuckDB's worker, which has ended its work before the first row is fetched, and Spark's cannot be told apart from its
tasks, so that it stands here for comparison only.

A client's own limit is how fast it reads what it read before when a bare socket sends it again (replay.py): no server
can be faster than that. Each client reads from either in turns. Needs the extras duckdb, spark, hive and flight; with
--no-spark there is nothing of Spark's, Beeline among it.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import httpx
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from benchmarks.claim import Claim, RunFailed, at_least, at_most, conditions, run_command, show_table, step
from benchmarks.drains import PYTHON_DRAINS, USER, adbc_drain, pyhive_drain, raw_flight_drain
from benchmarks.floors import figures_of, floors, show
from benchmarks.hs2_client import RawClient, call_bytes
from benchmarks.server_process import gateway_process, server_process, wait_for
from engines.machine.ports import free_port
from engines.spark.embedded.java import find_java_home, spark_environment
from gateway.drivers.hs2.protocol.messages import ExecuteRequest, OperationReply
from gateway.drivers.hs2.protocol.messages import FetchRequest as Fetch

LOOPBACK = "127.0.0.1"
QUERY = "SELECT id, part, share, name, money, day FROM lines"
FETCH_ROWS = 10_000
SMALLEST_REPLY = 1_000  # bytes; a reply without rows has fewer
MIB = 1 << 20
MEMORY_TIMES = 10  # as many rows while the gateway's memory is watched
OF_FLOOR = 0.9  # of the speed that a client has with a server that computes nothing
TARGETS = {
    "raw.times": at_least(6.0),
    "pyhive.times": at_least(1.5),
    "beeline.times": at_least(1.2),
    "beeline.http_of_binary": at_most(1.5),
    "adbc.of_pyhive": at_least(5.0),
    "raw.server_cpu_s_per_million": at_most(0.6),
    "memory.growth_mib": at_most(200.0),
    **{f"{client}.of_floor": at_least(OF_FLOOR) for client in PYTHON_DRAINS},
}


@dataclass(frozen=True, slots=True)
class Server:
    """One side. http: where it speaks HiveServer2 over HTTP, flight: address of Arrow Flight SQL, if it does."""

    name: str
    port: int
    process: psutil.Process
    http: str | None = None
    flight: str | None = None

    @property
    def address(self) -> str:
        """Host and port of HiveServer2."""
        return f"{LOOPBACK}:{self.port}"

    def cpu_s(self) -> float:
        """Return the seconds that the process itself has taken."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@dataclass(frozen=True, slots=True)
class Round:
    """One repeat on one side. Seconds; raw_cpu_s: of the server. None: not asked that way."""

    raw_s: float
    raw_cpu_s: float
    raw_bytes: int
    pyhive_s: float
    beeline_s: float | None
    beeline_http_s: float | None
    adbc_s: float | None
    raw_flight_s: float | None


def run(
    rows: Annotated[int, typer.Option(help="Rows of six columns.")] = 1_000_000,
    beeline_rows: Annotated[int, typer.Option(help="Rows that Beeline reads.")] = 1_000_000,
    pairs: Annotated[int, typer.Option(help="Repeats of each side.")] = 3,
    spark: Annotated[bool, typer.Option(help="Whether Spark Thrift Server and Beeline take part.")] = True,
) -> Claim:
    """Compare what reaches a client through either server, and from a server that computes nothing."""
    where = conditions(rows=f"{rows:,}", beeline_rows=f"{beeline_rows:,}", pairs=pairs, fetch=f"{FETCH_ROWS:,}")
    with (
        tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as folder,
        ExitStack() as stack,
    ):
        work = Path(folder)
        _make(work / "lines", rows)
        ours = stack.enter_context(_gateway(work))
        servers = [ours, *([stack.enter_context(_thrift_server(work))] if spark else [])]
        for server in servers:
            step(f"{server.name}: warm-up")
            _round(server, min(rows, 50_000), 1_000 if spark else 0)
        measured: dict[str, list[Round]] = {server.name: [] for server in servers}
        for number in range(pairs):
            for server in servers[:: -1 if number % 2 else 1]:
                step(f"pair {number + 1} of {pairs}: {server.name}")
                measured[server.name].append(_round(server, rows, beeline_rows if spark else 0))
        found = floors(_addresses(ours), f"{QUERY} LIMIT {rows}", rows, pairs)
        step(f"{ours.name}: memory while {MEMORY_TIMES * rows:,} rows are read")
        growth = _growth(ours, rows)
    figures = _figures(*measured.values(), rows=rows, beeline_rows=beeline_rows)
    figures |= {"memory.growth_mib": growth / MIB} | figures_of(found)
    _show(measured, rows, beeline_rows)
    show(found)
    print(f"The gateway's memory grew by {growth / MIB:.0f} MiB while {MEMORY_TIMES * rows:,} rows were read.")
    print(where)
    return Claim("drivers", figures, {name: target for name, target in TARGETS.items() if name in figures})


# ---------------------------------------------------------------------- clients


def _addresses(server: Server) -> dict[str, str]:
    """Return host:port for each of Python's clients."""
    return {client: server.flight or "" if client == "adbc" else server.address for client in PYTHON_DRAINS}


def _round(server: Server, rows: int, beeline_rows: int) -> Round:
    """Drain once each way. beeline_rows: 0 without Beeline."""
    sql = f"{QUERY} LIMIT {rows}"
    raw_s, cpu_s, size = _drain(server, sql, rows)
    pyhive_s = pyhive_drain(server.address, sql, rows)
    beeline_s = beeline_http_s = adbc_s = raw_flight_s = None
    if beeline_rows:
        beeline_sql = f"{QUERY} LIMIT {beeline_rows}"
        beeline_s = _beeline(server, beeline_sql, beeline_rows)
        beeline_http_s = _beeline(server, beeline_sql, beeline_rows, server.http) if server.http else None
    if server.flight:
        adbc_s = adbc_drain(server.flight, sql, rows)
        raw_flight_s, _ = raw_flight_drain(server.flight, sql, rows)
    return Round(raw_s, cpu_s, size, pyhive_s, beeline_s, beeline_http_s, adbc_s, raw_flight_s)


def _drain(server: Server, sql: str, rows: int) -> tuple[float, float, int]:
    """Fetch all rows without looking at them; returns seconds, the server's CPU seconds and bytes."""
    with RawClient(LOOPBACK, server.port, user=USER, password=USER) as client:
        session = client.open_session()
        operation = client.ask("ExecuteStatement", ExecuteRequest(session, sql), OperationReply).operation
        if operation is None:
            raise RunFailed(f"{server.name} refused {sql}")
        call = call_bytes("FetchResults", Fetch(operation, 0, FETCH_ROWS))
        size, fetches = 0, 0
        cpu_s, begun = server.cpu_s(), time.perf_counter()
        while True:
            client.send(call)
            received = len(client.frame())
            if received < SMALLEST_REPLY:
                break
            size, fetches = size + received, fetches + 1
        elapsed_s = time.perf_counter() - begun
        if fetches * FETCH_ROWS < rows:
            raise RunFailed(f"{server.name} gave {fetches} replies for {rows:,} rows")
        return elapsed_s, server.cpu_s() - cpu_s, size


def _beeline(server: Server, sql: str, rows: int, http: str | None = None) -> float:
    """Return the whole run of Beeline, with its start, which is the same on both sides. http: to be asked that way."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    command = [str(find_java_home() / "bin" / "java"), "-Xmx512m", "-cp", f"{jars}/*"]
    url = f"jdbc:hive2://{http or f'{LOOPBACK}:{server.port}'}/default"
    url += ";transportMode=http;httpPath=cliservice" if http else ""
    command += ["org.apache.hive.beeline.BeeLine", "-u", url, "-n", USER, "-p", USER]
    command += ["--incremental=true", "--outputformat=csv2", "--silent=true", "-e", sql]
    with tempfile.TemporaryFile() as printed:  # a pipe would need a reader, which takes a processor of its own
        begun = time.perf_counter()
        done = subprocess.run(command, stdout=printed, stderr=subprocess.PIPE, check=False)
        elapsed_s = time.perf_counter() - begun
        printed.seek(0)
        lines = len(re.findall(rb"^\d+,", printed.read(), flags=re.MULTILINE))
    if lines < rows - 1:  # the prompt may stand before the first
        raise RunFailed(f"{server.name} gave Beeline {lines:,} rows instead of {rows:,}: {done.stderr[-500:].decode()}")
    return elapsed_s


def _growth(server: Server, rows: int) -> int:
    """Return by how much the server's memory grows, at most, while ten times the rows are drained."""
    sql = QUERY.replace("FROM lines", "FROM lines CROSS JOIN " + _times(MEMORY_TIMES))
    with RawClient(LOOPBACK, server.port, user=USER, password=USER) as client:
        session = client.open_session()
        before = peak = server.process.memory_info().rss
        operation = client.ask("ExecuteStatement", ExecuteRequest(session, sql), OperationReply).operation
        if operation is None:
            raise RunFailed(f"{server.name} refused {sql}")
        call = call_bytes("FetchResults", Fetch(operation, 0, FETCH_ROWS))
        fetches = 0
        while True:
            client.send(call)
            if len(client.frame()) < SMALLEST_REPLY:
                break
            fetches += 1
            if fetches % 10 == 0:
                peak = max(peak, server.process.memory_info().rss)
    if fetches * FETCH_ROWS < MEMORY_TIMES * rows:
        raise RunFailed(f"{fetches} replies for {MEMORY_TIMES * rows:,} rows")
    return int(peak - before)


def _times(count: int) -> str:
    return f"(VALUES {', '.join(f'({number})' for number in range(count))}) AS times(k)"


# ---------------------------------------------------------------------- servers


def _make(folder: Path, rows: int) -> None:
    """Write a table of six columns: two whole numbers, a float, a text, a decimal, a date."""
    folder.mkdir()
    numbers = pa.array(range(rows), pa.int64())
    table = pa.table(
        {
            "id": numbers,
            "part": pa.array([number % 1_000 for number in range(rows)], pa.int32()),
            "share": pa.array([number / 7 for number in range(rows)]),
            "name": pa.array([f"customer {number % 1_000:06d}" for number in range(rows)]),
            "money": numbers.cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)),
            "day": pa.array([number % 20_000 for number in range(rows)], pa.int32()).cast(pa.date32()),
        }
    )
    pq.write_table(table, folder / "part-0.parquet")


@contextmanager
def _gateway(work: Path) -> Iterator[Server]:
    with gateway_process(work, FUSION_DUCKDB__WORKERS="1", FUSION_LIMITS__ROWS="0") as gateway:
        table = {"name": "lines", "location": str(work / "lines")}
        httpx.post(f"{gateway.url}/v1/tables", json=table, timeout=60.0).raise_for_status()
        port = int(gateway.told["drivers"].rpartition(":")[2])
        address = gateway.url.removeprefix("http://")
        yield Server("gateway", port, gateway.process, address, gateway.told["flight"])


@contextmanager
def _thrift_server(work: Path) -> Iterator[Server]:
    import pyspark

    port = free_port()
    derby = f"-Dderby.system.home={work / 'derby'} -Duser.timezone=UTC"
    options = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.driver.extraJavaOptions": derby,
        "spark.driver.maxResultSize": "0",
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit")]
    command += ["--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"]
    command += ["--master", "local[2]", "--driver-memory", "1g"]
    command += [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
    command += ["--hiveconf", f"hive.server2.thrift.bind.host={LOOPBACK}"]
    command += ["--hiveconf", f"hive.server2.thrift.port={port}", "spark-internal"]
    step("Spark Thrift Server: start")
    with server_process(command, work / "spark.log", spark_environment(), folder=work) as process:
        sql = f"CREATE TABLE lines USING parquet LOCATION '{work / 'lines'}'"

        def create() -> None:
            with RawClient(LOOPBACK, port, user=USER, password=USER) as client:
                client.ask("ExecuteStatement", ExecuteRequest(client.open_session(), sql), OperationReply)

        wait_for(process, create)
        yield Server("Spark Thrift Server", port, psutil.Process(process.pid))


# ---------------------------------------------------------------------- figures


def _figures(ours: list[Round], theirs: Sequence[Round] = (), *, rows: int, beeline_rows: int) -> dict[str, float]:
    """Return figures by name. theirs: none without Spark."""
    figures = {
        "raw.rows_per_s": median(rows / one.raw_s for one in ours),
        "raw.server_cpu_s_per_million": median(one.raw_cpu_s * 1e6 / rows for one in ours),
        "pyhive.rows_per_s": median(rows / one.pyhive_s for one in ours),
        "adbc.of_pyhive": median(one.pyhive_s / one.adbc_s for one in ours if one.adbc_s),
        "adbc.rows_per_s": median(rows / one.adbc_s for one in ours if one.adbc_s),
        "raw_flight.rows_per_s": median(rows / one.raw_flight_s for one in ours if one.raw_flight_s),
    }
    paired = list(zip(ours, theirs, strict=True)) if theirs else []
    if paired:
        beelines = [(one, one.beeline_s, other.beeline_s) for one, other in paired if one.beeline_s and other.beeline_s]
        figures |= {
            "raw.times": median(other.raw_s / one.raw_s for one, other in paired),
            "raw.spark_rows_per_s": median(rows / one.raw_s for one in theirs),
            "pyhive.times": median(other.pyhive_s / one.pyhive_s for one, other in paired),
            "pyhive.spark_rows_per_s": median(rows / one.pyhive_s for one in theirs),
            "beeline.times": median(theirs_s / ours_s for _, ours_s, theirs_s in beelines),
            "beeline.rows_per_s": median(beeline_rows / ours_s for _, ours_s, _ in beelines),
            "beeline.http_of_binary": median(
                one.beeline_http_s / ours_s for one, ours_s, _ in beelines if one.beeline_http_s
            ),
        }
    return figures


def _show(measured: dict[str, list[Round]], rows: int, beeline_rows: int) -> None:
    lines = [
        [
            name,
            f"{median(rows / one.raw_s for one in rounds):,.0f}",
            f"{median(one.raw_bytes / one.raw_s for one in rounds) / 1e6:,.0f}",
            f"{median(one.raw_cpu_s * 1e6 / rows for one in rounds):.2f}",
            f"{median(rows / one.pyhive_s for one in rounds):,.0f}",
            _rate(beeline_rows, [one.beeline_s for one in rounds if one.beeline_s]),
            _rate(beeline_rows, [one.beeline_http_s for one in rounds if one.beeline_http_s]),
            _rate(rows, [one.adbc_s for one in rounds if one.adbc_s]),
            _rate(rows, [one.raw_flight_s for one in rounds if one.raw_flight_s]),
        ]
        for name, rounds in measured.items()
    ]
    head = ["server", "raw rows/s", "raw MB/s", "CPU s / 1M rows", "PyHive rows/s", "Beeline rows/s"]
    head += ["Beeline rows/s, HTTP", "ADBC rows/s", "raw Flight SQL rows/s"]
    show_table("Medians", head, lines)


def _rate(rows: int, seconds: list[float]) -> str:
    return f"{median(rows / each for each in seconds):,.0f}" if seconds else "-"


if __name__ == "__main__":
    run_command(run)
