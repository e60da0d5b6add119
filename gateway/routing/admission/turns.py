"""Order of waiting statements, overtaking, and forecasts of their start. Nothing here is thread-safe."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.routing.admission.holdings import Holding, Holdings, Sharer
from gateway.routing.admission.values import POOL, EngineBudget, Need, Pool, Request, Resource

UNKNOWN_S = 1.0  # that a statement is taken to run of which nothing is known
SOONEST_S = 0.05  # that one is taken to go on which should have ended by now
MOST_PASSED = 64  # times that one which does not fit is passed by others that end before it could start
FEW_PASSED = 4  # the same by others, of which that is not known
MOST_SIMULATED = 500  # waiters that are looked at to tell when one's turn comes

Wants = tuple[str, str, str, int, bool]
"""Engine, pool, account, bytes, and whether it is long."""


@dataclass(slots=True, eq=False)
class Waiter:
    """Statement that waits for a lease.

    number: position in the order of arrival.
    since_s: monotonic time of its arrival; at_s: the same since the epoch.
    changed: condition that wakes its thread.
    need: reason for which it waits.
    passed: number of statements that overtook it.
    holding: its lease; None: it still waits.
    wants: attributes that decide whether there is room for it.
    """

    request: Request
    pool: Pool
    memory_bytes: int
    number: int
    since_s: float
    at_s: float
    changed: threading.Condition
    need: Need = Need.TURN
    passed: int = 0
    is_counted: bool = False
    holding: Holding | None = None
    wants: Wants = field(init=False)

    def __post_init__(self) -> None:
        request = self.request
        self.wants = request.engine, self.pool.name, request.principal.account, self.memory_bytes, request.is_long

    def is_passed_by(self, other: Waiter, *, is_guest: bool) -> bool:
        """Tell whether another statement takes what this one waits for. is_guest: it takes resources of guests."""
        if self.need.of_pool:
            return self.pool.name == other.pool.name
        if self.need is Need.PROCESSORS and other.request.is_long is not self.request.is_long:
            return False
        return self.request.engine == other.request.engine and not is_guest


class Turns:
    """Order of waiting statements: pools by weight, then users, each by what it holds, then by its last turn."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._number = 0
        self._of_account: dict[str, int] = {}  # the number of its last turn
        self._of_pool: dict[str, float] = {}  # turns over weight: the lowest is next where shares are alike

    def in_order(self, waiters: Iterable[Waiter]) -> list[Waiter]:
        """Return waiters in order: least held by their pool per weight, then by their user, then first come."""
        orders: dict[tuple[str, str, str, str], tuple[float, float, float, float, int]] = {}

        def order(waiter: Waiter) -> tuple[tuple[float, float, float, float, int], int]:
            engine, principal, pool = waiter.request.engine, waiter.request.principal, waiter.pool
            key = engine, pool.name, principal.quota_key, principal.account
            if key not in orders:
                share = self._holdings.share
                orders[key] = (
                    share(engine, Sharer.POOL, pool.name) / pool.weight,
                    self._of_pool.get(pool.name, 0.0),
                    share(engine, Sharer.SOURCE, principal.quota_key),
                    share(engine, Sharer.ACCOUNT, principal.account),
                    self._of_account.get(principal.account, 0),
                )
            return orders[key], waiter.number

        return sorted(waiters, key=order)

    def arrived(self, pool: Pool) -> None:
        """Record an arrival in a pool: an idle pool has no missed turns to make up for."""
        if pool.name not in self._of_pool:
            self._of_pool[pool.name] = min(self._of_pool.values(), default=0.0)

    def record_grant(self, waiter: Waiter) -> None:
        """Record a granted lease."""
        self._number += 1
        self._of_account[waiter.request.principal.account] = self._number
        self._of_pool[waiter.pool.name] = self._of_pool.get(waiter.pool.name, 0.0) + 1.0 / waiter.pool.weight

    def keep_only(self, waiters: Iterable[Waiter]) -> None:
        """Drop the turns of users and pools without leases and waiters."""
        present: list[Holding | Waiter] = [*self._holdings.all, *waiters]
        accounts, pools = {entry.request.principal.account for entry in present}, {entry.pool.name for entry in present}
        self._of_account = {name: turn for name, turn in self._of_account.items() if name in accounts}
        self._of_pool = {name: turns for name, turns in self._of_pool.items() if name in pools}


def remaining_s(holding: Holding, now_s: float) -> float:
    """Return the expected remaining seconds of a statement; of a late one, as long again as it is late."""
    expected_s = UNKNOWN_S if holding.request.expected_s is None else holding.request.expected_s
    rest_s = expected_s - (now_s - holding.since_s)
    return rest_s if rest_s > 0 else max(SOONEST_S, -rest_s)


