"""The ``fusion`` command.

Everything but ``serve`` and ``doctor`` speaks HTTP: to the gateway that serves the home folder, or to one of its own
for the moment where none does. Commands import what they need by themselves, so that none waits for what others need.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from gateway.cli.replay import replay_app
from gateway.cli.stats import stats_app
from gateway.cli.terminal import FAILED, Home, connected, count, err, fail, out, plain, reported, settings_of, size
from gateway.presentation.trees import branches
from gateway.security.principals import Role
from gateway.server.startup import configure_logging
from gateway.statements import AUTO
from metastore.hive.client import DEFAULT_DATABASE, HiveFailed, HiveMetastore
from selector.wording import percent, seconds_of

if TYPE_CHECKING:
    from metastore.hive.tables import HiveFiles

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
tables_app = typer.Typer(no_args_is_help=True, help="Registered tables.")
misestimates_app = typer.Typer(no_args_is_help=True, help="What was learned from estimates that were wrong.")
app.add_typer(tables_app, name="tables")
app.add_typer(stats_app, name="stats")
app.add_typer(misestimates_app, name="misestimates")
app.add_typer(replay_app)

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
    port: Annotated[int | None, typer.Option(help="TCP port; 0 takes free ones, for drivers too.")] = None,
    drivers_port: Annotated[int | None, typer.Option(help="TCP port of drivers; 0 takes a free one.")] = None,
    flight_port: Annotated[int | None, typer.Option(help="TCP port of Flight SQL; 0 takes a free one.")] = None,
) -> None:
    """Serve until interrupted."""
    chosen = settings_of(home)
    changes = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    free = 0 if port == 0 else None
    sections: dict[str, object] = {"server": chosen.server.model_copy(update=changes)}
    for name, told in (("hs2", drivers_port), ("flight", flight_port)):
        taken = free if told is None else told
        if taken is not None:
            sections[name] = getattr(chosen, name).model_copy(update={"port": taken})
    chosen = chosen.model_copy(update=sections)
    configure_logging(chosen.log_level)
    from gateway.server.serve import serve

    with reported():
        serve(chosen)


@app.command()
def password(
    name: Annotated[str, typer.Argument(help="Name of the user.")],
    role: Annotated[Role | None, typer.Option(help="Role of the user; without it, as the settings say.")] = None,
) -> None:
    """Ask for a user's password and print the line for the users file."""
    from gateway.security.authentication import user_line

    asked = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    try:
        typer.echo(user_line(name, asked, role))
    except ValueError as error:
        fail(str(error))


@app.command()
def query(
    sql: Annotated[str, typer.Argument(help="One query; - reads it from standard input.")],
    home: Home = None,
    dialect: Dialect = "spark",
    engine: EngineName = AUTO,
    max_rows: Annotated[int, typer.Option(help="Rows to print.")] = 100,
    output: Annotated[Output, typer.Option("--format", help="csv and json print the whole result.")] = Output.TABLE,
    guard: Annotated[bool, typer.Option("--guard", help="csv for spreadsheets: no text is a formula.")] = False,
) -> None:
    """Run a query; say on standard error where it ran and why."""
    with connected(home) as client:
        reply = client.query(_text(sql), dialect=dialect, engine=engine, max_rows=max_rows)
        _print_decision(reply)
        if reply["error"]:
            fail(f"{reply['error']['code']}: {reply['error']['message']}")
        if output is Output.TABLE:
            _print_rows(reply)
        else:
            client.write(f"/v1/queries/{reply['id']}/result", sys.stdout, format=output.value, guard=guard)


