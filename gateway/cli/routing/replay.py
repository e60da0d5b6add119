"""``fusion replay`` and ``fusion advise``: recorded history under other settings."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.target import Target, connected, to_gateway
from gateway.cli.terminal import AsJson, fail, line, out, print_json, size
from gateway.cli.text.layout import print_table
from selector.wording import percent, seconds_of

if TYPE_CHECKING:
    from gateway.cli.client import Client

AGO = re.compile(r"(\d{1,6})([dhm])")
UNITS = {"d": "days", "h": "hours", "m": "minutes"}
SHOWN_SQL = 60
ENDED = "FINISHED"

replay_app = typer.Typer()

Since = Annotated[str | None, typer.Option(help="7d, 12h, 30m or 2026-11-01.", show_default="all that is kept")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Another setting, such as duckdb.memory_limit=2GiB; repeatable.")
]
Price = Annotated[
    list[str] | None,
    typer.Option("--price", help="engine=price of an hour in which it works for one statement; repeatable."),
]
PolicyName = Annotated[
    str | None, typer.Option("--policy", help="expected, safe or paper.", show_default="as each statement had it")
]


@replay_app.command("replay")
@to_gateway
def replay_history(
    target: Target,
    since: Since = None,
    settings: Set = None,
    policy: PolicyName = None,
    statistics: Annotated[str, typer.Option(help="recorded, or current: estimate anew by today's.")] = "recorded",
    price: Price = None,
    limit: Annotated[int, typer.Option(help="Statements at most; the newest count.", min=1)] = 10_000,
    run: Annotated[int, typer.Option(help="Run so many of those that would go elsewhere, and compare.", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="Of the statements that are run.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Decide recorded statements again under other settings and tell what would change; nothing runs without --run.

    Money is paid for the hours in which engines work, statement by statement: an engine that stands idle costs nothing.
    """
    question = _question(since, settings, policy, price, limit) | {
        "statistics": statistics,
        "sample": run,
        "seed": seed,
    }
    with connected(target) as client:
        reply = client.post("/v1/replay", question)
        reply["runs"] = [_ran(client, change) for change in reply["sample"]]
    if as_json:
        print_json(reply)
        return
    _print_history(reply)
    if reply["statements"]:
        _print_trust(reply)
        _print_loads(reply["before"], reply["after"])
        _print_changes(reply)
    if run:
        _print_runs(reply["runs"])


@replay_app.command("advise")
@to_gateway
def advise(
    target: Target,
    since: Since = None,
    settings: Set = None,
    policy: PolicyName = None,
    price: Price = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory that a fast engine may take, such as 16GiB.", show_default="limit x workers now"),
    ] = None,
    limit: Annotated[int, typer.Option(help="Statements at most; the newest count.", min=1)] = 2_000,
    as_json: AsJson = False,
) -> None:
    """Tell which memory limit and how many workers of each fast engine would have cost the least on history.

    With prices that is money, else the seconds that clients wait; of what is as good, what takes the least memory.
    """
    question = _question(since, settings, policy, price, limit)
    if memory is not None:
        question["memory_bytes"] = _bytes(memory)
    with connected(target) as client:
        reply = client.post("/v1/advise", question)
    if as_json:
        print_json(reply)
        return
    _print_history(reply)
    for advice in reply["engines"] if reply["statements"] else ():
        _print_advice(advice)


def _question(
    since: str | None, settings: Sequence[str] | None, policy: str | None, price: Sequence[str] | None, limit: int
) -> dict[str, Any]:
    question: dict[str, Any] = {"settings": dict(_pair("--set", text) for text in settings or ()), "limit": limit}
    if since is not None:
        question["since"] = _moment(since)
    if policy is not None:
        question["policy"] = policy
    prices = {}
    for engine, text in (_pair("--price", text) for text in price or ()):
        try:
            prices[engine] = float(text)
        except ValueError:
            fail(f"--price {engine}={text}: {text} is no number")
    return question | {"prices": prices}


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        fail(f"{option} {text}: give it as name=value")
    return name.strip(), value.strip()


