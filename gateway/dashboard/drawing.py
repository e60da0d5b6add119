"""Bars over an axis, laid out for the template that writes them as SVG: no script, no style of its own, our colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 960.0, 300.0
TOP, RIGHT, GAP = 10.0, 14.0, 8.0
LINE, CHARACTER = 20.0, 7.5  # of a label: its height and the width of each character, in the drawing's units
LINES = 4  # of the grid, about


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its height, where it begins and ends on the axis, and what its tip says."""

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
    """Bars of one colour. key: where its name stands in the legend."""

    name: str
    key: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """A text of an axis, and where it stands along that."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Everything that the template writes, in units of ``size``. name: what it shows, for screen readers."""

    size: str
    name: str
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
    """Lay bars out. series: each with its name; the first one gives the axis. along: labels below it, by their places.

    written: writes a height.
    """
    first = series[0][1]
    start, end = first[0].start, first[-1].end
    ticks = _ticks(max(bar.height for _, bars in series for bar in bars))
    texts = [written(tick) for tick in ticks]
    left = GAP + CHARACTER * max(map(len, texts))
    bottom = HEIGHT - LINE * (2 if len(series) > 1 else 1) - GAP

    def x(place: float) -> float:
        return left + (place - start) / (end - start) * (WIDTH - RIGHT - left)

    def y(height: float) -> float:
        return bottom - height / ticks[-1] * (bottom - TOP)

    return Drawing(
        size=f"{WIDTH:g} {HEIGHT:g}",
        name=name,
        left=_unit(left),
        right=_unit(WIDTH - RIGHT),
        bottom=_unit(bottom),
        legend_at=_unit(HEIGHT - GAP),
        up=tuple(Label(_unit(y(tick)), text) for tick, text in zip(ticks, texts, strict=True)),
        along=tuple(Label(_unit(x(place)), text) for place, text in along),
        series=tuple(
            Series(
                each,
                _unit(left + at * (WIDTH - left) / len(series)),
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
            for at, (each, bars) in enumerate(series)
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
