"""Claim: 500 sessions are open and 64 of them busy for ten minutes without an error, in memory that does not grow.

The sessions are drivers' over HiveServer2, as PyHive opens them (``--driver``: another one). Those that are busy ask
one statement after the other, four in five of them repeated ones and one in five new; the others ask one in the end,
to show that they are still there. The gateway's limits of sessions (256, 64 of one user) and of statements are raised
for it. Minute by minute it is told what statements took, and what the gateway's own process holds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.bookstore import DEFAULT_DATA, SEED, TABLES, DataOption, ScaleOption, SeedOption, prepare
from benchmarks.claim import Claim, RunFailed, at_least, at_most, conditions, run_command, show_table, step
from benchmarks.doors import address, drivers_named
from benchmarks.load import NUMBER, SPAN_S, Answered, Asked, Load, generate
from benchmarks.server_process import GatewayProcess, cpu_s, gateway_process, room_for
from gateway.cli.client import Client
from gateway.cli.demo.paper_queries import PAPER_QUERIES
from statsproc.data.bookstore import Bookstore

SCALE = 1 / 100
SESSIONS, BUSY, SECONDS = 500, 64, 600.0
LOOK_S = 2.0
MIB = 1 << 20
GROWTH_MIB = 64.0  # from the end of the first minute, when caches and threads are there, to the last
POINT = "SELECT id, isbn, price FROM books WHERE id = 4711"
NEW_POINT = f"SELECT 'new {NUMBER}' AS tag, isbn FROM books WHERE id = {NUMBER}"
NEW_JOIN = (
    f"SELECT 'new {NUMBER}' AS tag, count(*) AS sold FROM books b JOIN transactions t ON t.book_id = b.id "
    f"WHERE b.id < 1000 AND t.id < {NUMBER}"
)
STATEMENTS = (
    Asked(POINT, "isbn", 0.7),
    Asked(PAPER_QUERIES["Q7"], "category", 0.1),
    Asked(NEW_POINT, "isbn", 0.15),
    Asked(NEW_JOIN, f"new {NUMBER}", 0.05),
)
TARGETS = {
    "sessions": at_least(SESSIONS),
    "busy": at_least(BUSY),
    "seconds": at_least(SECONDS),
    "errors": at_most(0),
    "growth_mib": at_most(GROWTH_MIB),
}


@dataclass(frozen=True, slots=True)
class Held:
    """What the gateway's process holds at a moment. at_s: by the clock."""

    at_s: float
    rss_bytes: int
    files: int
    threads: int
    cpu_s: float


def run(
    data: DataOption = DEFAULT_DATA,
    scale: ScaleOption = SCALE,
    seed: SeedOption = SEED,
    sessions: Annotated[int, typer.Option(help="Sessions that are open.", min=1)] = SESSIONS,
    busy: Annotated[int, typer.Option(help="Sessions that ask all the time.", min=1)] = BUSY,
    seconds: Annotated[float, typer.Option(help="That they ask.", min=5)] = SECONDS,
    driver: Annotated[str, typer.Option(help="Whose calls are made, one of the keys of throughput.")] = "pyhive",
) -> Claim:
    """Keep sessions open, some of them busy, and watch the gateway."""
    folder = prepare(data, Bookstore(scale, seed))
    (chosen,) = drivers_named(driver)
    with tempfile.TemporaryDirectory(prefix="fusion-bench-") as work:
        with gateway_process(Path(work), **room_for(busy, sessions - busy)) as gateway:
            with Client(gateway.url) as client:
                for table in TABLES:
                    client.post("/v1/tables", {"name": table, "location": str(folder / table)})
            load = Load(chosen, address(gateway, chosen), STATEMENTS, busy, seconds, idle=sessions - busy, seed=seed)
            step(f"{sessions} sessions of {chosen}, {busy} of them busy for {seconds:.0f} s")
            with ThreadPoolExecutor(1) as thread:
                running = thread.submit(generate, load)
                seen = [_held(gateway)]
                while not running.done():
                    time.sleep(LOOK_S)
                    seen.append(_held(gateway))
            answered = running.result()
            step("the sessions are closed")
            time.sleep(LOOK_S)
            after = _held(gateway)
            log = _warnings(Path(work) / "gateway.log")
    seen = [each for each in seen if 0 <= each.at_s - answered.begun_s <= seconds]
    if not seen:
        raise RunFailed("the run was too short to look at the gateway")
    _show(answered, seen, after)
    for line, times in log.items():
        print(f"{times} x {line}")
    if answered.wrong:
        print(f"One of the wrong answers: {answered.wrong_answer}")
    print(conditions(driver=chosen, sessions=sessions, busy=busy, seconds=seconds, scale=f"{scale:g}", seed=seed))
    figures = {"sessions": sessions, "busy": busy, "seconds": seconds, **_figures(answered, seen, after)}
    return Claim("sessions", figures, {name: target for name, target in TARGETS.items() if name in figures})


