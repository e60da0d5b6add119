"""Claim: 50 gateways share one PostgreSQL: exchanges of budgets keep up, and never grant more than there is.

Real memberships, divisions and a real PostgreSQL; statements only hold leases. First each gateway exchanges once a
second, as one does where nobody waits, then as often as it may, as where statements wait everywhere. Beside it,
processes write the query log as gateways do, to see how many statements a second one database takes. What follows for
5,000 statements a second is in docs/sizing.md.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from sqlalchemy import create_engine, delete, insert, text

from benchmarks.claim import Claim, at_most, conditions, run_command, show_table, step
from benchmarks.postgresql_server import served
from benchmarks.query_pages import changes_of
from engines.errors import EngineBusy
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.division import Budgets, Item, Report, content_of, report_of
from gateway.routing.admission.shares import Shares
from gateway.routing.admission.values import DEFAULT_POOL, EngineBudget, Pool, Request, Resource
from gateway.security.principals import Principal
from gateway.server.heartbeat import BEAT_S, SHORTEST_S
from metastore.database.connection import make_engine
from metastore.database.models import GatewayRow
from metastore.members.membership import Membership
from metastore.query_log.changes import write
from metastore.store import Metastore

COUNTS = (3, 10, 50)
WORKERS = 2
SECONDS = 10.0
SLOTS, LONGEST_S = 400, 0.5
"""Of the one engine that all share, and most seconds that a statement holds one."""
CLIENTS = 16
"""Of each gateway: more than it has slots, where all are busy."""
EXCHANGES = 40
WRITERS, AT_ONCE = (1, 2, 4), 16
"""Processes that write the query log, and statements whose ends one of them writes at once."""
ENGINE = EngineBudget("impala", slots=SLOTS)
MS = 1_000.0


@dataclass(frozen=True)
class Exchanged:
    """What one process's gateways did. took_s: of each exchange. waited_s: of each statement."""

    took_s: list[float]
    waited_s: list[float]


class _Gateway:
    """The parts of a gateway that share budgets."""

    def __init__(self, url: str, name: str, *, busy: bool) -> None:
        self._engine = create_engine(url, pool_size=1, max_overflow=0)
        self._membership = Membership(self._engine)
        self._wanted = threading.Event()
        pools = {DEFAULT_POOL: Pool(DEFAULT_POOL)}
        self._admission = Admission([ENGINE], pools.values(), wanting=self._wanted.set)
        self._shares = Shares(self._admission, Budgets({ENGINE.name: ENGINE}, pools, frozenset()), name)
        self._busy = busy
        self._name = name
        self.took_s: list[float] = []
        self.waited_s: list[float] = []

    def run(self, until_s: float) -> None:
        """Join, and exchange and hold leases until a time of the wall clock."""
        self._membership.join(self._name)
        self._shares.begin()
        clients = [threading.Thread(target=self._ask, args=(until_s, seed)) for seed in range(CLIENTS)]
        for client in clients:
            client.start()
        while time.time() < until_s:
            self._wanted.wait(BEAT_S)
            self._wanted.clear()
            began_s = time.perf_counter()
            self._membership.renew(self._shares)
            self.took_s.append(time.perf_counter() - began_s)
            time.sleep(SHORTEST_S if self._busy else BEAT_S)
        for client in clients:
            client.join()
        self._membership.leave()
        self._engine.dispose()

    def _ask(self, until_s: float, seed: int) -> None:
        chance, user = random.Random(seed), Principal(f"user{seed}", authenticated=True)  # noqa: S311 - no secret
        while time.time() < until_s:
            began_s = time.perf_counter()
            with contextlib.suppress(EngineBusy), self._admission.lease(Request(ENGINE.name, 0, user), wait_s=5):
                self.waited_s.append(time.perf_counter() - began_s)
                time.sleep(chance.random() * LONGEST_S)


