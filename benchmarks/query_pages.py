"""Claim: with 100,000 queries on record, each page about them takes the server at most 150 ms, searches included.

The queries are recorded as the gateway records them, with decisions and attempts of usual length, over a month; the
pages are asked for over HTTP of a gateway with scripted engines. Each is asked for several times; its figure is the
median. The first time, which reads files and fills caches, is printed beside it.
"""

from __future__ import annotations

import datetime as dt
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import httpx
import typer
import uvicorn
from pydantic import SecretStr

from benchmarks.claim import Claim, at_most, conditions, run_command, show_table, step
from benchmarks.postgresql_server import served
from engines.protocol import Actuals, EngineKind, OperatorActual
from engines.scripted import ScriptedEngine
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.app import create_app
from gateway.settings import MetastoreSettings, load
from metastore.database.connection import make_engine
from metastore.query_log.changes import QueryChanges, write
from metastore.records import Alone, Attempt, QueryRecord, QueryState, QuerySummary
from selector.decision import Decision, EnginePrice, Reason, ReasonCode
from selector.estimate import MemoryEstimate, OperatorEstimate

QUERIES, BATCH = 100_000, 2_000
SEED = 1
DAYS = 30
TEMPLATES, USERS, OPERATORS = 300, 100, 24
MIB = 1 << 20


TARGET_MS, MS = 150.0, 1_000.0
REPEATS = 9
PAGES = {
    "overview, last hour": "/dashboard",
    "overview, last week": "/dashboard?last=week",
    "queries, newest": "/dashboard/queries",
    "by user": "/dashboard/queries?user=user7",
    "by a rare text": "/dashboard/queries?text=name+{rare}%27",
    "by a text that is not there": "/dashboard/queries?text=nobody",
    "by user and text": "/dashboard/queries?user=user7&text=name",
    "failed over": "/dashboard/queries?failed_over=1",
    "by a table": "/dashboard/queries?table=default.t7",
    "longest first": "/dashboard/queries?order=seconds",
    "largest peaks first": "/dashboard/queries?order=peak",
    "of a template, longest first": "/dashboard/queries?template={template}&order=seconds",
    "templates": "/dashboard/templates",
    "estimates": "/dashboard/estimates",
    "savings by day": "/dashboard/savings",
    "search by programs": "/v1/queries?text=name+{rare}%27",
}


def run(
    queries: Annotated[int, typer.Option(help="Queries on record.", min=100)] = QUERIES,
    seed: Annotated[int, typer.Option(help="Of the queries.")] = SEED,
) -> Claim:
    """Ask for all pages over SQLite and over PostgreSQL."""
    figures: dict[str, float] = {}
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as work, ExitStack() as held:
        for name in ("sqlite", "postgresql"):
            folder = Path(work) / name
            folder.mkdir()
            url = f"sqlite:///{folder / 'metastore.db'}" if name == "sqlite" else held.enter_context(served(folder))
            with _gateway(folder, url) as client:
                step(f"recording {queries:,} queries in {name}")
                record_queries(url, queries, seed)
                for page, address in PAGES.items():
                    path = address.format(rare=queries - 7, template=f"{7:064x}")
                    took_ms = [_took_ms(client, path) for _ in range(REPEATS)]
                    figures[f"{name}_{page.replace(', ', '_').replace(' ', '_')}_ms"] = statistics.median(took_ms)
                    shown = (took_ms[0], statistics.median(took_ms), max(took_ms))
                    rows.append([name, page, *(f"{ms:.0f}" for ms in shown)])
    show_table("Pages, milliseconds", ["database", "page", "first time", "median", "most"], rows)
    print(conditions(queries=f"{queries:,}", repeats=REPEATS))
    return Claim("query pages", figures, dict.fromkeys(figures, at_most(TARGET_MS)))


@contextmanager
def _gateway(folder: Path, url: str) -> Iterator[httpx.Client]:
    """Serve a gateway over scripted engines, in a thread."""
    settings = load(folder / "home", metastore=MetastoreSettings(url=SecretStr(url)))
    fast, dependable = ScriptedEngine("duckdb"), ScriptedEngine("spark", kind=EngineKind.DEPENDABLE)
    entries = [EngineEntry(fast, limit_bytes=384 * MIB), EngineEntry(dependable)]
    app = create_app(wiring.assemble(settings, EngineRegistry(entries)))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, name="http", daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    with httpx.Client(base_url=f"http://{host}:{port}", timeout=60) as client:
        yield client
    server.should_exit = True
    thread.join()


