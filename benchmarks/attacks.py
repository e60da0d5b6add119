"""One client does its worst; another one asks ``SELECT 1``, and a load balancer asks whether the gateway lives.

The gateway is a process with its default settings. Attackers and the clients that suffer from them are processes of
their own, all of them on the same machine, so what an attacker burns itself is in the figures, too: the quiet run is
printed beside them. An answer that never came counts as the longest wait.
"""

from __future__ import annotations

import itertools
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Annotated, Any

import grpc
import httpx
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from benchmarks.claim import Claim, RunFailed, at_most, conditions, run_command, show_table, step
from tests.attacks.doors import Served, served

LONGEST_WAIT_S = 30.0
QUERY_EVERY_S, LIVE_EVERY_S = 0.2, 0.05
QUERY_P95_S, LIVE_P95_S = 1.0, 0.1
SETTLE_S = 2.0
START_WITHIN_S = 180.0  # a process that asks or attacks, on a machine that is busy
QUIET = "quiet"
ATTACKER, VICTIM = ("mallory", ""), ("ann", "")
ROWS, TEXT_ROWS = 2_000_000, 50_000
DOWNLOADS, CALLS_WITHOUT_MESSAGE, CROSS_JOINS = 80, 130, 64
MIB = 1 << 20
MEMBER = "gateway.server.processes.process"  # the program of one of several processes


@dataclass(frozen=True, slots=True)
class Suffered:
    """What the others met during one attack. Seconds, one per request; memory_mib: the gateway's largest."""

    query_s: Sequence[float]
    live_s: Sequence[float]
    memory_mib: float

    def query_p95_s(self) -> float:
        """Return the 95th percentile of ``SELECT 1``."""
        return float(np.percentile(self.query_s, 95))

    def live_p95_s(self) -> float:
        """Return the 95th percentile of ``/livez``."""
        return float(np.percentile(self.live_s, 95))