class _Timed:
    """Shares of a gateway that waits for nobody else. locked_s: of exchanges, while others would wait."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._began_s = 0.0
        self.locked_s: list[float] = []

    def look(self, me: str, published: Mapping[str, Any], now_s: float) -> None:
        self._shares.look(me, published, now_s)
        self._began_s = time.perf_counter()

    def exchange(self, me: str, published: Mapping[str, Any], now_s: float) -> tuple[dict[str, Any], bool]:
        return self._shares.exchange(me, published, now_s)

    def confirm(self) -> None:
        self.locked_s.append(time.perf_counter() - self._began_s)
        self._shares.confirm()


def exchange_alone(url: str, count: int) -> tuple[float, float]:
    """Return the median seconds of an exchange with others who publish, and of its part that one does at a time."""
    pools, begun = {DEFAULT_POOL: Pool(DEFAULT_POOL)}, time.time()
    budgets = Budgets({ENGINE.name: ENGINE}, pools, frozenset())
    engine = create_engine(url)
    with engine.begin() as connection:
        for number in range(count - 1):
            items = [
                Item(ENGINE.name, DEFAULT_POOL, f"user{n}", f"user{n}", 0, False, begun + n, runs=n < CLIENTS // 2)
                for n in range(CLIENTS)
            ]
            held = Counter({((ENGINE.name, ""), Resource.SLOTS): CLIENTS // 2})
            row = {
                "id": f"other{number}/00000000",
                "name": f"other{number}",
                "seen_at": dt.datetime.now(dt.UTC),
                "alive_until": dt.datetime.now(dt.UTC) + dt.timedelta(hours=1),
                "report": content_of(Report(f"home{number}", items, held, held)),
            }
            connection.execute(insert(GatewayRow).values(row))
    membership = Membership(engine)
    membership.join("one")
    shares = Shares(Admission([ENGINE], pools.values()), budgets, "one")
    shares.begin()
    timed, took_s = _Timed(shares), list[float]()
    for _ in range(EXCHANGES):
        began_s = time.perf_counter()
        membership.renew(timed)
        took_s.append(time.perf_counter() - began_s)
    membership.leave()
    engine.dispose()
    with create_engine(url).begin() as connection:
        connection.execute(delete(GatewayRow))
    return statistics.median(took_s), statistics.median(timed.locked_s)


def share(url: str, names: list[str], begin_s: float, seconds: float, busy: bool) -> Exchanged:
    """Run some gateways in this process."""
    gateways = [_Gateway(url, name, busy=busy) for name in names]
    time.sleep(max(0.0, begin_s - time.time()))
    threads = [threading.Thread(target=gateway.run, args=(begin_s + seconds,)) for gateway in gateways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Exchanged(
        [took for gateway in gateways for took in gateway.took_s],
        [waited for gateway in gateways for waited in gateway.waited_s],
    )


def record(url: str, seconds: float, seed: int) -> int:
    """Write ends of short statements, many in a transaction as gateways do, and return how many there were."""
    engine, chance, written = make_engine(url), random.Random(seed), 0  # noqa: S311 - no secret
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        batch = [changes_of(dt.datetime.now(dt.UTC), chance.randrange(10**6), chance) for _ in range(AT_ONCE)]
        with engine.begin() as connection:
            write(connection, batch)
        written += len(batch)
    engine.dispose()
    return written


def run(
    gateways: Annotated[int, typer.Option(help="Most gateways.", min=1)] = COUNTS[-1],
    seconds: Annotated[float, typer.Option(help="Of each run.")] = SECONDS,
) -> Claim:
    """Let gateways share budgets, and write the query log."""
    figures: dict[str, float] = {}
    rows, written = list[list[str]](), list[list[str]]()
    with (
        tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as work,
        served(Path(work)) as url,
        ProcessPoolExecutor(max(WORKERS, *WRITERS), mp_context=get_context("spawn")) as pool,
    ):
        Metastore(url).close()
        for count in (*(count for count in COUNTS if count < gateways), gateways):
            for busy in (False, True):
                step(f"{count} gateways, {'as often as they may' if busy else 'once a second'}")
                above, exchanged = _shared(pool, url, count, seconds, busy=busy)
                name = f"{count}_gateways_{'busy' if busy else 'calm'}"
                took, waited = sorted(exchanged.took_s), sorted(exchanged.waited_s)
                p95 = took[int(0.95 * len(took))]
                figures[f"{name}_exchanges_a_second"] = len(took) / seconds
                figures[f"{name}_exchange_p95_ms"] = MS * p95
                figures[f"{name}_slots_above_budget"] = above
                shown = (len(took) / seconds, MS * statistics.median(took), MS * p95, len(waited) / seconds)
                wait = MS * waited[int(0.95 * len(waited))]
                rows.append([name.replace("_", " "), *(f"{x:.1f}" for x in shown), f"{wait:.0f}", str(above)])
        step(f"one exchange beside {gateways - 1} others")
        whole_s, locked_s = exchange_alone(url, gateways)
        figures["exchange_ms"], figures["exchange_of_one_at_a_time_ms"] = MS * whole_s, MS * locked_s
        for processes in WRITERS:
            step(f"{processes} processes write the query log")
            cpu_s = _cpu_s(Path(work))
            jobs = [pool.submit(record, url, seconds, seed) for seed in range(processes)]
            rate = sum(job.result() for job in jobs) / seconds
            of_database = (_cpu_s(Path(work)) - cpu_s) / seconds
            figures[f"{processes}_writers_statements_a_second"] = rate
            figures[f"{processes}_writers_database_processors_per_1000"] = of_database / rate * 1_000
            written.append([str(processes), f"{rate:,.0f}", f"{of_database:.2f}"])
    show_table(
        "Budgets",
        ["gateways", "exchanges/s", "median ms", "95 % ms", "statements/s", "95 % waited ms", "slots above"],
        rows,
    )
    print(
        f"One exchange beside {gateways - 1} others: {MS * whole_s:.1f} ms, of which one at a time {MS * locked_s:.1f}"
    )
    show_table("Query log", ["processes", "statements/s", "processors of the database"], written)
    print(conditions(gateways=gateways, slots=SLOTS, clients=CLIENTS))
    targets = {name: at_most(0.0) for name in figures if name.endswith("above_budget")}
    targets |= {name: at_most(MS) for name in figures if name.endswith("p95_ms")}
    return Claim("members", figures, targets)


def _shared(pool: ProcessPoolExecutor, url: str, count: int, seconds: float, *, busy: bool) -> tuple[int, Exchanged]:
    """Run gateways in several processes; return most slots above the budget that they published together."""
    names = [f"gateway-{number}" for number in range(count)]
    begin_s = time.time() + 3.0
    jobs = [
        pool.submit(share, url, names[first::WORKERS], begin_s, seconds, busy) for first in range(min(WORKERS, count))
    ]
    most, engine = 0, create_engine(url)
    with engine.connect() as connection:
        while not all(job.done() for job in jobs):
            reports = connection.execute(text("SELECT report FROM gateways WHERE report IS NOT NULL")).scalars().all()
            connection.rollback()
            most = max(most, sum(_slots_held(report) for report in reports))
            time.sleep(0.05)
    engine.dispose()
    done = [job.result() for job in jobs]
    everything = Exchanged(
        [took for each in done for took in each.took_s], [waited for each in done for waited in each.waited_s]
    )
    return max(0, most - SLOTS), everything


def _slots_held(report: Any) -> int:
    held = report_of(report).held
    return sum(amount for (_, resource), amount in held.items() if resource is Resource.SLOTS)


def _cpu_s(folder: Path) -> float:
    """Return the processors' seconds that PostgreSQL has taken so far. folder: the parent of its own."""
    first = psutil.Process(int((folder / "data" / "postmaster.pid").read_text().split()[0]))
    ended = first.cpu_times()
    seconds = ended.user + ended.system + ended.children_user + ended.children_system
    for process in first.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds += times.user + times.system
    return float(seconds)


if __name__ == "__main__":
    run_command(run)
