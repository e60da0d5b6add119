"""Claim: a statement that runs out of memory takes at most 1.2 times what it takes on the dependable engine alone.

Joins, groups, windows and sorts over TPC-H are sent to two real gateways over one DuckDB, with a small limit and
without statistics, and one Spark. Each is asked four ways, in rounds that take turns: with early failover, without
it, without it again (how much that differs is noise), and pinned to Spark. All rounds count alike: every statement is
of a template that was never seen, so that nothing but the engines' speed is learned, and DuckDB is tried first
whatever is expected.

Then statements of the same forms that just fit: over the largest share of the rows that DuckDB can take under that
limit. What early failover breaks off of those is its price.
"""

from __future__ import annotations

import datetime as dt
import itertools
import statistics as averages
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ByteSize

from benchmarks.bookstore import DEFAULT_DATA, DataOption
from benchmarks.claim import Claim, RunFailed, at_least, at_most, conditions, run_command, show_table, step
from benchmarks.same_answers import tables_of
from benchmarks.tape import FAST, MIB
from engines.duckdb.adapter import DuckDBSettings
from engines.protocol import TableSource
from engines.spark.adapter import SparkSettings
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.server.startup import configure_logging
from gateway.settings import RoutingSettings, Settings, load
from gateway.statements import AUTO
from gateway.statements.statement import Statement
from metastore.discovery.inspection import inspect
from metastore.records import QueryState
from selector.decision import Rule

WANTED = 1.2
WITHIN_S = 600.0
WHOLE = 1_000  # thousandths of the rows
TABLES = ("lineitem", "orders")
ANYWHERE = 0.999  # probability of a miss, up to which DuckDB is tried
STEPS = 6  # of the search for what just fits
ON, OFF, AGAIN, ALONE = "early", "late", "late again", "spark"
ASKED = {ON: ON, OFF: OFF, AGAIN: OFF}  # which gateway, where that chooses the engine

FORMS: Mapping[str, str] = {
    "self join": "SELECT count(*) AS n{new}, max(a.l_comment), max(b.l_comment) FROM lineitem a JOIN lineitem b "
    "ON a.l_orderkey = b.l_orderkey AND a.l_linenumber <> b.l_linenumber "
    "WHERE a.l_orderkey % 1000 < {share} AND b.l_orderkey % 1000 < {share}",
    "join": "SELECT o_orderpriority, count(*) AS n{new}, max(o_comment), max(l_comment) FROM orders JOIN lineitem "
    "ON o_orderkey = l_orderkey AND o_comment <> l_comment WHERE o_orderkey % 1000 < {share} GROUP BY o_orderpriority",
    "group": "SELECT count(*) AS n{new}, max(s), max(c) FROM (SELECT l_orderkey, l_partkey, sum(l_quantity) s, "
    "max(l_comment) c FROM lineitem WHERE l_orderkey % 1000 < {share} GROUP BY l_orderkey, l_partkey)",
    "window": "SELECT max(r) AS n{new}, max(l_comment) FROM (SELECT l_comment, row_number() OVER (PARTITION BY "
    "l_suppkey ORDER BY l_extendedprice) r FROM lineitem WHERE l_orderkey % 1000 < {share})",
    "distinct": "SELECT count(DISTINCT l_comment) AS n{new} FROM lineitem WHERE l_orderkey % 1000 < {share}",
    "slow group": "SELECT count(*) AS n{new}, max(c) FROM (SELECT h, count(*) c FROM (SELECT "
    "{md5}concat(l_comment, l_shipinstruct){ends} AS h FROM lineitem WHERE l_orderkey % 1000 < {share}) GROUP BY h)",
    "slow join": "SELECT count(*) AS n{new}, max(b.h) FROM orders JOIN (SELECT l_orderkey AS k, "
    "{md5}concat(l_comment, l_shipinstruct){ends} AS h FROM lineitem WHERE l_orderkey % 1000 < {share}) b "
    "ON o_orderkey = b.k AND o_comment <> b.h",
}
"""The slow ones fill their memory in seconds, as they hash each row many times first."""

