"""Plots of a column's histogram and key bins, with the same in words.

A plot shows shares of rows over ranges of equal width, read off the equi-height histogram. A long tail would squeeze
everything else into one bar, so it is described in words instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.dashboard.drawings import drawing
from gateway.dashboard.drawings.drawing import Drawing
from gateway.presentation.formatting import cardinality, share, value
from selector.join_keys import KeyStatistics
from selector.statistics import ColumnStatistics, Histogram
from selector.types import Group, names_of

BARS = 48
TAILS = (0.01, 0.05)  # shares of rows at either end that may be left out
SQUEEZED = 0.25  # share of the range, below which the rows between the tails are drawn alone
EACH_VALUE_UP_TO = 60  # whole numbers, days and truth values: one bar each
FEW_GROUPS, MANY_GROUPS, LONGEST_PREFIX = 8, 64, 3
SMEARED = 0.002  # smallest share of a prefix: shares between two endpoints of text are interpolated
COUNTABLE = names_of(Group.BOOLEAN, Group.WHOLE, Group.DATE)
LABEL_CHARACTERS = 130  # side by side below a plot
AXIS_LABELS = 7


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its values in words, its height as a share, and its range on the axis."""

    label: str
    share: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing with a summary, its bars as numbers, and a note about rows that are not drawn."""

    drawing: Drawing
    summary: str
    rows: tuple[tuple[str, str], ...]
    note: str = ""


def histogram(column: ColumnStatistics) -> Plot | None:
    """Draw the distribution of a column's values; None: not known, or a single value."""
    if column.histogram is None:
        return None
    text = column.histogram.endpoints.dtype.kind == "S"
    bars, note = _of_text(column.histogram) if text else _of_numbers(column.histogram, column.data_type)
    if len(bars) < 2:
        return None
    tallest = max(bars, key=lambda bar: bar.share)
    summary = f"Shares of the rows of {column.name} in {len(bars)} ranges; the largest is {share(tallest.share)}"
    summary += f" at {tallest.label}."
    if text:
        along = _spaced(bars)
    else:
        places = np.linspace(bars[0].start, bars[-1].end, AXIS_LABELS).tolist()
        along = [(place, value(place, column.data_type)) for place in places]
    boxes = [drawing.Bar(bar.share, bar.start, bar.end, f"{bar.label}: {share(bar.share)}") for bar in bars]
    drawn = drawing.draw(summary, [("share", boxes)], along, written=share)
    return Plot(drawn, summary, tuple((bar.label, share(bar.share)) for bar in bars), note)


def key_bins(name: str, keys: KeyStatistics, data_type: str) -> Plot:
    """Draw the rows of each key bin, and of its most frequent key."""
    rows, largest = keys.rows, keys.largest
    labels = [value(start, data_type) for start in keys.bins.starts.tolist()]
    summary = f"Rows of {name} in the {keys.bins.count} bins of the key group {keys.bins.group}"
    summary += f", and how many of them hold the most frequent key; at most {cardinality(float(rows.max()))} rows."
    bars = [Bar(label, 0.0, at, at + 1.0) for at, label in enumerate(labels)]
    series = [
        ("rows of the bin", _counted(labels, rows, "rows")),
        ("rows of its most frequent key", _counted(labels, largest, "rows of one key")),
    ]
    drawn = drawing.draw(summary, series, _spaced(bars), written=lambda count: f"{count:,.0f}")
    shown = tuple((f"from {label}", f"{count:,.0f}") for label, count in zip(labels, rows, strict=True))
    return Plot(drawn, summary, shown)


# ---------------------------------------------------------------------- bars


