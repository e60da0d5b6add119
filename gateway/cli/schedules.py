"""``fusion stats schedule``: statistics that compute themselves."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import Annotated, Any

import typer
from rich.table import Table

from gateway.cli.progress import job_bars
from gateway.cli.terminal import Home, connected, err, fail, out, settings_of

ROUTE = "/v1/stats/schedules"

schedule_app = typer.Typer(no_args_is_help=True, help="Statistics by the clock, once stale, or after a misestimate.")

Name = Annotated[str, typer.Argument(help="Name of a schedule.")]


@schedule_app.command("add")
def add_schedule(
    name: Annotated[str, typer.Argument(help="Name of the new schedule.")],
    tables: Annotated[str, typer.Option(help="Names with commas between them, or * for all registered ones.")],
    cron: Annotated[str | None, typer.Option(help='Five fields, "0 3 * * *"; or six, seconds first.')] = None,
    time_zone: Annotated[str | None, typer.Option(help="Of --cron, such as Europe/Berlin.", show_default="UTC")] = None,
    stale_files: Annotated[str | None, typer.Option(help="Share of a table's files that changed, such as 10%.")] = None,
    stale_days: Annotated[float | None, typer.Option(help="Age of a table's statistics.")] = None,
    after_misestimate: Annotated[
        bool, typer.Option("--after-misestimate", help="Tables of statements that did not fit as estimated.")
    ] = False,
    mode: Annotated[str | None, typer.Option(help="full or incremental.", show_default="full")] = None,
    sample: Annotated[float | None, typer.Option(help="Read so many percent of each table.", max=100.0)] = None,
    home: Home = None,
) -> None:
    """Add a schedule; one of --cron, --stale-files or --stale-days, and --after-misestimate says when it runs."""
    from gateway.cli.client import running_address

    body: dict[str, Any] = {
        "name": name,
        "tables": [table.strip() for table in tables.split(",") if table.strip()],
        "cron": cron,
        "time_zone": time_zone,
        "stale_files": None if stale_files is None else _share(stale_files),
        "stale_days": stale_days,
        "after_misestimate": after_misestimate or None,
        "mode": mode,
        "share": None if sample is None else sample / 100.0,
    }
    with connected(home) as client:
        added = client.post(ROUTE, {field: value for field, value in body.items() if value is not None})
    out.print(f"{added['name']}: {_when(added)}; next run {_next(added)}", markup=False, highlight=False)
    if running_address(settings_of(home).home) is None:
        err.print("It runs while a gateway serves this home: fusion serve", highlight=False)


@schedule_app.command("list")
def list_schedules(home: Home = None) -> None:
    """List schedules with their next and their last run."""
    with connected(home) as client:
        known = client.get(ROUTE)["schedules"]
    table = Table("schedule", "tables", "runs", "mode", "next run", "last run", "result", "owner")
    for schedule in known:
        mode = f"sample {schedule['share']:.3g}" if schedule["mode"] == "sample" else schedule["mode"]
        last = _local(schedule["last_run_at"], schedule["time_zone"]) if schedule["last_run_at"] else "-"
        row = (schedule["name"], ", ".join(schedule["tables"]), _when(schedule), mode, _next(schedule), last)
        table.add_row(*row, _result(schedule), schedule["owner"] or "-")
    out.print(table, markup=False)


@schedule_app.command("pause")
def pause_schedule(name: Name, home: Home = None) -> None:
    """Keep a schedule from running until it is resumed."""
    with connected(home) as client:
        client.patch(f"{ROUTE}/{name}", {"paused": True})
    out.print(f"{name} is paused", markup=False, highlight=False)


@schedule_app.command("resume")
def resume_schedule(name: Name, home: Home = None) -> None:
    """Let a paused schedule run again."""
    with connected(home) as client:
        resumed = client.patch(f"{ROUTE}/{name}", {"paused": False})
    out.print(f"{name}: next run {_next(resumed)}", markup=False, highlight=False)


@schedule_app.command("run")
def run_schedule(name: Name, home: Home = None) -> None:
    """Compute all tables of a schedule now, whatever it waits for."""
    with connected(home) as client:
        with job_bars() as tell:
            job = client.watch(client.post(f"{ROUTE}/{name}/run", {}), tell)
    if job["error"]:
        fail(job["error"])
    out.print(f"{name}: the statistics are in force", markup=False, highlight=False)


@schedule_app.command("remove")
def remove_schedule(name: Name, home: Home = None) -> None:
    """Remove a schedule."""
    with connected(home) as client:
        client.delete(f"{ROUTE}/{name}")
    out.print(f"{name} is removed", markup=False, highlight=False)


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
