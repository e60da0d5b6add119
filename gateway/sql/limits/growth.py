"""Texts that a statement blows up: how long they may become by what stands in it, and a guard where data decides.

``repeat('x', 1000000000)`` takes a heap of Java down, and with it the statements of others. So a value that a statement
builds by its own constants may be ``MOST_BYTES`` long, and each count that is no constant is checked when the statement
runs on Spark (``guarded``). What a table holds is not counted: a cell is taken for ``CELL_BYTES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from sqlglot import exp

from engines.protocol import TableSource
from gateway.sql.limits.patterns import explodes
from gateway.sql.limits.sizes import CELL_BYTES, COUNTS, MOST_BYTES, Measure, number_of, text_of
from gateway.sql.nodes import find_all

_PATTERNS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("regexp", "rlike", "regexp_like", "regexp_count", "regexp_extract", "regexp_extract_all"), (1,)),
    **dict.fromkeys(("regexp_instr", "regexp_replace", "regexp_substr", "split"), (1,)),
    "str_to_map": (1, 2),
}
"""Functions that match a regular expression, with the places of those."""

_GUARD_NAME = "fusion_count"


def check_growth(tree: exp.Expr, tables: Iterable[TableSource] = ()) -> None:
    """Raise ValueOutOfRange for a value that a statement makes too long by itself.

    tree: in Spark's dialect. tables: those that it reads.
    """
    Measure(tree, tables).check()


def explosive_pattern(tree: exp.Expr) -> str | None:
    """Return the first regular expression that may take a matcher that backtracks for ever; None where none does."""
    return next((pattern for pattern in _patterns(tree) if explodes(pattern)), None)


def guarded(tree: exp.Expr, parse: Callable[[str], exp.Expr]) -> exp.Expr:
    """Return a tree in which what data decides is checked as the statement runs: counts, and texts that are repeated.

    parse: an expression.
    """
    if not any(_unknown_count(call) for call in _calls(tree)):
        return tree
    tree = tree.copy()
    for call in reversed(list(_calls(tree))):  # from the innermost
        count = _unknown_count(call)
        if count is None:
            continue
        name, bytes_each = call.name.lower(), "1.0D"
        values = [exp.Literal.string("n"), count]
        if name == "repeat":
            unit, text = call.expressions[0], text_of(call.expressions[0])
            if text is not None:
                bytes_each = f"{max(1, len(text.encode()))}.0D"
            elif unit.find(exp.Query) is None:  # in place of a query none may stand twice
                bytes_each = f"CAST({_GUARD_NAME}.b AS DOUBLE)"
                values += [exp.Literal.string("b"), exp.Anonymous(this="octet_length", expressions=[unit.copy()])]
        message = f"{name} may make a text of {MOST_BYTES:,} characters at most"
        guard = parse(
            f"element_at(transform(array(named_struct()), {_GUARD_NAME} -> "
            f"IF({_GUARD_NAME}.n * {bytes_each} > {MOST_BYTES}, raise_error('{message}'), {_GUARD_NAME}.n)), 1)"
        )
        struct = next(node for node in guard.find_all(exp.Anonymous) if node.name.lower() == "named_struct")
        count.replace(guard)
        struct.set("expressions", values)
    return tree


def _calls(tree: exp.Expr) -> Iterator[exp.Anonymous]:
    return (node for node in find_all(tree, exp.Anonymous) if node.name.lower() in COUNTS)


def _unknown_count(call: exp.Anonymous) -> exp.Expr | None:
    """Return the count of a call that has to be checked as it runs; None where there is none."""
    place = COUNTS[call.name.lower()]
    count: exp.Expr | None = call.expressions[place] if place < len(call.expressions) else None
    if call.name.lower() == "format_number" and count is not None and text_of(count) is not None:
        return None  # a format
    if count is None or count.find(exp.Query) is not None:
        return None  # Spark takes no subquery where the check would put it; it has its memory alone the second time
    number = number_of(count)
    if number is None:
        return count
    is_repeated = call.name.lower() == "repeat" and call.expressions[0].find(exp.Column) is not None
    return count if is_repeated and number > CELL_BYTES else None


def _patterns(tree: exp.Expr) -> Iterator[str]:
    for node in find_all(tree, exp.Anonymous, exp.RegexpLike):
        is_operator = isinstance(node, exp.RegexpLike)
        arguments = [node.this, node.expression] if is_operator else node.expressions
        for place in (1,) if is_operator else _PATTERNS.get(node.name.lower(), ()):
            text = text_of(arguments[place]) if place < len(arguments) else None
            if text is not None:
                yield text