def _moment(since: str) -> str:
    """Return a moment as HTTP takes it: so long ago, or a date."""
    ago = AGO.fullmatch(since)
    try:
        if ago is not None:
            return (dt.datetime.now(dt.UTC) - dt.timedelta(**{UNITS[ago[2]]: int(ago[1])})).isoformat()
        return dt.datetime.fromisoformat(since).astimezone(dt.UTC).isoformat()
    except (ValueError, OverflowError):
        fail(f"--since {since}: give it as 7d, 12h, 30m or 2026-11-01")


def _bytes(memory: str) -> int:
    from pydantic import TypeAdapter, ValidationError

    from engines.adapter import Size

    try:
        return int(TypeAdapter(Size).validate_python(memory))
    except ValidationError:
        fail(f"--memory {memory}: give a size, such as 16GiB")


def _ran(client: Client, change: Mapping[str, Any]) -> dict[str, Any]:
    """Run a statement where the replay would have sent it, and put what was predicted beside what was measured."""
    from gateway.cli.client import RequestFailed

    ran = {"query_id": change["query_id"], "sql": change["sql"], "engine": change["engine_after"]}
    predicted = {"predicted_s": change["first_s"], "predicted_misses": change["misses_after"]}
    if change["engine_after"] is None:
        return ran | predicted | {"error": "no engine would take it"}
    try:
        reply = client.query(change["sql"], dialect=change["dialect"], engine=change["engine_after"], max_rows=0)
    except RequestFailed as refused:
        return ran | predicted | {"error": refused.code}
    attempts = reply.get("attempts") or []
    measured: dict[str, Any] = {"run_id": reply.get("id"), "error": None}
    if reply["state"] != ENDED:
        measured["error"] = (reply["error"] or {"code": reply["state"]})["code"]
    if attempts:
        measured["measured_s"] = max(0.0, (attempts[0]["wall_s"] or 0.0) - (attempts[0]["waited_s"] or 0.0))
        measured["peak_bytes"] = attempts[0]["peak_bytes"]
        measured["measured_misses"] = sum(attempt["failure"] == "MEMORY_EXCEEDED" for attempt in attempts)
    return ran | predicted | measured


def _print_history(reply: Mapping[str, Any]) -> None:
    if not reply["statements"]:
        line("no statement that was decided about is on record")
        return
    span = f"from {reply['since'][:19]} to {reply['until'][:19]}"
    capped = ", the newest; more with --limit" if reply["is_capped"] else ""
    line(f"{reply['statements']:,} statements {span}{capped}")


def _print_trust(reply: Mapping[str, Any]) -> None:
    if reply["fixed"]:
        line(f"{reply['fixed']:,} of them are kept as they were: they wrote, failed or were cancelled")
    if reply["estimated_anew"] or reply["not_estimated"]:
        refused = f", {reply['not_estimated']:,} could not be" if reply["not_estimated"] else ""
        line(f"{reply['estimated_anew']:,} texts were estimated by today's statistics{refused}")
    line(
        f"under its own settings, the replay repeats {reply['own_repeated']:,} of {reply['statements']:,} choices and "
        f"says {seconds_of(reply['own_busy_s'])} where {seconds_of(reply['before']['busy_s'])} were measured"
    )


