"""``fusion savings``: engine time with the gateway, beside that of the dependable engine alone."""

from __future__ import annotations

import datetime as dt
import re
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from gateway.cli.target import Target, connected, to_gateway
from gateway.cli.terminal import AsJson, line, out, print_json
from gateway.cli.text.layout import print_table
from gateway.presentation.formatting import engine_time

ROUTE = "/v1/savings"
SPAN = re.compile(r"(\d{1,6})([hdw])")
UNITS = {"h": dt.timedelta(hours=1), "d": dt.timedelta(days=1), "w": dt.timedelta(weeks=1)}

savings_app = typer.Typer()


class By(StrEnum):
    """Subject of a line, as ``SavingsBy``, with which the database's library would be loaded."""

    ALL = "all"
    DAY = "day"
    USER = "user"
    POOL = "pool"
    TEMPLATE = "template"


@savings_app.command("savings")
@to_gateway
def savings(
    target: Target,
    since: Annotated[str, typer.Option(help="How far back: hours, days or weeks, such as 12h, 30d or 2w.")] = "30d",
    by: Annotated[By, typer.Option(help="What a line is about.")] = By.ALL,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell the engine time that queries took, and what the dependable engine alone would have taken."""
    begin = dt.datetime.now(dt.UTC) - _span(since)
    wanted: dict[str, Any] = {"by": by.value, "since": f"{begin:%Y-%m-%dT%H:%M:%SZ}"}
    with connected(target) as client:
        if as_csv:
            client.write(ROUTE, sys.stdout.buffer, format="csv", **wanted)
            return
        reply = client.get(ROUTE, **wanted)
    if as_json:
        print_json(reply)
        return
    if not reply["savings"]:
        line("no query has ended since then")
        return
    heads = [by.value, "queries", "spent", "alone", "saved", "forecast", "failed over", "money saved"]
    rows = [
        [
            shown["key"] or "-",
            f"{shown['queries']:,}",
            engine_time(shown["spent_s"]),
            engine_time(shown["alone_s"]),
            engine_time(shown["saved_s"]),
            "-" if shown["forecast_share"] is None else f"{100 * shown['forecast_share']:.0f} %",
            f"{shown['failed_over']:,}",
            "-" if shown["saved_money"] is None else f"{shown['saved_money']:,.2f}",
        ]
        for shown in reply["savings"]
    ]
    print_table(out, heads, rows, right=range(1, len(heads)))
    unknown = sum(shown["unknown"] for shown in reply["savings"])
    line(f"in no sum: {unknown:,} queries, mostly commands and refused statements")


def _span(text: str) -> dt.timedelta:
    found = SPAN.fullmatch(text)
    if found is None:
        raise typer.BadParameter("give a number and h, d or w, such as 12h, 30d or 2w", param_hint="--since")
    return int(found[1]) * UNITS[found[2]]
