"""Where in a statement something stands: line and column, counted from one."""

from __future__ import annotations

from sqlglot import exp

from metastore.records import Position


def position_of(node: exp.Expr) -> Position | None:
    """Return where a node starts: its name or its first identifier does. The parser keeps no place for other nodes."""
    named = [node] if isinstance(node, exp.Anonymous) else []
    places = [part.meta for part in (*named, *node.find_all(exp.Identifier)) if "start" in part.meta]
    if not places:
        return None
    first = min(places, key=lambda meta: int(meta["start"]))
    return Position(first["line"], max(1, first["col"] - (first["end"] - first["start"])))


def position_at(sql: str, offset: int) -> Position:
    """Return the position of a character."""
    before = sql[:offset]
    return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)
