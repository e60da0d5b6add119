"""Pools as they are, and the last hour of engines and pools as plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.dashboard import drawing
from gateway.dashboard.drawing import Drawing
from gateway.http.models.engines import CacheReply, IntervalModel, PoolModel, UsageModel
from gateway.presentation.formatting import DASH, memory
from selector.wording import percent

LABELS = 6  # of the axis of time


@dataclass(frozen=True, slots=True)
class PoolLine:
    """A pool in a line."""

    name: str
    slots: str
    memory: str
    waiting: str
    weight: str

    @classmethod
    def of(cls, pool: PoolModel) -> PoolLine:
        """Show a pool."""
        return cls(
            pool.name,
            f"{pool.slots_held} of {pool.slots if pool.slots is not None else DASH}",
            f"{memory(pool.bytes_held)} of {memory(pool.memory_bytes, absent=DASH)}",
            f"{pool.waiting} of {pool.queue if pool.queue is not None else DASH}",
            f"{pool.weight:g}",
        )


@dataclass(frozen=True, slots=True)
class CacheLine:
    """Cached results in a line."""

    entries: str
    bytes: str
    hit_rate: str
    hits: str
    misses: str
    outdated: str
    evicted: str

    @classmethod
    def of(cls, cache: CacheReply) -> CacheLine:
        """Show the cache."""
        counts = (cache.hits, cache.misses, cache.outdated, cache.evicted)
        rate = DASH if cache.hit_rate is None else percent(cache.hit_rate)
        bytes = f"{memory(cache.bytes)} of {memory(cache.limit_bytes)}"
        return cls(f"{cache.entries:,}", bytes, rate, *(f"{count:,}" for count in counts))


@dataclass(frozen=True, slots=True)
class Load:
    """An engine's or a pool's last hour. plots: each with its heading."""

    name: str
    limits: str
    plots: tuple[tuple[str, Drawing], ...]

    @classmethod
    def of(cls, usage: UsageModel) -> Load:
        """Draw what was leased, and who waited."""
        title = f"{usage.of} {usage.name}"
        slots = f"{usage.slots} slots" if usage.slots is not None else "no limit of slots"
        capacity = memory(usage.capacity_bytes, absent="no limit of memory")
        kinds: list[tuple[str, str, Callable[[float], str]]] = [
            ("Slots in use", "slots", _number),
            ("Waiting", "waiting", _number),
        ]
        if any(each.most.bytes for each in usage.intervals):
            kinds.insert(0, ("Memory leased", "bytes", lambda count: memory(round(count))))
        drawn = tuple((heading, _drawn(f"{heading} of {title}", usage, of, text)) for heading, of, text in kinds)
        return cls(title, f"{slots}, {capacity}", drawn)


def _drawn(name: str, usage: UsageModel, of: str, text: Callable[[float], str]) -> Drawing:
    starts = [each.start.timestamp() for each in usage.intervals]
    ends = [*starts[1:], starts[-1] + max(usage.intervals[-1].seconds, 1.0)]

    def bars(kind: str, height: Callable[[IntervalModel], float]) -> list[drawing.Bar]:
        return [
            drawing.Bar(height(each), start, end, f"{each.start:%H:%M:%S} UTC: {kind} {text(height(each))}")
            for each, start, end in zip(usage.intervals, starts, ends, strict=True)
        ]

    highest = bars("at most", lambda each: float(getattr(each.most, of)))
    mean = bars("on average", lambda each: float(getattr(each.mean, of)))
    along = [
        ((starts[at] + ends[at]) / 2, f"{usage.intervals[at].start:%H:%M}")
        for at in range(0, len(starts), max(1, len(starts) // LABELS))
    ]
    return drawing.draw(name, [("at most", highest), ("on average", mean)], along, written=text)


def _number(count: float) -> str:
    return f"{count:.3g}"