def may_pass(waiter: Waiter, blocked: Waiter, holdings: Holdings, starts_s: float) -> bool:
    """Tell whether a statement that fits may overtake one that does not.

    It may where it is likely to end before the other could start, or else a few times, though never before somebody
    who holds nothing if its own user holds something. starts_s: from now until the other could start.
    """
    expected_s = waiter.request.expected_s
    if expected_s is not None and expected_s <= starts_s:
        return blocked.passed < MOST_PASSED

    def holds(candidate: Waiter) -> float:
        return holdings.share(candidate.request.engine, Sharer.ACCOUNT, candidate.request.principal.account)

    if holds(waiter) and not holds(blocked):
        return False
    return blocked.passed < FEW_PASSED


@dataclass(frozen=True, slots=True)
class _Part:
    """Share of one statement in an engine and a pool. engine: empty: a guest slot."""

    engine: str
    pool: str
    bytes: int
    is_long: bool


@dataclass(slots=True)
class _Free:
    """Free resources of one engine and of all pools, over time, without those reserved for guests.

    abreast: for long statements (True) and for short ones, see ``EngineBudget``.
    """

    budget: EngineBudget
    slots: int
    abreast: dict[bool, float]
    bytes: float
    pool_slots: dict[str, float]
    pool_bytes: dict[str, float]

    @classmethod
    def now(cls, budget: EngineBudget, pools: Mapping[str, Pool], holdings: Holdings) -> _Free:
        held, limits = holdings.shared(budget.name), holdings.limits(budget.name)
        slots, memory = {}, {}
        for pool in pools.values():
            used, of_pool = holdings.in_pool(pool.name), holdings.limits(POOL + pool.name)
            slots[pool.name] = of_pool.get(Resource.SLOTS, math.inf) - used.slots
            memory[pool.name] = of_pool.get(Resource.BYTES, math.inf) - used.bytes
        abreast = {
            True: limits.get(Resource.LONG, math.inf) - held.long_slots,
            False: limits.get(Resource.SHORT, math.inf) - held.slots + held.long_slots,
        }
        free_bytes = limits.get(Resource.BYTES, math.inf) - held.bytes
        return cls(budget, limits[Resource.SLOTS] - held.slots, abreast, free_bytes, slots, memory)

    def fits(self, waiter: Waiter) -> bool:
        counted, pool = self.budget.counted(waiter.memory_bytes), waiter.pool.name
        has_slot = self.slots >= 1 and self.pool_slots[pool] >= 1 and self.abreast[waiter.request.is_long] >= 1
        return has_slot and counted <= self.bytes and counted <= self.pool_bytes[pool]

    def move(self, part: _Part, sign: int) -> None:
        """Release a share, or take it if the sign is negative."""
        if part.engine == self.budget.name:
            self.slots += sign
            self.abreast[part.is_long] += sign
            self.bytes += sign * part.bytes
        self.pool_slots[part.pool] += sign
        self.pool_bytes[part.pool] += sign * part.bytes


class StartForecast:
    """When statements of one engine are likely to start, as things are now."""

    def __init__(
        self, budget: EngineBudget, budgets: Mapping[str, EngineBudget], pools: Mapping[str, Pool], holdings: Holdings
    ) -> None:
        self._budget = budget
        self._budgets = budgets
        self._pools = pools
        self._holdings = holdings

    def alone_s(self, waiter: Waiter, now_s: float) -> float:
        """Return the seconds until a statement could start if nobody else waited."""
        return next(self.starts_s([waiter], now_s))

    def starts_s(self, waiters: Sequence[Waiter], now_s: float) -> Iterator[float]:
        """Yield the seconds until each of some waiters starts, if they start in this order."""
        free = _Free.now(self._budget, self._pools, self._holdings)
        ends: list[tuple[float, int, _Part]] = []
        for number, holding in enumerate(self._holdings.all):
            request = holding.request
            counted = self._budgets[request.engine].counted(holding.bytes)
            engine = "" if holding.is_guest else request.engine  # what it gives back is the guests'
            ends.append(
                (remaining_s(holding, now_s), number, _Part(engine, holding.pool.name, counted, request.is_long))
            )
        heapq.heapify(ends)
        at_s = 0.0
        for number, waiter in enumerate(waiters[:MOST_SIMULATED], len(ends)):
            while ends and not free.fits(waiter):
                at_s, _, ended = heapq.heappop(ends)
                free.move(ended, 1)
            yield at_s
            counted = self._budget.counted(waiter.memory_bytes)
            begun = _Part(self._budget.name, waiter.pool.name, counted, waiter.request.is_long)
            free.move(begun, -1)
            runs_s = UNKNOWN_S if waiter.request.expected_s is None else waiter.request.expected_s
            heapq.heappush(ends, (at_s + runs_s, number, begun))
        for _ in waiters[MOST_SIMULATED:]:
            yield at_s
