"""Estimate, upper bound and measured peaks as bars against the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.presentation.formatting import memory
from metastore.records import Attempt
from selector.decision import Decision

HEADROOM = 1.06  # of the longest bar, so that none touches the edge
SHORTEST_SHARE = 0.004  # of the width, so that every bar is visible
LABEL_TURNS_AT = 60.0  # percent, from which on the label stands to the left of its line


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar."""

    label: str
    text: str
    width: str
    """In percent of the drawing's width."""
    style: str
    """CSS class of its pattern, which can be told without colours."""
    note: str = ""
    """Meaning of the length in words."""


@dataclass(frozen=True, slots=True)
class MemoryChart:
    """Bars on one scale."""

    bars: tuple[Bar, ...]
    limit: str
    limit_at: str | None
    """Percent from the left; None: the engine has no limit."""
    limit_label_left: bool
    unknown: bool

    @classmethod
    def of(cls, decision: Decision, attempts: Sequence[Attempt], *, spilling: frozenset[str]) -> MemoryChart:
        """Draw expected beside measured peaks. spilling: engines to which the limit does not apply."""
        estimate, limit = decision.estimate, decision.limit_bytes
        lengths: list[tuple[str, int, str, str]] = []
        if estimate.peak_bytes is not None and estimate.upper_bytes is not None:
            lengths.append(("Estimated peak", estimate.peak_bytes, "expected", ""))
            lengths.append(("Upper bound", estimate.upper_bytes, "upper", _against(estimate.upper_bytes, limit)))
        for attempt in attempts:
            if attempt.peak_bytes is not None:
                ran_out = "where it ran out" if attempt.failure is not None else ""
                note = "spills; the limit does not apply to it" if attempt.engine in spilling else ran_out
                lengths.append((f"Measured on {attempt.engine}", attempt.peak_bytes, "measured", note))
        whole = max([limit or 0, *(length for _, length, _, _ in lengths), 1]) * HEADROOM
        at = None if limit is None else 100 * limit / whole
        return cls(
            bars=tuple(
                Bar(label, memory(length), _percent(length / whole), style, note)
                for label, length, style, note in lengths
            ),
            limit=memory(limit, absent="none"),
            limit_at=None if at is None else f"{at:.2f}%",
            limit_label_left=at is not None and at > LABEL_TURNS_AT,
            unknown=estimate.peak_bytes is None,
        )


def _against(length: int, limit: int | None) -> str:
    if limit is None:
        return ""
    return "over the limit" if length > limit else "within the limit"


def _percent(share: float) -> str:
    return f"{100 * max(share, SHORTEST_SHARE if share else 0.0):.2f}%"
