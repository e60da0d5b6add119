"""What the cache of results did for a statement, and for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CacheUse(StrEnum):
    """What it did for one statement."""

    HIT = "hit"
    """It was answered with the result of another run."""
    MISS = "miss"
    """It ran; what it found may answer others."""
    BYPASS = "bypass"
    """The cache is off, or the statement is none that it answers."""


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """How full it is, and since the start: answers, runs that found none, and entries that went.

    evicted: for others' sake. outdated: because something had changed.
    """

    entries: int
    bytes: int
    limit_bytes: int
    hits: int
    misses: int
    evicted: int
    outdated: int

    @property
    def hit_rate(self) -> float | None:
        """Share of the queries that asked it and were answered, 0..1; None where none asked."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None