def run(
    seconds: Annotated[float, typer.Option(help="How long each attack goes on.")] = 15.0,
    only: Annotated[list[str] | None, typer.Option(help="Attacks to run, instead of all.")] = None,
) -> Claim:
    """Measure how long others wait while each attack goes on."""
    unknown = sorted(set(only or ()) - set(ATTACKS))
    if unknown:
        raise RunFailed(f"no attack {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
    chosen = [name for name in ATTACKS if not only or name in only]
    where = conditions(seconds=seconds, longest_wait_s=LONGEST_WAIT_S)
    suffered: dict[str, Suffered] = {}
    with tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        _make_tables(work)
        waiting = [QUIET, *chosen]
        while waiting:
            with suppress(AssertionError), served(work / f"home-{len(waiting)}") as gateway:
                _prepare(gateway, work)
                calm = True
                while waiting and calm:
                    step(f"{waiting[0]}: {seconds:.0f} s")
                    suffered[waiting[0]] = suffer(gateway, ATTACKS.get(waiting[0]), seconds)
                    calm = _calm(gateway)
                    if not calm:
                        step(f"{waiting[0]}: the gateway did not recover; the next attack gets another one")
                    del waiting[0]
    show(suffered)
    print(where)
    figures = {f"{name}.query_p95_s": found.query_p95_s() for name, found in suffered.items()}
    figures |= {f"{name}.live_p95_s": found.live_p95_s() for name, found in suffered.items()}
    targets = {f"{name}.query_p95_s": at_most(QUERY_P95_S) for name in chosen}
    targets |= {f"{name}.live_p95_s": at_most(LIVE_P95_S) for name in chosen}
    return Claim("attacks", figures, targets)


# ---------------------------------------------------------------------- attacks


class Attacker:
    """One client that does its worst until it is told to end. flight: host:port. login: name and password."""

    def __init__(
        self, url: str, flight: str, work: Path, end: threading.Event, login: tuple[str, str] = ATTACKER
    ) -> None:
        self.url = url
        self.login = login
        self.flight = flight
        self.work = work
        self.end = end

    def repeat(self, clients: int, act: Callable[[httpx.Client, int], object]) -> None:
        """Act over and over in several threads, whatever the gateway says. act: gets a client and a running number."""
        numbers = itertools.count()

        def loop() -> None:
            with httpx.Client(base_url=self.url, auth=self.login, timeout=120) as client:
                while not self.end.is_set():
                    with suppress(httpx.HTTPError):
                        act(client, next(numbers))
                    time.sleep(0.01)  # refusals come at once, and this client shall not burn the machine by itself

        threads = [threading.Thread(target=loop, daemon=True) for _ in range(clients)]
        for thread in threads:
            thread.start()
        self.end.wait()

    def explain(self, clients: int, sql_of: Callable[[int], str]) -> None:
        """Have statements planned; each is another one, so that no answer is known already."""
        self.repeat(clients, lambda client, number: client.post("/v1/explain", json={"sql": sql_of(number)}))

    def query(self, clients: int, sql_of: Callable[[int], str], **fields: Any) -> None:
        """Have statements run, and wait for them."""
        body = {"wait_s": 60, **fields}
        self.repeat(clients, lambda client, number: client.post("/v1/queries", json={"sql": sql_of(number), **body}))


def _like(attacker: Attacker) -> None:
    attacker.explain(3, lambda n: f"SELECT count(*) FROM notes WHERE note LIKE '%a%a%a%a%a%a%a%b' AND id > {n}")


def _rlike(attacker: Attacker) -> None:
    attacker.explain(3, lambda n: f"SELECT count(*) FROM notes WHERE note RLIKE '((a+)+)+b' AND id > {n}")


def _spaces_in_view(attacker: Attacker) -> None:
    attacker.query(3, lambda n: f"CREATE OR REPLACE VIEW v{n % 3} AS SELECT 1 AS x{' ' * 40_000}-- {n}")


def _long_csv_cell(attacker: Attacker) -> None:
    def register(client: httpx.Client, number: int) -> None:
        name = f"cells_{number}"
        client.post("/v1/tables", json={"name": name, "location": str(attacker.work / "cells"), "format": "csv"})

    attacker.repeat(3, register)


def _doubling_ctes(attacker: Attacker) -> None:
    def sql(n: int) -> str:
        chain = ", ".join(f"c{i} AS (SELECT a.id FROM c{i - 1} a JOIN c{i - 1} b ON a.id = b.id)" for i in range(1, 25))
        return f"WITH c0 AS (SELECT id FROM notes WHERE id > {n}), {chain} SELECT count(*) FROM c24"

    attacker.explain(3, sql)


def _many_windows(attacker: Attacker) -> None:
    columns = ", ".join(f"sum(id + {i}) OVER (PARTITION BY id % {i + 2}) AS s{i}" for i in range(4_000))
    attacker.explain(3, lambda n: f"SELECT {columns} FROM notes WHERE id > {n}")


def _many_expressions(attacker: Attacker) -> None:
    columns = ", ".join(f"id * {i} + 1 AS s{i}" for i in range(24_000))
    attacker.explain(3, lambda n: f"SELECT {columns} FROM notes WHERE id > {n}")


def _nested_subqueries(attacker: Attacker) -> None:
    def sql(n: int) -> str:
        inner = f"SELECT max(id) FROM notes WHERE id > {n}"
        for _ in range(60):
            inner = f"SELECT max(id) FROM notes WHERE id < ({inner})"
        return inner

    attacker.explain(3, sql)


def _large_view(attacker: Attacker) -> None:
    columns = ", ".join(f"id + {i} AS column_{i}" for i in range(1_400))
    with httpx.Client(base_url=attacker.url, auth=ATTACKER, timeout=120) as client:
        client.post("/v1/queries", json={"sql": f"CREATE OR REPLACE VIEW large AS SELECT {columns} FROM notes"})
    tables = ", ".join(f"large AS l{i}" for i in range(40))
    attacker.explain(3, lambda n: f"SELECT l0.column_0 FROM {tables} WHERE l0.column_1 > {n}")


def _folding(attacker: Attacker) -> None:
    attacker.explain(3, lambda n: f"SELECT md5(repeat('x', {60_000_000 + n})) AS m, count(*) FROM notes")


def _wedge_spark(attacker: Attacker) -> None:
    sql = "SELECT regexp_replace(concat(note, repeat('a', 60)), '((a+)+)+b', 'x') FROM notes WHERE id > {}"
    attacker.query(3, lambda n: sql.format(n), engine="spark", timeout_s=3)


def _long_strings(attacker: Attacker) -> None:
    sql = "SELECT sum(length(repeat('x', 1000000000))) FROM notes WHERE id > {}"
    attacker.query(3, lambda n: sql.format(n), engine="spark", timeout_s=20)


def _unread_downloads(attacker: Attacker) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=attacker.url, auth=ATTACKER, timeout=120))
        query = client.post("/v1/queries", json={"sql": "SELECT * FROM wide", "wait_s": 60, "max_rows": 0}).json()
        for number, form in zip(range(DOWNLOADS), itertools.cycle(("json", "csv", "arrow"))):
            if attacker.end.is_set():
                return
            limits = httpx.Timeout(5.0)
            opened = stack.enter_context(httpx.Client(base_url=attacker.url, auth=ATTACKER, timeout=limits))
            with suppress(httpx.HTTPError):
                path = f"/v1/queries/{query['id']}/result?format={form}&n={number}"
                stack.enter_context(opened.stream("GET", path))
        attacker.end.wait()


