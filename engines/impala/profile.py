"""What a run took: the peak from the profile's text, the rows of every operator from the summary."""

from __future__ import annotations

import re
from typing import Any

from engines.protocol import OperatorActual

_PEAKS = re.compile(r"^\s*Per Node Peak Memory Usage:(.*)$", re.MULTILINE)
_SIZE = re.compile(r"\((\d+(?:\.\d+)?) ?([KMGTP]?B)?\)")
_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40, "PB": 1 << 50}
_SINK = -1  # a fragment's end, which is no operator


def peak_bytes(profile: str) -> int | None:
    """Return the memory of the fullest host; None where the profile does not tell, or nothing ran on a host."""
    match = _PEAKS.search(profile)
    sizes = [round(float(number) * _UNITS[unit]) for number, unit in _SIZE.findall(match.group(1))] if match else []
    return max(sizes, default=None)


def operators(summary: Any) -> tuple[OperatorActual, ...]:
    """Return the operators of a TExecSummary with the rows that came out of each, parents first.

    Every instance of an operator counts its own rows. Those behind a broadcast all count the same ones.
    """
    nodes = summary.nodes or [] if summary is not None else []
    senders = summary.exch_to_sender_map or {} if nodes else {}
    actuals: list[OperatorActual] = []

    def visit(place: int, depth: int) -> int:
        node = nodes[place]
        below = depth
        if node.node_id != _SINK:
            counts = [stats.cardinality or 0 for stats in node.exec_stats or ()]
            rows = max(counts, default=0) if node.is_broadcast else sum(counts)
            actuals.append(OperatorActual(_name(node), rows, depth))
            below = depth + 1
        if place in senders:
            visit(senders[place], below)
        following = place + 1
        for _ in range(node.num_children or 0):
            following = visit(following, below)
        return following

    if nodes:
        visit(0, 0)
    return tuple(actuals)


def _name(node: Any) -> str:
    """Return what estimates call an operator: a scan by its table, too, which the summary names with its database."""
    if "SCAN" not in node.label or not node.label_detail:
        return str(node.label)
    return f"{node.label} of {node.label_detail.split()[0].rstrip(',').rpartition('.')[2]}"
