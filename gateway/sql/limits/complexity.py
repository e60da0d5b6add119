"""How much text a query stands for, once its common table expressions are put in the place of their names.

Engines put them in: Spark always does where that cannot change a result. Expressions that each name the one before
twice double with each of them, so that a kilobyte may stand for millions of tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlglot import exp

from gateway.errors import StatementTooComplex

MOST_TABLES = 2_000  # that a query reads, each time that it does counted
MOST_NODES = 1_000_000  # of its syntax tree


@dataclass(slots=True)
class _Part:
    """A common table expression, or what is in none. Sizes of its own; meant: the expressions that it names."""

    tables: int = 0
    nodes: int = 0
    meant: list[int] = field(default_factory=list)


def require_bounded(tree: exp.Expr, tables: Iterable[tuple[exp.Table, exp.CTE | None]]) -> None:
    """Raise StatementTooComplex for a query that stands for too much. tables: all that it names, with what they mean.

    Takes time in proportion to the text, whatever that stands for.
    """
    meaning = {id(node): id(expression) for node, expression in tables if expression is not None}
    parts: dict[int, _Part] = {0: _Part()}
    waiting: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while waiting:
        node, place = waiting.pop()
        if isinstance(node, exp.CTE):
            place = id(node)
            parts[place] = _Part()
        part = parts[place]
        part.nodes += 1
        if isinstance(node, exp.Table):
            meant = meaning.get(id(node))
            if meant is None:
                part.tables += 1
            else:
                part.meant.append(meant)
        waiting += [(child, place) for child in node.iter_expressions()]
    read, nodes = _whole(parts)
    if read > MOST_TABLES or nodes > MOST_NODES:
        raise StatementTooComplex(
            f"With its common table expressions and views put in, the statement reads more than {MOST_TABLES:,} tables "
            f"or has more than {MOST_NODES:,} parts; keep what it names repeatedly in a table of its own."
        )


def _whole(parts: dict[int, _Part]) -> tuple[int, int]:
    """Return the tables and nodes of a query with everything put in; a recursive expression counts once in itself."""
    sizes: dict[int, tuple[int, int]] = {}
    begun: set[int] = set()
    waiting = [0]
    while waiting:
        place = waiting[-1]
        part = parts[place]
        left = [each for each in part.meant if each not in sizes and each not in begun]
        if place not in begun:
            begun.add(place)
        if left:
            waiting += left[:1]
            continue
        below = [sizes.get(each, (0, 0)) for each in part.meant]
        tables = part.tables + sum(size[0] for size in below)
        sizes[place] = min(tables, MOST_TABLES + 1), min(part.nodes + sum(size[1] for size in below), MOST_NODES + 1)
        waiting.pop()
    return sizes[0]
