"""Claim: leases of what statements are likely to need let many run at once, never above the budget, and fairly.

A gateway over a real DuckDB with a budget for four whole limits, once as it is configured by default and once with the
policy of one line: the whole limit and all threads for each statement, so that four run at once. (a) Joins come all at
once: leases are sampled from the admission, memory from the worker processes. (b) Small statements come all at once,
alone, and while four long joins hold the engine, of another user and of the same one. (c) One user sends many
statements, another one a single one. Everything runs on the same processors, the gateway too.
"""

from __future__ import annotations

import datetime as dt
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pydantic import ByteSize

from benchmarks.claim import Claim, RunFailed, at_least, at_most, conditions, run_command, show_table, step
from engines.duckdb.adapter import DuckDBSettings
from engines.duckdb.engine import DuckDBEngine
from engines.spark.adapter import SparkSettings
from gateway import settings as settings_module
from gateway.security.principals import Principal
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.server.startup import configure_logging
from gateway.statements.statement import Statement
from metastore.discovery.inspection import inspect
from metastore.records import Attempt, QueryRecord, QueryState
from tests.selector.described import described

MIB = 1 << 20
LIMIT_BYTES = 512 * MIB
KEPT_BYTES = 64 * MIB  # for guests, beyond the whole limits
AT_ONCE = 4  # whole limits in the budget
MOST_WORKERS = 16
FEW = 16  # of the joins, that come at once before all do
CUSTOMERS, ORDERS = 1_000_000, 2_000_000
SEED = 20261123
LONG_JOINS = 4
KEYS, LONG_KEYS = 64, 3_600  # of pairs, and rows of each, which long joins join with each other
SAMPLE_S = 0.005
WITHIN_S = 300.0
TYPES = {
    "customers": {"id": "bigint", "region": "int", "credit": "bigint"},
    "orders": {"customer": "bigint", "amount": "int"},
    "pairs": {"k": "int", "v": "int"},
}
SHORTEST_MEDIAN_S = 0.05  # of waits, below which a ratio of them says nothing
BY_ESTIMATE, WHOLE = "by estimate", "whole limits"
FLOODER, SINGLE = (Principal(name, authenticated=True) for name in ("flooder", "single"))
ALONE, OTHERS, OWN = "alone", "beside long joins of another user", "beside one's own long joins"


@dataclass(frozen=True, slots=True)
class Sampled:
    """The most that was seen at once. held_bytes, slots: of leases; grown_bytes: of the workers, beyond idle ones."""

    held_bytes: int
    slots: int
    grown_bytes: int


@dataclass(frozen=True, slots=True)
class Joins:
    """All joins at once."""

    seconds: float
    sampled: Sampled
    waits_s: Sequence[float]
    lease_bytes: Sequence[int]
    misses: int

    @property
    def longest_over_median(self) -> float:
        """The longest wait over the median one."""
        return max(self.waits_s) / max(SHORTEST_MEDIAN_S, statistics.median(self.waits_s))


