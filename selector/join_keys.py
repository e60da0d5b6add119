"""Statistics of join keys: rows of each joined column over bins that all columns of a group share.

Columns that are joined to each other, directly or through others, are a key group. A group's line of keys is cut into
bins once, popular keys alone and the rest in ranges, and every column of the group counts over the same bins, so that
a join is a product per bin. After FactorJoin (Wu et al., SIGMOD 2023), with rows and distinct keys per bin for an
expected value and the largest frequency for an upper bound. How filters, and other joins, go with a key is told by rows
that are sampled by their key (correlated sampling; Vengerov et al., VLDB 2015).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selector.hashing import hash_words
from selector.row_sample import RowSample

Floats = NDArray[np.float64]

SEPARATOR = ","  # between the columns of one key


@dataclass(frozen=True, order=True, slots=True)
class ColumnRef:
    """A column of a registered table, both in lower case; or several that are a key together, with commas between."""

    table: str
    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the key."""
        return tuple(self.column.split(SEPARATOR))

    def __str__(self) -> str:
        return f"{self.table}.{self.column}"


def key_order(a: str, b: str) -> tuple[str, ...]:
    """Return what the columns of a key are ordered by, whichever of the two joined tables is named first."""
    return tuple(sorted((a.lower(), b.lower())))


@dataclass(frozen=True, order=True, slots=True)
class KeyPair:
    """Two columns that are joined by equality; the smaller one first, so that each pair exists once."""

    left: ColumnRef
    right: ColumnRef

    @classmethod
    def of(cls, a: ColumnRef, b: ColumnRef) -> KeyPair:
        """Put two columns in order."""
        return cls(*sorted((a, b)))

    @classmethod
    def together(cls, pairs: Iterable[tuple[ColumnRef, ColumnRef]]) -> KeyPair:
        """Put several pairs of the same two tables together: the key of several columns that they are."""
        ordered = sorted(set(pairs), key=lambda pair: key_order(pair[0].column, pair[1].column))
        first, second = (
            ColumnRef(side[0].table, SEPARATOR.join(column.column for column in side))
            for side in zip(*ordered, strict=True)
        )
        return cls.of(first, second)


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
        """Tell how many bins there are."""
        return int(self.starts.size)

    @property
    def alone(self) -> NDArray[np.bool_]:
        """Which bins hold a single key, shape (bins,)."""
        is_alone: NDArray[np.bool_] = np.append(self.starts[1:] == np.nextafter(self.starts[:-1], np.inf), False)
        return is_alone

    def of(self, keys: NDArray[np.float64] | NDArray[np.bytes_]) -> NDArray[np.intp]:
        """Return the bin of each key."""
        bins: NDArray[np.intp] = np.searchsorted(self.starts, keys, side="right") - 1
        return np.maximum(bins, 0)


@dataclass(frozen=True, slots=True, eq=False)
class KeySample:
    """Whole rows of a table chosen by their key, so that samples of several tables hold rows of the same keys.

    share: chance of a key that has no bin for itself; all of its rows are there, or none. Of keys with a bin for
    themselves those are there, with all rows, that few of the table's rows have. ``chance_of`` tells which are chosen.
    """

    share: float
    rows: RowSample


def chance_of(line: Floats) -> Floats:
    """Return the number in 0..1 by which keys are chosen, from their places: those below a sample's share are in it."""
    return hash_words((line + 0.0).view(np.uint64)).astype(np.float64) / 2.0**64


@dataclass(frozen=True, slots=True, eq=False)
class KeyStatistics:
    """One key column of one table over its group's bins; NULL keys are in no bin.

    rows, ndv, largest: shape (bins,): rows, distinct keys and the most rows of one key in each bin.
    sample: rows chosen by their key; None where the table's sample has all rows, or nobody chose any.
    """

    bins: Bins
    rows: Floats
    ndv: Floats
    largest: Floats
    sample: KeySample | None = None

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
