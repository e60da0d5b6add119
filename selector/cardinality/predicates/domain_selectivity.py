"""Selectivity of a domain on one column.

A column's line is divided into cells: values with counted rows (``CommonValues``, end points of a histogram) are cells
of their own; between them, values are assumed uniform, which without a histogram is the paper's Eq. (3). A single value
in between has the remaining rows per remaining distinct value, the paper's Eq. (2).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selector.cardinality.predicates.domains import TEXT_TOP, Domain, joined
from selector.join_keys import Bins
from selector.statistics import TEXT_KEY_BYTES, ColumnStatistics, way_between
from selector.types import Group, decimal_digits, kind_named

Floats = NDArray[np.float64]

OUTSIDE_SHARE = 0.005  # upper bound of rows outside the range that a partial build read, on each side
ROUNDING = 1e-9  # tolerance of the sum of shares
ULPS = 4.0  # rounding error of a number against a place of its type
_STEPS_OF_ONE = (Group.BOOLEAN, Group.WHOLE, Group.DATE, Group.MOMENT, Group.CLOCK)


@dataclass(frozen=True, slots=True)
class Share:
    """Share of all rows, 0..1, and the statistic it comes from.

    unsure: share of rows in cells that an end of the domain cuts in two.
    """

    share: float
    basis: str
    unsure: float = 0.0


@dataclass(frozen=True, slots=True)
class _Line:
    """Line of a type's values.

    scale: number of values per whole number; None: dense.
    """

    text: bool
    scale: float | None

    def place(self, value: Any, behind: int) -> Any:
        """Return the first place behind a cut, so that two cuts enclose the places from one up to the other."""
        if self.text:
            prefix = value[:TEXT_KEY_BYTES]
            return prefix + b"\x01" if behind else prefix
        if self.scale is None:
            return math.nextafter(value, math.inf) if behind else value
        exact = value * self.scale
        if not math.isfinite(exact):
            return value
        nearest = float(round(exact))
        if abs(exact - nearest) > ULPS * math.ulp(exact):
            return math.ceil(exact) / self.scale
        return max(nearest + 1.0, math.nextafter(nearest, math.inf)) / self.scale if behind else nearest / self.scale

    @property
    def ends(self) -> tuple[Any, Any]:
        """Return the places at both ends of the line."""
        return (b"", TEXT_TOP + b"\x01") if self.text else (-math.inf, math.inf)


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Rows of a column along its line, as shares of its non-NULL rows; all lists have an entry per cell.

    starts: first place of each cell, increasing; a cell reaches to the start of the next one.
    high: last place of each cell.
    mass: share of rows in the cell.
    single: share of one uncounted value in the cell; 0 in a cell of one counted value.
    before: mass of all cells before it.
    spread: statistic that bounds the uncounted values, in words; None: unbounded.
    """

    line: _Line
    starts: list[Any]
    high: list[Any]
    mass: list[float]
    single: list[float]
    before: list[float]
    spread: str | None

    def of(self, place: Any) -> int:
        """Return the cell of a place."""
        return max(0, bisect_right(self.starts, place) - 1)

    def way(self, place: Any, cell: int) -> float:
        """Return the share of its cell before a place, 0..1."""
        low, high = self.starts[cell], self.high[cell]
        if place <= low:
            return 0.0
        if place == self.line.ends[1]:
            return 1.0
        if not self.line.text and low == -math.inf:
            return 0.0
        return min(1.0, max(0.0, way_between(low, high, place))) if high > low else 1.0

    def rank(self, place: Any) -> float:
        """Return the share of values before a place."""
        cell = self.of(place)
        return self.before[cell] + self.mass[cell] * self.way(place, cell)


def line_of(data_type: str) -> _Line:
    """Return the line of a type. data_type: Spark's short form."""
    type_kind = kind_named(data_type.partition(" ")[0])
    group, digits = type_kind.row.group if type_kind is not None else None, decimal_digits(data_type)
    if group in _STEPS_OF_ONE:
        return _Line(text=False, scale=1.0)
    return _Line(text=group is Group.TEXT, scale=10.0 ** digits[1] if digits is not None else None)


