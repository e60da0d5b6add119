"""Claim: a repeated statement takes 2 ms longer through the gateway than on its engine, a new join of five tables 20.

The paper says "under 1 second" of its own. Each statement comes through each door: HTTP, HiveServer2 with the calls of
PyHive and of impyla, Flight SQL without and with (ADBC) a prepared statement. The targets are HTTP's, where a statement
is one call. The gateway, its workers and the client are processes of their own. The gateway tells what each stage of
its statements took, on the clock and on the processor (``/v1/metrics``); what the client waits beyond that is the
door's: its protocol, further calls, threads. The same SQL goes straight to a pool of DuckDB workers beside it. A
statement that is new has other literals each time, so that nothing about it is known.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Annotated

import httpx
import numpy as np
import typer

from benchmarks.bookstore import DEFAULT_DATA, SEED, TABLES, DataOption, ScaleOption, SeedOption, prepare
from benchmarks.claim import Claim, RunFailed, Target, at_most, conditions, run_command, show_table, step
from benchmarks.doors import Conversation, Driver, DriversOption, address, connect, drivers_named
from benchmarks.server_process import GatewayProcess, cpu_s, gateway_process
from benchmarks.serving import engine_sql, timed_straight
from engines.duckdb.engine import DuckDBEngine
from engines.protocol import Lease
from gateway.cli.client import Client
from gateway.cli.demo.paper_queries import PAPER_QUERIES
from gateway.presentation.metrics import STAGES, STAGES_CPU
from gateway.statements.stages import BOUNDS_S, Stage
from metastore.discovery.inspection import inspect
from statsproc.data.bookstore import Bookstore

SCALE = 1 / 100
REPEATS = 200
WARM_UP = 40
NEW_SHARE = 1 / 4  # of the repeats: new statements by others than HTTP, whose way differs before and behind them only
LEASE = Lease(512 << 20)
REPEATED_P50_MS, REPEATED_P99_MS, COLD_P50_MS, PAPER_MS = 2.0, 8.0, 20.0, 1_000.0
MS = 1_000.0
OUTSIDE = "the door, there and back"
PLANNED = (Stage.READ, Stage.DECIDE)
_SAMPLE = re.compile(r'^(\w+)\{stage="(\w+)"(?:,le="([^"]+)")?\} (\S+)$')

JOIN = (
    "SELECT b1.category, count(*) AS sold FROM transactions t1 JOIN books b1 ON t1.book_id = b1.id "
    "JOIN customers c1 ON t1.customer_id = c1.id JOIN transactions t2 ON t2.customer_id = c1.id "
    "JOIN books b2 ON t2.book_id = b2.id WHERE b1.price < {price} AND b2.price < 1 AND t1.id < {number} "
    "GROUP BY b1.category"
)


@dataclass(frozen=True, slots=True)
class Statements:
    """What is asked. of: the text of each time. repeated: whether it is the same each time."""

    name: str
    of: Iterator[str]
    repeated: bool


@dataclass(frozen=True, slots=True)
class StageTold:
    """One stage by the gateway's word, since its start. up_to: statements by BOUNDS_S, cumulative."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    up_to: tuple[float, ...] = (0.0,) * len(BOUNDS_S)

    def __sub__(self, before: StageTold) -> StageTold:
        up_to = tuple(now - then for now, then in zip(self.up_to, before.up_to, strict=True))
        return StageTold(self.wall_s - before.wall_s, self.cpu_s - before.cpu_s, up_to)

    def quantile_s(self, level: float) -> float:
        """Return about the seconds that a share of the statements stayed below: a bucket's ends are a factor apart."""
        total = self.up_to[-1]
        if not total:
            return 0.0
        place = int(np.searchsorted(self.up_to, level * total))
        below, within = (self.up_to[place - 1] if place else 0.0), self.up_to[place]
        least, most = (BOUNDS_S[place - 1] if place else 0.0), min(BOUNDS_S[place], 2 * BOUNDS_S[place - 1])
        return least + (most - least) * (level * total - below) / max(1.0, within - below)