def _print_loads(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    then, now = ({engine["engine"]: engine for engine in load["engines"]} for load in (before, after))
    with_money = before["money"] is not None
    headings = ("engine", "statements", "would be", "share", "worked", "would work")
    rows = []
    nothing = {"statements": 0, "share": 0.0, "busy_s": 0.0, "money": None}
    for engine in sorted({*then, *now}):
        old, new = then.get(engine, nothing), now.get(engine, nothing)
        money = [_money(old["money"]), _money(new["money"])] if with_money else []
        statements = (f"{old['statements']:,}", f"{new['statements']:,}")
        share = f"{percent(old['share'])} -> {percent(new['share'])}"
        rows.append((engine, *statements, share, seconds_of(old["busy_s"]), seconds_of(new["busy_s"]), *money))
    _print_numbers((*headings, *(("cost", "would cost") if with_money else ())), rows)
    line(f"out of memory: {_misses(before['misses'])} times -> {_misses(after['misses'])} expected")
    line(f"engines worked {seconds_of(before['busy_s'])} -> {seconds_of(after['busy_s'])} expected")
    line(f"clients waited {seconds_of(before['client_s'])} -> {seconds_of(after['client_s'])} expected")
    if with_money:
        line(f"money {_money(before['money'])} -> {_money(after['money'])} expected")


def _print_changes(reply: Mapping[str, Any]) -> None:
    changes = reply["changes"]
    if not reply["changed"]:
        line("no statement would go elsewhere")
        return
    most = f"; the {len(changes):,} that change most" if len(changes) < reply["changed"] else ""
    line(
        f"{reply['changed']:,} statements would go elsewhere, of which {reply['measured']:,} ran there at other times; "
        f"what the others would take is forecast{most}:"
    )
    rows = [
        (
            *(_short(change["sql"]), change["engine_before"], change["engine_after"] or "none"),
            *(seconds_of(change["seconds_before"]), seconds_of(change["seconds_after"])),
            f"{_misses(change['misses_before'])} -> {_misses(change['misses_after'])}",
        )
        for change in changes
    ]
    _print_numbers(("statement", "from", "to", "took", "would take", "misses"), rows, first=3)


def _print_runs(runs: Sequence[Mapping[str, Any]]) -> None:
    if not runs:
        line("nothing was run: no statement would go elsewhere")
        return
    rows = [
        (
            *(_short(run["sql"]), run["engine"] or "none", seconds_of(run["predicted_s"])),
            seconds_of(run["measured_s"]) if "measured_s" in run else run["error"],
            *(_misses(run["predicted_misses"]), str(run.get("measured_misses", "-")), size(run.get("peak_bytes"))),
        )
        for run in runs
    ]
    _print_numbers(("ran", "on", "predicted", "measured", "misses predicted", "measured", "peak"), rows, first=2)
    measured = [run for run in runs if "measured_s" in run]
    line(
        f"{len(measured):,} statements ran: {seconds_of(sum(run['predicted_s'] for run in measured))} predicted, "
        f"{seconds_of(sum(run['measured_s'] for run in measured))} measured; out of memory "
        f"{_misses(sum(run['predicted_misses'] for run in measured))} predicted, "
        f"{sum(run['measured_misses'] for run in measured)} measured, under the limits that are configured now"
    )


def _print_advice(advice: Mapping[str, Any]) -> None:
    line(f"{advice['engine']}, within {size(advice['memory_bytes'])}:")
    options = advice["options"]
    with_money = any(option["load"]["money"] is not None for option in options)
    headings = ("limit", "workers", "memory", "runs there", "misses", "engines work", "clients wait")
    rows, left_out = list[tuple[str, ...]](), 0
    outcome: tuple[str, ...] = ()
    for option in options:
        load = option["load"]
        share = next(
            (engine_load["share"] for engine_load in load["engines"] if engine_load["engine"] == advice["engine"]), 0.0
        )
        marks = [
            *(["as configured"] if option["is_recorded"] else []),
            *(["costs the least"] if option["is_best"] else []),
        ]
        before = outcome
        outcome = (percent(share), _misses(load["misses"]), seconds_of(load["busy_s"]), seconds_of(load["client_s"]))
        if with_money:
            outcome = (*outcome, _money(load["money"]))
        if outcome == before and not marks:
            left_out += 1
            continue
        place = (size(option["limit_bytes"]), str(option["workers"]), size(option["memory_bytes"]))
        rows.append((*place, *outcome, ", ".join(marks)))
    _print_numbers((*headings, *(["costs"] if with_money else []), ""), rows, first=0)
    if left_out:
        line(f"{left_out} more of them take more memory than the one above them for the same; --json has all")
    best = next((option for option in options if option["is_best"]), None)
    if best is None:
        line(f"no limit of {advice['engine']} that was tried fits into that memory")
    else:
        workers = f"{best['workers']} worker{'s' if best['workers'] > 1 else ''}"
        line(f"least: a limit of {size(best['limit_bytes'])} with {workers}")


def _print_numbers(headings: Sequence[str], rows: Sequence[Sequence[str]], *, first: int = 1) -> None:
    """Print a table whose columns are numbers from the first one on."""
    print_table(out, headings, rows, right=range(first, len(headings)))


def _short(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= SHOWN_SQL or not out.is_terminal else f"{text[: SHOWN_SQL - 3]}..."


def _misses(count: float) -> str:
    return f"{count:,.0f}" if count == round(count) else f"{count:,.1f}"


def _money(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:,.4g}"