def run(
    joins: Annotated[int, typer.Option(help="Joins that come at once.")] = 50,
    small: Annotated[int, typer.Option(help="Small statements that come at once.")] = 200,
) -> Claim:
    """Run statements by estimate and with the whole limit for each."""
    configure_logging("ERROR")
    where = conditions(
        seed=SEED, joins=joins, small_statements=small, most_workers=MOST_WORKERS, limit_mib=LIMIT_BYTES // MIB
    )
    few: dict[bool, Joins] = {}
    found: dict[bool, Joins] = {}
    a_second: dict[tuple[bool, str], float] = {}
    held_s: dict[tuple[bool, str], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        answers = _make_data(Path(folder) / "data")
        for by_estimate in (True, False):
            name = BY_ESTIMATE if by_estimate else WHOLE
            with _serving(Path(folder), by_estimate=by_estimate) as gateway:
                step(f"{name}: {FEW} joins at once")
                few[by_estimate] = _joins(gateway, FEW, answers)
                step(f"{name}: {joins} joins at once")
                found[by_estimate] = _joins(gateway, joins, answers)
                step(f"{name}: {small} small statements at once")
                a_second[by_estimate, ALONE] = _small(gateway, small, number=0)
                for number, (beside, who) in enumerate(((OTHERS, FLOODER), (OWN, SINGLE)), 1):
                    step(f"{name}: {small} small statements {beside}")
                    with _long_joins(gateway, who) as held:
                        a_second[by_estimate, beside] = _small(gateway, small, number=number)
                    held_s[by_estimate, beside] = held()
                if by_estimate:
                    step(f"{small} statements of one user, a single one of another")
                    delay_s, longest_s = _fair(gateway, small)
    rows = [
        _row(name, of[by])
        for of, count in ((few, FEW), (found, joins))
        for by, name in ((True, f"{count}, {BY_ESTIMATE}"), (False, f"{count}, {WHOLE}"))
    ]
    head = (
        "joins, leases",
        "s",
        "most at once",
        "leased, most",
        "grown, most",
        "median lease",
        "median wait",
        "longest",
        "missed",
    )
    show_table(f"Joins at once on a budget of {AT_ONCE * LIMIT_BYTES // MIB:,} MiB ({where})", head, rows)
    show_table(
        f"{small} small statements at once, a second",
        ("", BY_ESTIMATE, WHOLE, f"joins held it, {BY_ESTIMATE}", f"the same, {WHOLE}"),
        [
            [name, *(f"{a_second[by, name]:.1f}" for by in (True, False))]
            + [f"{held_s[by, name]:.1f} s" if (by, name) in held_s else "" for by in (True, False)]
            for name in (ALONE, OTHERS, OWN)
        ],
    )
    print(f"a single statement beside {small} of another user: {delay_s:.2f} s, the longest of those {longest_s:.2f} s")
    budget = AT_ONCE * LIMIT_BYTES
    figures = {
        "joins.leased_over_budget": found[True].sampled.held_bytes / budget,
        "joins.grown_over_budget": found[True].sampled.grown_bytes / budget,
        "joins.longest_wait_over_median": found[True].longest_over_median,
        "joins.seconds": found[True].seconds,
        "joins.over_fixed": found[True].seconds / found[False].seconds,
        "few_joins.over_fixed": few[True].seconds / few[False].seconds,
        "joins.wrong_answers": 0,  # a wrong one ends the run
        "small.alone_over_fixed": a_second[True, ALONE] / a_second[False, ALONE],
        "small.others_over_fixed": a_second[True, OTHERS] / a_second[False, OTHERS],
        "small.own_over_fixed": a_second[True, OWN] / a_second[False, OWN],
        "fair.delay_over_longest": delay_s / longest_s,
    }
    targets = {
        "joins.leased_over_budget": at_most(1.0),
        "joins.grown_over_budget": at_most(1.0),
        "joins.longest_wait_over_median": at_most(10.0),
        "joins.over_fixed": at_most(1.0),
        "few_joins.over_fixed": at_most(1.0),
        "small.alone_over_fixed": at_least(4.0),
        "small.others_over_fixed": at_least(4.0),
        "small.own_over_fixed": at_least(4.0),
        "fair.delay_over_longest": at_most(1.0),
    }
    return Claim("admission", figures, targets)


def _row(name: str, found: Joins) -> list[str]:
    waits = statistics.median(found.waits_s), max(found.waits_s)
    most = (found.sampled.held_bytes, found.sampled.grown_bytes, statistics.median(found.lease_bytes))
    mib = [f"{each / MIB:,.0f} MiB" for each in most]
    times = [f"{each:.2f} s" for each in waits]
    return [name, f"{found.seconds:.1f}", str(found.sampled.slots), *mib, *times, str(found.misses)]


def _make_data(folder: Path) -> Callable[[int], int]:
    """Write the tables; returns what tells the right answer of a join."""
    chance = np.random.default_rng(SEED)
    ids = chance.permutation(CUSTOMERS)
    credit = ids % 1_009
    customer, amount = chance.integers(0, CUSTOMERS, ORDERS), chance.integers(0, 1_000, ORDERS).astype(np.int32)
    tables = {
        "customers": {"id": ids, "region": (ids % 97).astype(np.int32), "credit": credit},
        "orders": {"customer": customer, "amount": amount},
        "pairs": {
            "k": np.repeat(np.arange(KEYS), LONG_KEYS).astype(np.int32),
            "v": np.arange(KEYS * LONG_KEYS, dtype=np.int32),
        },
    }
    for name, columns in tables.items():
        (folder / name).mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / name / "part-0.parquet")
    return lambda number: int((customer % 1_009)[amount >= number].sum())


@contextmanager
def _serving(folder: Path, *, by_estimate: bool) -> Iterator[Gateway]:
    """Build a gateway over DuckDB alone, which knows the tables and their statistics, and has run a join before."""
    memory_bytes = AT_ONCE * LIMIT_BYTES + KEPT_BYTES
    settings = settings_module.load(
        folder / f"home-{by_estimate}",
        duckdb=DuckDBSettings(
            memory_limit=ByteSize(LIMIT_BYTES),
            memory=ByteSize(memory_bytes),
            most_workers=MOST_WORKERS,
            threads_by_load=by_estimate,
        ),
        spark=SparkSettings(enabled=False),
        limits=settings_module.LimitSettings(queries=4_000, queue_s=WITHIN_S),
        routing=settings_module.RoutingSettings(lease_by_estimate=by_estimate),
    )
    gateway = wiring.build(settings)
    try:
        for name, types in TYPES.items():
            place, at = folder / "data" / name, dt.datetime.now(dt.UTC)
            gateway.metastore.catalog.put(inspect(name, place), at=at)
            build = replace(described(pq.read_table(place), types), table=name, version=0)
            gateway.metastore.statistics.publish(build, at=at)
        gateway.start()
        for number in range(3):  # what they took is known from now on
            _ended(_sent(gateway, _join(-1 - number)))
        yield gateway
    finally:
        gateway.close()