def _held(gateway: GatewayProcess) -> Held:
    process = gateway.process
    with process.oneshot():
        return Held(time.time(), process.memory_info().rss, process.num_fds(), process.num_threads(), cpu_s(process))


def _minutes(seen: Sequence[Held], begun_s: float) -> list[list[Held]]:
    """Return what was seen in each minute."""
    minutes = dict[int, list[Held]]()
    for each in seen:
        minutes.setdefault(int((each.at_s - begun_s) // SPAN_S), []).append(each)
    return list(minutes.values())


def _figures(answered: Answered, seen: Sequence[Held], after: Held) -> dict[str, float]:
    minutes = _minutes(seen, answered.begun_s)
    figures = {
        "errors": answered.wrong,
        "per_s": answered.per_s,
        "p50_ms": answered.p50_ms,
        "p99_ms": answered.p99_ms,
        "rss_peak_mib": max(each.rss_bytes for each in seen) / MIB,
        "rss_after_mib": after.rss_bytes / MIB,
        "threads_peak": max(each.threads for each in seen),
        "threads_after": after.threads,
        "files_peak": max(each.files for each in seen),
        "files_after": after.files,
    }
    if len(minutes) > 1:
        figures["growth_mib"] = (minutes[-1][-1].rss_bytes - minutes[0][-1].rss_bytes) / MIB
    return figures


def _show(answered: Answered, seen: Sequence[Held], after: Held) -> None:
    head = ["minute", "answers/s", "errors", "p50 ms", "p99 ms", "RSS MiB", "peak", "files", "threads", "CPU %"]
    rows = list[list[str]]()
    for number, (span, held) in enumerate(zip(answered.spans, _minutes(seen, answered.begun_s), strict=False), 1):
        took_s = held[-1].at_s - held[0].at_s
        share = (held[-1].cpu_s - held[0].cpu_s) / took_s if took_s else 0.0
        peak = max(each.rss_bytes for each in held)
        told = [str(number), f"{span.per_s:.1f}", str(span.wrong), f"{span.p50_ms:.0f}", f"{span.p99_ms:.0f}"]
        told += [f"{held[-1].rss_bytes / MIB:.0f}", f"{peak / MIB:.0f}", str(held[-1].files), str(held[-1].threads)]
        rows.append([*told, f"{100 * share:.0f}"])
    left = [f"{after.rss_bytes / MIB:.0f}", "", str(after.files), str(after.threads), ""]
    rows.append(["after the last session", "", "", "", "", *left])
    show_table("Sessions, minute by minute, and what the gateway's process holds", head, rows)


def _warnings(log: Path) -> dict[str, int]:
    """Return the log's warnings and errors with how often each came, without their times."""
    found = dict[str, int]()
    for line in log.read_text(encoding="utf-8").splitlines():
        _, level, text = line.partition(" WARNING ") if " WARNING " in line else line.partition(" ERROR ")
        if level:
            found[text] = found.get(text, 0) + 1
    return found


if __name__ == "__main__":
    run_command(run)
