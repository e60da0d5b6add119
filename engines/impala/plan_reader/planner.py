"""Front end of Impala that made a plan, as its text gives it away; nothing in it says so outright.

Impala's old analyzer and Apache Calcite hand their plan to the same back end, which prints it. They differ in how they
write names and sort orders (seen in all 5,256 plans of Impala's own planner tests, 510 of them Calcite's).
"""

from __future__ import annotations

import re

from engines.impala.plan_reader.outline import CONSUMER, SEQUENCE, Entry, Outline

_SORTS = frozenset(("SORT", "TOP-N", "MERGING-EXCHANGE"))
_BARE_ORDER = re.compile(r" (?:ASC|DESC)(?:, |$)")  # Calcite always tells where NULLs go


def is_classic(outline: Outline) -> bool:
    """Tell whether only the old analyzer can have made this plan."""
    if outline.relational or any(entry.label in (SEQUENCE, CONSUMER) for entry in outline.entries):
        return False
    return any(map(_is_classic, outline.entries))


def _is_classic(entry: Entry) -> bool:
    """Tell what Calcite never prints: an alias beside a scan's table, and a sort key that leaves NULLs out."""
    if entry.label.startswith("SCAN "):
        return " " in entry.bracket.partition(",")[0].strip()
    return entry.label in _SORTS and any(map(_BARE_ORDER.search, entry.texts("order by")))