def _calls_without_message(attacker: Attacker) -> None:
    with ExitStack() as stack:
        for _ in range(CALLS_WITHOUT_MESSAGE):
            channel = stack.enter_context(
                grpc.insecure_channel(attacker.flight, options=[("grpc.use_local_subchannel_pool", 1)])
            )
            call = channel.stream_unary("/arrow.flight.protocol.FlightService/DoPut")
            threading.Thread(target=_outlast, args=(call, attacker.end), daemon=True).start()
        attacker.end.wait()


def _outlast(call: Callable[..., object], end: threading.Event) -> None:
    def nothing() -> Any:
        end.wait()
        yield from ()

    with suppress(grpc.RpcError):
        call(nothing(), timeout=120)


def _cross_joins(attacker: Attacker) -> None:
    sql = "SELECT count(*) FROM wide a CROSS JOIN wide b WHERE a.id + b.id > {}"
    attacker.query(CROSS_JOINS, lambda n: sql.format(n))


ATTACKS: Mapping[str, Callable[[Attacker], None]] = {
    "like": _like,
    "rlike": _rlike,
    "spaces_in_view": _spaces_in_view,
    "long_csv_cell": _long_csv_cell,
    "doubling_ctes": _doubling_ctes,
    "many_windows": _many_windows,
    "many_expressions": _many_expressions,
    "nested_subqueries": _nested_subqueries,
    "large_view": _large_view,
    "folding": _folding,
    "wedge_spark": _wedge_spark,
    "long_strings": _long_strings,
    "unread_downloads": _unread_downloads,
    "calls_without_message": _calls_without_message,
    "cross_joins": _cross_joins,
}


def _attack(
    act: Callable[[Attacker], None], url: str, flight: str, work: str, login: tuple[str, str], ready: Event, end: Event
) -> None:
    """Run one attack. Its threads wait for an event of their own: one that dies with the shared one keeps its lock."""
    over = threading.Event()

    def relay() -> None:
        end.wait()
        over.set()

    threading.Thread(target=relay, daemon=True).start()
    ready.set()
    act(Attacker(url, flight, Path(work), over, login))


# ---------------------------------------------------------------------- those who suffer


def suffer(
    gateway: Served,
    act: Callable[[Attacker], None] | None,
    seconds: float,
    *,
    attacker: tuple[str, str] = ATTACKER,
    victim: tuple[str, str] = VICTIM,
) -> Suffered:
    """Let one client act for a while, None for nobody, and measure what others meet meanwhile."""
    processes = multiprocessing.get_context("spawn")
    end = processes.Event()
    ready = [processes.Event(), processes.Event()]  # of the victim and of the attacker: to start takes a while
    receiving, sending = processes.Pipe(duplex=False)
    started = [processes.Process(target=_ask, args=(gateway.url, victim, ready[0], end, sending))]
    if act is not None:
        work = str(gateway.home.parent)
        arguments = (act, gateway.url, gateway.flight, work, attacker, ready[1], end)
        started.append(processes.Process(target=_attack, args=arguments))
    for process in reversed(started):
        process.start()
    if not all(each.wait(START_WITHIN_S) for each in ready[: len(started)]):
        raise RunFailed("those who ask or attack did not start")
    with _largest_memory(gateway) as largest:
        time.sleep(seconds)
    end.set()
    if not receiving.poll(2 * LONGEST_WAIT_S):
        raise RunFailed("those who asked did not come back")
    query_s, live_s = receiving.recv()
    for process in started:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()
    if not query_s or not live_s:
        raise RunFailed(f"{seconds} s are too few")
    return Suffered(query_s, live_s, largest() / MIB)


