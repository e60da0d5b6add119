"""START HERE: leases of memory and slots on all engines, in all pools, under one lock.

What is leased is never above an engine's budget or a pool's limits. Who waits has a condition of its own on the lock,
and is woken when it has its turn, when it is cancelled, or when its time is over: nobody looks again and again.
"""

from __future__ import annotations

import datetime as dt
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from engines.errors import EngineBusy, StatementCancelled
from engines.protocol import Lease, never
from gateway.errors import PoolFull
from gateway.routing.admission.division import Item
from gateway.routing.admission.holdings import Holding, Holdings, Room, Sharer
from gateway.routing.admission.turns import StartForecast, Turns, Waiter, Wants, may_pass
from gateway.routing.admission.usage import History, Level, Of, Usage, WaitCounts
from gateway.routing.admission.values import (
    DEFAULT_POOL,
    AdmissionState,
    Elsewhere,
    EngineBudget,
    EngineState,
    Leased,
    Need,
    Pool,
    PoolState,
    Request,
    Resource,
    Waiting,
    WhenFull,
)
from selector.wording import mebibytes


class Grant:
    """Lease that a statement holds. Thread-safe."""

    def __init__(self, admission: Admission, holding: Holding) -> None:
        self._admission = admission
        self._holding = holding

    @property
    def lease(self) -> Lease:
        """Resources that the statement may use now."""
        request = self._holding.request
        return Lease(self._holding.bytes, request.threads, request.careful)

    def raise_to(self, total_bytes: int) -> bool:
        """Raise the lease to this memory; False: limit, budget or pool have no room. Never waits."""
        return self._admission.raise_to(self._holding, total_bytes)


