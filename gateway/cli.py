"""The ``fusion`` command.

Everything but ``serve`` and ``doctor`` speaks HTTP: to the gateway that serves the home folder, or to one of its own
for the moment where none does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from gateway import demo as demonstration
from gateway import doctor as doctoring
from gateway import settings as settings_module
from gateway.client import Client, RequestFailed
from gateway.progress import progress_bar
from gateway.server import AddressInUse, AlreadyServed, configure_logging, serve, served
from gateway.settings import Settings
from gateway.statements import AUTO
from gateway.wiring import MissingExtra
from selector.decide import mebibytes

FAILED = 1

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
tables_app = typer.Typer(no_args_is_help=True, help="Registered tables.")
stats_app = typer.Typer(no_args_is_help=True, help="Statistics of tables.")
misestimates_app = typer.Typer(no_args_is_help=True, help="What was learned from estimates that were wrong.")
app.add_typer(tables_app, name="tables")
app.add_typer(stats_app, name="stats")
app.add_typer(misestimates_app, name="misestimates")

out = Console()
err = Console(stderr=True)

Home = Annotated[Path | None, typer.Option(help="Folder of the gateway; also FUSION_HOME.", show_default=".fusion")]
Dialect = Annotated[str, typer.Option(help="Dialect of the text.")]
EngineName = Annotated[str, typer.Option("--engine", help="auto, or the one engine that may run it.")]


class Output(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@app.command("serve")
def serve_command(
    home: Home = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="TCP port; 0 takes a free one.")] = None,
) -> None:
    """Serve until interrupted."""
    chosen = _settings(home)
    changes = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    chosen = chosen.model_copy(update={"server": chosen.server.model_copy(update=changes)})
    configure_logging(chosen.log_level)
    with _reported():
        serve(chosen)


@app.command()
def query(
    sql: Annotated[str, typer.Argument(help="One query; - reads it from standard input.")],
    home: Home = None,
    dialect: Dialect = "spark",
    engine: EngineName = AUTO,
    max_rows: Annotated[int, typer.Option(help="Rows to print.")] = 100,
    output: Annotated[Output, typer.Option("--format", help="csv and json print the whole result.")] = Output.TABLE,
) -> None:
    """Run a query; say on standard error where it ran and why."""
    with _client(home) as client:
        reply = client.query(_text(sql), dialect=dialect, engine=engine, max_rows=max_rows)
        _print_decision(reply)
        if reply["error"]:
            _fail(f"{reply['error']['code']}: {reply['error']['message']}")
        if output is Output.TABLE:
            _print_rows(reply)
        else:
            sys.stdout.write(client.text(f"/v1/queries/{reply['id']}/result", format=output.value))


@app.command()
def explain(
    sql: Annotated[str, typer.Argument(help="One query; - reads it from standard input.")],
    home: Home = None,
    dialect: Dialect = "spark",
    engine: EngineName = AUTO,
) -> None:
    """Tell where a query would run and why; nothing runs."""
    with _client(home) as client:
        reply = client.post("/v1/explain", {"sql": _text(sql), "dialect": dialect, "engine": engine})
    decision = reply["decision"]
    estimate = decision["estimate"]
    out.print(f"[bold]{decision['engine']}[/bold] (ranking: {', '.join(decision['ranking'])})")
    for reason in decision["reasons"]:
        out.print(f"  {reason['code']}: {reason['text']}", markup=False, highlight=False)
    out.print(
        f"estimate {_bytes(estimate['peak_bytes'])}, at most {_bytes(estimate['upper_bytes'])}, "
        f"confidence {estimate['confidence']:.2f}, limit {_bytes(decision['limit_bytes'])}"
    )
    branches: dict[int, Tree] = {}
    for part in estimate["operators"]:
        text = f"{part['operator']}: {_count(part['rows'])} rows (engine: {_count(part['engine_rows'])}), "
        text += f"{_bytes(part['held_bytes'])}; {part['basis']}"
        parent = branches.get(part["depth"] - 1)
        branches[part["depth"]] = parent.add(text) if parent else Tree(text)
    if 0 in branches:
        out.print(branches[0], markup=False)


@tables_app.command("add")
def add_table(
    name: Annotated[str, typer.Argument(help="Name in statements.")],
    path: Annotated[Path, typer.Argument(help="Folder or file.", exists=True, resolve_path=True)],
    home: Home = None,
    format: Annotated[str | None, typer.Option(help="parquet, csv, json or orc; found out without it.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Of text.")] = None,
    header: Annotated[bool | None, typer.Option(help="Whether text has a line of names.")] = None,
) -> None:
    """Register a table."""
    options = {"delimiter": delimiter, "header": None if header is None else str(header).lower()}
    body = {"name": name, "location": str(path), "options": {k: v for k, v in options.items() if v is not None}}
    with _client(home) as client:
        added = client.post("/v1/tables", body | ({"format": format} if format else {}))
    out.print(f"{added['name']}: {added['format']}, {len(added['columns'])} columns, {_count(added['rows'])} rows")


@tables_app.command("list")
def list_tables(home: Home = None) -> None:
    """List registered tables."""
    with _client(home) as client:
        known = client.get("/v1/tables")["tables"]
    table = Table("table", "format", "files", "size", "rows", "statistics")
    for entry in known:
        build = entry["statistics_version"]
        table.add_row(
            entry["name"],
            entry["format"],
            str(entry["files"]),
            _bytes(entry["bytes"]),
            _count(entry["rows"]),
            f"version {build}" if build else "none",
        )
    out.print(table)


@stats_app.command("compute")
def compute_stats(
    names: Annotated[list[str], typer.Argument(help="Names of tables.")],
    home: Home = None,
) -> None:
    """Compute the statistics of tables and put them in force."""
    with _client(home) as client:
        with progress_bar(f"statistics of {', '.join(names)}", total=len(names)) as advance:
            job = client.compute_statistics(names, advance)
    if job["error"]:
        _fail(job["error"])
    out.print(f"statistics of {', '.join(job['tables'])} are in force")


@stats_app.command("show")
def show_stats(name: Annotated[str, typer.Argument(help="Name of a table.")], home: Home = None) -> None:
    """Show the statistics in force of a table."""
    with _client(home) as client:
        shown = client.get(f"/v1/tables/{name}")
    build = shown["statistics"]
    if build is None:
        _fail(f"{name} has no statistics; run: fusion stats compute {name}")
    out.print(
        f"{name}: {build['rows']:,} rows, {_bytes(build['bytes'])}, version {build['version']}, {build['built_at']}"
    )
    table = Table("column", "type", "nulls", "NDV", "min", "max", "avg length", "max length", "buckets")
    for column in build["columns"]:
        table.add_row(
            column["name"],
            column["type"],
            _count(column["nulls"]),
            _count(column["ndv"]),
            _plain(column["minimum"]),
            _plain(column["maximum"]),
            _plain(column["average_length"]),
            _plain(column["maximum_length"]),
            str(len(column["endpoints"]) - 1) if column["endpoints"] else "-",
        )
    out.print(table)


@misestimates_app.command("list")
def list_misestimates(home: Home = None) -> None:
    """List statements that ran out of memory where the estimate said that they fit."""
    with _client(home) as client:
        known = client.get("/v1/misestimates")["misestimates"]
    table = Table("fingerprint", "engine", "limit", "estimated", "peak", "statistics", "statement")
    for lesson in known:
        table.add_row(
            lesson["fingerprint"],
            lesson["engine"],
            _bytes(lesson["limit_bytes"]),
            _bytes(lesson["estimated_bytes"]),
            _bytes(lesson["peak_bytes"]),
            lesson["statistics_version"],
            " ".join(lesson["sql"].split())[:60],
        )
    out.print(table)


@misestimates_app.command("forget")
def forget_misestimate(fingerprint: Annotated[str, typer.Argument(help="As listed.")], home: Home = None) -> None:
    """Forget what is on record about a statement."""
    with _client(home) as client:
        out.print(f"forgot {client.delete(f'/v1/misestimates/{fingerprint}')['forgotten']}")


@app.command()
def demo(
    home: Annotated[Path, typer.Option(help="Folder of the demo's gateway and data.")] = Path(".fusion/demo"),
    scale: Annotated[float, typer.Option(help="Share of the paper's rows.", min=1e-4, max=1.0)] = 1 / 32,
    keep_serving: Annotated[
        bool | None,
        typer.Option("--serve/--no-serve", help="Go on serving at the end.", show_default="on a terminal"),
    ] = None,
) -> None:
    """Make the paper's bookstore, run its queries and watch one fail over."""
    with _reported():
        stay = sys.stdout.isatty() if keep_serving is None else keep_serving
        demonstration.run(home.expanduser().absolute(), scale=scale, keep_serving=stay, console=out)