@lru_cache(maxsize=1024)
def share(domain: Domain, column: ColumnStatistics, rows: int, *, complete: bool = True) -> Share | None:
    """Return the share of a table's rows in a domain of a column; None without a statistic.

    complete: the whole table was read, so that no value is outside the minimum and the maximum.
    """
    nulls = min(1.0, column.nulls / rows) if rows else 0.0
    kept_nulls = nulls if domain.nulls else 0.0
    if not domain.cuts or domain.is_everything:
        return Share(kept_nulls + (1.0 - nulls if domain.cuts else 0.0), f"nulls of {column.name}")
    if nulls >= 1.0:
        return Share(kept_nulls, f"nulls of {column.name}")
    cells = _cells(column, rows, complete)
    in_domain = _kept(domain, cells) if cells is not None else None
    if cells is None or in_domain is None:
        return None
    value_share, unsure, single = in_domain
    statistic = cells.spread or "NDV"
    if single:
        statistic = "NDV" if unsure else "common values" if column.common is not None else statistic
    return Share(kept_nulls + (1.0 - nulls) * value_share, f"{statistic} of {column.name}", unsure)


def masses(bins: Bins, column: ColumnStatistics, rows: int, *, coarser: Bins | None = None) -> Floats | None:
    """Return the share of a column's values in each bin, shape (bins.count,).

    bins: of the column's own line; the first one also has all values below. rows: of the table.
    coarser: bins that these were cut from; None: no such bins.

    None: the bins are of another line, as for keys that are strings, or the column's values are unbounded.
    """
    cells = _cells(column, rows, True)
    if cells is None or cells.spread is None or (bins.starts.dtype.kind == "S") != cells.line.text:
        return None
    rank = _ranks(bins, cells) if coarser is None else _more_ranks(bins, cells, coarser)
    whole = cells.before[-1] + cells.mass[-1]
    bin_masses: Floats = np.maximum(np.append(rank[1:], whole) - rank, 0.0)
    return bin_masses


@lru_cache(maxsize=256)
def _ranks(bins: Bins, cells: _Cells) -> Floats:
    """Return the share of a column's values before each bin, shape (bins.count,); 0 for the first one."""
    starts: list[Any] = bins.starts.tolist()
    return np.array([0.0, *(_rank(last, start, cells) for last, start in pairwise(starts))])


def _more_ranks(bins: Bins, cells: _Cells, coarser: Bins) -> Floats:
    """Return the same as ``_ranks``, from the ranks of coarser bins."""
    at = np.minimum(np.searchsorted(coarser.starts, bins.starts), coarser.count - 1)
    same = coarser.starts[at] == bins.starts
    same[1:] &= same[:-1]  # a bin of a single key tells where the next one starts
    ranks = _ranks(coarser, cells)[at]
    ranks[0] = 0.0
    starts: list[Any] = bins.starts.tolist()
    for i in np.flatnonzero(~same[1:]).tolist():
        ranks[i + 1] = _rank(starts[i], starts[i + 1], cells)
    return ranks


def _rank(last: Any, start: Any, cells: _Cells) -> float:
    behind = start == _Line(cells.line.text, None).place(last, 1)
    return cells.rank(cells.line.place(last, 1) if behind else cells.line.place(start, 0))


def _kept(domain: Domain, cells: _Cells) -> tuple[float, float, bool] | None:
    """Return the share of a column's values in a domain, the mass of cells cut in two, and whether all are points.

    A cut cell keeps at least one value's share, and leaves out as much; single points of it keep, or leave out, at most
    the stretch from the first to the last of them. None: the column is unbounded, and the domain has not only points.
    """
    ends = _places(domain, cells.line)
    lone = _lone(ends, cells.line)
    points = sum(1 for _, _, gain in lone if gain > 0)
    only_points = 2 * points == len(ends)
    if cells.spread is None and not only_points:
        outer = bool(ends) and (ends[0], ends[-1]) == cells.line.ends
        if not outer or len(lone) - points != len(ends) // 2 - 1:
            return None
    mass = 0.0
    cut_cells: dict[int, _CutCell] = {}
    for low, high in zip(ends[::2], ends[1::2], strict=True):
        first, last = cells.of(low), cells.of(high)
        if high == cells.line.ends[1]:
            last += 1
        elif first == last or high > cells.starts[last]:
            inside = first == last and low > cells.starts[last]
            begin = cells.way(low, last) if inside else 0.0
            cut_cells.setdefault(last, _CutCell()).add(begin, cells.way(high, last), cells.mass[last], head=not inside)
        if first < last:
            if low > cells.starts[first]:
                cut_cells.setdefault(first, _CutCell()).add(cells.way(low, first), 1.0, cells.mass[first], tail=True)
            else:
                mass += cells.mass[first]
            if first + 1 < last:
                end = cells.before[last] if last < len(cells.before) else 1.0
                mass += end - cells.before[first + 1]
    for low, high, gain in lone:
        cell = cells.of(low)
        if cell in cut_cells:
            width = (cells.way(high, cell) if cells.of(high) == cell else 1.0) - cells.way(low, cell)
            cut_cells[cell].mass += gain * (cells.single[cell] - cells.mass[cell] * width)
            cut_cells[cell].points += gain
    for cell, part in cut_cells.items():
        mass += part.bounded(cells.mass[cell], cells.single[cell]) if cells.spread is not None else part.mass
    return min(1.0, max(0.0, mass)), sum(cells.mass[cell] for cell in cut_cells), only_points


