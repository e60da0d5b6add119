"""Distribution of a column's values in little memory: from rows to an equi-height histogram.

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
from statsproc.sketches.byte_strings import WORD_BYTES, Texts, common_prefix
from statsproc.sketches.equal_runs import run_starts, runs

BUCKETS = 254  # as Spark's ANALYZE and Oracle have at most
POINTS = 4096  # rank error of one chunk: at most 1 / POINTS of its rows, between two points only
HEAVY = 2 * POINTS  # a value with a larger share of a chunk is a point of its own
MERGED_POINTS = 2 * POINTS
CROWDED = POINTS // 2  # strings that agree in a word are told apart where they have a larger share of a chunk
NUMBER_BITS = 16  # for the number of such a crowd
TABLE_BITS = 20  # in which the numbers of crowds are looked up
TAIL_BUCKETS = 6  # at each end of the column, each half as high as the next; finer than the points would be guessing
COMMON_VALUES = 1_500
COMMON_RATIO = 1.25  # a value is common if it has so many times the average value's rows, as in PostgreSQL

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

_TABLE_SHIFT = np.uint64(64 - TABLE_BITS)


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


def chosen_runs(starts: Integers, ends: Integers, *, rows: int) -> Integers:
    """Choose which values become points: those of evenly spread ranks, the outermost and all heavy ones.

    starts, ends: of the runs of equal values in sorted order, counted from the first one's start. rows: of the whole
    chunk, of which a heavy value has a share.
    """
    if starts.size <= POINTS:
        return np.arange(starts.size)
    first, last = int(starts[0]), int(ends[-1]) - 1
    ranks = np.linspace(first, last, POINTS).round().astype(np.intp)
    chosen = ends - starts > rows / HEAVY
    chosen[np.searchsorted(starts, ranks, side="right") - 1] = True
    return np.flatnonzero(chosen)


def distribution_of_texts(texts: Texts, low: bytes, high: bytes) -> Distribution:
    """Summarise strings in any order. low, high: the smallest and the largest of them.

    Sorted are words of eight bytes behind what all strings have in common. Where many agree in a word they are a crowd,
    in which the bytes that follow are sorted, and so on up to the length of a key. A word whose strings are not told
    apart is a point that no row is known to equal: all of them lie behind it.
    """
    if not len(texts):
        return EMPTY
    rows = len(texts)
    prefix = common_prefix(low, high)[:TEXT_KEY_BYTES]
    whole = np.frombuffer(prefix.ljust(TEXT_KEY_BYTES, b"\0"), dtype=np.uint8).reshape(1, -1)
    one_crowd = _Crowds(np.arange(rows), texts.words(len(prefix)), whole, np.zeros(1, dtype=np.intp), len(prefix))
    keys, below, up_to = (np.concatenate(parts) for parts in zip(*_text_points(texts, one_crowd), strict=True))
    order = np.argsort(below)
    values = keys[order].view(f"S{TEXT_KEY_BYTES}").reshape(-1)
    below, up_to = below[order].astype(np.float64), up_to[order].astype(np.float64)
    if up_to[-1] < rows:
        last = np.array([high], dtype=values.dtype)
        values, below, up_to = np.append(values, last), np.append(below, rows - 1.0), np.append(up_to, rows)
    starts, ends = runs(values)  # equal after the cut
    return Distribution(values[starts], below[starts], up_to[ends - 1])


@dataclass(frozen=True, slots=True, eq=False)
class _Crowds:
    """Strings in crowds; the strings of a crowd agree in their first bytes.

    members: shape (strings,), indices of the strings.
    codes: shape (strings,), uint64: number of the string's crowd in ``number_bits``, and the bytes that follow.
    keys: shape (crowds, TEXT_KEY_BYTES), uint8: common first bytes of each crowd.
    before: shape (crowds,), offset from a rank among the members to a rank among all strings.
    known_bytes: number of common first bytes.
    """

    members: Integers
    codes: NDArray[np.uint64]
    keys: NDArray[np.uint8]
    before: Integers
    known_bytes: int
    number_bits: int = 0


def _text_points(texts: Texts, crowds: _Crowds) -> list[tuple[NDArray[np.uint8], Integers, Integers]]:
    """Return keys, in any order, with the rows below and up to each."""
    rows, known_bytes = len(texts), crowds.known_bytes
    ordered = np.sort(crowds.codes)
    starts, ends = runs(ordered)
    codes = ordered[starts]
    number = (codes >> np.uint64(64 - crowds.number_bits)).astype(np.intp) if crowds.number_bits else starts * 0
    starts, ends = starts + crowds.before[number], ends + crowds.before[number]
    chosen = chosen_runs(starts, ends, rows=rows)
    starts, ends, codes = starts[chosen], ends[chosen], codes[chosen]
    keys = crowds.keys[number[chosen]]
    follows = codes.astype(">u8").view(np.uint8).reshape(-1, WORD_BYTES)[:, crowds.number_bits // 8 :]
    reach = known_bytes + follows.shape[1]
    keys[:, known_bytes:reach] = follows[:, : TEXT_KEY_BYTES - known_bytes]
    if reach >= min(int(texts.lengths[crowds.members].max()), TEXT_KEY_BYTES):
        return [(keys, starts, ends)]
    crowded = ends - starts > rows / CROWDED
    points = (keys[~crowded], starts[~crowded], starts[~crowded])
    if not crowded.any():
        return [points]
    inside, number = _matching(crowds.codes, codes[crowded])
    members = crowds.members[inside]
    follows = texts.words(reach)[members] >> np.uint64(NUMBER_BITS)
    sizes = (ends - starts)[crowded]
    finer = _Crowds(
        members=members,
        codes=number.astype(np.uint64) << np.uint64(64 - NUMBER_BITS) | follows,
        keys=keys[crowded],
        before=starts[crowded] - (np.cumsum(sizes) - sizes),
        known_bytes=reach,
        number_bits=NUMBER_BITS,
    )
    return [points, *_text_points(texts, finer)]


def _matching(codes: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> tuple[Integers, Integers]:
    """Return the places of a few values among many, and which of them stands there.

    They are looked up in a table by the highest bits of a product, in which all of them differ.
    """
    factor = 0x9E3779B97F4A7C15
    while np.unique(wanted * np.uint64(factor) >> _TABLE_SHIFT).size < wanted.size:
        factor = factor * 0xBF58476D1CE4E5B9 % 2**64
    table = np.full(1 << TABLE_BITS, wanted.size, dtype=np.uint16)
    table[wanted * np.uint64(factor) >> _TABLE_SHIFT] = np.arange(wanted.size)
    which = table[codes * np.uint64(factor) >> _TABLE_SHIFT]
    places = np.flatnonzero(which < wanted.size)
    which = which[places].astype(np.intp)
    same = wanted[which] == codes[places]
    return places[same], which[same]


def add_all(parts: Sequence[Distribution]) -> Distribution:
    """Add up distributions of disjoint rows, at about MERGED_POINTS of the values that any of them knows."""
    filled = [part for part in parts if part.values.size]
    if len(filled) <= 1:
        return filled[0] if filled else EMPTY
    values = np.concatenate([part.values for part in filled])
    order = np.argsort(values, kind="stable")  # made for what is in order already, part by part
    values = values[order]
    starts = run_starts(values)
    if starts.size > MERGED_POINTS:
        held = np.concatenate([part.up_to - part.below for part in filled])[order]
        rows = np.concatenate([np.diff(part.up_to, prepend=0.0) for part in filled])[order]
        starts = starts[
            _chosen_points(np.add.reduceat(rows, starts).cumsum(), np.add.reduceat(held, starts), MERGED_POINTS)
        ]
    values = values[starts]
    below, up_to = np.zeros(values.size), np.zeros(values.size)
    for part in filled:
        part_below, part_up_to = ranks_at(part, values)
        below += part_below
        up_to += part_up_to
    return Distribution(values, below, up_to)


def thin(whole: Distribution, points: int) -> Distribution:
    """Keep about that many points, heavy values and evenly spread ranks; what they know stays as it was."""
    if whole.values.size <= points:
        return whole
    is_chosen = _chosen_points(whole.up_to, whole.up_to - whole.below, points)
    return Distribution(whole.values[is_chosen], whole.below[is_chosen], whole.up_to[is_chosen])


def _chosen_points(up_to: Floats, held: Floats, points: int) -> NDArray[np.bool_]:
    """Choose points: the heaviest, the outermost, and those of evenly spread ranks. held: rows that equal each."""
    heavy = np.argpartition(held, -(points // 2))[-(points // 2) :]
    is_chosen = np.zeros(held.size, dtype=np.bool_)
    is_chosen[heavy[held[heavy] > 0.0]] = True
    ranks = np.linspace(0.0, up_to[-1], points // 2)
    is_chosen[np.minimum(np.searchsorted(up_to, ranks, side="left"), held.size - 1)] = True
    is_chosen[[0, -1]] = True
    return is_chosen


def scaled(whole: Distribution, factor: float) -> Distribution:
    """Stand for that many times the rows."""
    return Distribution(whole.values, whole.below * factor, whole.up_to * factor)


def ranks_at(distribution: Distribution, x: Keys) -> tuple[Floats, Floats]:
    """Return the rows below, and at most, each x; between two known values both are interpolated."""
    above = np.searchsorted(distribution.values, x, side="left")
    last = distribution.values.size - 1
    at = np.minimum(above, last)
    hit = distribution.values[at] == x
    before = np.maximum(above - 1, 0)
    low, high = distribution.values[before], distribution.values[at]
    between = ~hit & (above > 0) & (above <= last)
    way = np.where(between, _way(low, high, x), 0.0)
    start = distribution.up_to[before]
    inner = start + (distribution.below[at] - start) * np.clip(np.nan_to_num(way), 0.0, 1.0)
    outer = np.where(above > last, distribution.rows, 0.0)
    between_rank = np.where(between, inner, outer)
    return np.where(hit, distribution.below[at], between_rank), np.where(hit, distribution.up_to[at], between_rank)


def _way(low: Any, high: Any, x: Any) -> Any:
    """Return how far each x lies between its neighbours; strings have no middle, and theirs are close."""
    if low.dtype.kind == "S":
        return 0.5
    with np.errstate(all="ignore"):  # halves, so that no difference overflows
        return (x / 2 - low / 2) / (high / 2 - low / 2)


def common_values(distribution: Distribution, *, ndv: float) -> CommonValues | None:
    """Read the most common values off a distribution; None where no value stands out and not all are known.

    A string that fills its key is left out: others may begin alike.
    """
    held = distribution.up_to - distribution.below
    few = distribution.values.size <= COMMON_VALUES
    common = held >= (1.0 if few else max(2.0, COMMON_RATIO * distribution.rows / max(1.0, ndv)))
    values: NDArray[Any] = distribution.values
    if values.dtype.kind == "S":
        common &= np.strings.str_len(values) < TEXT_KEY_BYTES
    chosen = np.flatnonzero(common)
    chosen = chosen[np.argsort(-held[chosen], kind="stable")][:COMMON_VALUES]
    if not chosen.size:
        return None
    return CommonValues(distribution.values[chosen], held[chosen].round().astype(np.int64))


def equi_height(distribution: Distribution, *, rows: float, rows_before: float = 0.0) -> Histogram | None:
    """Read an equi-height histogram off a distribution; None where it has no rows.

    rows: what shares are shares of, the column's non-null rows. rows_before: those that lie below every finite
    value, that is negative infinities.

    End points are values of the column, a popular one repeats (Figure 5). Where a column has fewer different
    values than a histogram has end points, each of them is one, and the rest is spread equi-height: the rare
    ones would lie inside a bucket otherwise, where they can only be guessed. The outermost buckets are halved
    again and again; all others are equally high. Shares are counted, so nobody has to rely on heights.
    """
    if not distribution.values.size:
        return None
    distinct = distribution.values.size
    if distinct <= BUCKETS:
        spread = _nearest_points(distribution, np.linspace(0.0, distribution.rows, BUCKETS - distinct + 1))
        chosen = np.sort(np.concatenate((np.arange(distinct), spread)))
    else:
        chosen = _nearest_points(distribution, _ranks(distribution.rows, BUCKETS))
    if chosen.size < 2:
        chosen = np.repeat(chosen, 2)
    return Histogram(
        endpoints=distribution.values[chosen],
        below=(rows_before + distribution.below[chosen]) / rows,
        up_to=(rows_before + distribution.up_to[chosen]) / rows,
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


def _nearest_points(distribution: Distribution, ranks: Floats) -> NDArray[np.intp]:
    """Return the points that lie nearest to some ranks, in order; the outermost are the first and the last."""
    upper = np.minimum(np.searchsorted(distribution.up_to, ranks, side="left"), distribution.values.size - 1)
    lower = np.maximum(upper - 1, 0)
    nearer_left = (ranks - distribution.up_to[lower]) < np.maximum(distribution.below[upper] - ranks, 0.0)
    points: NDArray[np.intp] = np.where((upper > 0) & nearer_left, lower, upper)
    if ranks.size > 1:
        points[0], points[-1] = 0, distribution.values.size - 1
    return points
