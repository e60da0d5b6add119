"""Results, decisions and plans as ``fusion query``, ``explain``, ``queries`` and ``shell`` print them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.cli.terminal import count, line, note, out, plain, size
from gateway.cli.text.layout import print_table
from gateway.presentation.formatting import in_short
from gateway.presentation.trees import branches
from selector.types import FLOATING, WHOLE, Kind
from selector.wording import percent, seconds_of


def print_rows(reply: Mapping[str, Any], *, blocks: bool = False) -> None:
    """Print the rows of a query. blocks: every row as a block of lines."""
    columns, rows = reply["columns"] or [], reply["rows"] or []
    numbers = {*WHOLE, Kind.DECIMAL, *FLOATING}
    right = {place for place, column in enumerate(columns) if column["type"].partition("(")[0] in numbers}
    headings = [column["name"] for column in columns]
    print_table(out, headings, [[plain(value) for value in row] for row in rows], right=right, blocks=blocks)


def tell_truncation(reply: Mapping[str, Any], remedy: str) -> None:
    """Tell that a reply has fewer rows than the query. remedy: words that say how to get the others."""
    if reply["truncated"]:
        note(f"{len(reply['rows'] or []):,} of {reply['row_count']:,} rows; {remedy}")


def print_decision(reply: Mapping[str, Any], tell: Callable[[str], None]) -> None:
    """Tell the attempts of a query, and the reasons for its engine."""
    for attempt in reply["attempts"]:
        if attempt["failure"]:
            tell(f"{attempt['engine']}: failed: {attempt['message']}")
        elif attempt["wall_s"] is not None:
            tell(f"{attempt['engine']}: {attempt['wall_s']:.2f} s")
    for reason in (reply["decision"] or {"reasons": []})["reasons"]:
        tell(f"  {reason['code']}: {reason['text']}")


def state_of(reply: Mapping[str, Any]) -> str:
    """Return a query's state, with its place in line where it has one: ``QUEUED 2nd, ~4.0 s``."""
    waiting = reply["waiting"]
    return (
        f"{reply['state']} {in_short(waiting['place'], waiting['expected_s'])}".strip() if waiting else reply["state"]
    )


def engine_of(reply: Mapping[str, Any]) -> str:
    """Return where a query ran, or whose earlier result it was answered with: ``duckdb (cached)``."""
    from selector.decision import ReasonCode  # with it comes numpy, for which --help does not wait

    reasons = (reply["decision"] or {"reasons": []})["reasons"]
    is_cached = any(reason["code"] == ReasonCode.CACHED for reason in reasons)
    return f"{reply['engine']} (cached)" if is_cached else reply["engine"] or "-"


def seconds_taken(reply: Mapping[str, Any]) -> str:
    """Return how long a query took, or has taken so far."""
    since = dt.datetime.fromisoformat(reply["submitted_at"])
    until = dt.datetime.fromisoformat(reply["finished_at"]) if reply["finished_at"] else dt.datetime.now(dt.UTC)
    return f"{(until - since).total_seconds():,.2f}"


def print_explanation(reply: Mapping[str, Any]) -> None:
    """Print where a query would run, why, and what would change that."""
    decision = reply["decision"]
    estimate = decision["estimate"]
    out.print(f"[bold]{decision['engine']}[/bold] (ranking: {', '.join(decision['ranking'])})")
    for reason in decision["reasons"]:
        line(f"  {reason['code']}: {reason['text']}")
    line(
        f"policy {decision['policy']}; expected peak {size(estimate['peak_bytes'])}, with 95 % below "
        f"{size(estimate['upper_bytes'])}, limit {size(decision['limit_bytes'])}{_with_threads(decision['threads'])}"
    )
    print_prices(decision["prices"])
    for text in (*reply["what_if"], *(basis["text"] for basis in reply["statistics"])):
        line(text)
    _print_plan(estimate["operators"])


def _with_threads(threads: int | None) -> str:
    return "" if threads is None else f", {threads} thread{'s' * (threads > 1)}"


def print_prices(prices: Sequence[Mapping[str, Any]]) -> None:
    """Print what was weighed: a table for people, a line each for what reads them from a pipe."""
    headings = ("engine", "fits", "takes", "a miss costs", "waits", "in all, if tried first")
    rows = []
    for price in prices:
        fits = "-" if price["fits"] is None else percent(price["fits"])
        missed = "-" if price["fits"] == 1.0 else seconds_of(price["miss_s"])
        first = "-" if price["first_s"] is None else seconds_of(price["first_s"])
        waits = seconds_of(price["wait_s"] + price["held_s"])
        rows.append((price["engine"], fits, seconds_of(price["seconds"]), missed, waits, first))
    if prices and out.is_terminal:
        print_table(out, headings, rows)
        return
    for engine, *cells in rows:
        details = ", ".join(f"{heading} {cell}" for heading, cell in zip(headings[1:], cells, strict=True))
        line(f"{engine}: {details}")


def _print_plan(operators: Sequence[Mapping[str, Any]]) -> None:
    """Print a plan's operators: a table for people, a line each for what reads them from a pipe."""
    drawn = list(zip(branches([part["depth"] for part in operators]), operators, strict=True))
    if not out.is_terminal:
        for branch, part in drawn:
            rows = (
                f"{count(part['rows'])} rows (at most {count(part['upper_rows'])}, engine {count(part['engine_rows'])})"
            )
            remarks = "; ".join((part["basis"], *part["notes"]))
            line(f"{branch}{part['operator']}: {rows}, {size(part['held_bytes'])}; {remarks}")
        return
    headings = ("operator", "our rows", "at most", "engine's rows", "holds", "our rows come from", "note")
    cells = [
        (
            f"{branch}{part['operator']}",
            *(count(part[name]) for name in ("rows", "upper_rows", "engine_rows")),
            *(size(part["held_bytes"]), part["basis"], "; ".join(part["notes"])),
        )
        for branch, part in drawn
    ]
    if operators:
        print_table(out, headings, cells, right={1, 2, 3, 4})