@app.command()
def explain(
    sql: Annotated[str, typer.Argument(help="One query; - reads it from standard input.")],
    home: Home = None,
    dialect: Dialect = "spark",
    engine: EngineName = AUTO,
    policy: Annotated[str, typer.Option(help="expected, safe or paper; the gateway's own without it.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the gateway's whole reply.")] = False,
) -> None:
    """Tell where a query would run, why, and what would change that; nothing runs."""
    with connected(home) as client:
        settings = {"fusion.policy": policy} if policy else {}
        question = {"sql": _text(sql), "dialect": dialect, "engine": engine, "settings": settings}
        reply = client.post("/v1/explain", question)
    if as_json:
        sys.stdout.write(json.dumps(reply, indent=2) + "\n")
        return
    decision = reply["decision"]
    estimate = decision["estimate"]
    out.print(f"[bold]{decision['engine']}[/bold] (ranking: {', '.join(decision['ranking'])})")
    for reason in decision["reasons"]:
        _line(f"  {reason['code']}: {reason['text']}")
    _line(
        f"policy {decision['policy']}; expected peak {size(estimate['peak_bytes'])}, with 95 % below "
        f"{size(estimate['upper_bytes'])}, limit {size(decision['limit_bytes'])}"
    )
    _print_prices(decision["prices"])
    for text in (*reply["what_if"], *(basis["text"] for basis in reply["statistics"])):
        _line(text)
    _print_plan(estimate["operators"])


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
    with connected(home) as client:
        _print_added(client.post("/v1/tables", body | ({"format": format} if format else {})))


