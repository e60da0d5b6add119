"""Trees drawn with lines, from the depths of their nodes in pre-order."""

from __future__ import annotations

from collections.abc import Sequence

TEE, ELBOW, PIPE, GAP = "├─ ", "└─ ", "│  ", "   "


def branches(depths: Sequence[int]) -> tuple[str, ...]:
    """Return the lines to the left of each node. Going backwards, a level is open while it has a sibling to come."""
    drawn: list[str] = []
    open_levels: set[int] = set()
    for depth in reversed(depths):
        trunk = "".join(PIPE if level in open_levels else GAP for level in range(1, depth))
        own = "" if depth == 0 else TEE if depth in open_levels else ELBOW
        drawn.append(trunk + own)
        open_levels = {level for level in open_levels if level < depth} | {depth}
    return tuple(reversed(drawn))