def _ask(url: str, login: tuple[str, str], ready: Event, end: Event, sending: Any) -> None:
    """Ask in two threads until the end, then send the waits of both."""
    waits: dict[str, list[float]] = {"query": [], "live": []}

    def loop(kind: str, every_s: float, ask: Callable[[httpx.Client], httpx.Response]) -> None:
        with httpx.Client(base_url=url, auth=login, timeout=LONGEST_WAIT_S) as client:
            while not end.is_set():
                begun = time.perf_counter()
                try:
                    ask(client).raise_for_status()
                    waits[kind].append(time.perf_counter() - begun)
                except httpx.HTTPError:
                    waits[kind].append(LONGEST_WAIT_S)
                time.sleep(every_s)

    query = {"sql": "SELECT 1", "wait_s": LONGEST_WAIT_S}
    threads = [
        threading.Thread(target=loop, args=("query", QUERY_EVERY_S, lambda c: c.post("/v1/queries", json=query))),
        threading.Thread(target=loop, args=("live", LIVE_EVERY_S, lambda c: c.get("/livez"))),
    ]
    ready.set()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sending.send((waits["query"], waits["live"]))


@contextmanager
def _largest_memory(gateway: Served) -> Any:
    """Watch the memory of the gateway's own processes together; yields a function that returns the largest. Bytes."""
    seen = [0]
    over = threading.Event()
    gateways = [gateway.process]
    with suppress(psutil.Error):
        gateways += [each for each in gateway.process.children() if MEMBER in each.cmdline()]

    def watch() -> None:
        while not over.wait(0.1):
            with suppress(psutil.Error):
                seen[0] = max(seen[0], sum(each.memory_info().rss for each in gateways))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: seen[0]
    finally:
        over.set()
        thread.join()


# ---------------------------------------------------------------------- the gateway


def _make_tables(work: Path) -> None:
    for name in ("notes", "wide", "cells"):
        (work / name).mkdir()
    notes = pa.table({"id": pa.array(range(TEXT_ROWS), pa.int64()), "note": ["a" * 200] * TEXT_ROWS})
    pq.write_table(notes, work / "notes" / "part-0.parquet")
    ids = pa.array(range(ROWS), pa.int64())
    wide = {"id": ids, **{f"text_{n}": pa.array([f"value {n} of a row"] * ROWS) for n in range(4)}}
    pq.write_table(pa.table(wide), work / "wide" / "part-0.parquet")
    (work / "cells" / "part-0.csv").write_text(f"id,cell\n1,{'9' * 40_000}x\n", encoding="utf-8")


def _prepare(gateway: Served, work: Path) -> None:
    """Register the tables, compute their statistics, and wait until both engines answer."""
    for name in ("notes", "wide"):
        gateway.register(name, work / name)
    with gateway.http() as client:
        job = client.post("/v1/stats/jobs", json={"tables": ["notes", "wide"]}).json()
        while job["finished_at"] is None:
            time.sleep(0.5)
            job = client.get(f"/v1/stats/jobs/{job['id']}").json()
        if job["error"] is not None:
            raise RunFailed(f"statistics failed: {job['error']}")
        for engine in ("duckdb", "spark"):
            query = {"sql": "SELECT count(*) FROM notes", "engine": engine, "wait_s": 120}
            client.post("/v1/queries", json=query).raise_for_status()


def _calm(gateway: Served) -> bool:
    """Cancel what an attack left; returns whether both kinds of request are answered as usual again."""
    try:
        with gateway.http(*ATTACKER) as client:
            for query in client.get("/v1/queries", params={"limit": 1_000}).json()["queries"]:
                if query["state"] in ("QUEUED", "RUNNING"):
                    client.delete(f"/v1/queries/{query['id']}")
        time.sleep(SETTLE_S)
        with httpx.Client(base_url=gateway.url, auth=VICTIM, timeout=LONGEST_WAIT_S) as client:
            client.get("/livez").raise_for_status()
            client.post("/v1/queries", json={"sql": "SELECT 1"}).raise_for_status()
    except httpx.HTTPError:
        return False
    return True


def show(suffered: Mapping[str, Suffered]) -> None:
    """Print what others met, a line per attack."""

    def cells(found: Suffered) -> list[str]:
        return [
            str(len(found.query_s)),
            f"{np.median(found.query_s):.3f}",
            f"{found.query_p95_s():.3f}",
            f"{max(found.query_s):.3f}",
            f"{1_000 * found.live_p95_s():.0f}",
            f"{1_000 * max(found.live_s):.0f}",
            f"{found.memory_mib:.0f}",
        ]

    head = ["attack", "SELECT 1: asked", "p50 s", "p95 s", "max s", "/livez: p95 ms", "max ms", "gateway's memory MiB"]
    show_table("What others wait while one attacks", head, [[name, *cells(s)] for name, s in suffered.items()])


if __name__ == "__main__":
    run_command(run)
