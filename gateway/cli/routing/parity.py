"""``fusion parity``: answers of fast engines, compared with the dependable engine's."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.target import Target, connected, to_gateway
from gateway.cli.terminal import AsJson, fail, line, out, print_json
from gateway.cli.text.layout import print_table

ROUTE = "/v1/parity"

parity_app = typer.Typer(no_args_is_help=True, help="Answers that were compared with the dependable engine's.")

QueryId = Annotated[str, typer.Argument(help="The query of the case, as fusion parity list tells it.")]


@parity_app.command("list")
@to_gateway
def list_cases(target: Target, as_json: AsJson = False) -> None:
    """Tell how many answers were compared in 30 days, and list the cases in which they differ."""
    with connected(target) as client:
        reply = client.get(ROUTE)
    if as_json:
        print_json(reply)
        return
    line(f"compared {reply['compared']:,}, different {reply['different']:,}, in {reply['seconds']:,.0f} s")
    for reason, count in sorted(reply["left_out"].items()):
        line(f"left out, {reason}: {count:,}")
    if reply["cases"]:
        rows = [
            [
                case["query_id"],
                case["engine"],
                "released" if case["released_at"] else "open",
                case["difference"],
                " ".join(case["sql"].split()),
            ]
            for case in reply["cases"]
        ]
        print_table(out, ["query", "engine", "state", "difference", "statement"], rows, whole={0})


@parity_app.command("show")
@to_gateway
def show_case(target: Target, query_id: QueryId, as_json: AsJson = False) -> None:
    """Show a case: the statement, and the first rows that only one of the engines has."""
    with connected(target) as client:
        cases = [case for case in client.get(ROUTE)["cases"] if case["query_id"] == query_id]
    if not cases:
        fail(f"there is no case of {query_id}")
    case = cases[0]
    if as_json:
        print_json(case)
        return
    for name in ("query_id", "template", "user", "engine", "other", "found_at", "released_at", "version", "difference"):
        line(f"{name}: {case[name] or '-'}")
    for table, snapshot in case["snapshots"].items():
        line(f"files of {table}: {snapshot}")
    for engine, rows in ((case["engine"], case["rows"]), (case["other"], case["other_rows"])):
        for row in rows:
            line(f"only {engine}: {row}")
    line(case["sql"])


@parity_app.command("release")
@to_gateway
def release_case(target: Target, query_id: QueryId) -> None:
    """Let the template of a case run on its engine again."""
    with connected(target) as client:
        client.post(f"{ROUTE}/{query_id}/release", {})
    line(f"the template of {query_id} may run everywhere again")
