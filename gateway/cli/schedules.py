"""``fusion stats schedule``: statistics that compute themselves, and statements by the clock."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import Annotated, Any

import typer

from gateway.cli.progress import job_bars
from gateway.cli.target import Target, address_of, connected, to_gateway, under
from gateway.cli.terminal import AsJson, err, fail, line, out, print_json, settings_of
from gateway.cli.text.layout import print_table

ROUTE = "/v1/stats/schedules"

schedule_app = typer.Typer(
    no_args_is_help=True, help="Statistics by the clock, once stale, or after a misestimate; statements by the clock."
)

Name = Annotated[str, typer.Argument(help="Name of a schedule.")]


@schedule_app.command("add")
@to_gateway
def add_schedule(
    target: Target,
    name: Annotated[str, typer.Argument(help="Name of the new schedule.")],
    tables: Annotated[str, typer.Option(help="Names with commas between them, or * for all registered ones.")] = "",
    statement: Annotated[
        list[str] | None, typer.Option(help="Run by --cron in the place of statistics; several run in turn.")
    ] = None,
    cron: Annotated[str | None, typer.Option(help='Five fields, "0 3 * * *"; or six, seconds first.')] = None,
    time_zone: Annotated[str | None, typer.Option(help="Of --cron, such as Europe/Berlin.", show_default="UTC")] = None,
    stale_files: Annotated[str | None, typer.Option(help="Share of a table's files that changed, such as 10%.")] = None,
    stale_days: Annotated[float | None, typer.Option(help="Age of a table's statistics.")] = None,
    after_misestimate: Annotated[
        bool, typer.Option("--after-misestimate", help="Tables of statements that did not fit as estimated.")
    ] = False,
    mode: Annotated[str | None, typer.Option(help="full or incremental.", show_default="full")] = None,
    sample: Annotated[float | None, typer.Option(help="Read so many percent of each table.", max=100.0)] = None,
    as_json: AsJson = False,
) -> None:
    """Add a schedule; one of --cron, --stale-files or --stale-days, and --after-misestimate says when it runs."""
    from gateway.cli.client import running_address

    body: dict[str, Any] = {
        "name": name,
        "tables": [table.strip() for table in tables.split(",") if table.strip()],
        "statements": statement or [],
        "cron": cron,
        "time_zone": time_zone,
        "stale_files": None if stale_files is None else _share(stale_files),
        "stale_days": stale_days,
        "after_misestimate": after_misestimate or None,
        "mode": mode,
        "share": None if sample is None else sample / 100.0,
    }
    with connected(target) as client:
        added = client.post(ROUTE, {field: value for field, value in body.items() if value is not None})
    if as_json:
        print_json(added)
    else:
        line(f"{added['name']}: {_when(added)}; next run {_next(added)}")
    if address_of(target) is None and running_address(settings_of(target.home).home) is None:
        err.print("It runs while a gateway serves this home: fusion serve", highlight=False)


@schedule_app.command("list")
@to_gateway
def list_schedules(target: Target, as_json: AsJson = False) -> None:
    """List schedules with their next and their last run."""
    with connected(target) as client:
        reply = client.get(ROUTE)
    if as_json:
        print_json(reply)
        return
    rows = []
    for schedule in reply["schedules"]:
        work, mode = ", ".join(schedule["tables"]), schedule["mode"]
        if schedule["statements"]:
            work, mode = "; ".join(schedule["statements"]), "-"
        elif mode == "sample":
            mode = f"sample {schedule['share']:.3g}"
        last = _local(schedule["last_run_at"], schedule["time_zone"]) if schedule["last_run_at"] else "-"
        row = (schedule["name"], work, _when(schedule), mode, _next(schedule), last)
        rows.append((*row, _result(schedule), schedule["owner"] or "-"))
    headings = ("schedule", "tables or statements", "runs", "mode", "next run", "last run", "result", "owner")
    print_table(out, headings, rows, whole={0})


@schedule_app.command("pause")
@to_gateway
def pause_schedule(target: Target, name: Name, as_json: AsJson = False) -> None:
    """Keep a schedule from running until it is resumed."""
    with connected(target) as client:
        paused = client.patch(under(ROUTE, name), {"paused": True})
    if as_json:
        print_json(paused)
    else:
        line(f"{name} is paused")


@schedule_app.command("resume")
@to_gateway
def resume_schedule(target: Target, name: Name, as_json: AsJson = False) -> None:
    """Let a paused schedule run again."""
    with connected(target) as client:
        resumed = client.patch(under(ROUTE, name), {"paused": False})
    if as_json:
        print_json(resumed)
    else:
        line(f"{name}: next run {_next(resumed)}")


@schedule_app.command("run")
@to_gateway
def run_schedule(target: Target, name: Name, as_json: AsJson = False) -> None:
    """Compute all tables of a schedule, or run its statements, now, whatever it waits for."""
    with connected(target) as client:
        begun = client.post(f"{under(ROUTE, name)}/run", {})
        if begun.get("statements"):
            if as_json:
                print_json(begun)
            else:
                line(f"{name}: begins now; fusion stats schedule list tells how it ends")
            return
        with job_bars() as tell:
            job = client.watch(begun, tell)
    if job["error"]:
        fail(job["error"])
    if as_json:
        print_json(job)
    else:
        line(f"{name}: the statistics are in force")


@schedule_app.command("remove")
@to_gateway
def remove_schedule(target: Target, name: Name, as_json: AsJson = False) -> None:
    """Remove a schedule."""
    with connected(target) as client:
        removed = client.delete(under(ROUTE, name))
    if as_json:
        print_json(removed)
    else:
        line(f"{name} is removed")


def _share(text: str) -> float:
    """Read ``10%`` and ``0.1`` alike."""
    try:
        return float(text.removesuffix("%")) / 100.0 if text.endswith("%") else float(text)
    except ValueError:
        fail(f"--stale-files: {text} is no share; write 10% or 0.1")


def _when(schedule: dict[str, Any]) -> str:
    match schedule["kind"]:
        case "cron":
            return f"{schedule['cron']} {schedule['time_zone']}"
        case "staleness":
            files = f"{schedule['stale_files']:.3g} of files changed" if schedule["stale_files"] is not None else ""
            days = f"{schedule['stale_days']:g} days old" if schedule["stale_days"] is not None else ""
            return " or ".join(part for part in (files, days) if part)
        case _:
            return "after a misestimate"


def _next(schedule: dict[str, Any]) -> str:
    if schedule["paused"]:
        return "paused"
    if schedule["next_run_at"] is None:
        return "after a misestimate"
    at = _local(schedule["next_run_at"], schedule["time_zone"])
    return f"{at} (repetition {schedule['retries']})" if schedule["retries"] else at


def _local(iso: str, time_zone: str | None) -> str:
    moment = dt.datetime.fromisoformat(iso)
    return f"{moment.astimezone(zoneinfo.ZoneInfo(time_zone or 'UTC')):%Y-%m-%d %H:%M:%S %Z}"


def _result(schedule: dict[str, Any]) -> str:
    if schedule["running"]:
        return "running"
    if schedule["last_error"]:
        return f"failed {schedule['failures']} times: {schedule['last_error']}"
    return "ok" if schedule["last_run_at"] else "-"