@tables_app.command("import")
def import_tables(
    hive_metastore: Annotated[str, typer.Option(help="thrift://host:port, or several with commas between them.")],
    names: Annotated[list[str] | None, typer.Argument(help="Tables; all of the database without any.")] = None,
    home: Home = None,
    database: Annotated[str, typer.Option(help="Database of the metastore.")] = DEFAULT_DATABASE,
) -> None:
    """Register tables of a Hive Metastore, whose files the gateway must see where the metastore says that they are."""
    from gateway.cli.client import RequestFailed
    from metastore.hive.tables import files_of

    refused = 0
    try:
        with connected(home) as client, HiveMetastore(hive_metastore) as hive:
            for name in names or hive.tables(database):
                try:
                    _print_added(client.post("/v1/tables", _registration(files_of(hive, database, name))))
                except (HiveFailed, RequestFailed) as error:
                    refused += 1
                    err.print(f"{name}: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    except HiveFailed as error:
        fail(str(error))
    if refused:
        raise typer.Exit(FAILED)


@tables_app.command("list")
def list_tables(home: Home = None) -> None:
    """List registered tables."""
    with connected(home) as client:
        known = client.get("/v1/tables")["tables"]
    table = Table("table", "format", "files", "size", "rows", "statistics", "owner")
    for entry in known:
        build = entry["statistics_version"]
        table.add_row(
            entry["name"],
            entry["format"],
            str(entry["files"]),
            size(entry["bytes"]),
            count(entry["rows"]),
            f"version {build}" if build else "none",
            entry["owner"] or "-",
        )
    out.print(table)


@misestimates_app.command("list")
def list_misestimates(home: Home = None) -> None:
    """List statements that ran out of memory where the estimate said that they fit."""
    with connected(home) as client:
        known = client.get("/v1/misestimates")["misestimates"]
    table = Table("fingerprint", "engine", "limit", "estimated", "peak", "statistics", "statement")
    for misestimate in known:
        table.add_row(
            misestimate["fingerprint"],
            misestimate["engine"],
            size(misestimate["limit_bytes"]),
            size(misestimate["estimated_bytes"]),
            size(misestimate["peak_bytes"]),
            misestimate["statistics_version"],
            " ".join(misestimate["sql"].split())[:60],
        )
    out.print(table)


@misestimates_app.command("forget")
def forget_misestimate(fingerprint: Annotated[str, typer.Argument(help="As listed.")], home: Home = None) -> None:
    """Forget what is on record about a statement."""
    with connected(home) as client:
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
    from gateway.cli.demo import run as demonstration

    with reported(demonstration.DemoFailed):
        stay = sys.stdout.isatty() if keep_serving is None else keep_serving
        demonstration.run(home.expanduser().absolute(), scale=scale, keep_serving=stay, console=out)


@app.command()
def doctor(home: Home = None) -> None:
    """Say what is missing on this machine and how to get it."""
    from gateway.cli.doctor import examine

    findings = examine(settings_of(home))
    for finding in findings:
        wanting = "[red]missing[/red]" if finding.needed else "[yellow]warning[/yellow]"
        out.print(f"{'[green]ok     [/green]' if finding.good else wanting} {finding.subject}: ", end="")
        out.print(finding.detail, markup=False, highlight=False, soft_wrap=True)
        if not finding.good and finding.remedy:
            out.print(f"        {finding.remedy}", markup=False, highlight=False)
    if any(finding.needed and not finding.good for finding in findings):
        raise typer.Exit(FAILED)


@app.command()
def reference() -> None:
    """Print all settings and error codes as Markdown, engines of other packages among them."""
    from gateway.cli.reference import lines

    for line in lines():
        typer.echo(line)


def _registration(files: HiveFiles) -> dict[str, Any]:
    columns = [{"name": column.name, "type": column.data_type} for column in files.columns]
    return {
        **{"name": files.name, "location": files.location, "format": files.format},
        **{"columns": columns, "options": dict(files.options)},
    }


def _print_added(added: dict[str, Any]) -> None:
    out.print(f"{added['name']}: {added['format']}, {len(added['columns'])} columns, {count(added['rows'])} rows")


def _text(sql: str) -> str:
    return sys.stdin.read() if sql == "-" else sql


def _print_decision(reply: dict[str, Any]) -> None:
    for attempt in reply["attempts"]:
        failure = f"failed: {attempt['message']}" if attempt["failure"] else f"{attempt['wall_s']:.2f} s"
        err.print(f"{attempt['engine']}: {failure}", markup=False, highlight=False)
    for reason in (reply["decision"] or {"reasons": []})["reasons"]:
        err.print(f"  {reason['code']}: {reason['text']}", style="dim", markup=False, highlight=False)


def _line(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=not out.is_terminal)


def _print_prices(prices: Sequence[Mapping[str, Any]]) -> None:
    """Print what was weighed: a table for people, a line each for what reads them from a pipe."""
    table = Table("engine", "fits", "takes", "a miss costs", "waits", "in all, if tried first")
    for price in prices:
        fits = "-" if price["fits"] is None else percent(price["fits"])
        missed = "-" if price["fits"] == 1.0 else seconds_of(price["miss_s"])
        first = "-" if price["first_s"] is None else seconds_of(price["first_s"])
        cells = (fits, seconds_of(price["seconds"]), missed, seconds_of(price["wait_s"] + price["held_s"]), first)
        table.add_row(price["engine"], *cells)
        if not out.is_terminal:
            told = ", ".join(f"{column.header} {cell}" for column, cell in zip(table.columns[1:], cells, strict=True))
            _line(f"{price['engine']}: {told}")
    if prices and out.is_terminal:
        out.print(table)


def _print_plan(operators: list[dict[str, Any]]) -> None:
    """Print a plan's operators: a table for people, a line each for what reads them from a pipe."""
    drawn = zip(branches([part["depth"] for part in operators]), operators, strict=True)
    if not out.is_terminal:
        for branch, part in drawn:
            rows = (
                f"{count(part['rows'])} rows (at most {count(part['upper_rows'])}, engine {count(part['engine_rows'])})"
            )
            told = "; ".join((part["basis"], *part["notes"]))
            _line(f"{branch}{part['operator']}: {rows}, {size(part['held_bytes'])}; {told}")
        return
    table = Table("operator", "our rows", "at most", "engine's rows", "holds", "our rows come from", "note")
    for column in table.columns[1:5]:
        column.justify = "right"
    for branch, part in drawn:
        numbers = (count(part[name]) for name in ("rows", "upper_rows", "engine_rows"))
        first, basis, notes = (
            Text(text) for text in (f"{branch}{part['operator']}", part["basis"], "; ".join(part["notes"]))
        )
        style = "bold" if part["notes"] else ""
        table.add_row(first, *numbers, size(part["held_bytes"]), basis, notes, style=style)
    if operators:
        out.print(table)


def _print_rows(reply: dict[str, Any]) -> None:
    table = Table(*(column["name"] for column in reply["columns"]))
    for row in reply["rows"]:
        table.add_row(*(plain(value) for value in row))
    out.print(table)
    if reply["truncated"]:
        err.print(f"{len(reply['rows'])} of {reply['row_count']:,} rows", highlight=False)
