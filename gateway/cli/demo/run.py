"""The main job, end to end: make the bookstore, compute its statistics, route nine queries, watch one fail over."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ByteSize
from rich.console import Console
from rich.table import Table

from engines.duckdb.adapter import DuckDBSettings
from gateway import settings as settings_module
from gateway.cli.client import Client, RequestFailed
from gateway.cli.demo.paper_queries import PAPER_QUERIES, SURPRISE_QUERY
from gateway.cli.progress import progress_bar
from gateway.server.serve import own_server
from gateway.server.startup import AddressInUse, configure_logging
from gateway.settings import Settings
from selector.wording import mebibytes

TABLES = ("books", "customers", "transactions")
# At 1/32 of the paper's rows this keeps its proportions: Q8 does not fit, Q9 does.
MEMORY_LIMIT_AT_1_32 = 384 << 20
SCALE_1_32 = 1 / 32
SMALLEST_LIMIT = 32 << 20


class DemoFailed(Exception):
    """A step of the demo did not work; the message says which and why."""


def run(home: Path, *, scale: float, keep_serving: bool, console: Console) -> None:
    """Run the whole demo under a home folder; data that an earlier run made is used again."""
    configure_logging("ERROR")
    settings = demo_settings(home, scale)
    (data,) = settings.catalog.roots
    _generate(data / "bookstore", scale, console)
    with _server(settings) as url, Client(url) as client:
        _register(client, data / "bookstore", console)
        limit_bytes = int(settings.section(DuckDBSettings).memory_limit)
        console.print(f"\nThe paper's queries; DuckDB gives one statement {mebibytes(limit_bytes)}:")
        results = Table("query", "engine", "why", "estimated", "measured", "seconds", "rows")
        for name, sql in PAPER_QUERIES.items():
            with progress_bar(f"{name} is running"):
                reply = _run(client, sql)
            results.add_row(name, *_summary(reply))
        console.print(results)
        _surprise(client, console)
        if keep_serving:
            console.print(f"\nEvery query, with every reason: [bold]{url}/dashboard[/bold]")
            console.print("The gateway keeps running; Ctrl-C ends it.")
            with suppress(KeyboardInterrupt):
                while True:
                    time.sleep(3600)
    if not keep_serving:
        console.print(f"\nEvery query, with every reason, on the dashboard: fusion serve --home {settings.home}")


@contextmanager
def _server(settings: Settings) -> Iterator[str]:
    """Serve on the usual port, or on a free one if something else is there."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(own_server(settings))
        except AddressInUse:
            free = settings.server.model_copy(update={"port": 0})
            url = stack.enter_context(own_server(settings.model_copy(update={"server": free})))
        yield url


def demo_settings(home: Path, scale: float) -> Settings:
    """Return settings under which the demo's queries split over the engines as the paper's did."""
    limit = max(SMALLEST_LIMIT, round(MEMORY_LIMIT_AT_1_32 * scale / SCALE_1_32))
    return settings_module.load(
        home,
        duckdb=DuckDBSettings(enabled=True, memory_limit=ByteSize(limit)),
        # Beside the home folder: no table lies in that.
        catalog=settings_module.CatalogSettings(roots=(home.with_name(f"{home.name}-data"),)),
    )


def _generate(folder: Path, scale: float, console: Console) -> None:
    made = folder / "made.json"
    with suppress(OSError, ValueError):
        if json.loads(made.read_text(encoding="utf-8")) == {"scale": scale}:
            console.print(f"The bookstore at scale {scale:.4g} is there already.")
            return
    console.print(f"Making the paper's bookstore at scale {scale:.4g} with PySpark ...")
    command = [sys.executable, "-P", "-m", "statsproc", "generate", "--out", str(folder), "--scale", str(scale)]
    begun = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "generate.log").open("w+", encoding="utf-8") as log:
        with subprocess.Popen([*command, "--json-progress"], stdout=subprocess.PIPE, stderr=log, text=True) as process:
            _follow(process)
        if process.returncode != 0:
            log.seek(0)
            raise DemoFailed(f"the bookstore could not be made: {log.read().strip()[-500:]}")
    made.write_text(json.dumps({"scale": scale}), encoding="utf-8")
    console.print(f"  made in {time.monotonic() - begun:.0f} s")


def _follow(process: subprocess.Popen[str]) -> None:
    """Show the progress that a statsproc process prints, one JSON object a line."""
    assert process.stdout is not None
    with progress_bar("starting Spark, making the tables", total=float(len(TABLES))) as advance:
        finished = 0
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "progress" and event.get("all"):
                advance(finished + event["done"] / event["all"])
            elif event["event"] == "finished":
                finished += 1
                advance(finished)


def _register(client: Client, folder: Path, console: Console) -> None:
    for name in TABLES:
        table = client.post("/v1/tables", {"name": name, "location": str(folder / name)})
        console.print(f"  {name}: {table['rows']:,} rows, {mebibytes(table['bytes'])}")
    missing = [table["name"] for table in client.get("/v1/tables")["tables"] if not table["statistics_version"]]
    if not missing:
        return
    console.print("Building equi-height histograms with PySpark ...")
    begun = time.monotonic()
    with progress_bar("statistics", total=float(len(missing))) as advance:
        job = client.compute_statistics(missing, advance)
    if job["error"]:
        raise DemoFailed(f"the statistics could not be computed: {job['error']}")
    console.print(f"  in force after {time.monotonic() - begun:.0f} s")


def _surprise(client: Client, console: Console) -> None:
    console.print("\nA query whose estimate is honestly wrong (a fuzzy match, which no statistic answers), sent twice:")
    with suppress(RequestFailed):
        fingerprint = client.post("/v1/explain", {"sql": SURPRISE_QUERY})["fingerprint"]
        client.delete(f"/v1/misestimates/{fingerprint}")  # of an earlier demo
    attempts = Table("sent", "attempt", "engine", "outcome", "measured", "seconds")
    ids = []
    for sent in ("first", "again"):
        with progress_bar(f"the query is sent ({sent})"):
            reply = _run(client, SURPRISE_QUERY)
        ids.append(f"{sent}: estimated {_bytes(reply['decision']['estimate']['peak_bytes'])}, id {reply['id']}")
        for attempt in reply["attempts"]:
            outcome = attempt["failure"] or f"{attempt['rows']} rows"
            if len(reply["attempts"]) == 1:
                outcome += f", {reply['decision']['reasons'][0]['code']}"
            attempts.add_row(
                sent,
                str(attempt["ordinal"]),
                attempt["engine"],
                outcome,
                _bytes(attempt["peak_bytes"]),
                f"{attempt['wall_s']:.2f}",
            )
    console.print(attempts)
    for line in ids:
        console.print(f"  {line}", highlight=False)


def _run(client: Client, sql: str) -> Any:
    reply = client.query(sql)
    if reply["state"] != "FINISHED":
        raise DemoFailed(f"{sql}\n{reply['error']['code']}: {reply['error']['message']}")
    return reply


def _summary(reply: Any) -> tuple[str, ...]:
    last = reply["attempts"][-1]
    decision = reply["decision"]
    return (
        " -> ".join(attempt["engine"] for attempt in reply["attempts"]),
        ", ".join(dict.fromkeys(reason["code"] for reason in decision["reasons"])),
        _bytes(decision["estimate"]["peak_bytes"]),
        _bytes(last["peak_bytes"]),
        f"{sum(attempt['wall_s'] for attempt in reply['attempts']):.2f}",
        f"{reply['row_count']:,}",
    )


def _bytes(count: int | None) -> str:
    return "-" if count is None else mebibytes(count)