def _join(number: int) -> str:
    return (
        "SELECT sum(c.credit) AS credit, max(c.region) AS region FROM orders o JOIN customers c ON o.customer = c.id "
        f"WHERE o.amount >= {number}"
    )


def _sent(gateway: Gateway, sql: str, who: Principal = FLOODER) -> Callable[[], QueryRecord]:
    """Send a statement; returns what waits for its end."""
    run = gateway.coordinator.start(Statement(sql, principal=who, deadline_s=WITHIN_S))
    return partial(run.done.result, WITHIN_S)


def _ended(wait: Callable[[], QueryRecord]) -> QueryRecord:
    record = wait()
    if record.state is not QueryState.FINISHED:
        raise RunFailed(f"{record.sql}: {record.error}")
    return record


def _last(record: QueryRecord) -> Attempt:
    return record.attempts[-1]


@contextmanager
def _sampling(gateway: Gateway) -> Iterator[list[Sampled]]:
    """Sample leases and processes meanwhile; what was seen is in the list at the end."""
    engine = gateway.engines["duckdb"].engine
    assert isinstance(engine, DuckDBEngine)
    idle = _resident(engine.worker_pids())
    usual = statistics.median(idle.values())
    stop, seen = threading.Event(), [Sampled(0, 0, 0)]

    def sample() -> None:
        while not stop.wait(SAMPLE_S):
            (state,) = gateway.admission.describe().engines
            resident = _resident(engine.worker_pids())
            grown = int(sum(max(0, size - idle.get(pid, usual)) for pid, size in resident.items()))
            now, most = (state.bytes_held, state.slots_held, grown), astuple(seen[0])
            seen[0] = Sampled(*map(max, now, most))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def _resident(pids: Sequence[int]) -> Mapping[int, int]:
    found = {}
    for pid in pids:
        try:
            found[pid] = psutil.Process(pid).memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return found


def _joins(gateway: Gateway, count: int, answers: Callable[[int], int]) -> Joins:
    with _sampling(gateway) as seen:
        begun_s = time.monotonic()
        waits = [_sent(gateway, _join(number)) for number in range(count)]
        records = [_ended(wait) for wait in waits]
        took_s = time.monotonic() - begun_s
    for number, record in enumerate(records):
        with gateway.spool.open(record.id) as result:
            found = pa.Table.from_batches(result, result.schema).column("credit").to_pylist()
        if found != [answers(number)]:
            raise RunFailed(f"{record.sql}: {found}, not {answers(number)}")
    return Joins(
        took_s,
        seen[0],
        [_last(record).waited_s or 0.0 for record in records],
        [_last(record).lease_bytes or 0 for record in records],
        sum(len(record.attempts) - 1 for record in records),
    )


def _small(gateway: Gateway, count: int, *, number: int) -> float:
    """Return how many small statements end a second, from the first that comes to the last that ends."""
    begun_s = time.monotonic()
    asked = [f"SELECT count(*) AS n FROM pairs WHERE v < {number * count + each}" for each in range(count)]
    for wait in [_sent(gateway, sql, SINGLE) for sql in asked]:
        _ended(wait)
    return count / (time.monotonic() - begun_s)


@contextmanager
def _long_joins(gateway: Gateway, who: Principal) -> Iterator[Callable[[], float]]:
    """Hold the engine with joins that go on for a while, as many as have whole limits in the budget.

    What is yielded tells, at the end, the seconds for which the last of them held it.
    """
    begun_s = time.monotonic()
    ended_s = begun_s
    sql = "SELECT sum((a.v + b.v) % {n}) AS s FROM pairs a JOIN pairs b ON a.k = b.k WHERE a.v + b.v <> {n}"
    waits = [_sent(gateway, sql.format(n=number + 7), who) for number in range(LONG_JOINS)]
    until_s = time.monotonic() + WITHIN_S
    while gateway.admission.describe().engines[0].slots_held < LONG_JOINS:
        if time.monotonic() > until_s:
            raise RunFailed("the long joins did not start")
        time.sleep(0.01)
    yield lambda: ended_s - begun_s
    for wait in waits:
        _ended(wait)
    ended_s = time.monotonic()


def _fair(gateway: Gateway, count: int) -> tuple[float, float]:
    """Return how long a single statement waits beside many of another user, and the longest that one of those ran."""
    waits = [_sent(gateway, _join(number)) for number in range(300, 300 + count)]
    while not gateway.admission.waiting():
        time.sleep(0.001)
    single = _ended(_sent(gateway, _join(299), SINGLE))
    flood = [_last(_ended(wait)) for wait in waits]
    return _last(single).waited_s or 0.0, max(each.run_s or 0.0 for each in flood)


if __name__ == "__main__":
    run_command(run)
