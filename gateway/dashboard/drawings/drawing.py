"""Bars over an axis, laid out for the template that writes them as SVG, without scripts or styles of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 960.0, 300.0
TOP, RIGHT, GAP = 10.0, 14.0, 8.0
LINE, CHARACTER = 20.0, 7.5  # of a label: its height and the width of a character, in the drawing's units
LINES = 4  # of the grid, about


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its height, its range on the axis, and its tooltip."""

    height: float
    start: float
    end: float
    tip: str


@dataclass(frozen=True, slots=True)
class Box:
    """A bar in the drawing's units, from its upper left."""

    x: str
    y: str
    width: str
    height: str
    tip: str


@dataclass(frozen=True, slots=True)
class Series:
    """Bars of one colour."""

    name: str
    key: str
    """Place of the name in the legend."""
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """A text of an axis, and its place there."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing as the template writes it, in units of ``size``."""

    size: str
    name: str
    """Content in words, for screen readers."""
    left: str
    right: str
    bottom: str
    legend_at: str
    up: tuple[Label, ...]
    along: tuple[Label, ...]
    series: tuple[Series, ...]


def draw(
    name: str,
    series: Sequence[tuple[str, Sequence[Bar]]],
    along: Sequence[tuple[float, str]],
    *,
    written: Callable[[float], str],
) -> Drawing:
    """Lay bars out.

    series: names and bars; the bars of the first one give the axis.
    along: places and texts of labels below the axis.
    written: formats a height.
    """
    first = series[0][1]
    start, end = first[0].start, first[-1].end
    ticks = _ticks(max(bar.height for _, bars in series for bar in bars))
    texts = [written(tick) for tick in ticks]
    axis_x = GAP + CHARACTER * max(map(len, texts))
    bottom = HEIGHT - LINE * (2 if len(series) > 1 else 1) - GAP

    def x(place: float) -> float:
        return axis_x + (place - start) / (end - start) * (WIDTH - RIGHT - axis_x)

    def y(height: float) -> float:
        return bottom - height / ticks[-1] * (bottom - TOP)

    return Drawing(
        size=f"{WIDTH:g} {HEIGHT:g}",
        name=name,
        left=_unit(axis_x),
        right=_unit(WIDTH - RIGHT),
        bottom=_unit(bottom),
        legend_at=_unit(HEIGHT - GAP),
        up=tuple(Label(_unit(y(tick)), text) for tick, text in zip(ticks, texts, strict=True)),
        along=tuple(Label(_unit(x(place)), text) for place, text in along),
        series=tuple(
            Series(
                series_name,
                _unit(axis_x + at * (WIDTH - axis_x) / len(series)),
                tuple(
                    Box(
                        _unit(x(bar.start)),
                        _unit(y(bar.height)),
                        _unit(x(bar.end) - x(bar.start)),
                        _unit(bottom - y(bar.height)),
                        bar.tip,
                    )
                    for bar in bars
                ),
            )
            for at, (series_name, bars) in enumerate(series)
        ),
    )


def _ticks(largest: float) -> list[float]:
    """Return round heights from zero up to the first one that is not below the largest bar."""
    if largest <= 0.0:
        return [0.0, 1.0]
    rough = largest / LINES
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * scale for factor in (1.0, 2.0, 5.0, 10.0) if factor * scale >= rough)
    return [step * number for number in range(math.ceil(largest / step - 1e-9) + 1)]


def _unit(length: float) -> str:
    return f"{length:.1f}"
