"""Expected memory of a statement: the values that a memory model returns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MOST_ROWS = 1e18  # that anything is told to have
LARGEST_BYTES = 1 << 60  # that are told and stored
DIVERGENCE_FACTOR = 2.0  # cardinalities that differ by more than this no longer agree
UPPER_LEVEL = 0.95  # probability of a peak that is not above its upper bound
UPPER_DEVIATIONS = 2.3  # deviations that the upper bound lies above the expected peak, before there are any runs


@dataclass(frozen=True, slots=True)
class OperatorEstimate:
    """One operator's part.

    rows: our cardinality; engine_rows: the engine's own. None means unknown, never zero.
    held_bytes: memory that the operator holds while it lives. basis: where the number of rows came from.
    upper_rows: the most rows that there can be, as far as keys tell. table: that a scan reads.
    """

    operator: str
    depth: int
    rows: float | None
    engine_rows: float | None
    held_bytes: int
    basis: str
    upper_rows: float | None = None
    table: str | None = None

    @property
    def divergence(self) -> float | None:
        """Ratio of the two cardinalities, at least 1; None where one is unknown. No row counts as one."""
        if self.rows is None or self.engine_rows is None:
            return None
        ours, theirs = max(1.0, self.rows), max(1.0, self.engine_rows)
        return max(ours / theirs, theirs / ours)

    @property
    def diverges(self) -> bool:
        """Tell whether the two cardinalities no longer agree."""
        return self.divergence is not None and self.divergence > DIVERGENCE_FACTOR


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Errors of a memory model's peaks, on a logarithmic scale.

    kind: name of the statements whose peaks are as uncertain. bias: median of log(measured / expected). deviation: of
    these logarithms above the bias, as a normal distribution has it (1.48 times the median distance). deviation_below:
    of those below; None where it is the same. Peaks that are expected too large are further off than too small ones.
    """

    kind: str = "any"
    bias: float = 0.0
    deviation: float = 0.35
    deviation_below: float | None = None

    def in_deviations(self, error: float) -> float:
        """Return an error's distance from the bias."""
        apart = error - self.bias
        return apart / (self.deviation if apart >= 0 else self.deviation_below or self.deviation)

    def upper_bytes(self, peak_bytes: float) -> float:
        """Return the bound that UPPER_LEVEL of such peaks stay below."""
        return peak_bytes * max(1.0, math.exp(self.bias + UPPER_DEVIATIONS * self.deviation))


USUAL_UNCERTAINTY = Uncertainty()


@dataclass(frozen=True, slots=True)
class Learned:
    """Correction that earlier runs made.

    text: the runs, in words.
    peak_bytes, upper_bytes: the memory model's own, without the correction.
    of_statement: the runs are of this very statement.
    """

    text: str
    runs: int
    peak_bytes: int | None
    upper_bytes: int | None
    of_statement: bool = False


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Expected peak and its upper bound, in bytes; both None where nothing can be said.

    learned: what runs had to say, None where none had.
    operators: of the plan, parents first. gaps: what was missing, in words.
    driver: position of the operator that holds most of what is alive at the peak; None where the model does not tell.
    too_complex: why nobody could say anything within the time that an estimate may take.
    uncertainty: of the expected peak. paper_bytes: what the paper's Eqs. (4) and (5) say of its peak.
    """

    peak_bytes: int | None
    upper_bytes: int | None
    operators: tuple[OperatorEstimate, ...] = ()
    gaps: tuple[str, ...] = ()
    driver: int | None = None
    learned: Learned | None = None
    too_complex: str | None = None
    uncertainty: Uncertainty = USUAL_UNCERTAINTY
    paper_bytes: int | None = None

    def __post_init__(self) -> None:
        if (self.peak_bytes is None) != (self.upper_bytes is None):
            raise ValueError("an expected peak and its upper bound are known together or not at all")
        if self.peak_bytes is not None and self.upper_bytes is not None and self.upper_bytes < self.peak_bytes:
            raise ValueError("the upper bound is below the expected peak")

    @property
    def known(self) -> bool:
        """Tell whether anything is expected at all."""
        return self.peak_bytes is not None

    def divergences(self) -> tuple[int, ...]:
        """Return the positions where the engine's cardinalities leave ours: what is below still agrees, if known."""
        return tuple(
            place
            for place, part in enumerate(self.operators)
            if part.diverges and not any(self.operators[below].diverges for below in self._known_below(place))
        )

    def tables_below(self, place: int) -> tuple[str, ...]:
        """Return the tables that an operator's rows come from, in the plan's order."""
        parts = (self.operators[place], *(self.operators[below] for below in _below(self.operators, place)))
        return tuple(dict.fromkeys(part.table for part in parts if part.table is not None))

    def _known_below(self, place: int) -> Iterator[int]:
        """Yield the operators below one whose two cardinalities are known, the nearest on each way down."""
        hidden: int | None = None
        for below in _below(self.operators, place):
            part = self.operators[below]
            if hidden is not None and part.depth > hidden:
                continue
            hidden = None
            if part.divergence is not None:
                hidden = part.depth
                yield below


def _below(operators: Sequence[OperatorEstimate], place: int) -> Iterator[int]:
    for below in range(place + 1, len(operators)):
        if operators[below].depth <= operators[place].depth:
            return
        yield below


def bounded_rows(rows: float) -> float:
    """Return a number of rows that arithmetic can go on with; what is no number counts as the most."""
    return max(0.0, min(rows, MOST_ROWS)) if rows == rows else MOST_ROWS


def whole_bytes(count: float) -> int:
    """Return bytes that can be told and stored; what is no number counts as the most."""
    return round(max(0.0, min(count, float(LARGEST_BYTES)))) if count == count else LARGEST_BYTES


UNKNOWN = MemoryEstimate(peak_bytes=None, upper_bytes=None)
