"""Usage of the result cache, of one statement and of all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CacheUse(StrEnum):
    """Usage of the cache by one statement."""

    HIT = "hit"
    """It was answered with the result of another run."""
    MISS = "miss"
    """It ran; what it found may answer others."""
    BYPASS = "bypass"
    """The cache is off, or the statement is none that it answers."""


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """Size of the cache, and counts since the start.

    entries: results that it holds.
    bytes: bytes that they take.
    limit_bytes: largest bytes of all.
    hits: queries that were answered.
    misses: queries that ran, as no result was valid.
    evicted: results that made room for others.
    outdated: results that were dropped because a table had changed.
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
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else None
