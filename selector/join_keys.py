"""What is known about columns that are joined: how their rows are spread over bins that all of them share.

Columns that are joined to each other, directly or through others, are a key group. A group's line of keys is cut into
bins once, popular keys alone and the rest in ranges, and every column of the group counts over the same bins, so that
a join is a product per bin. After FactorJoin (Wu et al., SIGMOD 2023), with rows and distinct keys per bin for an
expected value and the largest frequency for an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EVEN = 0.05  # by which bins may differ, relatively, and are all treated alike
INDEPENDENT = 0.02  # mean squared contingency below which two columns are taken as independent
ENOUGH_ROWS = 50_000  # from which on that can be told
LEAST_SHARE = 1e-6  # nothing is divided by less


@dataclass(frozen=True, order=True, slots=True)
class ColumnRef:
    """A column of a registered table, both in lower case."""

    table: str
    column: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column}"


@dataclass(frozen=True, order=True, slots=True)
class KeyPair:
    """Two columns that are joined by equality; the smaller one first, so that each pair exists once."""

    left: ColumnRef
    right: ColumnRef

    @classmethod
    def of(cls, a: ColumnRef, b: ColumnRef) -> KeyPair:
        """Put two columns in order."""
        return cls(*sorted((a, b)))


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """A cut of a line of keys.

    starts: shape (bins,), float64 or ``S32``, strictly increasing; bin i holds starts[i] <= key < starts[i + 1], the
    first one also all that lies below it, the last one all that lies above. A popular key has a bin for itself: the
    next one starts right after it.
    group: the key group's name. version: grows when the group is cut anew; only equal versions can be compared.
    """

    starts: NDArray[np.float64] | NDArray[np.bytes_]
    group: str = ""
    version: int = 0

    def __post_init__(self) -> None:
        if self.starts.ndim != 1 or not self.starts.size:
            raise ValueError("there is at least one bin")
        if np.any(self.starts[1:] <= self.starts[:-1]):  # type: ignore[operator]
            raise ValueError("starts of bins must increase")

    @property
    def count(self) -> int:
        """How many bins there are."""
        return int(self.starts.size)

    def of(self, keys: NDArray[np.float64] | NDArray[np.bytes_]) -> NDArray[np.intp]:
        """Return the bin of each key."""
        found: NDArray[np.intp] = np.searchsorted(self.starts, keys, side="right") - 1
        return np.maximum(found, 0)


@dataclass(frozen=True, slots=True, eq=False)
class ConditionalCounts:
    """Rows by the bucket of another column and the key's bin: P(predicate | bin) is read off it.

    Of the cells only those are kept that hold rows; most do not.

    buckets: the cut of the other column, which is its own for a filter column and its group's for a second key.
    ends: shape (bins,), where each bin's cells end. bucket, rows: shape (cells,), int32 and float32, in order of bins;
    the last bucket counts NULLs of the other column.
    share: of the table's rows that were counted, 0..1; rows are scaled up from it.
    """

    buckets: Bins
    ends: NDArray[np.int64]
    bucket: NDArray[np.int32]
    rows: NDArray[np.float32]
    share: float = 1.0

    @classmethod
    def of(cls, buckets: Bins, counts: Floats, *, share: float = 1.0) -> ConditionalCounts:
        """Keep what is not zero. counts: shape (buckets.count + 1, bins)."""
        if counts.shape[0] != buckets.count + 1:
            raise ValueError("every bucket needs its counts, and NULL too")
        bins, at = np.nonzero(counts.T)
        ends = np.cumsum(np.bincount(bins, minlength=counts.shape[1]))
        return cls(buckets, ends, at.astype(np.int32), counts[at, bins].astype(np.float32), share)

    @property
    def bins(self) -> int:
        """How many bins the key has."""
        return int(self.ends.size)

    def weighted(self, weights: Floats) -> Floats:
        """Return the rows of each bin, those of each bucket by its weight; for several weights at once, too.

        weights: shape (buckets.count + 1,) or (n, buckets.count + 1). Shape of the result: (bins,) or (n, bins).
        """
        several, places = _distinct(np.atleast_2d(weights))
        found = np.zeros((several.shape[0], self.bins))
        starts = np.append(0, self.ends[:-1])
        filled = starts < self.ends
        if filled.any():
            cells = several.take(self.bucket, axis=1)
            cells *= self.rows
            found[:, filled] = np.add.reduceat(cells, starts[filled], axis=1)
        return found[places] if np.ndim(weights) > 1 else found[0]


def _distinct(several: Floats) -> tuple[Floats, list[int]]:
    """Return the different rows of a matrix, and for each of its rows where it stands among them."""
    first: list[int] = []
    places: list[int] = []
    for row in several:
        place = next((at for at, other in enumerate(first) if np.array_equal(row, several[other])), len(first))
        if place == len(first):
            first.append(len(places))
        places.append(place)
    return (several if len(first) == len(places) else several[first]), places


@dataclass(frozen=True, slots=True, eq=False)
class Association:
    """How two columns that were counted together depend on each other.

    rows: shape (buckets.count + 1,), of each bucket. counted: rows that were looked at.
    contingency: mean squared contingency, Pearson's phi squared, less what chance alone makes of so many cells; about 0
    for columns that have nothing to do with each other.
    """

    rows: Floats
    counted: float
    contingency: float

    @property
    def is_none(self) -> bool:
        """Whether one column tells nothing of the other; of few rows nobody can say so."""
        return self.contingency < INDEPENDENT and self.counted >= ENOUGH_ROWS

    def tells_nothing_of(self, variation: float) -> bool:
        """Return whether what differs between buckets is about the same in all bins.

        variation: squared coefficient of variation between buckets; of that no more than the contingency's share gets
        through to the bins.
        """
        through = variation * min(1.0, max(0.0, self.contingency))
        return self.is_none or (through <= EVEN**2 and self.counted >= ENOUGH_ROWS)


@lru_cache(maxsize=16_384)
def association(counts: ConditionalCounts) -> Association:
    """Return how two columns depend on each other."""
    sizes = np.diff(counts.ends, prepend=0)
    rows = counts.rows.astype(np.float64)
    of_buckets: Floats = np.bincount(counts.bucket, rows, minlength=counts.buckets.count + 1).astype(np.float64)
    of_bins = counts.weighted(np.ones(counts.buckets.count + 1))
    whole = float(rows.sum())
    freedom = (np.count_nonzero(of_buckets) - 1) * (np.count_nonzero(of_bins) - 1)
    if whole <= 0.0 or freedom <= 0:
        return Association(of_buckets, 0.0, 0.0)
    squared = float((rows * rows / (of_buckets[counts.bucket] * np.repeat(of_bins, sizes))).sum()) * whole - whole
    chance = freedom / max(counts.share, LEAST_SHARE)
    return Association(of_buckets, whole * counts.share, (squared - chance) / whole)


@dataclass(frozen=True, slots=True, eq=False)
class KeyStatistics:
    """One key column of one table over its group's bins; NULL keys are in no bin.

    rows, ndv, largest: shape (bins,): rows, distinct keys and the most rows of one key in each bin.
    given: by name, the table's other columns that were counted together with the key.
    """

    bins: Bins
    rows: Floats
    ndv: Floats
    largest: Floats
    given: Mapping[str, ConditionalCounts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for counts in (self.rows, self.ndv, self.largest):
            if counts.shape != (self.bins.count,):
                raise ValueError("every bin needs its rows, its distinct keys and its largest frequency")


def key_groups(pairs: Iterable[KeyPair]) -> dict[str, tuple[ColumnRef, ...]]:
    """Put columns that are joined, directly or through others, into groups, each named after its first column."""
    leader: dict[ColumnRef, ColumnRef] = {}

    def find(column: ColumnRef) -> ColumnRef:
        leader.setdefault(column, column)
        while leader[column] != column:
            leader[column] = leader[leader[column]]
            column = leader[column]
        return column

    for pair in pairs:
        first, second = sorted((find(pair.left), find(pair.right)))
        leader[second] = first
    groups: dict[ColumnRef, list[ColumnRef]] = {}
    for column in leader:
        groups.setdefault(find(column), []).append(column)
    return {str(first): tuple(sorted(members)) for first, members in sorted(_named(groups))}


def _named(groups: Mapping[ColumnRef, list[ColumnRef]]) -> Iterator[tuple[ColumnRef, list[ColumnRef]]]:
    for members in groups.values():
        yield min(members), members
