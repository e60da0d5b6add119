"""Claim: a repeated statement takes less than 10 ms longer through the gateway than on the engine itself.

The paper says "under 1 second" of its own. Every repeat is a pair: the statement over HTTP, and the very same SQL
straight on the gateway's DuckDB engine, in alternating order; overhead is the difference within the pair. A second
pass, with the gateway's calls watched, says where the time goes.
"""

from __future__ import annotations

import datetime as dt
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.bookstore import DEFAULT_DATA, SEED, DataOption, ScaleOption, SeedOption, describe, prepare
from benchmarks.claim import Claim, Target, at_most, conditions, run_command, show_table, step
from benchmarks.serving import engine_sql, serving, timed_query, timed_straight
from benchmarks.stopwatch import Stopwatch
from engines.duckdb.adapter import DuckDBSettings
from engines.duckdb.pool import PooledStatement
from engines.protocol import Lease
from engines.spark.adapter import SparkSettings
from gateway import settings as settings_module
from gateway.cli.client import Client
from gateway.cli.demo.paper_queries import PAPER_QUERIES
from gateway.cli.progress import progress_bar
from gateway.http import queries as http_queries
from gateway.server.runtime import Gateway
from gateway.settings import Settings
from statsproc.data.bookstore import Bookstore

SCALE = 1 / 100
REPEATS = 200
WARM_UP = 20
TARGET_P50_MS = 10.0
PAPER_MS = 1_000.0
MS = 1_000.0
HTTP = "HTTP round trip (GET /livez)"
REST = "coordinator, request model, switches between threads"
ENGINE = "the engine"

STATEMENTS = {
    "small": "SELECT id, isbn, price FROM books WHERE id = 4711",
    "middle": PAPER_QUERIES["Q7"],
}


@dataclass(frozen=True, slots=True)
class Pair:
    """One repeat, in milliseconds.

    gateway_ms: as the client sees it. straight_ms: the engine alone. server_ms: the query record from submission to
    its end, without the attempt.
    """

    gateway_ms: float
    straight_ms: float
    server_ms: float

    @property
    def overhead_ms(self) -> float:
        """What the gateway adds."""
        return self.gateway_ms - self.straight_ms


def run(
    data: DataOption = DEFAULT_DATA,
    scale: ScaleOption = SCALE,
    seed: SeedOption = SEED,
    repeats: Annotated[int, typer.Option(help="Pairs per statement.", min=1)] = REPEATS,
) -> Claim:
    """Measure what the gateway adds to a repeated statement."""
    folder = prepare(data, Bookstore(scale, seed))
    figures: dict[str, float] = {}
    targets: dict[str, Target] = {}
    rows: list[list[str]] = []
    stages: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="fusion-bench-") as home:
        settings = _settings(Path(home))
        describe(folder, settings.metastore_url)
        where = conditions(scale=f"{scale:g}", seed=seed, repeats=repeats, warm_up=WARM_UP)
        with serving(settings) as (gateway, client):
            for name, sql in STATEMENTS.items():
                pairs = _measure(gateway, client, name, sql, repeats)
                found = _figures(pairs)
                figures |= {f"{name}.{figure}": value for figure, value in found.items()}
                targets |= {f"{name}.p50_ms": at_most(TARGET_P50_MS), f"{name}.p99_ms": at_most(PAPER_MS)}
                rows.append(_row(name, found))
                stages[name] = _stages(gateway, client, name, sql, repeats)
    head = ["statement", "gateway p50", "engine p50", "overhead p50", "p99", "inside the server p50", "paper", "met"]
    show_table("Overhead of a repeated statement, in ms", head, rows)
    show_table("Where the time goes, mean ms of one statement", ["stage", *STATEMENTS], _stage_rows(stages))
    print(where)
    for name, sql in STATEMENTS.items():
        print(f"{name}: {sql}")
    return Claim("overhead", figures, targets)


def _settings(home: Path) -> Settings:
    return settings_module.load(home, spark=SparkSettings(enabled=False))


