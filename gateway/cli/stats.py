"""``fusion stats``: statistics of tables, the jobs that compute them, and the keys that they count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.progress import job_bars
from gateway.cli.schedules import schedule_app
from gateway.cli.tables import quoted_name, run_statement
from gateway.cli.target import Target, connected, to_gateway, under
from gateway.cli.terminal import AsJson, count, err, fail, line, out, plain, print_json, size
from gateway.cli.text.layout import print_table
from gateway.cli.text.script import statements_of
from gateway.presentation.formatting import value

JOBS = "/v1/stats/jobs"
KEYS = "/v1/stats/keys"

stats_app = typer.Typer(no_args_is_help=True, help="Statistics of tables.")
stats_app.add_typer(schedule_app, name="schedule")

TableName = Annotated[str, typer.Argument(help="Name of a table.")]


@stats_app.command("compute")
@to_gateway
def compute_stats(
    target: Target,
    names: Annotated[list[str] | None, typer.Argument(help="Names of tables.", show_default="all")] = None,
    incremental: Annotated[bool, typer.Option("--incremental", help="Read only what is new or changed.")] = False,
    sample: Annotated[float | None, typer.Option(help="Read so many percent of each table.", max=100.0)] = None,
    columns: Annotated[str | None, typer.Option(help="Of a single table, with commas.", show_default="all")] = None,
    partition: Annotated[
        list[str] | None, typer.Option(help="Folder, such as year=2024; of a single table, with --incremental.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the statistics of tables and put them in force."""
    if incremental and sample is not None:
        fail("--incremental and --sample exclude each other")
    with connected(target) as client:
        tables = names or [table["name"] for table in client.get("/v1/tables")["tables"]]
        if not tables:
            fail("no table is registered; run: fusion tables add NAME PATH")
        body: dict[str, Any] = {"tables": tables, "mode": "incremental" if incremental else "full"}
        if sample is not None:
            body |= {"mode": "sample", "share": sample / 100}
        if columns:
            body["columns"] = [name.strip() for name in columns.split(",") if name.strip()]
        if partition:
            body["partitions"] = partition
        with job_bars() as tell:
            job = client.watch(client.post(JOBS, body), tell)
    if job["error"]:
        fail(job["error"])
    if as_json:
        print_json(job)
    else:
        line(f"statistics of {', '.join(job['tables'])} are in force")


@stats_app.command("show")
@to_gateway
def show_stats(target: Target, name: TableName, as_json: AsJson = False) -> None:
    """Show the statistics in force of a table."""
    with connected(target) as client:
        shown = client.get(under("/v1/tables", name))
    build = shown["statistics"]
    if build is None:
        fail(f"{name} has no statistics, or you may read a part of it alone; run: fusion stats compute {name}")
    if as_json:
        print_json(build)
        return
    rows = f"{build['rows']:,} rows{' (by hand)' if build['manual'] else ''}"
    read = f", {build['share']:.3g} of it read" if build["share"] < 1 else ""
    line(f"{name}: {rows}, {size(build['bytes'])}{read}, version {build['version']}, {build['built_at']}")
    for note in build["notes"]:
        line(f"  {note}")
    cells = [
        (
            *(column["name"], column["type"], count(column["nulls"]), count(column["ndv"])),
            *(_written(column, end) for end in ("minimum", "maximum")),
            *(plain(column["average_length"]), plain(column["maximum_length"])),
            str(len(column["endpoints"]) - 1) if column["endpoints"] else "-",
            ", ".join(column["manual"]) or "-",
        )
        for column in build["columns"]
    ]
    headings = ("column", "type", "nulls", "NDV", "min", "max", "avg length", "max length", "buckets", "by hand")
    print_table(out, headings, cells, right={2, 3, 6, 7, 8}, whole={0})


def _written(column: Mapping[str, Any], end: str) -> str:
    return "-" if column[end] is None else value(column[end], column["type"])


@stats_app.command("drop")
@to_gateway
def drop_stats(target: Target, name: TableName, as_json: AsJson = False) -> None:
    """Put no statistics in force for a table, and forget what incremental ones would go on with."""
    run_statement(target, f"DROP STATS {quoted_name(name)}", f"{name} has no statistics any more", as_json=as_json)


@stats_app.command("jobs")
@to_gateway
def list_jobs(
    target: Target,
    table: Annotated[str | None, typer.Option(help="Only those over this table.")] = None,
    limit: Annotated[int, typer.Option(help="How many.", min=1, max=1_000)] = 20,
    as_json: AsJson = False,
) -> None:
    """List statistics jobs, newest first."""
    with connected(target) as client:
        reply = client.get(JOBS, limit=limit, **({"table": table} if table else {}))
    if as_json:
        print_json(reply)
        return
    rows = []
    for job in reply["jobs"]:
        for number, part in enumerate(job["progress"]):
            first = (job["id"], job["state"], job["mode"]) if number == 0 or not out.is_terminal else ("", "", "")
            read = count(part["rows"]) if part["rows"] is not None else "-"
            seconds = f"{part['seconds']:.1f}" if part["seconds"] is not None else "-"
            files = f"{part['files_done']}/{part['files_all']}"
            rows.append((*first, part["table"], files, read, seconds, job["schedule"] or "hand"))
    headings = ("job", "state", "mode", "table", "files", "rows", "seconds", "started by")
    print_table(out, headings, rows, right={5, 6}, whole={0, 3})
    for job in reply["jobs"]:
        if job["error"]:
            line(f"{job['id']}: {job['error']}")


@stats_app.command("cancel")
@to_gateway
def cancel_job(
    target: Target, job_id: Annotated[str, typer.Argument(help="As listed.")], as_json: AsJson = False
) -> None:
    """Cancel a statistics job; tables that it has done keep their new statistics."""
    with connected(target) as client:
        job = client.delete(under(JOBS, job_id))
    if as_json:
        print_json(job)
    else:
        line(f"{job['id']}: {job['error'] or job['state']}")


@stats_app.command("keys")
@to_gateway
def list_keys(
    target: Target,
    workload: Annotated[
        Path | None, typer.Option(help="Learn from the statements of a file.", exists=True, dir_okay=False)
    ] = None,
    dialect: Annotated[str, typer.Option(help="Dialect of the file.")] = "spark",
    as_json: AsJson = False,
) -> None:
    """List which columns are joined; statistics count them together."""
    with connected(target) as client:
        if workload is not None:
            text = workload.read_text(encoding="utf-8")
            statements = [statement.sql for statement in statements_of(text, dialect)]
            if not statements:
                fail(f"{workload} holds no statement")
            learned = client.post(KEYS, {"statements": statements, "dialect": dialect})
            for refused in learned["refused"]:
                error = refused["error"]
                err.print(f"statement {refused['number']}: {error['code']}: {error['message']}", markup=False)
            if not as_json:
                line(f"{learned['new']} new pairs of {len(statements)} statements")
        reply = client.get(KEYS)
    if as_json:
        print_json(reply)
        return
    rows = [(pair["left"], pair["right"], pair["source"]) for pair in reply["keys"]]
    print_table(out, ("column", "is joined with", "learned from"), rows)
