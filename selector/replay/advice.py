"""Which limit, and how many statements at once, would have cost the least on a history.

Of a fast engine, limits around the peaks that were seen are replayed, each with more and fewer statements at once, as
far as limit times statements stays within the memory of a machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from selector.replay.hindsight import Hindsight
from selector.replay.recorded import History, RecordedStatement, ReplaySettings
from selector.replay.replay import Load, replay
from selector.wording import MIB

LIMITS = 7  # that are tried beside the recorded one
SMALLEST_LIMIT_BYTES = 16 * MIB
ROOM = 1.1  # over a peak that was seen
BEYOND = 2.0  # times a limit that was not enough: nobody knows by how much
LARGER_SLOTS = 2  # times as many statements at once as now, at most
AS_GOOD = 1.01  # what costs so little more is as good, if it takes less


@dataclass(frozen=True, slots=True)
class Option:
    """One limit and number of slots of an engine, and what the history would have taken with them.

    client_s: of all statements together, with waiting. is_recorded: it is what is configured. is_best: nothing that
    was tried costs less.
    """

    limit_bytes: int
    slots: int
    load: Load
    client_s: float
    is_recorded: bool = False
    is_best: bool = False

    @property
    def memory_bytes(self) -> int:
        """Memory that the engine takes with all its slots in use."""
        return self.limit_bytes * self.slots


def advise(
    history: History,
    settings: ReplaySettings,
    *,
    engine: str,
    limit_bytes: int,
    memory_bytes: int,
    prices: Mapping[str, float],
) -> list[Option]:
    """Return the options of a fast engine, the least memory first.

    limit_bytes: that is configured. memory_bytes: that the engine may take, all slots together. prices: of an
    engine-hour; without any, the least seconds of clients are the best.
    """
    hindsight = Hindsight(history)
    slots = history.slots[engine]
    options = []
    for limit in limits_to_try(history.statements, engine, limit_bytes, memory_bytes):
        replayed = replay(history, replace(settings, limits={**settings.limits, engine: limit}), hindsight)
        load = replayed.load
        for count in range(1, LARGER_SLOTS * slots + 1):
            is_recorded = (limit, count) == (limit_bytes, slots)
            if limit * count <= memory_bytes or is_recorded:
                client_s = sum(replayed.client_s(history, {**history.slots, **settings.slots, engine: count}))
                options.append(Option(limit, count, load, client_s, is_recorded))
    best = _best([option for option in options if option.memory_bytes <= memory_bytes], prices)
    options.sort(key=lambda option: (option.memory_bytes, option.limit_bytes))
    return [replace(option, is_best=option is best) for option in options]


def limits_to_try(
    statements: Sequence[RecordedStatement], engine: str, limit_bytes: int, memory_bytes: int
) -> list[int]:
    """Return limits between the least and the largest that the peaks of a history ask for, and the configured one."""
    peaks, missed = [], []
    for attempt in (attempt for statement in statements for attempt in statement.attempts if attempt.engine == engine):
        if attempt.ran_out and attempt.expected.limit_bytes is not None:
            missed.append(attempt.expected.limit_bytes)
        elif attempt.finished and attempt.peak_bytes is not None:
            peaks.append(attempt.peak_bytes)
    seen = [*(ROOM * peak for peak in peaks), *(BEYOND * limit for limit in missed)] or [limit_bytes]
    most = min(memory_bytes, max(*seen, limit_bytes))
    least = max(SMALLEST_LIMIT_BYTES, min(sorted(seen)[len(seen) // 2], limit_bytes / 2))
    if least >= most:
        return sorted({limit_bytes, *([int(most)] if most >= SMALLEST_LIMIT_BYTES else [])})
    step = (most / least) ** (1 / (LIMITS - 1))
    tried = {round(least * step**place / MIB) * MIB for place in range(LIMITS)}
    return sorted({limit_bytes, *(limit for limit in tried if limit <= memory_bytes)})


def _best(options: Sequence[Option], prices: Mapping[str, float]) -> Option | None:
    """Return what costs the least money, then the least seconds of clients, then the least memory."""
    cheapest_options = list(options)
    if prices and cheapest_options:
        cheapest = min(option.load.money(prices) for option in cheapest_options)
        cheapest_options = [option for option in cheapest_options if option.load.money(prices) <= AS_GOOD * cheapest]
    if cheapest_options:
        quickest = min(option.client_s for option in cheapest_options)
        cheapest_options = [option for option in cheapest_options if option.client_s <= AS_GOOD * quickest]
    return min(cheapest_options, key=lambda option: (option.memory_bytes, option.client_s), default=None)