class Admission:
    """The budgets of all engines, and the pools. Thread-safe.

    Where several gateways share them, ``limit`` says what this one may grant.

    may_grant: tells whether other gateways still count this one among them; while they may not, nothing is granted.
    wanting: function that is called when a statement waits, may not have more memory, or gives back what others want.
    """

    def __init__(
        self,
        engines: Iterable[EngineBudget],
        pools: Iterable[Pool] = (),
        *,
        wanting: Callable[[], object] = lambda: None,
        may_grant: Callable[[], bool] = lambda: True,
    ) -> None:
        self._may_grant = may_grant
        self._wanting = wanting
        self._elsewhere = Elsewhere()
        self._engines = {budget.name: budget for budget in engines}
        self._pools = {DEFAULT_POOL: Pool(DEFAULT_POOL)} | {pool.name: pool for pool in pools}
        self._lock = threading.Lock()
        self._holdings = Holdings(self._engines, self._pools)
        self._turns = Turns(self._holdings)
        self._waiters: list[Waiter] = []
        self._numbers = itertools.count(1)
        self._usage = Usage(self._engines, self._pools, time.monotonic())
        self._queued: Counter[tuple[Of, str]] = Counter()
        self._forecasts = {
            name: StartForecast(budget, self._engines, self._pools, self._holdings)
            for name, budget in self._engines.items()
        }

    @property
    def pools(self) -> Mapping[str, Pool]:
        """All pools by name."""
        return self._pools

    def pool(self, name: str) -> Pool:
        """Return the pool that statements of this name are in."""
        return self._pools.get(name) or self._pools[DEFAULT_POOL]

    def limit_bytes(self, engine: str, pool: str) -> int | None:
        """Return the memory that one statement of a pool may take on an engine; None where it spills."""
        limit, memory_bytes = self._engines[engine].limit_bytes, self.pool(pool).memory_bytes
        return limit if limit is None or memory_bytes is None else min(limit, memory_bytes)

    @contextmanager
    def lease(self, request: Request, *, wait_s: float, cancelled: Callable[[], bool] = never) -> Iterator[Grant]:
        """Hold a lease. cancelled: checked again when ``wake`` is called.

        Raises EngineBusy when there is none in time, PoolFull where the pool refuses, StatementCancelled.
        """
        holding = self._acquire(request, wait_s, cancelled)
        try:
            yield Grant(self, holding)
        finally:
            with self._lock:
                was_over = self._holdings.is_over(request.engine, holding.pool.name)
                self._holdings.release(holding)
                self._note(request.engine, holding.pool)
                self._dispatch()
                if was_over:
                    self._wanting()

    def wake(self, query_id: str) -> None:
        """Wake up a waiting statement, to check whether it is cancelled."""
        with self._lock:
            for waiter in self._waiters:
                if waiter.request.query_id == query_id:
                    waiter.changed.notify_all()

    def raise_to(self, holding: Holding, total_bytes: int) -> bool:
        """See ``Grant.raise_to``."""
        with self._lock:
            raised = self._may_grant() and self._holdings.raise_to(holding, total_bytes)
            if not raised:
                holding.wanted_bytes = total_bytes
                self._wanting()
            self._note(holding.request.engine, holding.pool)
            return raised

    def waiting(self) -> tuple[Waiting, ...]:
        """Return the waiting statements, by engine, the next one first."""
        with self._lock:
            now_s = time.monotonic()
            waiting: list[Waiting] = []
            for engine in self._engines:
                waiters = self._in_order(engine)
                starts_s = self._forecasts[engine].starts_s(waiters, now_s)
                for place, (waiter, start_s) in enumerate(zip(waiters, starts_s, strict=True), 1):
                    waiting.append(_waiting_of(waiter, place, start_s))
            return tuple(waiting)

    def congestion(self, request: Request) -> tuple[float, float]:
        """Return the expected wait of a statement in seconds, and what it takes from waiting ones.

        The second is the statements that wait, times the share of the engine that it takes.
        """
        with self._lock:
            now_s = time.monotonic()
            waiter = self._waiter(request)
            waiters = [
                other for other in self._in_order(request.engine) if not self._is_held_up_elsewhere(other, waiter)
            ]
            room = self._holdings.room(request, waiter.pool, waiter.memory_bytes)
            if room is Room.GUESTS or (room is Room.SHARED and not waiters):
                return 0.0, 0.0
            before = self._turns.in_order([*waiters, waiter])
            place = before.index(waiter)
            start_s = 0.0
            if place or isinstance(room, Need):
                *_, start_s = self._forecasts[request.engine].starts_s(before[: place + 1], now_s)
            budget = self._engines[request.engine]
            share = 1.0 / budget.slots
            if budget.capacity_bytes:
                share = max(share, waiter.memory_bytes / budget.capacity_bytes)
            return start_s, len(waiters) * share

    def long_at(self, engine: str) -> int:
        """Return how many long statements run on an engine or wait for it."""
        with self._lock:
            waiting = sum(waiter.request.engine == engine and waiter.request.is_long for waiter in self._waiters)
            return self._holdings.on(engine).long_slots + waiting

    def describe(self) -> AdmissionState:
        """Return the state of all engines and pools, other gateways' leases and waits included."""
        with self._lock:
            engines = [
                EngineState(budget, held.slots, held.bytes, len(self._in_order(name)))
                for name, budget in self._engines.items()
                for held in (self._holdings.on(name),)
            ]
            pools = [
                PoolState(pool, held.slots, held.bytes, sum(waiter.pool is pool for waiter in self._waiters))
                for pool in self._pools.values()
                for held in (self._holdings.in_pool(pool.name),)
            ]
            return AdmissionState(tuple(engines), tuple(pools)).plus(self._elsewhere)

    def leases(self) -> tuple[Leased, ...]:
        """Return the leases, the oldest first, other gateways' included."""
        with self._lock:
            now_s, now = time.monotonic(), dt.datetime.now(dt.UTC)
            own = [
                Leased(
                    holding.request.query_id,
                    holding.request.engine,
                    holding.pool.name,
                    None if self._engines[holding.request.engine].capacity_bytes is None else holding.bytes,
                    holding.request.threads,
                    now - dt.timedelta(seconds=now_s - holding.since_s),
                )
                for holding in self._holdings.all
            ]
            return tuple(sorted((*own, *self._elsewhere.leases), key=lambda lease: lease.since))

    def usage(self, of: Of, name: str) -> History:
        """Return an engine's or a pool's last hour. Raises KeyError where there is none of this name."""
        with self._lock:
            now_s, now = time.monotonic(), dt.datetime.now(dt.UTC)
            return History(now - dt.timedelta(seconds=now_s), self._usage.series[of, name].until(now_s))

    def waited(self) -> dict[tuple[str, str], WaitCounts]:
        """Return how long statements waited that got a lease, by engine and pool."""
        with self._lock:
            return {key: WaitCounts(counts.total_s, list(counts.up_to)) for key, counts in self._usage.waits.items()}

    def refusals(self) -> dict[tuple[str, str, str], int]:
        """Return how often a lease was refused, by engine, pool and code."""
        with self._lock:
            return dict(self._usage.refusals)

    def statements(self, most: int, *, clock_offset_s: float) -> tuple[Item, ...]:
        """Return what runs and what waits, as other gateways are told of it.

        most: items of each engine that run, and that wait. clock_offset_s: of another clock beside this machine's.
        """
        with self._lock:
            items: list[Item] = []
            for engine, budget in self._engines.items():
                holdings = [holding for holding in self._holdings.all if holding.request.engine == engine]
                for holding in sorted(holdings, key=lambda holding: holding.at_s)[:most]:
                    counted = budget.counted(max(holding.bytes, min(holding.wanted_bytes, budget.limit_bytes or 0)))
                    items.append(_item(holding, counted, holding.at_s + clock_offset_s, runs=True))
                for waiter in self._in_order(engine)[:most]:
                    counted = budget.counted(waiter.memory_bytes)
                    items.append(_item(waiter, counted, waiter.at_s + clock_offset_s, runs=False))
            return tuple(items)

    def limit(
        self,
        limits: Mapping[str, Mapping[Resource, int]],
        shares: Mapping[tuple[str, Sharer, str], float],
        elsewhere: Elsewhere,
    ) -> Mapping[str, Mapping[Resource, int]]:
        """Grant no more than this from now on; return what is leased.

        limits, and the reply: by engine, and by pool (``pool:`` and its name).
        shares: of engines that users hold on other gateways, which count when turns are taken.
        """
        with self._lock:
            for name, of_name in limits.items():
                self._holdings.limit(name, of_name)
            self._holdings.elsewhere = shares
            self._elsewhere = elsewhere
            self._dispatch()
            return self._holdings.leased()

    # ------------------------------------------------------------------ with the lock held, from here on

    def _acquire(self, request: Request, wait_s: float, cancelled: Callable[[], bool]) -> Holding:
        pool = self.pool(request.pool)
        wait_s = wait_s if pool.queue_s is None else min(wait_s, pool.queue_s)
        until_s = time.monotonic() + wait_s
        with self._lock:
            waiter = self._waiter(request)
            self._waiters.append(waiter)
            self._turns.arrived(pool)
            try:
                room = self._holdings.room(request, pool, waiter.memory_bytes)
                if isinstance(room, Need):
                    waiter.need = room  # nothing became free, so that nobody else has a turn either
                else:
                    self._dispatch()
                if waiter.holding is None and pool.queue is not None:
                    others = sum(other.pool is pool for other in self._waiters) - 1
                    if others >= pool.queue:
                        raise _full(pool, f"{others} statements wait in it, which is its queue.")
                if waiter.holding is None:
                    self._count(waiter, waits=True)
                    self._wanting()
                while waiter.holding is None:
                    if cancelled():
                        raise StatementCancelled("The statement was cancelled while it waited.")
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        raise _late(waiter, wait_s)
                    waiter.changed.wait(left_s)
            except BaseException as error:
                if isinstance(error, EngineBusy | PoolFull):
                    self._usage.refusals[request.engine, pool.name, error.code] += 1
                if waiter.holding is None:
                    self._waiters.remove(waiter)
                    self._count(waiter, waits=False)
                else:
                    self._holdings.release(waiter.holding)
                    self._note(request.engine, pool)
                self._dispatch()
                raise
            return waiter.holding

    def _waiter(self, request: Request) -> Waiter:
        """Return a waiter whose memory is no more than its pool and its engine can ever give."""
        pool, budget = self.pool(request.pool), self._engines[request.engine]
        memory_bytes = request.memory_bytes
        if budget.counted(memory_bytes):
            most = [
                limit for limit in (pool.memory_bytes, budget.limit_bytes, budget.shared_bytes) if limit is not None
            ]
            memory_bytes = min([memory_bytes, *most])
        changed = threading.Condition(self._lock)
        return Waiter(request, pool, memory_bytes, next(self._numbers), time.monotonic(), time.time(), changed)

    def _in_order(self, engine: str) -> list[Waiter]:
        return self._turns.in_order(waiter for waiter in self._waiters if waiter.request.engine == engine)

    @staticmethod
    def _is_held_up_elsewhere(waiter: Waiter, other: Waiter) -> bool:
        """Tell whether one waits for its own pool, or among long or short ones, to which the other does not belong."""
        if waiter.need is Need.PROCESSORS:
            return other.request.is_long is not waiter.request.is_long
        return waiter.need.of_pool and waiter.pool.name != other.pool.name

    def _dispatch(self) -> None:
        """Grant all leases that there is room for."""
        while self._grant_next():
            pass
        self._turns.keep_only(self._waiters)

    def _grant_next(self) -> bool:
        """Grant the next lease that there is room for; return whether there was one. Sets the need of the others."""
        if not self._may_grant():
            return False
        rooms = self._rooms()
        if all(isinstance(room, Need) for room in rooms.values()):
            return False
        now_s = time.monotonic()
        blocked: list[Waiter] = []
        for waiter in self._turns.in_order(self._waiters):
            room = rooms[waiter.wants]
            if not isinstance(room, Need):
                rivals = [rival for rival in blocked if rival.is_passed_by(waiter, is_guest=room is Room.GUESTS)]
                if all(self._may_pass(waiter, rival, now_s) for rival in rivals):
                    self._grant(waiter, room, now_s, passed=rivals)
                    return True
                waiter.need = Need.TURN
            blocked.append(waiter)
        return False

    def _rooms(self) -> dict[Wants, Room | Need]:
        """Return, by what waiters want, the room for it or the need that is not met.

        Of hundreds who wait most want the same: this is asked at each change.
        """
        rooms: dict[Wants, Room | Need] = {}
        for waiter in self._waiters:
            room = rooms.get(waiter.wants)
            if room is None:
                room = self._holdings.room(waiter.request, waiter.pool, waiter.memory_bytes)
                rooms[waiter.wants] = room
            if isinstance(room, Need):
                waiter.need = room
        return rooms

    def _may_pass(self, waiter: Waiter, blocked: Waiter, now_s: float) -> bool:
        starts_s = self._forecasts[blocked.request.engine].alone_s(blocked, now_s)
        return may_pass(waiter, blocked, self._holdings, starts_s)

    def _grant(self, waiter: Waiter, room: Room, now_s: float, *, passed: Iterable[Waiter]) -> None:
        for rival in passed:
            rival.passed += 1
        waiter.holding = self._holdings.hold(waiter.request, waiter.pool, waiter.memory_bytes, room, now_s, waiter.at_s)
        self._waiters.remove(waiter)
        self._count(waiter, waits=False)
        self._usage.waits[waiter.request.engine, waiter.pool.name].add(now_s - waiter.since_s)
        self._turns.record_grant(waiter)
        waiter.changed.notify_all()

    def _count(self, waiter: Waiter, *, waits: bool) -> None:
        """Add a waiter to the counts, or remove it."""
        change = int(waits) - int(waiter.is_counted)
        waiter.is_counted = waits
        for key in ((Of.ENGINE, waiter.request.engine), (Of.POOL, waiter.pool.name)):
            self._queued[key] += change
        self._note(waiter.request.engine, waiter.pool)

    def _note(self, engine: str, pool: Pool) -> None:
        """Record the current leases and waits of an engine and a pool in the history."""
        now_s = time.monotonic()
        of_engine, of_pool = self._holdings.on(engine), self._holdings.in_pool(pool.name)
        for key, held in (((Of.ENGINE, engine), of_engine), ((Of.POOL, pool.name), of_pool)):
            self._usage.series[key].change(now_s, Level(held.slots, held.bytes, self._queued[key]))


