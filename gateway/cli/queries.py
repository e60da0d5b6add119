"""``fusion query``, ``explain`` and ``queries``: statements and what became of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.statements.printing import (
    engine_of,
    print_decision,
    print_explanation,
    print_rows,
    seconds_taken,
    state_of,
    tell_truncation,
)
from gateway.cli.statements.running import (
    BINARY,
    MORE_ROWS,
    ROUTE,
    RUNNING,
    Output,
    after_cancel,
    read_script,
    require_file,
    run_script,
    write_result,
)
from gateway.cli.target import Target, connected, to_gateway, under
from gateway.cli.terminal import AsJson, ExitCode, count, fail, line, out, print_json, terminable
from gateway.cli.text.layout import print_table, printable
from gateway.statements import AUTO
from sql.tables import DEFAULT_DATABASE

SHOWN_SQL = 60  # characters, on a terminal
WIDE = 110  # cells of a terminal on which a list names users

query_app = typer.Typer()
queries_app = typer.Typer(no_args_is_help=True, help="Queries on record.")

Dialect = Annotated[str, typer.Option(help="Dialect of the text.")]
Database = Annotated[str, typer.Option(help="Of names without one before them.")]
EngineName = Annotated[str, typer.Option("--engine", help="auto, or the one engine that may run it.")]
Sql = Annotated[str | None, typer.Argument(help="Statements with semicolons between; - reads standard input.")]
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Read the statements from a file; - is standard input.", allow_dash=True),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Setting of a session, such as fusion.policy=safe; repeatable.")
]
QueryId = Annotated[str, typer.Argument(help="As fusion query and fusion queries list tell it.")]


@query_app.command()
@to_gateway
def query(
    target: Target,
    sql: Sql = None,
    file: File = None,
    dialect: Dialect = "spark",
    database: Database = DEFAULT_DATABASE,
    engine: EngineName = AUTO,
    max_rows: Annotated[int, typer.Option(help="Rows of a table to print.", min=0, max=1_000_000)] = 100,
    output: Annotated[Output, typer.Option("--format", help="All but table write the whole result.")] = Output.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    guard: Annotated[bool, typer.Option("--guard", help="csv for spreadsheets: no text is a formula.")] = False,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which a statement is cancelled.", min=1e-3)
    ] = None,
    settings: Settings = None,
) -> None:
    """Run statements one after the other, up to the first that fails.

    Standard error tells each one's id, where it ran and why. Ctrl-C cancels it on the gateway.
    """
    script = read_script(sql, file, dialect)
    form = Output.JSON if as_json else output
    require_file(form)
    if form in BINARY and len(script.statements) > 1:
        fail(f"a file of {form} has one result; there are {len(script.statements)} statements", ExitCode.USAGE)
    options: dict[str, Any] = {"dialect": dialect, "database": database, "engine": engine}
    options["settings"] = read_settings(settings)
    if timeout is not None:
        options["timeout_s"] = timeout
    options["max_rows"] = max_rows if form is Output.TABLE else 0
    run_script(target, script, form, options, guard=guard)


@query_app.command()
@to_gateway
def explain(
    target: Target,
    sql: Sql = None,
    file: File = None,
    dialect: Dialect = "spark",
    database: Database = DEFAULT_DATABASE,
    engine: EngineName = AUTO,
    policy: Annotated[str, typer.Option(help="expected, safe or paper; the gateway's own without it.")] = "",
    as_json: AsJson = False,
) -> None:
    """Tell where a query would run, why, and what would change that; nothing runs."""
    from gateway.cli.client import RequestFailed

    script = read_script(sql, file, dialect)
    if len(script.statements) > 1:
        fail(f"one query at a time is explained; there are {len(script.statements)}", ExitCode.USAGE)
    settings = {"fusion.policy": policy} if policy else {}
    question: dict[str, Any] = {
        "sql": script.statements[0].sql,
        "dialect": dialect,
        "database": database,
        "engine": engine,
    }
    question["settings"] = settings
    with connected(target) as client:
        try:
            reply = client.post("/v1/explain", question)
        except RequestFailed as error:
            script.fail(error, script.statements[0])
    if as_json:
        print_json(reply)
        return
    print_explanation(reply)


@queries_app.command("list")
@to_gateway
def list_queries(
    target: Target,
    limit: Annotated[int, typer.Option(help="How many, the newest.", min=1, max=1_000)] = 20,
    running: Annotated[bool, typer.Option("--running", help="Of them, only those that run or wait.")] = False,
    as_json: AsJson = False,
) -> None:
    """List queries, newest first."""
    with connected(target) as client:
        reply = client.get(ROUTE, limit=limit)
    if running:
        reply["queries"] = [query for query in reply["queries"] if query["state"] in RUNNING]
    if as_json:
        print_json(reply)
        return
    rows: list[tuple[str, ...]] = []
    for query in reply["queries"]:
        statement = " ".join(query["sql"].split())
        if out.is_terminal and len(statement) > SHOWN_SQL:
            statement = f"{statement[: SHOWN_SQL - 3]}..."
        rows.append((query["id"], state_of(query), engine_of(query), seconds_taken(query), query["user"], statement))
    headings: tuple[str, ...] = ("id", "state", "engine", "seconds", "user", "statement")
    if out.is_terminal and out.width < WIDE:
        headings, rows = (*headings[:4], headings[5]), [(*row[:4], row[5]) for row in rows]
    print_table(out, headings, rows, right={3}, whole={0, 1, 2, 3})


@queries_app.command("show")
@to_gateway
def show_query(target: Target, query_id: QueryId, as_json: AsJson = False) -> None:
    """Show a query: its statement, where it ran and why, and how it ended."""
    with connected(target) as client:
        reply = client.get(under(ROUTE, query_id), max_rows=0)
    if as_json:
        print_json(reply)
        return
    shown = {name: reply[name] for name in ("id", "state", "engine", "user", "dialect", "submitted_at", "finished_at")}
    shown |= {
        "seconds": seconds_taken(reply),
        "rows": count(reply["row_count"]) if reply["row_count"] is not None else None,
    }
    for name, value in shown.items():
        line(f"{name.removesuffix('_at'):<10}{'-' if value is None else printable(str(value))}")
    if reply["waiting"]:
        line(f"{'waiting':<10}{printable(reply['waiting']['text'])}")
    for part in reply["sql"].splitlines():
        line(f"  {printable(part)}")
    print_decision(reply, line)
    if reply["error"]:
        line(f"{reply['error']['code']}: {reply['error']['message']}")


@queries_app.command("cancel")
@to_gateway
def cancel_query(target: Target, query_id: QueryId, as_json: AsJson = False) -> None:
    """Cancel a query; one that has ended stays as it is."""
    with connected(target) as client:
        before = client.get(under(ROUTE, query_id), max_rows=0)
        reply = client.delete(under(ROUTE, query_id))
    if as_json:
        print_json(reply)
    elif before["state"] not in RUNNING:
        line(f"query {reply['id']} had ended: {reply['state']}")
    else:
        line(after_cancel(reply))


@queries_app.command("result")
@to_gateway
def show_result(
    target: Target,
    query_id: QueryId,
    output: Annotated[Output, typer.Option("--format", help="csv and json print the whole result.")] = Output.TABLE,
    max_rows: Annotated[int, typer.Option(help="Rows of a table to print.", min=0, max=1_000_000)] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    guard: Annotated[bool, typer.Option("--guard", help="csv for spreadsheets: no text is a formula.")] = False,
) -> None:
    """Print the rows of a query that has finished, for as long as the gateway keeps them."""
    form = Output.JSON if as_json else output
    require_file(form)
    with terminable(), connected(target) as client:
        if form is not Output.TABLE:
            write_result(client, query_id, form, guard)
            return
        reply = client.get(under(ROUTE, query_id), max_rows=max_rows)
    if reply["columns"] is None:
        why = (
            "its result is no longer kept; run it again" if reply["state"] == "FINISHED" else f"it is {reply['state']}"
        )
        fail(f"query {reply['id']} has no result to show: {why}")
    print_rows(reply)
    tell_truncation(reply, MORE_ROWS)


def read_settings(settings: list[str] | None) -> dict[str, str]:
    """Read the values of --set, or end with the one that is wrong."""
    return dict(map(_setting, settings or ()))


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        fail(f"--set {text}: give it as name=value", ExitCode.USAGE)
    return name.strip(), value.strip()
