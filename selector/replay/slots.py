"""Waiting for slots: statements, in the order in which they come, over engines that take so many at once.

A client that waits for an answer sends nothing else meanwhile: what it sent next in the record comes when it did
there, but not before the answer.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """A statement. ended_s: as recorded. visits: engines that it holds a slot of, one after the other, and how long."""

    client: str
    submitted_s: float
    ended_s: float
    visits: tuple[tuple[str, float], ...]


class Slots:
    """The slots of all engines, for statements that come in order."""

    def __init__(self, slots: Mapping[str, int]) -> None:
        self._free = {engine: [0.0] * max(1, count) for engine, count in slots.items()}

    def wait_s(self, engine: str, now_s: float) -> float:
        """Return the seconds until a slot is free."""
        free = self._free.get(engine)
        return max(0.0, free[0] - now_s) if free else 0.0

    def take(self, engine: str, now_s: float, seconds: float) -> float:
        """Hold the first slot that is free; returns when it is given back. An engine without slots has one for all."""
        free = self._free.get(engine)
        if not free:
            return now_s + seconds
        ended_s = max(now_s, free[0]) + seconds
        heapq.heapreplace(free, ended_s)
        return ended_s


def client_seconds(arrivals: Sequence[Arrival], slots: Mapping[str, int]) -> list[float]:
    """Return the seconds from each statement's coming to its end. arrivals: in the order of submission."""
    before = [arrival.submitted_s for arrival in arrivals]
    origin_s = min(before, default=0.0)
    successor = _successors(arrivals)
    awaited = set(successor.values())
    places = Slots(slots)
    coming = [
        (arrival.submitted_s - origin_s, number, 0) for number, arrival in enumerate(arrivals) if number not in awaited
    ]
    heapq.heapify(coming)
    came_s = {number: ready_s for ready_s, number, _ in coming}
    seconds = [0.0] * len(arrivals)
    while coming:
        ready_s, number, stage = heapq.heappop(coming)
        visits = arrivals[number].visits
        if stage < len(visits):
            engine, taken_s = visits[stage]
            heapq.heappush(coming, (places.take(engine, ready_s, taken_s), number, stage + 1))
            continue
        seconds[number] = ready_s - came_s[number]
        after = successor.get(number)
        if after is not None:
            came_s[after] = max(arrivals[after].submitted_s - origin_s, ready_s)
            heapq.heappush(coming, (came_s[after], after, 0))
    return seconds


def _successors(arrivals: Sequence[Arrival]) -> dict[int, int]:
    """Return which statement its client sent after which, in the record: the newest that had ended by then."""
    ended: dict[str, list[int]] = defaultdict(list)
    following = {}
    for number, arrival in enumerate(arrivals):
        mine = ended[arrival.client]
        done = [earlier for earlier in mine if arrivals[earlier].ended_s <= arrival.submitted_s]
        if done:
            last = max(done, key=lambda earlier: arrivals[earlier].ended_s)
            following[last] = number
            mine.remove(last)
        mine.append(number)
    return following