HASHES = 12
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Asked:
    """One run of a statement. outcomes: of its attempts in order: engine, failure and seconds."""

    seconds: float
    outcomes: tuple[tuple[str, str | None, float], ...]

    @property
    def ran_out(self) -> bool:
        """Whether DuckDB ran out of memory, or was broken off before."""
        return any(
            engine == FAST and failure in ("MEMORY_EXCEEDED", "BROKEN_OFF") for engine, failure, _ in self.outcomes
        )

    @property
    def disturbed(self) -> bool:
        """Whether Spark was started early."""
        return any(failure in ("BROKEN_OFF", "SUPERSEDED") for _, failure, _ in self.outcomes)


def run(
    data: DataOption = DEFAULT_DATA,
    factor: Annotated[float, typer.Option(help="Scale factor of TPC-H.")] = 1.0,
    limit: Annotated[int, typer.Option(help="DuckDB's limit for one statement in MiB.")] = 256,
    rounds: Annotated[int, typer.Option(help="Rounds of all statements.", min=1)] = 3,
    only: Annotated[str, typer.Option(help="The statements whose name holds this.")] = "",
) -> Claim:
    """Ask statements that do not fit, and such that just fit, with early failover and without."""
    forms = {name: form for name, form in FORMS.items() if only in name}
    print(conditions(factor=f"{factor:g}", statements=len(forms), rounds=rounds, limit=f"{limit} MiB"), flush=True)
    sources = [source for source in tables_of("tpch", data, factor) if source.name in TABLES]
    with tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as work:
        home = Path(work) / "home"
        home.mkdir(mode=0o700)
        settings = load(
            home,
            duckdb=DuckDBSettings(memory_limit=ByteSize(limit * MIB), workers=1),
            spark=SparkSettings(driver_memory=ByteSize(2_048 * MIB)),
            routing=RoutingSettings(policy=Rule.SAFE, safe_miss=ANYWHERE),
        )
        late_home = Path(work) / "late"
        late_home.mkdir(mode=0o700)
        late = settings.model_copy(
            update={"home": late_home, "routing": settings.routing.model_copy(update={"early_failover": False})}
        )
        with _serving(settings, late, sources) as gateways:
            step("warming up, so that what Spark takes is known")
            for form in forms.values():
                for each in (ALONE, *gateways):
                    _ask(gateways, form, WHOLE, each)
            large = _rounds(gateways, forms, {name: WHOLE for name in forms}, rounds)
            shares = {name: _largest(gateways, name, form) for name, form in forms.items()}
            small = _rounds(gateways, forms, {name: share for name, share in shares.items() if share}, rounds)
    return _claim(large, small, shares)


Rounds = Mapping[str, Mapping[str, list[Asked]]]
Gateways = Mapping[str, Gateway]


@contextmanager
def _serving(settings: Settings, late: Settings, sources: Sequence[TableSource]) -> Iterator[Gateways]:
    """Run a gateway with early failover and one without it over the same engines, by the way of asking."""
    configure_logging("ERROR")
    first = wiring.build(settings)
    second = wiring.assemble(late, first.engines)
    try:
        for gateway in (first, second):
            for source in sources:
                gateway.metastore.catalog.put(inspect(source.name, Path(source.location)), at=dt.datetime.now(dt.UTC))
            gateway.start()
        yield {ON: first, OFF: second}
    finally:
        second.close()
        first.close()


def _rounds(gateways: Gateways, forms: Mapping[str, str], shares: Mapping[str, int], rounds: int) -> Rounds:
    """Ask each statement each way, in turn; returns the runs by name and way."""
    ways = [ON, OFF, AGAIN, ALONE]
    found: dict[str, dict[str, list[Asked]]] = {name: {way: [] for way in ways} for name in shares}
    for _ in range(rounds):
        ways = [*ways[1:], ways[0]]
        for name, share in shares.items():
            for way in ways:
                found[name][way].append(_ask(gateways, forms[name], share, way))
                step(f"{name}, {share / WHOLE:.1%}, {way}: {found[name][way][-1]}")
    return found


def _ask(gateways: Gateways, form: str, share: int, way: str) -> Asked:
    """Ask a statement of a template that was never seen. way: ON, OFF, AGAIN, or the engine that it is pinned to."""
    new = next(_numbers)
    sql = form.format(share=share, new=new, md5="md5(" * HASHES, ends=")" * HASHES)
    begun_s = time.monotonic()
    gateway, engine = gateways[ASKED.get(way, ON)], AUTO if way in ASKED else way
    record = gateway.coordinator.submit(Statement(sql, engine=engine)).done.result(WITHIN_S)
    seconds = time.monotonic() - begun_s
    if record.state is not QueryState.FINISHED and way != FAST:
        raise RunFailed(f"refused or failed: {sql}")
    return Asked(seconds, tuple((each.engine, each.failure, each.wall_s or 0.0) for each in record.attempts))


