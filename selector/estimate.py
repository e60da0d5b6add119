"""What a statement is expected to need: the values that a memory model returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorEstimate:
    """One operator's part.

    rows: our cardinality; engine_rows: the engine's own. None means unknown, never zero.
    held_bytes: memory that the operator holds while it lives. basis: where the number of rows came from.
    """

    operator: str
    depth: int
    rows: float | None
    engine_rows: float | None
    held_bytes: int
    basis: str


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Expected peak and its upper bound, in bytes; both None where nothing can be said.

    confidence: 0..1; 1 means that every number rests on current statistics of the very columns.
    gaps: what was missing, in words.
    """

    peak_bytes: int | None
    upper_bytes: int | None
    confidence: float
    operators: tuple[OperatorEstimate, ...] = ()
    gaps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 <= self.confidence <= 1.0:
            raise ValueError(f"confidence must lie in 0..1, not {self.confidence}")
        if (self.peak_bytes is None) != (self.upper_bytes is None):
            raise ValueError("an expected peak and its upper bound are known together or not at all")
        if self.peak_bytes is not None and self.upper_bytes is not None and self.upper_bytes < self.peak_bytes:
            raise ValueError("the upper bound is below the expected peak")


UNKNOWN = MemoryEstimate(peak_bytes=None, upper_bytes=None, confidence=0.0)