@dataclass(frozen=True, slots=True)
class Found:
    """What one kind of statement took, in milliseconds. process_ms: of all threads of the gateway, for a statement.

    calls: that a driver makes for it.
    """

    client_ms: Sequence[float]
    engine_ms: Sequence[float]
    process_ms: float
    calls: float
    stages: Mapping[Stage, StageTold]

    @property
    def overhead_ms(self) -> list[float]:
        """What the gateway adds, pair by pair."""
        return [client - engine for client, engine in zip(self.client_ms, self.engine_ms, strict=True)]


def run(
    data: DataOption = DEFAULT_DATA,
    scale: ScaleOption = SCALE,
    seed: SeedOption = SEED,
    repeats: Annotated[int, typer.Option(help="Times of each statement.", min=10)] = REPEATS,
    drivers: DriversOption = "",
) -> Claim:
    """Measure what the gateway adds to statements, and where."""
    folder = prepare(data, Bookstore(scale, seed))
    chance = np.random.default_rng(seed)
    numbers = (1_000 + int(number) for number in chance.permutation(1_000_000))
    new = (JOIN.format(price=20 + number % 50, number=number) for number in numbers)
    kinds = [
        Statements("repeated point query", _same("SELECT id, isbn, price FROM books WHERE id = 4711"), True),
        Statements("repeated aggregate", _same(PAPER_QUERIES["Q7"]), True),
        Statements("new join of five tables", new, False),
    ]
    figures, targets, summary = dict[str, float](), dict[str, Target](), list[list[str]]()
    with tempfile.TemporaryDirectory(prefix="fusion-bench-") as work, gateway_process(Path(work)) as gateway:
        with Client(gateway.url) as client:
            for table in TABLES:
                client.post("/v1/tables", {"name": table, "location": str(folder / table)})
        with closing(DuckDBEngine()) as engine:
            engine.use_tables([inspect(table, folder / table).source for table in TABLES])
            for kind, driver in product(kinds, drivers_named(drivers)):
                share = 1 if kind.repeated or driver is Driver.HTTP else NEW_SHARE
                times = round(share * repeats)
                step(f"{kind.name} by {driver}: {times} times, and as often on the engine alone")
                found = _measured(gateway, engine, driver, kind, times, round(share * WARM_UP))
                key = f"{driver.key}.{kind.name.replace(' ', '_')}"
                figures |= {f"{key}.{name}": value for name, value in _figures(found).items()}
                summary.append([f"{kind.name}, {driver}", *(f"{value:.2f}" for value in _figures(found).values())])
                stages = ["stage", "mean", "p50", "p99", "CPU"]
                show_table(f"Stages of a {kind.name} by {driver}, in ms", stages, _rows(found))
                if driver is Driver.HTTP:
                    targets |= _targets(key, kind)
    show_table(f"Overhead in ms (the paper's own: under {PAPER_MS:,.0f})", ["statement", *_figures(found)], summary)
    print(conditions(scale=f"{scale:g}", seed=seed, repeats=repeats, warm_up=WARM_UP))
    return Claim("overhead", figures, targets)


def _same(sql: str) -> Iterator[str]:
    return (sql for _ in count())


def _targets(key: str, kind: Statements) -> dict[str, Target]:
    if kind.repeated:
        return {
            f"{key}.overhead_p50_ms": at_most(REPEATED_P50_MS),
            f"{key}.overhead_p99_ms": at_most(REPEATED_P99_MS),
        }
    return {f"{key}.planned_p50_ms": at_most(COLD_P50_MS), f"{key}.overhead_p99_ms": at_most(PAPER_MS)}