@dataclass(slots=True)
class _CutCell:
    """Cell of which a domain keeps a part. Positions in the cell are 0..1.

    mass: share of rows that is kept, before bounds.
    first, last: positions between which parts are kept.
    head: end of the part with the cell's beginning; None: not kept.
    tail: beginning of the part with the cell's end; None: not kept.
    points: number of single values that are kept, less those left out.
    """

    mass: float = 0.0
    first: float = 1.0
    last: float = 0.0
    head: float | None = None
    tail: float | None = None
    points: float = 0.0

    def add(self, begin: float, end: float, mass: float, *, head: bool = False, tail: bool = False) -> None:
        self.mass += mass * (end - begin)
        self.first, self.last = min(self.first, begin), max(self.last, end)
        if head:
            self.head = end
        if tail:
            self.tail = begin

    def bounded(self, mass: float, single: float) -> float:
        point_mass = max(-max(mass, single), min(self.points * single, max(mass, single)))
        least = mass * ((self.head or 0.0) + (1.0 - self.tail if self.tail is not None else 0.0))
        most = mass + min(point_mass, 0.0)
        kept_mass = min(max(self.mass, min(least, most)), max(mass * (self.last - self.first), point_mass))
        single_mass = min(single, mass / 2)
        return min(max(kept_mass, min(single_mass, most)), max(mass - single_mass, point_mass))


def _lone(ends: Sequence[Any], line: _Line) -> list[tuple[Any, Any, float]]:
    """Return (value, place behind it, 1.0 if kept or -1.0 if left out) for each single value."""
    return [
        (low, high, -1.0 if i % 2 else 1.0)
        for i, (low, high) in enumerate(pairwise(ends))
        if high == line.place(low, 1)
    ]


def _places(domain: Domain, line: _Line) -> list[Any]:
    """Return the beginnings and ends of stretches on a column's line, without empty ones."""
    ends = [line.place(*cut) for cut in domain.cuts]
    if any(high <= low for low, high in pairwise(ends)):
        return list(joined(ends))
    return ends


@lru_cache(maxsize=2048)
def _cells(column: ColumnStatistics, rows: int, complete: bool) -> _Cells | None:
    """Return a column's cells; None without an NDV."""
    line = line_of(column.data_type)
    ends, below, up_to = _known(column, line)
    values, held = _common(column, line, float(max(1, rows - column.nulls)))
    if not ends.size:
        rest = max(0.0, 1.0 - float(held.sum()))
        if column.ndv <= 0.0:
            return None
        single = min(rest, _single(column.ndv - values.size, rest, held))
        return _assembled(line, values, held, np.zeros(max(0, values.size - 1)), (0.0, rest), single, None)
    points = np.union1d(ends, values)
    is_end = np.isin(points, ends)
    mass, added = np.zeros(points.size), np.zeros(points.size)
    mass[is_end] = up_to - below
    at_value = np.searchsorted(points, values)
    fresh = mass[at_value] <= 0.0
    added[at_value[fresh]] = held[fresh]
    mass += added
    between, buckets = _between(points, added, ends, below, up_to, text=line.text)
    single = _single(column.ndv - int((mass > 0.0).sum()), float(between.sum()), held)
    outside = 0.0 if complete else min(OUTSIDE_SHARE, single)
    around = (float(below[0]) + outside, max(0.0, 1.0 - float(up_to[-1])) + outside)
    spread = "histogram" if column.histogram is not None else "range"
    return _assembled(line, points, mass, between, around, single, spread, buckets)


def _known(column: ColumnStatistics, line: _Line) -> tuple[NDArray[Any], Floats, Floats]:
    """Return the end points of the histogram, or minimum and maximum, with the shares below and up to each."""
    if column.histogram is not None and (column.histogram.endpoints.dtype.kind == "S") == line.text:
        assert column.histogram.below is not None
        assert column.histogram.up_to is not None
        ends, first = np.unique(column.histogram.endpoints, return_index=True)
        return ends, column.histogram.below[first], np.maximum(column.histogram.up_to, column.histogram.below)[first]
    low, high = column.minimum, column.maximum
    if line.text or low is None or high is None or isinstance(low, str) or isinstance(high, str):
        return np.empty(0), np.empty(0), np.empty(0)
    if low >= high:
        return np.array([low]), np.zeros(1), np.ones(1)
    return np.array([low, high]), np.array([0.0, 1.0]), np.array([0.0, 1.0])


