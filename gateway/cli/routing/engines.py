"""``fusion engines``: engines as they are now, drained and resumed."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.target import Target, connected, to_gateway, under
from gateway.cli.terminal import AsJson, line, out, print_json, size
from gateway.cli.text.layout import print_table

ROUTE = "/v1/engines"

engines_app = typer.Typer(no_args_is_help=True, help="Engines as they are now.")

EngineName = Annotated[str, typer.Argument(help="The engine, as fusion engines list tells it.")]


@engines_app.command("list")
@to_gateway
def list_engines(target: Target, as_json: AsJson = False) -> None:
    """List engines with their state, what is held of them and how many statements wait."""
    with connected(target) as client:
        reply = client.get(ROUTE)
    if as_json:
        print_json(reply)
        return
    rows = []
    for engine in reply["engines"]:
        ledger = engine["ledger"]
        state = "drained" if engine["drained"] else "available" if engine["alive"] else "not available"
        held, capacity = size(ledger["bytes_held"] or 0), ledger["capacity_bytes"]
        rows.append(
            (
                *(engine["name"], engine["kind"], state),
                f"{ledger['slots_held']} of {ledger['slots']}",
                "-" if capacity is None else f"{held} of {size(capacity)}",
                *(str(ledger["waiting"] or 0), engine["detail"]),
            )
        )
    headings = ("engine", "kind", "state", "slots", "memory", "waiting", "detail")
    print_table(out, headings, rows, right={3, 4, 5}, whole={0, 1, 2})


@engines_app.command("drain")
@to_gateway
def drain_engine(target: Target, engine: EngineName) -> None:
    """Keep new statements off an engine, on all gateways; those on it finish."""
    with connected(target) as client:
        client.post(f"{under(ROUTE, engine)}/drain", {})
    line(f"{engine} takes no new statements; fusion engines resume {engine} lets them in again")


@engines_app.command("resume")
@to_gateway
def resume_engine(target: Target, engine: EngineName) -> None:
    """Let statements use an engine again."""
    with connected(target) as client:
        client.post(f"{under(ROUTE, engine)}/resume", {})
    line(f"{engine} takes statements again")