def _took_ms(client: httpx.Client, path: str) -> float:
    begun_s = time.perf_counter()
    client.get(path).raise_for_status()
    return MS * (time.perf_counter() - begun_s)


def record_queries(url: str, count: int, seed: int = SEED) -> None:
    """Write ended queries of the last month into a metastore."""
    engine, now = make_engine(url), dt.datetime.now(dt.UTC)
    numbers = random.Random(seed)  # noqa: S311 - not for secrets
    step = dt.timedelta(days=DAYS) / count
    for first in range(0, count, BATCH):
        with engine.begin() as connection:
            batch = range(first, min(first + BATCH, count))
            write(connection, [changes_of(now - (count - number) * step, number, numbers) for number in batch])
    engine.dispose()


def changes_of(at: dt.datetime, number: int, numbers: random.Random) -> QueryChanges:
    """Return a query that has ended, as a gateway writes it. at: its submission; number: in its text."""
    template, user = numbers.randrange(TEMPLATES), f"user{numbers.randrange(USERS)}"
    expected, measured = numbers.randrange(10, 500) * MIB, numbers.randrange(10, 500) * MIB
    misses, is_fast = numbers.random() < 0.02, numbers.random() < 0.8
    seconds = numbers.expovariate(1.0)
    decision = _decision(expected, fast=is_fast or misses)
    record = QueryRecord(
        id=f"{at:%Y%m%d_%H%M%S}_{numbers.getrandbits(40):010x}",
        sql=f"SELECT t.c{template}, sum(s.v) FROM sales s JOIN t{template} t ON s.k = t.k WHERE t.n = 'name {number}'"
        + " AND s.d IS NOT NULL" * numbers.randrange(10)
        + f" GROUP BY t.c{template} ORDER BY 2 DESC LIMIT 100",
        dialect="spark",
        user=user,
        authenticated=True,
        requested_engine="auto",
        state=QueryState.QUEUED,
        submitted_at=at,
    )
    attempts = list(_attempts(decision.engine, at, seconds, measured, misses=misses))
    alone = (
        Alone("spark", attempts[-1].run_s or 0.0, True)
        if attempts[-1].engine == "spark"
        else Alone("spark", 4.0, False)
    )
    changes = QueryChanges(record.id)
    changes.open(record, "here", lambda: None)
    changes.decide(f"{number:064x}", f"{template:064x}", f"default.sales@1,default.t{template}@1", decision)
    for attempt in attempts:
        changes.start(attempt)
        changes.end_attempt(attempt)
    summary = QuerySummary(
        pool="default",
        reason=decision.reasons[0].code.value,
        seconds=seconds,
        attempts=len(attempts),
        ran_out=misses,
        expected_bytes=expected,
        peak_bytes=measured,
        within_bound=measured < 3 * expected,
        alone=alone,
    )
    changes.end(QueryState.FINISHED, at + dt.timedelta(seconds=seconds), attempts[-1], 100, 10_000, None, summary)
    return changes


def _attempts(engine: str, at: dt.datetime, seconds: float, peak: int, *, misses: bool) -> Iterator[Attempt]:
    operators = tuple(OperatorActual("HASH_JOIN", 1_000 * n, n) for n in range(OPERATORS))
    if misses:
        yield Attempt(1, "duckdb", QueryState.FAILED, at, seconds, "MEMORY_EXCEEDED", "no memory", peak_bytes=peak)
    last = Attempt(1 + misses, "spark" if misses else engine, QueryState.FINISHED, at, seconds)
    yield Attempt(
        last.ordinal, last.engine, last.state, at, seconds, rows=100, peak_bytes=peak, actuals=Actuals(peak, operators)
    )


def _decision(expected: int, *, fast: bool) -> Decision:
    operators = tuple(OperatorEstimate("HASH_JOIN", n, 5_000.5, None, expected, "histogram") for n in range(OPERATORS))
    price = EnginePrice("spark", 1.0, 4.0, 4.0, 0.0, 0.0, 0.0, 4.0)
    code = ReasonCode.FITS if fast else ReasonCode.EXCEEDS_LIMIT
    return Decision(
        engine="duckdb" if fast else "spark",
        ranking=("duckdb", "spark") if fast else ("spark",),
        reasons=(Reason(code, "It is expected to take a part of the limit."),),
        estimate=MemoryEstimate(expected, 3 * expected, operators),
        limit_bytes=384 * MIB,
        estimated_for="duckdb",
        prices=(EnginePrice("duckdb", 0.9, 1.0, 1.0, 2.0, 0.0, 0.0, 1.2), price),
    )


if __name__ == "__main__":
    run_command(run)