def _common(column: ColumnStatistics, line: _Line, present: float) -> tuple[NDArray[Any], Floats]:
    """Return the common values in order, with their shares of all values."""
    common = column.common
    if common is None or present <= 1.0 or (common.values.dtype.kind == "S") != line.text:
        return np.empty(0, dtype=f"S{TEXT_KEY_BYTES}" if line.text else np.float64), np.empty(0)
    order = np.argsort(common.values, kind="stable")
    return common.values[order], common.rows[order] / present


def _between(
    points: NDArray[Any], added: Floats, ends: NDArray[Any], below: Floats, up_to: Floats, *, text: bool
) -> tuple[Floats, Floats]:
    """Return the mass between neighbouring points, and that of the bucket they are in.

    The mass of a bucket is that of the histogram, less its common values.

    added: mass of points that are no end points of the histogram; an end point belongs to the bucket before it.
    """
    if points.size < 2:
        return np.empty(0), np.empty(0)
    if ends.size < 2:
        return np.zeros(points.size - 1), np.zeros(points.size - 1)
    buckets = ends.size - 1
    holding = np.clip(np.searchsorted(ends, points, side="left") - 1, 0, buckets - 1)
    remaining = np.maximum(below[1:] - up_to[:-1] - np.bincount(holding, added, minlength=buckets), 0.0)
    bucket = np.clip(np.searchsorted(ends, points[:-1], side="right") - 1, 0, buckets - 1)
    if text:
        part = 1.0 / np.bincount(bucket, minlength=buckets)[bucket]
    else:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            part = (points[1:] / 2 - points[:-1] / 2) / (ends[1:] / 2 - ends[:-1] / 2)[bucket]
    outside = (points[:-1] < ends[0]) | (points[:-1] >= ends[-1])
    return np.where(outside, 0.0, remaining[bucket] * np.nan_to_num(part)), np.where(outside, 0.0, remaining[bucket])


def _single(ndv_left: float, mass_left: float, held: Floats) -> float:
    """Return the share of one uncounted value: Eq. (2) for the rest, at most that of the rarest common value."""
    single = mass_left / max(1.0, ndv_left)
    return min(single, float(held.min())) if held.size else single


def _assembled(
    line: _Line,
    points: NDArray[Any],
    mass: Floats,
    between: Floats,
    around: tuple[float, float],
    single: float,
    spread: str | None,
    buckets: Floats | None = None,
) -> _Cells:
    """Return the cells of points and of the stretches between them.

    between: mass between neighbouring points. around: mass before the first and behind the last point.
    buckets: mass of the histogram's bucket around each stretch, if common values cut it; None: not cut.
    """
    bottom, top = line.ends
    total = float(mass.sum() + between.sum()) + sum(around)
    scale = 1.0 / total if total > 0.0 and abs(total - 1.0) > ROUNDING else 1.0
    cells: list[tuple[Any, Any, float, bool]] = []
    start, size = bottom, around[0]
    following = [*between.tolist(), around[1]]
    wider = [around[0], *(between if buckets is None else buckets).tolist(), around[1]]
    whole: list[float] = []
    for i, (point, held) in enumerate(zip(points.tolist(), mass.tolist(), strict=True)):
        cells.append((start, point, size, False))
        whole.append(wider[i])
        if held > 0.0:
            cells.append((point, point, held, True))
            whole.append(held)
        start = line.place(point, 1) if held > 0.0 or i + 1 == points.size else point
        size = following[i]
    cells.append((start, top, size if points.size else sum(around), False))
    whole.append(cells[-1][2])
    sizes = [scale * size for _, _, size, _ in cells]
    singles = [
        0.0 if counted else _in_cell(line, single, (size, scale * bucket), start, high, spread)
        for (start, high, _, counted), size, bucket in zip(cells, sizes, whole, strict=True)
    ]
    before = [0.0, *accumulate(sizes)][:-1]
    return _Cells(line, [c[0] for c in cells], [c[1] for c in cells], sizes, singles, before, spread)


def _in_cell(
    line: _Line, single: float, sizes: tuple[float, float], start: Any, high: Any, spread: str | None
) -> float:
    """Return the share of one value in a cell: at most half of its bucket, at least that of a uniform spread.

    sizes: mass of the cell, mass of its bucket.
    """
    if spread is None:
        return single
    size, bucket = sizes
    least = 0.0
    if spread == "histogram" and line.scale is not None and start < high:
        least = size / max(2.0, (high - start) * line.scale)
    return max(min(single, bucket / 2), least)
