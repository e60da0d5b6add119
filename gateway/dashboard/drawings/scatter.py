"""Measured against expected peaks, as in the paper's Figure 12: points on two logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.presentation.formatting import memory
from selector.wording import MIB

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 900.0, 520.0, 100.0, 50.0, 24.0, 20.0
LEAST_BYTES = 1 << 16
TICK_FACTOR = 10.0  # between two marks on an axis, which are MiB times powers of it
LEAST_POWER, MOST_POWER = -1, 10


@dataclass(frozen=True, slots=True)
class Point:
    """A query. x, y: its place in the drawing."""

    query_id: str
    x: float
    y: float
    tip: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis. at: its place."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Scatter:
    """A drawing of peaks. diagonal: beginning and end of the line on which both peaks are equal.

    median_error: the median factor between the two; None: there are no points.
    """

    points: tuple[Point, ...]
    along: tuple[Tick, ...]
    up: tuple[Tick, ...]
    diagonal: tuple[float, float, float, float]
    median_error: float | None
    size: tuple[float, float] = (WIDTH, HEIGHT)
    frame: tuple[float, float, float, float] = (LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM)

    @classmethod
    def of(cls, peaks: Sequence[tuple[str, int, int]]) -> Scatter:
        """Draw queries: id, expected bytes, measured bytes."""
        sizes = [max(LEAST_BYTES, size) for _, expected, measured in peaks for size in (expected, measured)]
        low = math.log(min(sizes, default=LEAST_BYTES)) - 0.1
        high = max(math.log(max(sizes, default=LEAST_BYTES)), low + math.log(TICK_FACTOR)) + 0.1

        def place(size: int) -> float:
            return (math.log(max(LEAST_BYTES, size)) - low) / (high - low)

        def x(size: int) -> float:
            return LEFT + place(size) * (WIDTH - LEFT - RIGHT)

        def y(size: int) -> float:
            return HEIGHT - BOTTOM - place(size) * (HEIGHT - BOTTOM - TOP)

        points = tuple(
            Point(name, round(x(expected), 1), round(y(measured), 1), _tip(name, expected, measured))
            for name, expected, measured in peaks
        )
        steps = (round(MIB * TICK_FACTOR**power) for power in range(LEAST_POWER, MOST_POWER))
        marks = [size for size in steps if low < math.log(size) < high]
        errors = sorted(abs(math.log(max(1, measured) / max(1, expected))) for _, expected, measured in peaks)
        return cls(
            points=points,
            along=tuple(Tick(round(x(size), 1), memory(size)) for size in marks),
            up=tuple(Tick(round(y(size), 1), memory(size)) for size in marks),
            diagonal=(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, TOP),
            median_error=math.exp(errors[len(errors) // 2]) if errors else None,
        )


def _tip(name: str, expected: int, measured: int) -> str:
    return f"{name}: expected {memory(expected)}, measured {memory(measured)}"
