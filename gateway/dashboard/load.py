"""The last hour of engines and pools as plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.dashboard.drawings import drawing
from gateway.dashboard.drawings.drawing import Drawing
from gateway.http.models.engines import IntervalModel, UsageModel
from gateway.presentation.formatting import memory

LABELS = 6  # of the axis of time


@dataclass(frozen=True, slots=True)
class Load:
    """The last hour of an engine or a pool."""

    name: str
    limits: str
    plots: tuple[tuple[str, Drawing], ...]
    """Headings and drawings."""

    @classmethod
    def of(cls, usage: UsageModel) -> Load:
        """Draw leases and waiting statements."""
        title = f"{usage.of} {usage.name}"
        slots = f"{usage.slots} slots" if usage.slots is not None else "no limit of slots"
        capacity = memory(usage.capacity_bytes, absent="no limit of memory")
        kinds: list[tuple[str, str, Callable[[float], str]]] = [
            ("Slots in use", "slots", _number),
            ("Waiting", "waiting", _number),
        ]
        if any(interval.most.bytes for interval in usage.intervals):
            kinds.insert(0, ("Memory leased", "bytes", lambda count: memory(round(count))))
        drawn = tuple((heading, _drawn(f"{heading} of {title}", usage, of, text)) for heading, of, text in kinds)
        return cls(title, f"{slots}, {capacity}", drawn)


def _drawn(name: str, usage: UsageModel, of: str, text: Callable[[float], str]) -> Drawing:
    starts = [interval.start.timestamp() for interval in usage.intervals]
    ends = [*starts[1:], starts[-1] + max(usage.intervals[-1].seconds, 1.0)]

    def bars(kind: str, height: Callable[[IntervalModel], float]) -> list[drawing.Bar]:
        return [
            drawing.Bar(height(interval), start, end, f"{interval.start:%H:%M:%S} UTC: {kind} {text(height(interval))}")
            for interval, start, end in zip(usage.intervals, starts, ends, strict=True)
        ]

    highest = bars("at most", lambda interval: float(getattr(interval.most, of)))
    mean = bars("on average", lambda interval: float(getattr(interval.mean, of)))
    along = [
        ((starts[at] + ends[at]) / 2, f"{usage.intervals[at].start:%H:%M}")
        for at in range(0, len(starts), max(1, len(starts) // LABELS))
    ]
    return drawing.draw(name, [("at most", highest), ("on average", mean)], along, written=text)


def _number(count: float) -> str:
    return f"{count:.3g}"
