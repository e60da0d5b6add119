"""Position of NULL in sorted rows."""

from __future__ import annotations

from sqlglot import exp


def direction(key: exp.Ordered) -> str:
    """Write which way a key is sorted, and where NULL goes: first in ascending order, unless told otherwise."""
    descending = bool(key.args.get("desc"))
    nulls_first = key.args.get("nulls_first")
    if nulls_first is None:
        nulls_first = not descending
    return f"{' DESC' if descending else ''} NULLS {'FIRST' if nulls_first else 'LAST'}"
