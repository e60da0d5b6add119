"""Texts: characters are code points on both engines; where DuckDB and Java know different letters, Spark answers."""

from __future__ import annotations

from collections.abc import Callable

from engines.duckdb.writer.functions.casts import cast
from engines.duckdb.writer.kinds import INT, STRING, Kind
from engines.duckdb.writer.values import Value, at_least_zero, guard, require, string

LETTERS = r"[^\x00-\x{DE}\x{E0}-\x{12F}\x{132}-\x{148}\x{14A}-\x{17E}]"
"""What is outside of the letters that both write alike in upper and in lower case: verified one by one."""


def folded_lower(text: str) -> str:
    """Write a text in lower case."""
    return _in_case("lower", text)


def folded_upper(text: str) -> str:
    """Write a text in upper case."""
    return _in_case("upper", text)


def _in_case(function: str, text: str) -> str:
    special = f"regexp_matches({text}, '{LETTERS}')"
    what = "letters whose upper or lower case engines see differently"
    return f"({guard(special, what, f'{function}({text})', STRING)})"


def plain_only(text: str, good: str, kind: Kind) -> str:
    """Take only texts whose characters are one byte long."""
    return guard(f"strlen({text}) <> length({text})", "a text with letters beyond ASCII", good, kind)


def substring(values: list[Value]) -> Value:
    """Return a part; a negative start counts from the end, and what lies before the beginning is lost."""
    text, start = cast(values[0], STRING).text, cast(values[1], INT)
    count = at_least_zero(cast(values[2], INT)) if len(values) > 2 else None
    if start.whole is not None and start.whole >= 0:
        return Value(f"substring({text}, {max(start.whole, 1)}{', ' + count if count else ''})", STRING)
    place = start.text
    if start.whole is None:  # which Spark has no room to count from the end by
        place = guard(f"{place} < -2000000000", "a start far before the end of a text", place, INT)
        place = f"({place})"
    from_end = f"length({text}) + {place} + 1"
    first = f"CASE WHEN {place} > 0 THEN {place} WHEN {place} < 0 THEN {from_end} WHEN {place} = 0 THEN 1 END"
    begin = f"CASE WHEN {first} < 1 THEN 1 ELSE {first} END"
    if count is None:
        return Value(f"substring({text}, {begin})", STRING)
    lost = f"CASE WHEN {first} < 1 THEN {first} - 1 ELSE 0 END"
    length = f"CASE WHEN {count} + {lost} < 0 THEN 0 ELSE {count} + {lost} END"
    return Value(f"substring({text}, {begin}, {length})", STRING)


def padded(side: str) -> Callable[[list[Value]], Value]:
    """Return the rule that fills a text up on one side."""

    def rule(values: list[Value]) -> Value:
        pad = values[2] if len(values) > 2 else string(" ")
        require(bool(pad.literal) and len(values) in (2, 3), "padding with anything but a literal.")
        return Value(f"{side}pad({cast(values[0], STRING).text}, {cast(values[1], INT).text}, {pad.text})", STRING)

    return rule


def located(values: list[Value]) -> Value:
    """Return where a text stands in another, from a place on, counted from one."""
    part, text = (cast(value, STRING).text for value in values[:2])
    if len(values) == 2 or values[2].whole == 1:
        return Value(f"CAST(instr({text}, {part}) AS INTEGER)", INT)
    start = cast(values[2], INT)
    require(start.whole is not None and start.whole > 1, "a start that is no literal.")
    rest = f"instr(substring({text}, {start.whole}), {part})"
    position = f"CASE WHEN {rest} > 0 THEN {rest} + {(start.whole or 1) - 1} WHEN {rest} = 0 THEN 0 END"
    return Value(
        f"CAST({guard(f'{part} = {chr(39) * 2}', 'a search for an empty text', position, INT)} AS INTEGER)", INT
    )