@app.command()
def doctor(home: Home = None) -> None:
    """Say what is missing on this machine and how to get it."""
    findings = doctoring.examine(_settings(home))
    for finding in findings:
        mark = "[green]ok     [/green]" if finding.good else "[red]missing[/red]"
        out.print(f"{mark} {finding.subject}: {finding.detail}", highlight=False)
        if not finding.good:
            out.print(f"        {finding.remedy}", markup=False, highlight=False)
    if any(not finding.good for finding in findings):
        raise typer.Exit(FAILED)


def _settings(home: Path | None) -> Settings:
    try:
        return settings_module.load(home)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        _fail(f"the settings are wrong: {problems}")


@contextmanager
def _client(home: Path | None) -> Iterator[Client]:
    configure_logging("WARNING")
    with _reported(), served(_quiet(_settings(home))) as url, Client(url) as client:
        yield client


def _quiet(chosen: Settings) -> Settings:
    """Return settings for a gateway of the moment: a free port, and no Spark before a statement needs it."""
    return chosen.model_copy(
        update={
            "server": chosen.server.model_copy(update={"host": "127.0.0.1", "port": 0}),
            "spark": chosen.spark.model_copy(update={"warm_up": False}),
        }
    )


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except RequestFailed as error:
        place = f" (line {error.place[0]}, column {error.place[1]})" if error.place else ""
        _fail(f"{error.code}: {error.message}{place}")
    except (AlreadyServed, AddressInUse, MissingExtra, demonstration.DemoFailed) as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    err.print(f"[red]error:[/red] {message}", highlight=False)
    raise typer.Exit(FAILED)


def _text(sql: str) -> str:
    return sys.stdin.read() if sql == "-" else sql


def _print_decision(reply: dict[str, Any]) -> None:
    for attempt in reply["attempts"]:
        failure = f"failed: {attempt['message']}" if attempt["failure"] else f"{attempt['wall_s']:.2f} s"
        err.print(f"{attempt['engine']}: {failure}", markup=False, highlight=False)
    for reason in (reply["decision"] or {"reasons": []})["reasons"]:
        err.print(f"  {reason['code']}: {reason['text']}", style="dim", markup=False, highlight=False)


def _print_rows(reply: dict[str, Any]) -> None:
    table = Table(*(column["name"] for column in reply["columns"]))
    for row in reply["rows"]:
        table.add_row(*(_plain(value) for value in row))
    out.print(table)
    if reply["truncated"]:
        err.print(f"{len(reply['rows'])} of {reply['row_count']:,} rows", highlight=False)


def _plain(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return value
        case float():
            return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
        case list() | dict():
            return json.dumps(value)
        case _:
            return str(value)


def _bytes(count: int | None) -> str:
    return "unknown" if count is None else mebibytes(count)


def _count(count: float | None) -> str:
    return "unknown" if count is None else f"{count:,.0f}"
