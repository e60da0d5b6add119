"""``fusion rules``: a file checked, what holds now, and what rules would do with a statement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.target import Target, connected, fail_request, to_gateway
from gateway.cli.terminal import AsJson, ExitCode, Home, count, err, fail, line, out, print_json, settings_of
from gateway.cli.text.layout import print_table
from gateway.statements import AUTO
from sql.tables import DEFAULT_DATABASE

ROUTE = "/v1/rules"

rules_app = typer.Typer(no_args_is_help=True, help="Where statements may go, as an administrator says.")


@rules_app.command("check")
def check_rules(
    file: Annotated[
        Path | None, typer.Argument(help="File of rules.", show_default="the one that the settings name")
    ] = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Say what is wrong with a file of rules, and where; 1 where something is. No gateway has to run.

    Engines are those that the settings of --home enable.
    """
    from gateway.routing.rules.reading import RulesInvalid, read_rules
    from gateway.routing.rules.rules_file import content_of

    settings = settings_of(home)
    path = file or settings.rules_file
    try:
        rules = read_rules(content_of(path), [adapter.section for adapter, _ in settings.engines()])
    except RulesInvalid as error:
        if as_json:
            print_json({"file": str(path), "problems": list(error.problems), "warnings": []})
            raise typer.Exit(ExitCode.FAILED) from None
        for problem in error.problems[:-1]:
            err.print(f"{path}: {problem}", markup=False, highlight=False, soft_wrap=True)
        fail(f"{path}: {error.problems[-1]}")
    warnings = list(rules.warnings())
    if as_json:
        print_json({"file": str(path), "problems": [], "warnings": warnings})
        return
    for warning in warnings:
        line(f"warning: {warning}")
    line(f"{path}: {len(rules.rule)} rules, nothing is wrong")


@rules_app.command("show")
@to_gateway
def show_rules(target: Target, as_json: AsJson = False) -> None:
    """Show the rules that hold, and how many statements each decided about; 1 where their file is wrong now."""
    with connected(target) as client:
        _show(client.get(ROUTE), as_json=as_json)


@rules_app.command("reload")
@to_gateway
def reload_rules(target: Target, as_json: AsJson = False) -> None:
    """Have the file of rules read now; 1 where it is wrong, while the last valid rules stay active."""
    with connected(target) as client:
        _show(client.post(f"{ROUTE}/reload", {}), as_json=as_json)


@rules_app.command("explain")
@to_gateway
def explain_rules(
    target: Target,
    sql: Annotated[str, typer.Argument(help="The statement.")],
    dialect: Annotated[str, typer.Option(help="Dialect of the statement.")] = "spark",
    database: Annotated[str, typer.Option(help="Of names without one before them.")] = DEFAULT_DATABASE,
    engine: Annotated[str, typer.Option(help="The one engine that it asks for, or auto.")] = AUTO,
    as_user: Annotated[str | None, typer.Option("--as", help="User who sends it.", show_default="who asks")] = None,
    role: Annotated[str | None, typer.Option(help="Role of that user.", show_default="the one it has")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag of the statement; repeatable.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="name=value of a header; repeatable.")] = None,
    pool: Annotated[str, typer.Option(help="Pool of the session.")] = "",
    at: Annotated[str | None, typer.Option(help="2026-11-23T22:30:00Z", show_default="now")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell which rule a statement meets and where it would go, as it would be run; nothing runs."""
    from gateway.cli.client import RequestFailed

    headers = dict(_pair(text) for text in header or ())
    question: dict[str, Any] = {"sql": sql, "dialect": dialect, "database": database, "engine": engine}
    question |= {"user": as_user, "role": role, "tags": tag or [], "headers": headers, "at": at}
    question["settings"] = {"fusion.pool": pool} if pool else {}
    with connected(target) as client:
        try:
            reply = client.post(f"{ROUTE}/explain", question)
        except RequestFailed as error:
            fail_request(error, sql)
    if as_json:
        print_json(reply)
        return
    met = f"'{reply['rule']}' ({reply['says']})" if reply["rule"] is not None else "none"
    line(f"rule: {met}")
    line(f"kind: {', '.join(reply['kinds'])}; tables: {', '.join(reply['tables']) or 'none'}")
    if reply["error"] is not None:
        line(f"refused: {reply['error']['code']}: {reply['error']['message']}")
    elif reply["decision"] is None:
        line("engine: none is needed, it runs in the gateway itself")
    else:
        line(f"engine: {reply['decision']['engine']} (ranking: {', '.join(reply['decision']['ranking'])})")
        for reason in reply["decision"]["reasons"]:
            line(f"  {reason['code']}: {reason['text']}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        fail(f"--header {text}: give it as name=value", ExitCode.USAGE)
    return name, value


def _show(reply: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(reply)
    else:
        rows = [
            (str(number), rule["name"], "; ".join(rule["match"]) or "everything", rule["says"], count(rule["hits"]))
            for number, rule in enumerate(reply["rules"], start=1)
        ]
        print_table(out, ("", "rule", "match", "says", "hits"), rows, right={0, 4}, whole={1})
        for warning in reply["warnings"]:
            line(f"warning: {warning}")
    if reply["problems"]:
        fail(f"{reply['file']} is wrong, the last valid rules stay active: {'; '.join(reply['problems'])}")
