"""How the values of a column are spread, in little memory: the way from rows to an equi-height histogram.

A ``Distribution`` is a distribution function known exactly at some values and interpolated between them. It begins as
the sorted rows of a chunk; any number of them add up; ``thin`` keeps the sum small; ``equi_height`` reads end points
off it and ``common_values`` the popular values. A value with more than 1 / HEAVY of a chunk is always one of its
points, so that popular values are counted and not guessed; a column of few different values is exact throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selector.statistics import TEXT_KEY_BYTES, CommonValues, Histogram, Keys
from statsproc.texts import WORD_BYTES, Texts, common_prefix

BUCKETS = 254  # as Spark's ANALYZE and Oracle have at most
POINTS = 4096  # rank error of one chunk: at most 1 / POINTS of its rows, between two points only
HEAVY = 2 * POINTS  # a value with a larger share of a chunk is a point of its own
MERGED_POINTS = 2 * POINTS
ADDED_AT_ONCE = 4
CROWDED = POINTS // 2  # strings that agree in a word are told apart where they have a larger share of a chunk
TAIL_BUCKETS = 6  # at each end of the column, each half as high as the next; finer than the points would be guessing
COMMON_VALUES = 500
COMMON_RATIO = 1.25  # a value is common if it has so many times the average value's rows, as in PostgreSQL

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Rows below and up to some of a column's values.

    values: shape (points,), finite float64 or ``S32``, strictly increasing; the smallest and the largest value are
    among them. below, up_to: shape (points,), rows with a value strictly below, and at most, each of them.
    """

    values: Keys
    below: Floats
    up_to: Floats

    @property
    def rows(self) -> float:
        """Rows that it stands for."""
        return float(self.up_to[-1]) if self.up_to.size else 0.0


EMPTY = Distribution(np.empty(0), np.empty(0), np.empty(0))


def run_starts(ordered: NDArray[np.generic]) -> Integers:
    """Return where each different value of a sorted array begins."""
    if not ordered.size:
        return np.empty(0, dtype=np.intp)
    changed = ordered[1:] != ordered[:-1]
    if ordered.dtype.kind == "f" and np.isnan(ordered[-1]):
        changed[np.searchsorted(ordered, np.nan) :] = False  # NaN lies behind all others, and is one value
    return np.concatenate((np.zeros(1, dtype=np.intp), np.flatnonzero(changed) + 1))


def chosen_runs(starts: Integers, ends: Integers, *, rows: int, points: int = POINTS) -> Integers:
    """Choose which values become points: those of evenly spread ranks, the outermost and all heavy ones.

    starts, ends: of the runs of equal values in sorted order, counted from the first one's start. rows: of the whole
    chunk, of which a heavy value has a share.
    """
    if starts.size <= points:
        return np.arange(starts.size)
    first, last = int(starts[0]), int(ends[-1]) - 1
    ranks = np.linspace(first, last, points).round().astype(np.intp)
    even = np.searchsorted(starts, ranks, side="right") - 1
    heavy = np.flatnonzero(ends - starts > rows / HEAVY)
    return np.union1d(even, heavy)


def distribution_of_texts(texts: Texts, low: bytes, high: bytes) -> Distribution:
    """Summarise strings in any order. low, high: the smallest and the largest of them.

    Sorted are words of eight bytes behind what all strings have in common; where many agree in a word, the next one
    tells them apart, up to the length of a key.
    """
    if not len(texts):
        return EMPTY
    prefix = common_prefix(low, high)[:TEXT_KEY_BYTES]
    keys, below, up_to = _text_points(texts, None, prefix, rows=len(texts))
    if up_to[-1] < len(texts):
        keys, below, up_to = [*keys, high], np.append(below, len(texts) - 1.0), np.append(up_to, len(texts))
    values = np.array(keys, dtype=f"S{TEXT_KEY_BYTES}")
    starts = run_starts(values)  # equal after the cut
    return Distribution(values[starts], below[starts], up_to[np.append(starts[1:], values.size) - 1])


