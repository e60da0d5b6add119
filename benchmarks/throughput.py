"""Claim: a repeated point query takes 2 ms longer than on the engine; 32 clients get 300 answers a second, 800 cached.

Through each door: HTTP, HiveServer2 with the calls of PyHive and of impyla, Flight SQL without and with (ADBC) a
prepared statement. The targets are HTTP's; a driver makes several calls for a statement: how many is told beside it.

The gateway, its workers and the load generator are processes of their own (load.py), so that what is measured takes
nothing from who measures it. The same SQL goes straight to a pool of DuckDB workers beside it, one statement at a time
and from as many threads as there are clients: no gateway over that engine can be faster.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.bookstore import DEFAULT_DATA, SEED, DataOption, ScaleOption, SeedOption, prepare
from benchmarks.claim import Claim, RunFailed, Target, at_least, at_most, conditions, run_command, show_table, step
from benchmarks.doors import Driver, DriversOption, address, drivers_named
from benchmarks.load import Answered, Asked, Load, generate
from benchmarks.server_process import GatewayProcess, cpu_s, gateway_process, room_for
from benchmarks.serving import engine_sql, timed_straight
from engines.duckdb.engine import DuckDBEngine
from engines.protocol import Lease
from gateway.cli.client import Client
from gateway.presentation.metrics import CACHE_HITS
from metastore.discovery.inspection import inspect
from statsproc.data.bookstore import Bookstore

SCALE = 1 / 100
SQL = "SELECT id, isbn, price FROM books WHERE id = 4711"
CLIENTS = (1, 8, 32, 128)
BUSY = 32
SECONDS = 6.0
WARM_UP_S = 2.0
LEASE = Lease(512 << 20)
OVERHEAD_P50_MS, OVERHEAD_P99_MS, SERVER_CPU_MS = 2.0, 8.0, 3.0
PER_S, P99_OVER_P50, CACHED_PER_S = 300.0, 10.0, 800.0
MS = 1_000.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What clients got, and the milliseconds of CPU that one statement took in the gateway and in its workers."""

    answered: Answered
    server_ms: float
    workers_ms: float


@dataclass(frozen=True, slots=True)
class Found:
    """One driver with a number of clients. straight: the engine alone, with as many."""

    driver: Driver
    clients: int
    ran: Measured
    cached: Measured
    straight: Answered


def run(
    data: DataOption = DEFAULT_DATA,
    scale: ScaleOption = SCALE,
    seed: SeedOption = SEED,
    seconds: Annotated[float, typer.Option(help="That each number of clients asks.", min=1)] = SECONDS,
    clients: Annotated[str, typer.Option(help="Numbers of clients, with commas between them.")] = ",".join(
        map(str, CLIENTS)
    ),
    drivers: DriversOption = "",
) -> Claim:
    """Measure what repeated point queries take through each door, with one client and with many."""
    folder = prepare(data, Bookstore(scale, seed))
    counts = [int(count) for count in clients.split(",") if count]
    named = drivers_named(drivers)
    with tempfile.TemporaryDirectory(prefix="fusion-bench-") as work:
        with gateway_process(Path(work), **room_for(max(counts))) as gateway, _engine(folder) as engine:
            asked, straight_sql = _prepared(gateway, folder)
            for driver in named:
                for settings in CACHE_OFF, CACHE_ON:
                    _ask(gateway, driver, asked, BUSY, WARM_UP_S, settings)
            found = list[Found]()
            for count in counts:
                step(f"{count} clients: the engine")
                straight = _straight(engine, straight_sql, count, seconds)
                for driver in named:
                    step(f"{count} clients: {driver}")
                    ran = _measured(gateway, driver, asked, count, seconds, CACHE_OFF)
                    cached = _measured(gateway, driver, asked, count, seconds, CACHE_ON)
                    found.append(Found(driver, count, ran, cached, straight))
    _show(found)
    print(conditions(scale=f"{scale:g}", seed=seed, seconds=seconds, warm_up=WARM_UP_S))
    print(SQL)
    figures = {name: figure for each in found for name, figure in _figures(each).items()}
    wanted = _targets()
    return Claim("throughput", figures, {name: wanted[name] for name in wanted if name in figures})


CACHE_OFF = {"fusion.cache": "off"}
CACHE_ON = {"fusion.cache": "on"}


def _targets() -> dict[str, Target]:
    return {
        "http.1.overhead_p50_ms": at_most(OVERHEAD_P50_MS),
        "http.1.overhead_p99_ms": at_most(OVERHEAD_P99_MS),
        "http.1.server_cpu_ms": at_most(SERVER_CPU_MS),
        f"http.{BUSY}.per_s": at_least(PER_S),
        f"http.{BUSY}.p99_over_p50": at_most(P99_OVER_P50),
        f"http.{BUSY}.cached_per_s": at_least(CACHED_PER_S),
    }