def _measure(gateway: Gateway, client: Client, name: str, sql: str, repeats: int) -> list[Pair]:
    step(f"{name} statement: {repeats} pairs")
    entry = gateway.engines["duckdb"]
    lease = Lease(int(gateway.settings.section(DuckDBSettings).memory_limit))
    straight_sql = engine_sql(client, sql, entry.engine.dialect)
    for _ in range(WARM_UP):
        timed_query(client, sql)
        timed_straight(entry.engine, straight_sql, lease)
    pairs = []
    with progress_bar(f"{name} statement", total=float(repeats)) as advance:
        for repeat in range(repeats):
            if repeat % 2:
                straight_s, _ = timed_straight(entry.engine, straight_sql, lease)
                gateway_s, reply = timed_query(client, sql)
            else:
                gateway_s, reply = timed_query(client, sql)
                straight_s, _ = timed_straight(entry.engine, straight_sql, lease)
            pairs.append(Pair(gateway_s * MS, straight_s * MS, inside_server_ms(reply)))
            advance(repeat + 1)
    return pairs


def inside_server_ms(reply: Any) -> float:
    """Return what a query's record says that the gateway took around its attempts.

    What comes before submission and after the end is not in it: HTTP, the last writes, the reply.
    """
    submitted = dt.datetime.fromisoformat(reply["submitted_at"])
    finished = dt.datetime.fromisoformat(reply["finished_at"])
    attempts_s = sum(attempt["wall_s"] for attempt in reply["attempts"])
    return ((finished - submitted).total_seconds() - float(attempts_s)) * MS


def _figures(pairs: Sequence[Pair]) -> dict[str, float]:
    overheads = [pair.overhead_ms for pair in pairs]
    return {
        "p50_ms": float(np.median(overheads)),
        "p99_ms": float(np.percentile(overheads, 99)),
        "server_p50_ms": float(np.median([pair.server_ms for pair in pairs])),
        "gateway_p50_ms": float(np.median([pair.gateway_ms for pair in pairs])),
        "engine_p50_ms": float(np.median([pair.straight_ms for pair in pairs])),
        "pairs": len(pairs),
    }


def _row(name: str, found: dict[str, float]) -> list[str]:
    met = found["p50_ms"] <= TARGET_P50_MS and found["p99_ms"] <= PAPER_MS
    return [
        name,
        f"{found['gateway_p50_ms']:.1f}",
        f"{found['engine_p50_ms']:.1f}",
        f"{found['p50_ms']:.1f}",
        f"{found['p99_ms']:.1f}",
        f"{found['server_p50_ms']:.1f}",
        f"under {PAPER_MS:,.0f}",
        "yes" if met else "no",
    ]


def _stages(gateway: Gateway, client: Client, name: str, sql: str, repeats: int) -> dict[str, float]:
    """Return the mean milliseconds of each stage; watching costs a little itself."""
    step(f"{name} statement: {repeats} times, watched")
    stopwatch = Stopwatch()
    with stopwatch.watching(_watched(gateway)):
        whole_s = sum(timed_query(client, sql)[0] for _ in range(repeats))
    spent = stopwatch.seconds
    spent[HTTP] = sum(_round_trip_s(client) for _ in range(repeats))
    spent[REST] = whole_s - sum(spent.values())
    return {stage: seconds * MS / repeats for stage, seconds in spent.items()}


def _round_trip_s(client: Client) -> float:
    begun = time.perf_counter()
    client.get("/livez")
    return time.perf_counter() - begun


def _watched(gateway: Gateway) -> list[tuple[object, str, str]]:
    store = gateway.metastore
    return [
        (store.catalog, "version", "metastore: catalog version"),
        (store.misestimates, "about", "metastore: misestimates"),
        (store.queries.writer, "wait", "metastore: query log, one transaction"),
        (gateway.router, "route", "decision"),
        (gateway.admission, "congestion", "admission: the wait to expect"),
        (gateway.engines["duckdb"].engine, "execute", ENGINE),
        (PooledStatement, "__next__", ENGINE),
        (gateway.spool, "write", "spool: write"),
        (http_queries, "_reply", "reply: models and JSON"),
    ]


def _stage_rows(stages: dict[str, dict[str, float]]) -> list[list[str]]:
    names = dict.fromkeys(stage for spent in stages.values() for stage in spent)
    total = {stage: sum(spent.get(stage, 0.0) for spent in stages.values()) for stage in names}
    ordered = sorted(names, key=lambda stage: (stage == ENGINE, -total[stage]))
    rows = [[stage, *(f"{spent.get(stage, 0.0):.2f}" for spent in stages.values())] for stage in ordered]
    return [*rows, ["all", *(f"{sum(spent.values()):.2f}" for spent in stages.values())]]


if __name__ == "__main__":
    run_command(run)