def _item(statement: Holding | Waiter, counted: int, since_s: float, *, runs: bool) -> Item:
    request, is_guest = statement.request, isinstance(statement, Holding) and statement.is_guest
    user = request.principal
    return Item(
        request.engine,
        statement.pool.name,
        user.quota_key,
        user.account,
        counted,
        request.is_long,
        since_s,
        runs,
        is_guest,
        request.query_id,
        request.threads,
    )


def _waiting_of(waiter: Waiter, place: int, start_s: float) -> Waiting:
    request = waiter.request
    since = dt.datetime.fromtimestamp(waiter.at_s, dt.UTC)
    values = request.query_id, request.engine, waiter.pool.name, request.principal.account, waiter.memory_bytes
    return Waiting(*values, waiter.need, since, place, start_s)


def _late(waiter: Waiter, wait_s: float) -> EngineBusy | PoolFull:
    """Return the error of a statement whose wait ended without a lease."""
    pool, engine, need = waiter.pool, waiter.request.engine, waiter.need
    if need.of_pool or wait_s == pool.queue_s:
        what = f"No {need.value.removeprefix('pool ')}" if need.of_pool else f"No room on {engine}"
        return _full(pool, f"{what} became free within {wait_s:.0f} s.")
    what = f"No {mebibytes(waiter.memory_bytes)} of memory" if need is Need.MEMORY else "No slot"
    return EngineBusy(f"{what} of {engine} became free within {wait_s:.0f} s.")


def _full(pool: Pool, why: str) -> EngineBusy | PoolFull:
    """Return the error of a statement whose pool is full: final, or one that fails over to the next engine."""
    message = f"The pool {pool.name} is full: {why} Try again soon, or in another pool."
    return PoolFull(message) if pool.when_full is WhenFull.REFUSE else EngineBusy(message)