def _prepared(gateway: GatewayProcess, folder: Path) -> tuple[Asked, str]:
    """Register the table; returns the statement with what each answer holds, and as DuckDB gets it."""
    with Client(gateway.url) as client:
        client.post("/v1/tables", {"name": "books", "location": str(folder / "books")})
        (row,) = client.query(SQL)["rows"]
        return Asked(SQL, str(row[1])), engine_sql(client, SQL, "duckdb")


@contextmanager
def _engine(folder: Path) -> Iterator[DuckDBEngine]:
    with contextlib.closing(DuckDBEngine()) as engine:
        engine.use_tables([inspect("books", folder / "books").source])
        yield engine


def _straight(engine: DuckDBEngine, sql: str, clients: int, seconds: float) -> Answered:
    """Ask the engine itself from as many threads."""
    for _ in range(20):
        timed_straight(engine, sql, LEASE)
    begun_s = time.perf_counter()

    def ask(_: int) -> list[float]:
        took_s = []
        while time.perf_counter() - begun_s < seconds:
            took_s.append(timed_straight(engine, sql, LEASE)[0])
        return took_s

    with ThreadPoolExecutor(clients) as threads:
        took_s = [each for found in threads.map(ask, range(clients)) for each in found]
    p50_ms, p99_ms = (float(each) for each in np.percentile(np.array(took_s) * MS, (50, 99)))
    return Answered(len(took_s), 0, len(took_s) / (time.perf_counter() - begun_s), p50_ms, p99_ms)


def _measured(
    gateway: GatewayProcess, driver: Driver, asked: Asked, clients: int, seconds: float, settings: dict[str, str]
) -> Measured:
    before, workers_before = cpu_s(gateway.process), gateway.workers_cpu_s()
    hits = gateway.metric(CACHE_HITS.name)
    answered = _ask(gateway, driver, asked, clients, seconds, settings)
    server_s, workers_after = cpu_s(gateway.process) - before, gateway.workers_cpu_s()
    workers_s = sum(now - workers_before.get(pid, 0.0) for pid, now in workers_after.items())
    hits = gateway.metric(CACHE_HITS.name) - hits
    if hits if settings is CACHE_OFF else hits < answered.count:
        raise RunFailed(f"{hits:.0f} of {answered.count} answers were cached with {settings}")
    return Measured(answered, server_s * MS / answered.count, workers_s * MS / answered.count)


def _ask(
    gateway: GatewayProcess, driver: Driver, asked: Asked, clients: int, seconds: float, settings: dict[str, str]
) -> Answered:
    answered = generate(Load(driver, address(gateway, driver), [asked], clients, seconds, settings))
    if answered.wrong:
        raise RunFailed(
            f"{answered.wrong} of {answered.count} answers to {clients} clients ({driver}) are wrong, such as "
            f"{answered.wrong_answer}"
        )
    return answered


def _figures(found: Found) -> dict[str, float]:
    answered, straight, cached = found.ran.answered, found.straight, found.cached
    figures = {
        "per_s": answered.per_s,
        "p50_ms": answered.p50_ms,
        "p99_ms": answered.p99_ms,
        "p99_over_p50": answered.p99_ms / answered.p50_ms,
        "overhead_p50_ms": answered.p50_ms - straight.p50_ms,
        "overhead_p99_ms": answered.p99_ms - straight.p99_ms,
        "calls": answered.calls,
        "server_cpu_ms": found.ran.server_ms,
        "workers_cpu_ms": found.ran.workers_ms,
        "generator_cpu_ms": answered.generator_ms,
        "engine_per_s": straight.per_s,
        "cached_per_s": cached.answered.per_s,
        "cached_p50_ms": cached.answered.p50_ms,
        "cached_p99_ms": cached.answered.p99_ms,
        "cached_server_cpu_ms": cached.server_ms,
    }
    return {f"{found.driver.key}.{found.clients}.{name}": figure for name, figure in figures.items()}


def _show(found: Sequence[Found]) -> None:
    head = ["clients", "answers/s", "p50 ms", "p99 ms", "calls", "server CPU ms", "workers' CPU ms"]
    head += ["cached/s", "cached p50 ms", "cached p99 ms", "cached, server CPU ms"]
    rows = list[list[str]]()
    for count in dict.fromkeys(each.clients for each in found):
        of_count = [each for each in found if each.clients == count]
        straight = of_count[0].straight
        alone = (straight.per_s, straight.p50_ms, straight.p99_ms)
        rows.append([f"{count}, the engine alone", *(f"{each:.1f}" for each in alone), *[""] * 7])
        rows += [_row(each) for each in of_count]
    show_table("A repeated point query; CPU for each statement", head, rows)


def _row(found: Found) -> list[str]:
    ran, cached = found.ran, found.cached
    told = [ran.answered.per_s, ran.answered.p50_ms, ran.answered.p99_ms, ran.answered.calls]
    told += [ran.server_ms, ran.workers_ms]
    told += [cached.answered.per_s, cached.answered.p50_ms, cached.answered.p99_ms, cached.server_ms]
    return [f"{found.clients}, {found.driver}", *(f"{each:.1f}" for each in told)]


if __name__ == "__main__":
    run_command(run)
