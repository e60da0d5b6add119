"""``fusion stats``: statistics of tables, the jobs that compute them, and the keys that they count."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from gateway.cli.progress import job_bars
from gateway.cli.schedules import schedule_app
from gateway.cli.terminal import Home, connected, count, err, fail, out, plain, size

JOBS = "/v1/stats/jobs"
KEYS = "/v1/stats/keys"
END_OF_STATEMENT = re.compile(r";[ \t]*(?:\r?\n|$)")

stats_app = typer.Typer(no_args_is_help=True, help="Statistics of tables.")
stats_app.add_typer(schedule_app, name="schedule")

TableName = Annotated[str, typer.Argument(help="Name of a table.")]


@stats_app.command("compute")
def compute_stats(
    names: Annotated[list[str] | None, typer.Argument(help="Names of tables.", show_default="all")] = None,
    incremental: Annotated[bool, typer.Option("--incremental", help="Read only what is new or changed.")] = False,
    sample: Annotated[float | None, typer.Option(help="Read so many percent of each table.", max=100.0)] = None,
    columns: Annotated[str | None, typer.Option(help="Of a single table, with commas.", show_default="all")] = None,
    partition: Annotated[
        list[str] | None, typer.Option(help="Folder, such as year=2024; of a single table, with --incremental.")
    ] = None,
    home: Home = None,
) -> None:
    """Compute the statistics of tables and put them in force."""
    if incremental and sample is not None:
        fail("--incremental and --sample exclude each other")
    with connected(home) as client:
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
    out.print(f"statistics of {', '.join(job['tables'])} are in force", markup=False, highlight=False)


@stats_app.command("show")
def show_stats(name: TableName, home: Home = None) -> None:
    """Show the statistics in force of a table."""
    with connected(home) as client:
        shown = client.get(f"/v1/tables/{name}")
    build = shown["statistics"]
    if build is None:
        fail(f"{name} has no statistics; run: fusion stats compute {name}")
    rows = f"{build['rows']:,} rows{' (by hand)' if build['manual'] else ''}"
    read = f", {build['share']:.3g} of it read" if build["share"] < 1 else ""
    out.print(f"{name}: {rows}, {size(build['bytes'])}{read}, version {build['version']}, {build['built_at']}")
    for note in build["notes"]:
        out.print(f"  {note}", markup=False, highlight=False)
    table = Table("column", "type", "nulls", "NDV", "min", "max", "avg length", "max length", "buckets", "by hand")
    for column in build["columns"]:
        table.add_row(
            column["name"],
            column["type"],
            count(column["nulls"]),
            count(column["ndv"]),
            plain(column["minimum"]),
            plain(column["maximum"]),
            plain(column["average_length"]),
            plain(column["maximum_length"]),
            str(len(column["endpoints"]) - 1) if column["endpoints"] else "-",
            ", ".join(column["manual"]) or "-",
        )
    out.print(table)


@stats_app.command("drop")
def drop_stats(name: TableName, home: Home = None) -> None:
    """Put no statistics in force for a table, and forget what incremental ones would go on with."""
    with connected(home) as client:
        reply = client.query(f"DROP STATS `{name}`")
    if reply["error"]:
        fail(f"{reply['error']['code']}: {reply['error']['message']}")
    out.print(f"{name} has no statistics any more", markup=False, highlight=False)


@stats_app.command("jobs")
def list_jobs(
    table: Annotated[str | None, typer.Option(help="Only those over this table.")] = None,
    limit: Annotated[int, typer.Option(help="How many.", min=1, max=1_000)] = 20,
    home: Home = None,
) -> None:
    """List statistics jobs, newest first."""
    with connected(home) as client:
        known = client.get(JOBS, limit=limit, **({"table": table} if table else {}))["jobs"]
    shown = Table("job", "state", "mode", "table", "files", "rows", "seconds", "started by")
    shown.columns[0].no_wrap = True
    for job in known:
        for number, part in enumerate(job["progress"]):
            first = (job["id"], job["state"], job["mode"]) if number == 0 else ("", "", "")
            shown.add_row(
                *first,
                part["table"],
                f"{part['files_done']}/{part['files_all']}",
                count(part["rows"]) if part["rows"] is not None else "-",
                f"{part['seconds']:.1f}" if part["seconds"] is not None else "-",
                (job["schedule"] or "hand") if number == 0 else "",
            )
    out.print(shown, markup=False)
    for job in known:
        if job["error"]:
            out.print(f"{job['id']}: {job['error']}", markup=False, highlight=False)


@stats_app.command("cancel")
def cancel_job(job_id: Annotated[str, typer.Argument(help="As listed.")], home: Home = None) -> None:
    """Cancel a statistics job; tables that it has done keep their new statistics."""
    with connected(home) as client:
        job = client.delete(f"{JOBS}/{job_id}")
    out.print(f"{job['id']}: {job['error'] or job['state']}", markup=False, highlight=False)


@stats_app.command("keys")
def list_keys(
    workload: Annotated[
        Path | None, typer.Option(help="Learn from the statements of a file.", exists=True, dir_okay=False)
    ] = None,
    dialect: Annotated[str, typer.Option(help="Dialect of the file.")] = "spark",
    home: Home = None,
) -> None:
    """List which columns are joined; statistics count them together."""
    with connected(home) as client:
        if workload is not None:
            text = workload.read_text(encoding="utf-8")
            statements = [part.strip() for part in END_OF_STATEMENT.split(text) if part.strip()]
            if not statements:
                fail(f"{workload} holds no statement")
            learned = client.post(KEYS, {"statements": statements, "dialect": dialect})
            for refused in learned["refused"]:
                error = refused["error"]
                err.print(f"statement {refused['number']}: {error['code']}: {error['message']}", markup=False)
            out.print(f"{learned['new']} new pairs of {len(statements)} statements", highlight=False)
        known = client.get(KEYS)["keys"]
    table = Table("column", "is joined with", "learned from")
    for pair in known:
        table.add_row(pair["left"], pair["right"], pair["source"])
    out.print(table)
