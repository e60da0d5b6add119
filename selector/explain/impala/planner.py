"""Which of Impala's planners made a plan, as its text gives it away; nothing in it says so outright.

Both front ends hand their plan to the same back end, which prints it. They differ in how they write names, sort orders
and arithmetic (seen in all 5,256 plans of Impala's own planner tests, 510 of them Calcite's).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from selector.explain.impala.outline import CONSUMER, SEQUENCE, Entry, Outline


class FrontEnd(StrEnum):
    """What turns a statement into a plan: Impala's analyzer of old, or Apache Calcite."""

    CLASSIC = "classic"
    CALCITE = "calcite"


@dataclass(frozen=True, slots=True)
class Planner:
    """front_end: None where the text gives it away by nothing.

    costed: whether processor costs decide how many instances run (COMPUTE_PROCESSING_COST), so that each fragment has
    its own number on a host.
    """

    front_end: FrontEnd | None
    costed: bool

    @classmethod
    def of(cls, outline: Outline) -> Planner:
        """Return the planner of a plan."""
        return cls(_front_end(outline), outline.costed)

    def __str__(self) -> str:
        """Return words for a table."""
        front_end = self.front_end or "either front end"
        return f"{front_end}, costed" if self.costed else str(front_end)


_SORTS = frozenset(("SORT", "TOP-N", "MERGING-EXCHANGE"))
_BARE_ORDER = re.compile(r" (?:ASC|DESC)(?:, |$)")  # Calcite always tells where NULLs go
_ARITHMETIC = re.compile(r"(?<![\w.])(?:add|subtract|multiply|divide)\(")  # + - * / of the classic one


def _front_end(outline: Outline) -> FrontEnd | None:
    entries = outline.entries
    if outline.relational or any(entry.label in (SEQUENCE, CONSUMER) for entry in entries):
        return FrontEnd.CALCITE
    if any(map(_is_classic, entries)):
        return FrontEnd.CLASSIC
    texts = (text for entry in entries for found in entry.details.values() for text in found)
    return FrontEnd.CALCITE if any(map(_ARITHMETIC.search, texts)) else None


def _is_classic(entry: Entry) -> bool:
    """Tell what Calcite never prints: an alias beside a scan's table, and a sort key that leaves NULLs out."""
    if entry.label.startswith("SCAN "):
        return " " in entry.bracket.partition(",")[0].strip()
    return entry.label in _SORTS and any(map(_BARE_ORDER.search, entry.texts("order by")))
