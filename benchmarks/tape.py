"""What statements took on each engine, written down once, so that any decision about them can be priced.

Each statement goes through a real gateway over HTTP, pinned to Spark once and to DuckDB once under each
limit. What was expected of it is asked anew each time, of a gateway that has run nothing.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ByteSize

from benchmarks import visits
from benchmarks.bookstore import SEED, prepare
from benchmarks.bookstore import TABLES as BOOKSTORE
from benchmarks.claim import RunFailed, step
from benchmarks.same_answers import TPCH_QUERIES, tables_of, tpcds_statements
from benchmarks.serving import serving
from benchmarks.statements import Named, read_statements
from engines.duckdb.adapter import DuckDBSettings
from engines.errors import MemoryExceeded
from engines.spark.adapter import SparkSettings
from gateway.cli.client import Client, RequestFailed
from gateway.cli.demo.paper_queries import PAPER_QUERIES
from gateway.server.runtime import Gateway
from gateway.settings import Settings, load
from gateway.statements.statement import Statement
from metastore.discovery.inspection import inspect
from metastore.records import JobState
from metastore.store import Metastore
from selector.decision import NoEngine
from selector.estimate import MemoryEstimate
from sql.errors import FusionError
from sql.tables import TableSource
from statsproc.data.bookstore import Bookstore

MIB = 1 << 20
AMPLE_MIB = 3_072  # in which nearly everything fits: where peaks are measured
BOOKSTORE_SCALE = 1 / 32
FAST, DEPENDABLE = "duckdb", "spark"
STATISTICS_WITHIN_S = 1_800.0


@dataclass(frozen=True, slots=True)
class Took:
    """One pinned run. fits: whether it had enough memory. seconds: as the client saw them."""

    fits: bool
    seconds: float
    peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One statement. estimate: of the memory model alone. fast: by the limit in MiB. dependable_s: on Spark."""

    name: str
    sql: str
    fingerprint: str
    template: str
    estimate: MemoryEstimate
    fast: Mapping[int, Took]
    dependable_s: float

    def took(self, engine: str, limit_mib: int) -> Took:
        """Return what it took on an engine."""
        return Took(True, self.dependable_s, None) if engine == DEPENDABLE else self.fast[limit_mib]

    def oracle_s(self, limit_mib: int) -> float:
        """Return the seconds of the fastest engine that answers."""
        fast = self.fast[limit_mib]
        return min(fast.seconds, self.dependable_s) if fast.fits else self.dependable_s


@dataclass(frozen=True, slots=True)
class DataSet:
    """Tables and the statements over them. sources: makes the tables where they are not there yet."""

    name: str
    sources: Callable[[Path], Sequence[TableSource]]
    statements: Callable[[], Sequence[Named]]


def _bookstore(data: Path) -> Sequence[TableSource]:
    folder = prepare(data, Bookstore(BOOKSTORE_SCALE, SEED))
    return [inspect(table, folder / table).source for table in BOOKSTORE]


DATA_SETS = {
    each.name: each
    for each in (
        DataSet("tpch", lambda data: tables_of("tpch", data, 1.0), lambda: read_statements(TPCH_QUERIES)),
        DataSet("tpcds", lambda data: tables_of("tpcds", data, 1.0), tpcds_statements),
        DataSet("bookstore", _bookstore, lambda: [Named(name, sql) for name, sql in PAPER_QUERIES.items()]),
        DataSet("visits", visits.tables, visits.statements),
    )
}


OPERATORS = {
    "operators": DataSet(
        "operators",
        lambda data: [*tables_of("tpch", data, 1.0), *_bookstore(data)],
        lambda: read_statements(TPCH_QUERIES.with_name("memory.sql")),
    )
}
"""Statements for each kind of operator, which say more about memory than about users."""


def recorded(data: Path, data_set: DataSet, limits_mib: Sequence[int], *, dependable: bool = True) -> list[Entry]:
    """Return a data set's tape. What was recorded before is kept in the folder; only what is missing is run.

    dependable: whether Spark's seconds are wanted, too; without them they are infinite.
    """
    file = data.absolute() / "tapes" / f"{data_set.name}.json"
    tape: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    engines = [DEPENDABLE] if dependable else []
    for run in ("statistics", *engines, *(str(limit) for limit in (AMPLE_MIB, *limits_mib))):
        if run in tape:
            continue
        if run == "statistics":
            _describe(data, data_set)
            tape[run] = True
        else:
            tape[run] = _pinned(data, data_set, run)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(tape), encoding="utf-8")
    known = _estimates(data, data_set)
    found = []
    for one in data_set.statements():
        runs = {limit: tape[str(limit)].get(one.name) for limit in (AMPLE_MIB, *limits_mib)}
        slow = tape[DEPENDABLE].get(one.name) if dependable else {"seconds": math.inf}
        if one.name not in known or slow is None or None in runs.values():
            step(f"left out: {data_set.name} {one.name}, which one of the engines cannot answer")
            continue
        fingerprint, template, estimate = known[one.name]
        found.append(
            Entry(
                one.name,
                one.sql,
                fingerprint,
                template,
                estimate,
                {limit: Took(**run) for limit, run in runs.items()},
                slow["seconds"],
            )
        )
    return found


