"""Leases and waits of the last hour, and counts since the start. Nothing here is thread-safe.

It is told of changes and reads no clock: of each interval it keeps the highest level and the integral of the level over
time, so that what was held between two changes counts as long as it was held.
"""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

INTERVAL_S = 5.0
INTERVALS = 720  # that are kept: an hour
WAIT_BOUNDS_S = (0.01, 0.1, 1.0, 10.0, 60.0, math.inf)


class Of(StrEnum):
    """Whose usage it is."""

    ENGINE = "engine"
    POOL = "pool"


@dataclass(frozen=True, slots=True)
class Level:
    """Slots and bytes that are held, and statements that wait; as means, no whole numbers."""

    slots: float = 0
    bytes: float = 0
    waiting: float = 0

    def plus(self, other: Level) -> Level:
        """Return the sum."""
        return Level(self.slots + other.slots, self.bytes + other.bytes, self.waiting + other.waiting)

    def highest(self, other: Level) -> Level:
        """Return the larger one of each."""
        if other.slots <= self.slots and other.bytes <= self.bytes and other.waiting <= self.waiting:
            return self
        return Level(max(self.slots, other.slots), max(self.bytes, other.bytes), max(self.waiting, other.waiting))


@dataclass(frozen=True, slots=True)
class Interval:
    """Interval of the usage history.

    start_s: its start, by the clock of the recorded changes.
    seconds: its length so far.
    most: highest level of each resource within it.
    area: integral of the level over time, in slot-, byte- and waiter-seconds.
    """

    start_s: float
    seconds: float
    most: Level
    area: Level

    @property
    def mean(self) -> Level:
        """The level's mean over time."""
        if not self.seconds:
            return self.most
        area, seconds = self.area, self.seconds  # whose reciprocal may be no number
        return Level(area.slots / seconds, area.bytes / seconds, area.waiting / seconds)


@dataclass(frozen=True, slots=True)
class History:
    """Intervals, oldest first. begun: the moment at which their ``start_s`` is zero."""

    begun: dt.datetime
    intervals: tuple[Interval, ...]


@dataclass(slots=True)
class _Open:
    """The interval that goes on: changed in place, as admission tells of it several times for each statement."""

    start_s: float
    most: Level
    seconds: float = 0.0
    slots: float = 0.0
    bytes: float = 0.0
    waiting: float = 0.0

    def closed(self) -> Interval:
        return Interval(self.start_s, self.seconds, self.most, Level(self.slots, self.bytes, self.waiting))

    def extend(self, level: Level, seconds: float) -> None:
        """Extend the interval by some seconds at a level."""
        self.seconds += seconds
        self.slots += level.slots * seconds
        self.bytes += level.bytes * seconds
        self.waiting += level.waiting * seconds


class Series:
    """Levels of one engine or one pool over time, in intervals of ``INTERVAL_S``, of which the last ones are kept."""

    def __init__(self, now_s: float) -> None:
        self._level = Level()
        self._at_s = now_s
        self._ended: deque[Interval] = deque(maxlen=INTERVALS - 1)
        self._open = _Open(now_s, self._level)

    def change(self, now_s: float, level: Level) -> None:
        """Set the level from now on."""
        self._advance(now_s)
        self._level = level
        self._open.most = self._open.most.highest(level)

    def until(self, now_s: float) -> tuple[Interval, ...]:
        """Return the intervals up to now, oldest first."""
        self._advance(now_s)
        return (*self._ended, self._open.closed())

    def _advance(self, now_s: float) -> None:
        """Extend the open interval until now."""
        forgotten = math.floor((now_s - self._at_s) / INTERVAL_S) - INTERVALS
        if forgotten > 0:  # nobody asked for longer than is kept
            self._at_s = self._open.start_s + forgotten * INTERVAL_S
            self._ended.clear()
            self._open = _Open(self._at_s, self._level)
        while self._at_s < now_s:
            end_s = self._open.start_s + INTERVAL_S
            if end_s <= self._at_s:
                self._ended.append(self._open.closed())
                self._open = _Open(end_s, self._level)
                continue
            until_s = min(now_s, end_s)
            self._open.extend(self._level, until_s - self._at_s)
            self._at_s = until_s


@dataclass(slots=True)
class WaitCounts:
    """Waits for granted leases. up_to: histogram; waits up to each of ``WAIT_BOUNDS_S``, above the bound before."""

    total_s: float = 0.0
    up_to: list[int] = field(default_factory=lambda: [0] * len(WAIT_BOUNDS_S))

    def add(self, seconds: float) -> None:
        """Count a wait."""
        self.total_s += seconds
        self.up_to[bisect_left(WAIT_BOUNDS_S, seconds)] += 1


class Usage:
    """Series of all engines and pools, and counts by engine and pool. refusals: counts also by error code."""

    def __init__(self, engines: Iterable[str], pools: Iterable[str], now_s: float) -> None:
        keys = [*((Of.ENGINE, name) for name in engines), *((Of.POOL, name) for name in pools)]
        self.series = {key: Series(now_s) for key in keys}
        self.waits: defaultdict[tuple[str, str], WaitCounts] = defaultdict(WaitCounts)
        self.refusals: Counter[tuple[str, str, str]] = Counter()


def merged(intervals: Iterable[Interval], step_s: float) -> tuple[Interval, ...]:
    """Return coarser intervals: each as many as begin within ``step_s``."""
    coarser: list[Interval] = []
    for interval in intervals:
        last = coarser[-1] if coarser else None
        if last is None or interval.start_s >= last.start_s + step_s - INTERVAL_S / 2:
            coarser.append(interval)
        else:
            coarser[-1] = Interval(
                last.start_s,
                last.seconds + interval.seconds,
                last.most.highest(interval.most),
                last.area.plus(interval.area),
            )
    return tuple(coarser)