def _largest(gateways: Gateways, name: str, form: str) -> int:
    """Return the largest share of the rows, in thousandths, that DuckDB takes; 0 where that is none."""
    fits, misses = 0, WHOLE
    for _ in range(STEPS):
        middle = (fits + misses) // 2
        asked = _ask(gateways, form, middle, FAST)
        if asked.outcomes[-1][1] is None:
            fits = middle
        else:
            misses = middle
    step(f"{name}: {fits / WHOLE:.1%} of the rows fit, {misses / WHOLE:.1%} do not")
    return fits


def _claim(large: Rounds, small: Rounds, shares: Mapping[str, int]) -> Claim:
    figures: dict[str, float] = {}
    rows = []
    missed = {name: ways for name, ways in large.items() if all(asked.ran_out for asked in ways[OFF])}
    ratios: dict[str, list[float]] = {ON: [], OFF: [], AGAIN: []}
    acted: list[float] = []
    for name, ways in missed.items():
        mine = {way: _ratios(ways, way) for way in ratios}
        for way in ratios:
            ratios[way] += mine[way]
        alone_s = averages.median(asked.seconds for asked in ways[ALONE])
        disturbed = sum(asked.disturbed for asked in ways[ON])
        acted += [
            on.seconds / averages.mean((off.seconds, again.seconds))
            for on, off, again in zip(ways[ON], ways[OFF], ways[AGAIN], strict=True)
            if on.disturbed
        ]
        told = [f"{averages.median(mine[way]):.2f} ({min(mine[way]):.2f}-{max(mine[way]):.2f})" for way in ratios]
        rows.append([name, f"{alone_s:.1f}", *told, f"{disturbed} of {len(ways[ON])}"])
    if not missed:
        raise RunFailed("no statement ran out of memory: choose a smaller limit")
    show_table(
        "do not fit",
        ["statement", "Spark, s", "early / Spark", "late / Spark", "late again / Spark", "Spark started early"],
        rows,
    )
    figures["early_over_spark"] = averages.median(ratios[ON])
    figures["late_over_spark"] = averages.median(ratios[OFF])
    figures["late_again_over_spark"] = averages.median(ratios[AGAIN])
    figures["acted_runs"] = len(acted)
    if acted:
        figures["acted_early_over_late"] = averages.median(acted)
    figures["early_over_spark_worst"] = max(averages.median(_ratios(ways, ON)) for ways in missed.values())
    figures["late_over_spark_worst"] = max(averages.median(_ratios(ways, OFF)) for ways in missed.values())
    rows, over, broken, all_runs = [], list[float](), 0, 0
    for name, ways in small.items():
        if any(asked.ran_out for way in (OFF, AGAIN) for asked in ways[way]):
            step(f"left out: {name} at {shares[name] / WHOLE:.1%} of the rows, which does not always fit")
            continue
        slower = [on.seconds / off.seconds for on, off in zip(ways[ON], ways[OFF], strict=True)]
        over += slower
        disturbed = sum(asked.disturbed for asked in ways[ON])
        broken, all_runs = broken + disturbed, all_runs + len(ways[ON])
        late_s, alone_s = (averages.median(asked.seconds for asked in ways[way]) for way in (OFF, ALONE))
        times = f"{late_s:.2f}", f"{averages.median(slower):.2f}", f"{alone_s:.1f}", f"{disturbed} of {len(ways[ON])}"
        rows.append([f"{name}, {shares[name] / WHOLE:.1%} of the rows", *times])
    if rows:
        show_table("just fit", ["statement", "late, s", "early / late", "Spark, s", "Spark started early"], rows)
        figures["fitting_early_over_late"] = averages.median(over)
        figures["fitting_disturbed_share"] = broken / all_runs
    return Claim("early_failover", figures, {"early_over_spark": at_most(WANTED), "acted_runs": at_least(1)})


def _ratios(ways: Mapping[str, list[Asked]], way: str) -> list[float]:
    return [asked.seconds / alone.seconds for asked, alone in zip(ways[way], ways[ALONE], strict=True)]


if __name__ == "__main__":
    run_command(run)