def _measured(
    gateway: GatewayProcess, engine: DuckDBEngine, driver: Driver, kind: Statements, repeats: int, warm_up: int
) -> Found:
    """Ask a statement through the gateway and, if it is repeated, straight; in turns either comes first as often."""
    client_ms, engine_ms = list[float](), list[float]()
    with closing(connect(driver, address(gateway, driver), {})) as conversation, Client(gateway.url) as client:
        straight_sql = engine_sql(client, next(kind.of), "duckdb")
        begun, before, calls_before = 0.0, told(gateway.url), 0
        for number in range(-warm_up, repeats):
            if number == 0:
                begun, before, calls_before = cpu_s(gateway.process), told(gateway.url), conversation.calls
            calls = [partial(_asked_s, conversation, next(kind.of))]
            if kind.repeated:
                calls.append(partial(_straight_s, engine, straight_sql))
            took_s = {call: call() for call in (calls if number % 2 else calls[::-1])}
            client_s, *engine_s = (took_s[call] for call in calls)
            client_ms.append(client_s * MS)
            engine_ms += [seconds * MS for seconds in engine_s]
    stages = {stage: now - before[stage] for stage, now in told(gateway.url).items()}
    process_ms = (cpu_s(gateway.process) - begun) * MS / repeats
    if not kind.repeated:  # each is run once: what the engine took is in the gateway's own stage
        engine_ms = [stages[Stage.RUN].wall_s * MS / repeats] * len(client_ms)
    made = (conversation.calls - calls_before) / repeats
    return Found(client_ms[warm_up:], engine_ms[warm_up:], process_ms, made, stages)


def _asked_s(conversation: Conversation, sql: str) -> float:
    begun_s = time.perf_counter()
    answer = conversation.answer(sql)
    took_s = time.perf_counter() - begun_s
    if not conversation.succeeded:
        raise RunFailed(f"{sql}: {answer[-200:]!r}")
    return took_s


def _straight_s(engine: DuckDBEngine, sql: str) -> float:
    return timed_straight(engine, sql, LEASE)[0]


def told(url: str) -> dict[Stage, StageTold]:
    """Return what a gateway tells of its stages."""
    wall, cpu, up_to = defaultdict[Stage, float](float), dict[Stage, float](), defaultdict[Stage, list[float]](list)
    for line in httpx.get(f"{url}/v1/metrics").raise_for_status().text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        name, stage, value = match[1], Stage(match[2]), float(match[4])
        if name == f"{STAGES.name}_sum":
            wall[stage] = value
        elif name == f"{STAGES.name}_bucket":
            up_to[stage].append(value)
        elif name == STAGES_CPU.name:
            cpu[stage] = value
    return {stage: StageTold(wall[stage], cpu[stage], tuple(up_to[stage])) for stage in Stage}


def _figures(found: Found) -> dict[str, float]:
    overhead = found.overhead_ms
    planned = sum(found.stages[stage].quantile_s(0.5) for stage in PLANNED)
    return {
        "client_p50_ms": float(np.median(found.client_ms)),
        "engine_p50_ms": float(np.median(found.engine_ms)),
        "overhead_p50_ms": float(np.median(overhead)),
        "overhead_p99_ms": float(np.percentile(overhead, 99)),
        "planned_p50_ms": planned * MS,
        "server_cpu_ms": found.process_ms,
        "calls": found.calls,
    }


def _rows(found: Found) -> list[list[str]]:
    repeats = len(found.client_ms)
    rows, inside_ms = list[list[str]](), 0.0
    for stage, took in found.stages.items():
        inside_ms += took.wall_s * MS / repeats
        shown = took.wall_s / repeats, took.quantile_s(0.5), took.quantile_s(0.99), took.cpu_s / repeats
        rows.append([stage, *(f"{seconds * MS:.2f}" for seconds in shown)])
    outside_ms = float(np.mean(found.client_ms)) - inside_ms
    in_stages_ms = sum(took.cpu_s for took in found.stages.values()) * MS / repeats
    return [*rows, [OUTSIDE, f"{outside_ms:.2f}", "", "", f"{found.process_ms - in_stages_ms:.2f}"]]


if __name__ == "__main__":
    run_command(run)