def _text_points(
    texts: Texts, members: Integers | None, prefix: bytes, *, rows: int
) -> tuple[list[bytes], Floats, Floats]:
    """Return keys in order with the rows below and up to them, counted within the members.

    A word whose strings were not told apart is a point that no row is known to equal: all of them lie behind it.
    """
    size = len(texts) if members is None else int(members.size)
    if len(prefix) >= TEXT_KEY_BYTES:
        return [prefix[:TEXT_KEY_BYTES]], np.zeros(1), np.array([float(size)])
    words = texts.words(len(prefix), members)
    ordered = np.sort(words)
    starts = run_starts(ordered)
    ends = np.append(starts[1:], size)
    chosen = chosen_runs(starts, ends, rows=rows, points=max(2, POINTS * size // rows))
    found = ordered[starts[chosen]]
    keys = [prefix + word for word in found.astype(">u8").view(f"S{WORD_BYTES}").tolist()]
    below, up_to = starts[chosen].astype(np.float64), ends[chosen].astype(np.float64)
    lengths = texts.lengths if members is None else texts.lengths[members]
    if int(lengths.max()) <= len(prefix) + WORD_BYTES:
        return keys, below, up_to
    crowded = np.flatnonzero(up_to - below > rows / CROWDED)
    up_to = below.copy()
    if not crowded.size:
        return keys, below, up_to
    order = np.argsort(words)
    parts: list[tuple[list[bytes], Floats, Floats]] = []
    done = 0
    for at in crowded.tolist():
        parts.append((keys[done:at], below[done:at], up_to[done:at]))
        inside = order[starts[chosen[at]] : ends[chosen[at]]]
        word = int(found[at]).to_bytes(WORD_BYTES, "big")
        finer = _text_points(texts, inside if members is None else members[inside], prefix + word, rows=rows)
        parts.append((finer[0], below[at] + finer[1], below[at] + finer[2]))
        done = at + 1
    parts.append((keys[done:], below[done:], up_to[done:]))
    return (
        [key for part in parts for key in part[0]],
        np.concatenate([part[1] for part in parts]),
        np.concatenate([part[2] for part in parts]),
    )


def add_all(parts: Sequence[Distribution]) -> Distribution:
    """Add up distributions of disjoint rows."""
    filled = [part for part in parts if part.values.size]
    while len(filled) > ADDED_AT_ONCE:  # each costs as many look-ups as all have points
        filled = [add_all(filled[at : at + ADDED_AT_ONCE]) for at in range(0, len(filled), ADDED_AT_ONCE)]
    if len(filled) <= 1:
        return filled[0] if filled else EMPTY
    values = np.unique(np.concatenate([part.values for part in filled]))
    below, up_to = np.zeros(values.size), np.zeros(values.size)
    for part in filled:
        part_below, part_up_to = ranks_at(part, values)
        below += part_below
        up_to += part_up_to
    return thin(Distribution(values, below, up_to), MERGED_POINTS)


def thin(whole: Distribution, points: int) -> Distribution:
    """Keep about that many points, heavy values and evenly spread ranks; what they know stays as it was."""
    if whole.values.size <= points:
        return whole
    even = np.unique(np.searchsorted(whole.up_to, np.linspace(0.0, whole.rows, points // 2), side="left"))
    held = whole.up_to - whole.below
    heavy = np.argpartition(held, -(points // 2))[-(points // 2) :]
    heavy = heavy[held[heavy] > 0.0]
    kept = np.union1d(np.union1d(even, heavy), [0, whole.values.size - 1])
    return Distribution(whole.values[kept], whole.below[kept], whole.up_to[kept])


def scaled(whole: Distribution, factor: float) -> Distribution:
    """Stand for that many times the rows."""
    return Distribution(whole.values, whole.below * factor, whole.up_to * factor)


def ranks_at(known: Distribution, x: Keys) -> tuple[Floats, Floats]:
    """Return the rows below, and at most, each x; between two known values both are interpolated."""
    right = np.searchsorted(known.values, x, side="left")
    last = known.values.size - 1
    at = np.minimum(right, last)
    hit = known.values[at] == x
    before = np.maximum(right - 1, 0)
    low, high = known.values[before], known.values[at]
    between = ~hit & (right > 0) & (right <= last)
    way = np.where(between, _way(low, high, x), 0.0)
    start = known.up_to[before]
    inner = start + (known.below[at] - start) * np.clip(np.nan_to_num(way), 0.0, 1.0)
    outer = np.where(right > last, known.rows, 0.0)
    between_rank = np.where(between, inner, outer)
    return np.where(hit, known.below[at], between_rank), np.where(hit, known.up_to[at], between_rank)


def _way(low: Any, high: Any, x: Any) -> Any:
    """Return how far each x lies between its neighbours; strings have no middle, and theirs are close."""
    if low.dtype.kind == "S":
        return 0.5
    with np.errstate(all="ignore"):  # halves, so that no difference overflows
        return (x / 2 - low / 2) / (high / 2 - low / 2)


def common_values(known: Distribution, *, ndv: float, most: int = COMMON_VALUES) -> CommonValues | None:
    """Read the most common values off a distribution; None where no value stands out and not all are known.

    A string that fills its key is left out: others may begin alike.
    """
    held = known.up_to - known.below
    few = known.values.size <= most
    common = held >= (1.0 if few else max(2.0, COMMON_RATIO * known.rows / max(1.0, ndv)))
    values: NDArray[Any] = known.values
    if values.dtype.kind == "S":
        common &= np.strings.str_len(values) < TEXT_KEY_BYTES
    chosen = np.flatnonzero(common)
    chosen = chosen[np.argsort(-held[chosen], kind="stable")][:most]
    if not chosen.size:
        return None
    return CommonValues(known.values[chosen], held[chosen].round().astype(np.int64))


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