def _of_numbers(histogram: Histogram, data_type: str) -> tuple[list[Bar], str]:
    low, high, note = _window(histogram, data_type)
    if low == high:
        return [], note
    whole = data_type in COUNTABLE
    if whole and high - low < EACH_VALUE_UP_TO:
        edges = np.arange(low, high + 2) - 0.5
        labels = [value(x, data_type) for x in np.arange(low, high + 1).tolist()]
    else:
        edges = np.linspace(low, high, BARS + 1)
        if whole:
            edges = np.unique(np.append(np.floor(edges[:-1]), high + 1))
        labels = [f"{value(a, data_type)} to {value(b, data_type)}" for a, b in itertools.pairwise(edges)]
    up_to = [histogram.share_below(float(edge)) for edge in edges[:-1]] + [histogram.share_up_to(float(edges[-1]))]
    shares = np.diff(up_to).tolist()
    starts, ends = edges[:-1].tolist(), edges[1:].tolist()
    return [Bar(*bar) for bar in zip(labels, shares, starts, ends, strict=True)], note


def _window(histogram: Histogram, data_type: str) -> tuple[float, float, str]:
    """Return the range to draw, and a note about the rows outside."""
    ends = histogram.endpoints.astype(np.float64)
    lowest, highest = low, high = float(ends[0]), float(ends[-1])
    for tail in TAILS:
        inner_low, inner_high = _quantile(histogram, ends, tail), _quantile(histogram, ends, 1.0 - tail)
        inner = inner_high - inner_low
        if 0.0 < inner < SQUEEZED * (high - low):
            low = inner_low if inner_low - low > inner else low
            high = inner_high if high - inner_high > inner else high
    outside = []
    if low > lowest:
        outside.append(f"{share(histogram.share_below(low))} of the rows lie below, down to {value(lowest, data_type)}")
    if high < highest:
        above = 1.0 - histogram.share_up_to(high)
        outside.append(f"{share(above)} of the rows lie above, up to {value(highest, data_type)}")
    return low, high, f"Not drawn: {'; '.join(outside)}." if outside else ""


def _quantile(histogram: Histogram, ends: NDArray[np.float64], p: float) -> float:
    assert histogram.up_to is not None
    return float(ends[min(int(np.searchsorted(histogram.up_to, p)), ends.size - 1)])


def _of_text(histogram: Histogram) -> tuple[list[Bar], str]:
    """Group strings by prefixes, which are as long as it takes to tell them apart."""
    first, last = bytes(histogram.endpoints[0]), bytes(histogram.endpoints[-1])
    common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    groups = [first[:common]]
    for _ in range(LONGEST_PREFIX):
        longer = [group + bytes([byte]) for group in groups for byte in range(0x20, 0xF5)]
        longer = [group for group in longer if _starting_with(histogram, group) >= SMEARED]
        if not longer or len(longer) > MANY_GROUPS:
            break
        groups = longer
        if len(groups) >= FEW_GROUPS:
            break
    return [
        Bar(f"{value(group, 'string')}…", _starting_with(histogram, group), float(at), at + 1.0)
        for at, group in enumerate(groups)
    ], ""


def _starting_with(histogram: Histogram, prefix: bytes) -> float:
    if not prefix:
        return 1.0
    return histogram.share_below(prefix[:-1] + bytes([prefix[-1] + 1])) - histogram.share_below(prefix)


def _counted(labels: Sequence[str], counts: NDArray[np.float64], what: str) -> list[drawing.Bar]:
    """Return a bar per bin. labels: beginnings of the bins."""
    return [
        drawing.Bar(float(count), at, at + 1.0, f"from {label}: {count:,.0f} {what}")
        for at, (label, count) in enumerate(zip(labels, counts, strict=True))
    ]


# ---------------------------------------------------------------------- labels


def _spaced(bars: Sequence[Bar]) -> list[tuple[float, str]]:
    """Return places and labels of as many bars as have room for a label."""
    longest = max(len(bar.label) for bar in bars)
    step = max(1, -(-len(bars) * (longest + 3) // LABEL_CHARACTERS))
    return [((bar.start + bar.end) / 2, bar.label) for bar in bars[::step]]
