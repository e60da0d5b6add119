"""How the values of a column are spread, in little memory: the way from batches to an equi-height histogram.

A ``Distribution`` is a distribution function known exactly at some values and interpolated between them. It
begins as a sorted batch; two of them add up to one; ``thin`` keeps it small; ``equi_height`` reads the end
points off it. A value with more than 1 / POINTS of a batch is always one of its points, so that popular values
are counted and not guessed; a column of at most POINTS different values is exact throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selector.statistics import Histogram

BUCKETS = 254  # as Spark's ANALYZE and Oracle have at most
POINTS = 2048  # rank error of one batch: at most 1 / POINTS of its rows, between two points only
MERGED_POINTS = 4 * POINTS
TAIL_BUCKETS = 6  # at each end of the column, each half as high as the next; finer than the points would be guessing

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Rows below and up to some of a column's values.

    values: shape (points,), finite, strictly increasing; the smallest and the largest value are among them.
    below, up_to: shape (points,), rows with a value strictly below, and at most, each of them.
    """

    values: Floats
    below: Floats
    up_to: Floats

    @property
    def rows(self) -> float:
        """Rows that it stands for."""
        return float(self.up_to[-1]) if self.up_to.size else 0.0


EMPTY = Distribution(np.empty(0), np.empty(0), np.empty(0))


def distribution_of(values: Floats) -> Distribution:
    """Summarise finite values in any order."""
    if not values.size:
        return EMPTY
    ordered = np.sort(values)
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    ends = np.append(starts[1:], ordered.size)
    if starts.size > POINTS:
        ranks = np.linspace(0, ordered.size - 1, POINTS).round().astype(np.int64)
        runs = np.unique(np.searchsorted(starts, ranks, side="right") - 1)
        starts, ends = starts[runs], ends[runs]
    return Distribution(ordered[starts], starts.astype(np.float64), ends.astype(np.float64))


def add(a: Distribution, b: Distribution) -> Distribution:
    """Merge two distributions of disjoint rows."""
    if not a.values.size:
        return b
    if not b.values.size:
        return a
    values = np.union1d(a.values, b.values)
    below_a, up_to_a = ranks_at(a, values)
    below_b, up_to_b = ranks_at(b, values)
    return thin(Distribution(values, below_a + below_b, up_to_a + up_to_b), MERGED_POINTS)


def thin(whole: Distribution, points: int) -> Distribution:
    """Keep at most that many points, evenly spread over the rows; what they know stays as it was."""
    if whole.values.size <= points:
        return whole
    kept = np.unique(np.searchsorted(whole.up_to, np.linspace(0.0, whole.rows, points - 1), side="left"))
    kept = np.union1d(kept, [0, whole.values.size - 1])
    return Distribution(whole.values[kept], whole.below[kept], whole.up_to[kept])


def ranks_at(known: Distribution, x: Floats) -> tuple[Floats, Floats]:
    """Return the rows below, and at most, each x; between two known values both are interpolated."""
    right = np.searchsorted(known.values, x, side="left")
    last = known.values.size - 1
    at = np.minimum(right, last)
    hit = known.values[at] == x
    before = np.maximum(right - 1, 0)
    low, high = known.values[before], known.values[at]
    between = ~hit & (right > 0) & (right <= last)
    with np.errstate(all="ignore"):  # halves, so that no difference overflows
        way = np.where(between, (x / 2 - low / 2) / (high / 2 - low / 2), 0.0)
    start = known.up_to[before]
    inner = start + (known.below[at] - start) * np.clip(np.nan_to_num(way), 0.0, 1.0)
    outer = np.where(right > last, known.rows, 0.0)
    between_rank = np.where(between, inner, outer)
    return np.where(hit, known.below[at], between_rank), np.where(hit, known.up_to[at], between_rank)


def equi_height(
    known: Distribution, *, rows: float, rows_before: float = 0.0, buckets: int = BUCKETS
) -> Histogram | None:
    """Read an equi-height histogram off a distribution; None where it has no rows.

    rows: what shares are shares of, the column's non-null rows. rows_before: those that lie below every finite
    value, that is negative infinities.

    End points are values of the column, a popular one repeats (Figure 5). Where a column has fewer different
    values than a histogram has end points, each of them is one, and the rest is spread equi-height: the rare
    ones would lie inside a bucket otherwise, where they can only be guessed. The outermost buckets are halved
    again and again; all others are equally high. Shares are counted, so nobody has to rely on heights.
    """
    if not known.values.size:
        return None
    distinct = known.values.size
    if distinct <= buckets:
        spread = _nearest_points(known, np.linspace(0.0, known.rows, buckets - distinct + 1))
        chosen = np.sort(np.concatenate((np.arange(distinct), spread)))
    else:
        chosen = _nearest_points(known, _ranks(known.rows, buckets))
    if chosen.size < 2:
        chosen = np.repeat(chosen, 2)
    return Histogram(
        endpoints=known.values[chosen],
        below=(rows_before + known.below[chosen]) / rows,
        up_to=(rows_before + known.up_to[chosen]) / rows,
    )


def _ranks(rows: float, buckets: int) -> Floats:
    """Return the ranks of equal buckets, the outer two of which are halved again and again.

    The tail of a skewed column is steep within a single bucket, and predicates on it keep few rows: what is a small
    error of rank there is a large one of selectivity.
    """
    tail = min(TAIL_BUCKETS, buckets // 8)
    inner = np.linspace(0.0, rows, buckets - 2 * tail + 1)
    halves = inner[1] * 0.5 ** np.arange(tail, 0, -1)
    return np.concatenate((inner[:1], halves, inner[1:-1], (rows - halves)[::-1], inner[-1:]))


def _nearest_points(known: Distribution, ranks: Floats) -> NDArray[np.intp]:
    """Return the points that lie nearest to some ranks, in order; the outermost are the first and the last."""
    right = np.minimum(np.searchsorted(known.up_to, ranks, side="left"), known.values.size - 1)
    left = np.maximum(right - 1, 0)
    nearer_left = (ranks - known.up_to[left]) < np.maximum(known.below[right] - ranks, 0.0)
    points: NDArray[np.intp] = np.where((right > 0) & nearer_left, left, right)
    if ranks.size > 1:
        points[0], points[-1] = 0, known.values.size - 1
    return points
