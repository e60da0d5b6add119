"""Places in line as people read them."""

from __future__ import annotations

from selector.wording import seconds_of


def in_short(place: int | None, expected_s: float | None) -> str:
    """Say where in line a query is: ``2nd, ~4.0 s``; empty where it is in none."""
    told = [] if place is None else [ordinal(place)]
    return ", ".join([*told, *([] if expected_s is None else [f"~{seconds_of(expected_s)}"])])


def ordinal(number: int) -> str:
    """Write 1st, 2nd, 3rd, 4th, 11th."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{'th' if number % 100 in (11, 12, 13) else ending}"