def _estimates(data: Path, data_set: DataSet) -> dict[str, tuple[str, str, MemoryEstimate]]:
    """Return fingerprint, template and estimate of each statement that DuckDB can run."""
    home = fresh_home(data, data_set, "asked")
    found = {}
    with serving(load(home, spark=SparkSettings(enabled=False))) as (gateway, _):
        for one in data_set.statements():
            with suppress(FusionError, NoEngine):
                query, decision = gateway.coordinator.explain(Statement(one.sql))
                estimate = decision.on(FAST)
                if estimate is not None:
                    found[one.name] = query.fingerprint, query.template, estimate.estimate
    shutil.rmtree(home, ignore_errors=True)
    return found


def home_of(data: Path, data_set: DataSet) -> Path:
    """Return the home folder of the gateway that knows a data set with its statistics, and has run nothing."""
    return data.absolute() / "tapes" / f"{data_set.name}-home"


def fresh_home(data: Path, data_set: DataSet, name: str) -> Path:
    """Return a copy of that home folder."""
    home = home_of(data, data_set).with_name(f"{data_set.name}-{name}")
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(home_of(data, data_set), home)
    return home


def settings_of(home: Path, limit_mib: int) -> Settings:
    """Return the settings of a gateway that gives one statement on DuckDB so much memory."""
    return load(home, duckdb=DuckDBSettings(memory_limit=ByteSize(limit_mib * MIB), workers=1, spare_workers=1))


def run_one(client: Client, sql: str, engine: str) -> tuple[float, Any | None]:
    """Run a statement; returns the seconds that the client saw, and the reply, None where it is refused."""
    begun = time.perf_counter()
    try:
        reply = client.query(sql, engine=engine, max_rows=0)
    except RequestFailed:
        reply = None
    return time.perf_counter() - begun, reply


def _describe(data: Path, data_set: DataSet) -> None:
    """Register the tables and have the real job build their statistics, as one does before the first statement."""
    home = home_of(data, data_set)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700, parents=True)
    settings = load(home)
    sources = data_set.sources(data)
    with Metastore(settings.metastore_url) as store:
        for source in sources:
            store.catalog.put(inspect(source.name, Path(source.location)), at=dt.datetime.now(dt.UTC))
    with serving(load(home, duckdb=DuckDBSettings(enabled=False))) as (gateway, client):
        step(f"building the statistics of {data_set.name}")
        client.post("/v1/stats/jobs", {"tables": [source.name for source in sources]})
        until = time.monotonic() + STATISTICS_WITHIN_S
        while not all(job.state.ended for job in gateway.metastore.jobs.list(limit=1)):
            if time.monotonic() > until:
                raise RunFailed(f"the statistics of {data_set.name} were not built in {STATISTICS_WITHIN_S:.0f} s")
            time.sleep(1.0)
        (job,) = gateway.metastore.jobs.list(limit=1)
        if job.state is not JobState.FINISHED:
            raise RunFailed(f"the statistics of {data_set.name}: {job.error}")


def _pinned(data: Path, data_set: DataSet, run: str) -> dict[str, Any]:
    """Run all statements on one engine. run: Spark, or DuckDB's limit in MiB."""
    home = fresh_home(data, data_set, "pinned")
    if run == DEPENDABLE:
        engine, settings = DEPENDABLE, load(home, duckdb=DuckDBSettings(enabled=False))
    else:
        engine, settings = FAST, settings_of(home, int(run))
    found = {}
    with serving(settings) as (gateway, client):
        statements = data_set.statements()
        _warm_up(client, engine, statements)
        for one in statements:
            seconds, reply = run_one(client, one.sql, engine)
            step(f"{data_set.name} {run} {one.name}: {seconds:.2f} s {reply['state'] if reply else 'refused'}")
            if reply is not None:
                found[one.name] = _told(gateway, reply, seconds)
    shutil.rmtree(home, ignore_errors=True)
    return {name: told for name, told in found.items() if told is not None}


def _warm_up(client: Client, engine: str, statements: Iterable[Named]) -> None:
    """Run one statement that does not count: an engine's first one waits for its start."""
    for one in statements:
        if run_one(client, one.sql, engine)[1] is not None:
            return


def _told(gateway: Gateway, reply: Any, seconds: float) -> dict[str, Any] | None:
    """Return what a run tells; None where it failed for another reason than memory."""
    record = gateway.metastore.queries.get(reply["id"])
    if record is None or record.decision is None:
        return None
    attempt = record.attempts[-1]
    ran_out = attempt.failure == MemoryExceeded.code
    if reply["state"] != "FINISHED" and not ran_out:
        return None
    return {"fits": not ran_out, "seconds": seconds, "peak_bytes": None if ran_out else attempt.peak_bytes}
