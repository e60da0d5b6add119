"""Claim: the dependable engine depends on nothing: pass after pass of TPC-DS, no statement fails and no memory is kept.

A gateway with its default settings and Spark alone, over TPC-DS as tpcgen-cli makes it; several clients take the
statements in turn. After each pass Spark's heap is collected in full and what is left is looked at: where it grows from
pass to pass, something is kept between statements.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.bookstore import DEFAULT_DATA, DataOption
from benchmarks.claim import Claim, RunFailed, at_most, conditions, run_command, show_table, step
from benchmarks.same_answers import tables_of, tpcds_statements
from benchmarks.serving import serving
from benchmarks.statements import Named
from engines.duckdb.adapter import DuckDBSettings
from engines.spark.embedded.java import find_java_home
from gateway.cli.client import Client, RequestFailed
from gateway.settings import load
from metastore.discovery.inspection import inspect
from metastore.store import Metastore

MIB = 1 << 20
ENGINE = "spark"
GROWTH_MIB = 100.0
WATCH_EVERY_S = 0.5
_USED = re.compile(r"\bused (\d+)K")


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of one statement. failed_attempts: codes of the attempts that failed."""

    name: str
    wall_s: float
    rows: int | None
    error: str | None
    failed_attempts: tuple[str, ...]


def run(
    data: DataOption = DEFAULT_DATA,
    factor: Annotated[float, typer.Option(help="Scale factor of TPC-DS.")] = 1.0,
    passes: Annotated[int, typer.Option(help="Passes over all statements.", min=1)] = 3,
    clients: Annotated[int, typer.Option(help="Clients that ask at once.", min=1)] = 4,
    only: Annotated[str, typer.Option(help="The statements whose name holds this.")] = "",
) -> Claim:
    """Ask TPC-DS of the dependable engine, pass after pass."""
    statements = [one for one in tpcds_statements() if only in one.name]
    sources = tables_of("tpcds", data, factor)
    print(conditions(factor=f"{factor:g}", statements=len(statements), passes=passes, clients=clients), flush=True)
    failed, retried, heaps, servers, figures = 0, 0, list[float](), set[int](), dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as work:
        home = Path(work) / "home"
        settings = load(home, duckdb=DuckDBSettings(enabled=False))
        home.mkdir(mode=0o700)
        with Metastore(settings.metastore_url) as store:
            for source in sources:
                found = inspect(source.name, Path(source.location))
                store.catalog.put(found, at=dt.datetime.now(dt.UTC))
        with serving(settings) as (_, client):
            pid_file = home / "spark" / "server.pid"
            for at in range(1, passes + 1):
                begun = time.perf_counter()
                with _watched(pid_file, servers):
                    answers = _pass(client.url, statements, clients, at)
                took_s = time.perf_counter() - begun
                heap_mib = heap_after_collection(int(pid_file.read_text())) / MIB
                heaps.append(heap_mib)
                bad = [one for one in answers if one.error is not None]
                again = [one for one in answers if one.failed_attempts]
                failed, retried = failed + len(bad), retried + len(again)
                show_table(
                    f"pass {at}: {took_s:.0f} s, heap after a full collection {heap_mib:.0f} MiB, "
                    f"{len(servers)} servers so far",
                    ["statement", "s", "failed attempts", "error"],
                    [[x.name, f"{x.wall_s:.1f}", ", ".join(x.failed_attempts), x.error or ""] for x in {*bad, *again}],
                )
                figures[f"pass_{at}_s"] = took_s
                figures[f"pass_{at}_heap_mib"] = heap_mib
    figures |= {
        "failed": float(failed),
        "retried": float(retried),
        "restarts": float(max(0, len(servers) - 1)),
        "heap_growth_mib": max(heaps[1:], default=heaps[0]) - heaps[0],
    }
    return Claim("dependable", figures, {"failed": at_most(0), "heap_growth_mib": at_most(GROWTH_MIB)})


def heap_after_collection(pid: int) -> int:
    """Return the bytes of a JVM's heap that a full collection leaves."""
    _jcmd(pid, "GC.run")
    used = _USED.search(_jcmd(pid, "GC.heap_info"))
    if used is None:
        raise RunFailed("jcmd does not tell the heap in use")
    return int(used[1]) * 1024


def _jcmd(pid: int, what: str) -> str:
    command = [str(find_java_home() / "bin" / "jcmd"), str(pid), what]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as failure:
        raise RunFailed(f"jcmd {what} does not work: {failure}") from failure


@contextmanager
def _watched(pid_file: Path, seen: set[int]) -> Iterator[None]:
    """Collect the process ids of the servers that run meanwhile."""
    end = threading.Event()

    def watch() -> None:
        while not end.wait(WATCH_EVERY_S):
            with suppress(OSError, ValueError):  # between two servers
                seen.add(int(pid_file.read_text(encoding="ascii")))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        end.set()
        watching.join()


def _pass(url: str, statements: Sequence[Named], clients: int, at: int) -> list[Answered]:
    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(lambda one: _ask(url, one, at), statements))


def _ask(url: str, statement: Named, at: int) -> Answered:
    begun = time.perf_counter()
    error, rows, failed = None, None, tuple[str, ...]()
    try:
        with Client(url) as client:
            reply: Any = client.query(statement.sql, engine=ENGINE, max_rows=0)
        failures = Counter(attempt["failure"] for attempt in reply["attempts"] if attempt.get("failure"))
        failed, rows = tuple(failures.elements()), reply.get("rows")
        if reply["state"] != "FINISHED":
            error = f"{reply['error']['code']}: {reply['error']['message']}"
    except RequestFailed as refused:
        error = f"{refused.code}: {refused.message}"
    wall_s = time.perf_counter() - begun
    step(f"{at} {statement.name}: {wall_s:.1f} s {error or ''} {' '.join(failed)}")
    return Answered(statement.name, wall_s, rows, error, failed)


if __name__ == "__main__":
    run_command(run)
