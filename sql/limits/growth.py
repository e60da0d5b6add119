"""Limits of values that a statement itself makes large, and a guard where data decides.

``repeat('x', 1000000000)`` exhausts a Java heap, and ends the statements of others with it. So a value that a statement
builds from its constants may have ``MOST_BYTES``, and each count that is not a constant is checked when the statement
runs on Spark (``guarded``). Values of tables are not measured: each counts as ``CELL_BYTES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from sqlglot import exp

from sql.limits.arguments import check_arguments
from sql.limits.patterns import explodes
from sql.limits.sizes import (
    CELL_BYTES,
    COUNTS,
    ELEMENT_BYTES,
    FORMATS,
    MOST_BYTES,
    MOST_ELEMENTS,
    Measure,
    length_of_sequence,
    number_of,
    text_of,
)
from sql.nodes import find_all
from sql.tables import TableSource

_PATTERNS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("regexp", "rlike", "regexp_like", "regexp_count", "regexp_extract", "regexp_extract_all"), (1,)),
    **dict.fromkeys(("regexp_instr", "regexp_replace", "regexp_substr", "split"), (1,)),
    "str_to_map": (1, 2),
    **dict.fromkeys(("parse_url", "try_parse_url"), (2,)),  # the key becomes part of a pattern
}
"""Functions that match a regular expression, with the positions of the patterns."""

_GUARD_NAME = "fusion_count"
_ELEMENTS: Mapping[str, int] = {"array_repeat": 0, "array_insert": 2}
"""Functions with a number of elements as an argument, with the position of the element."""

_SEQUENCE_NAMES = ("a", "b", "s")
_WIDE_FORMAT = "%[^a-zA-Z%]*[0-9]{5}"
"""A pattern that finds a width of five digits in a format."""


def check_growth(tree: exp.Expr, tables: Iterable[TableSource] = ()) -> None:
    """Raise ValueOutOfRange for a value that a statement makes too long by itself.

    tree: in Spark's dialect.
    tables: read by the statement.
    """
    check_arguments(tree)
    Measure(tree, tables).check()


def explosive_pattern(tree: exp.Expr) -> str | None:
    """Return the first regular expression on which a backtracking matcher may take for ever; None: there is none."""
    return next((pattern for pattern in _patterns(tree) if explodes(pattern)), None)


def guarded(tree: exp.Expr, parse: Callable[[str], exp.Expr]) -> exp.Expr:
    """Return a tree that checks counts and repeated texts as the statement runs, where data decides them.

    parse: parses an expression.
    """
    if not any(_needs_guard(call) for call in find_all(tree, exp.Anonymous)):
        return tree
    tree = tree.copy()
    for call in reversed(find_all(tree, exp.Anonymous)):  # from the innermost
        if not _needs_guard(call):
            continue
        if call.name.lower() == "sequence":
            call.replace(_guarded_sequence(call, parse))
        elif call.name.lower() in FORMATS:
            _guard_format(call, parse)
        else:
            _guard_count(call, parse)
    return tree


def _needs_guard(call: exp.Anonymous) -> bool:
    """Return True if data decides how large the result of a call is.

    Calls with a query inside have no guard, as Spark allows no query there. If such a statement exhausts the memory, it
    runs alone the second time.
    """
    return _is_unbounded(call) and call.find(exp.Query) is None


def _is_unbounded(call: exp.Anonymous) -> bool:
    name = call.name.lower()
    if name == "sequence":
        return len(call.expressions) in (2, 3) and length_of_sequence(call) is None
    if name in FORMATS:
        return bool(call.expressions) and text_of(call.expressions[0]) is None
    return name in COUNTS and _unknown_count(call) is not None


def _guard_count(call: exp.Anonymous, parse: Callable[[str], exp.Expr]) -> None:
    count = _unknown_count(call)
    assert count is not None
    name, bytes_each = call.name.lower(), "1.0D"
    values: list[exp.Expr] = [exp.Literal.string("n"), count.copy()]
    if name == "repeat":
        unit, text = call.expressions[0], text_of(call.expressions[0])
        if text is not None:
            bytes_each = f"{max(1, len(text.encode()))}.0D"
        else:
            bytes_each = f"CAST({_GUARD_NAME}.b AS DOUBLE)"
            values += [exp.Literal.string("b"), exp.Anonymous(this="octet_length", expressions=[unit.copy()])]
    elif name in _ELEMENTS:
        element = call.expressions[_ELEMENTS[name]] if len(call.expressions) > _ELEMENTS[name] else call
        text = text_of(element)
        size = CELL_BYTES if element.find(exp.Column) else ELEMENT_BYTES if text is None else len(text.encode())
        bytes_each = f"{max(ELEMENT_BYTES, size)}.0D"
    kind = "an array of {} bytes" if name in _ELEMENTS else "a text of {} characters"
    message = f"{name} may make {kind.format(f'{MOST_BYTES:,}')} at most"
    check = f"abs({_GUARD_NAME}.n) * {bytes_each} > {MOST_BYTES}"
    count.replace(_checked_once(check, message, f"{_GUARD_NAME}.n", values, parse))


def _guard_format(call: exp.Anonymous, parse: Callable[[str], exp.Expr]) -> None:
    pattern = call.expressions[0]
    check = f"{_GUARD_NAME}.n RLIKE '{_WIDE_FORMAT}'"
    message = "format_string may have widths of 9,999 at most"
    guard = _checked_once(check, message, f"{_GUARD_NAME}.n", [exp.Literal.string("n"), pattern.copy()], parse)
    pattern.replace(guard)


def _guarded_sequence(call: exp.Anonymous, parse: Callable[[str], exp.Expr]) -> exp.Expr:
    """Return a call of sequence that fails where it would become too long, for any type of its bounds.

    With a step, the element after the last allowed one must not lie between the bounds. Without a step, the digits of
    their difference are the length: a number, or an interval of days.
    """
    first, last, step = (f"{_GUARD_NAME}.{name}" for name in _SEQUENCE_NAMES)
    if len(call.expressions) == len(_SEQUENCE_NAMES):
        past = f"try_add({first}, try_multiply({step}, {MOST_ELEMENTS}))"
        between = f"{past} BETWEEN {first} AND {last} OR {past} BETWEEN {last} AND {first}"
        check, arguments = f"{first} <> {last} AND ({between})", f"{first}, %s, {step}"
    else:
        digits = f"regexp_extract(CAST(try_subtract({last}, {first}) AS STRING), '[0-9]+', 0)"
        is_long = f"CAST({digits} AS DECIMAL(20, 0)) > {MOST_ELEMENTS}"
        check, arguments = f"coalesce({is_long}, {first} IS NOT NULL AND {last} IS NOT NULL)", f"{first}, %s"
    values = [
        part
        for name, argument in zip(_SEQUENCE_NAMES, call.expressions, strict=False)
        for part in (exp.Literal.string(name), argument.copy())
    ]
    message = f"sequence may have {MOST_ELEMENTS:,} elements at most"
    return _checked_once(check, message, last, values, parse, whole=f"sequence({arguments})")


def _checked_once(
    check: str,
    message: str,
    value: str,
    values: list[exp.Expr],
    parse: Callable[[str], exp.Expr],
    *,
    whole: str = "%s",
) -> exp.Expr:
    """Return an expression that computes values once, fails if the check holds, and returns one of them.

    values: names and values alternately.
    whole: template around the value.
    """
    either = f"IF({check}, raise_error('{message}'), {value})"
    guard = parse(f"element_at(transform(array(named_struct()), {_GUARD_NAME} -> {whole % either}), 1)")
    struct = next(node for node in guard.find_all(exp.Anonymous) if node.name.lower() == "named_struct")
    struct.set("expressions", values)
    return guard


def _unknown_count(call: exp.Anonymous) -> exp.Expr | None:
    """Return the count of a call that has to be checked as it runs; None: there is none."""
    place = COUNTS[call.name.lower()]
    count: exp.Expr | None = call.expressions[place] if place < len(call.expressions) else None
    if call.name.lower() == "format_number" and count is not None and text_of(count) is not None:
        return None  # a format
    if count is None or call.name.lower() == "randstr":
        return None  # randstr takes constants only
    number = number_of(count)
    if number is None:
        return count
    if call.name.lower() != "repeat" or number <= CELL_BYTES:
        return None
    return count if call.expressions[0].find(exp.Column) is not None else None


def _patterns(tree: exp.Expr) -> Iterator[str]:
    for node in find_all(tree, exp.Anonymous, exp.RegexpLike):
        is_operator = isinstance(node, exp.RegexpLike)
        arguments = [node.this, node.expression] if is_operator else node.expressions
        for place in (1,) if is_operator else _PATTERNS.get(node.name.lower(), ()):
            text = text_of(arguments[place]) if place < len(arguments) else None
            if text is not None:
                yield text
