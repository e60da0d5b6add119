"""The nodes of a tree, and positions in a statement: line and column, counted from one.

The parser's own walk has two generators for each node; it took a fifth of the time of parsing.
"""

from __future__ import annotations

from typing import TypeVar

from sqlglot import exp

from sql.errors import Position

Node = TypeVar("Node", bound=exp.Expr)
PARTS = "parts"
"""Key of the ``meta`` of a table with its name's parts, where there are more than the tree has places for."""


def nodes(tree: exp.Expr, *, but_below: type[exp.Expr] | tuple[type[exp.Expr], ...] | None = None) -> list[exp.Expr]:
    """Return the nodes as they are now, level by level. but_below: kinds whose inner nodes are left out."""
    reached = [tree]
    for node in reached:  # grows during the loop
        if but_below is not None and isinstance(node, but_below):
            continue
        for value in node.args.values():
            if isinstance(value, exp.Expr):
                reached.append(value)
            elif isinstance(value, list):
                reached += [item for item in value if isinstance(item, exp.Expr)]
    return reached


def find_all(tree: exp.Expr, *kinds: type[Node]) -> list[Node]:
    """Return the nodes of some kinds, level by level."""
    return [node for node in nodes(tree) if isinstance(node, kinds)]


def position_of(node: exp.Expr) -> Position | None:
    """Return the position of a node's name or first identifier; None: the parser keeps none for other nodes."""
    named = [node] if isinstance(node, exp.Anonymous) else []
    places = [part.meta for part in (*named, *find_all(node, exp.Identifier)) if "start" in part.meta]
    if not places:
        return None
    first = min(places, key=lambda meta: int(meta["start"]))
    return Position(first["line"], max(1, first["col"] - (first["end"] - first["start"])))


def position_at(sql: str, offset: int) -> Position:
    """Return the position of a character."""
    before = sql[:offset]
    return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)
