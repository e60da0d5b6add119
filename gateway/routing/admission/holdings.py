"""Leases that are held: by engine, by pool, and by user. Nothing here waits or is thread-safe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from gateway.routing.admission.values import POOL, EngineBudget, Need, Pool, Request, Resource, limits_of, pool_limits


@dataclass(slots=True)
class Amount:
    """Slots, those of long statements among them, and the bytes that count."""

    slots: int = 0
    long_slots: int = 0
    bytes: int = 0

    def like(self, request: Request) -> int:
        """Return the slots of long statements for a long one, and those of short ones for a short one."""
        return self.long_slots if request.is_long else self.slots - self.long_slots


class Sharer(Enum):
    """Between whom an engine is shared out."""

    POOL = auto()
    SOURCE = auto()
    ACCOUNT = auto()


class Room(Enum):
    """Places of an engine that a statement may get."""

    SHARED = auto()
    GUESTS = auto()
    GUEST_SLOT = auto()
    """In a slot that is kept for guests, with memory that everybody shares."""


@dataclass(slots=True, eq=False)
class Holding:
    """Lease that one statement holds.

    pool: resolved pool.
    guest_bytes: part of ``bytes`` that is for guests.
    at_s: time of the statement's arrival, in seconds since 1970.
    wanted_bytes: memory to which it could not be raised.
    """

    request: Request
    pool: Pool
    since_s: float
    bytes: int
    is_guest: bool
    guest_bytes: int
    at_s: float
    wanted_bytes: int = 0
    released: bool = False


@dataclass(slots=True)
class _Engine:
    """Leases of one engine. limits: resources that this gateway may grant; a missing one has no limit."""

    budget: EngineBudget
    limits: Mapping[Resource, int]
    shared: Amount = field(default_factory=Amount)
    guests: Amount = field(default_factory=Amount)


@dataclass(slots=True)
class _Pool:
    limits: Mapping[Resource, int]
    held: Amount = field(default_factory=Amount)


class Holdings:
    """Sums of all holdings, which no call can bring above a budget or a pool's limits.

    elsewhere: shares of engines that users and pools hold on other gateways, as ``share`` has them.
    """

    def __init__(self, engines: Mapping[str, EngineBudget], pools: Mapping[str, Pool]) -> None:
        self._engines = {name: _Engine(budget, limits_of(budget)) for name, budget in engines.items()}
        self._pools = {name: _Pool(pool_limits(pool)) for name, pool in pools.items()}
        self._parts: dict[tuple[str, Sharer, str], Amount] = {}
        self.all: set[Holding] = set()
        self.elsewhere: Mapping[tuple[str, Sharer, str], float] = {}

    def limits(self, name: str) -> Mapping[Resource, int]:
        """Return what may be granted of an engine, or of a pool (``pool:`` and its name)."""
        return self._of(name).limits

    def limit(self, name: str, limits: Mapping[Resource, int]) -> None:
        """Set what may be granted of an engine, or of a pool; what is leased stays so."""
        self._of(name).limits = limits

    def is_over(self, engine_name: str, pool_name: str) -> bool:
        """Tell whether more of an engine or a pool is leased than may be granted now: others wait for it to end."""
        engine, pool = self._engines[engine_name], self._pools[pool_name]
        of_pool = {Resource.SLOTS: pool.held.slots, Resource.BYTES: pool.held.bytes}
        return any(
            amount > limits.get(resource, amount)
            for limits, leased in ((engine.limits, _leased(engine)), (pool.limits, of_pool))
            for resource, amount in leased.items()
        )

    def _of(self, name: str) -> _Engine | _Pool:
        return self._pools[name.removeprefix(POOL)] if name.startswith(POOL) else self._engines[name]

    def on(self, engine: str) -> Amount:
        """Return the sum of an engine's leases."""
        held = self._engines[engine]
        shared, guests = held.shared, held.guests
        return Amount(shared.slots + guests.slots, shared.long_slots + guests.long_slots, shared.bytes + guests.bytes)

    def shared(self, engine: str) -> Amount:
        """Return the leases of an engine without those of guests."""
        return self._engines[engine].shared

    def leased(self) -> dict[str, dict[Resource, int]]:
        """Return what is leased of each engine, and of each pool under ``pool:`` and its name."""
        leased = {name: _leased(engine) for name, engine in self._engines.items()}
        for name, pool in self._pools.items():
            leased[POOL + name] = {Resource.SLOTS: pool.held.slots, Resource.BYTES: pool.held.bytes}
        return leased

    def in_pool(self, pool: str) -> Amount:
        """Return the sum of a pool's leases, over all engines."""
        return self._pools[pool].held

    def share(self, engine: str, sharer: Sharer, name: str) -> float:
        """Return the larger one of the shares of an engine's slots and of its memory that somebody holds, 0..1."""
        part = self._parts.get((engine, sharer, name))
        elsewhere = self.elsewhere.get((engine, sharer, name), 0.0)
        return elsewhere if part is None else elsewhere + self._engines[engine].budget.share(part.slots, part.bytes)

    def room(self, request: Request, pool: Pool, memory_bytes: int) -> Room | Need:
        """Return the room for a statement, or the need that is not met."""
        engine, in_pool = self._engines[request.engine], self._pools[pool.name]
        counted, limits = engine.budget.counted(memory_bytes), engine.limits
        if not _fits(in_pool.limits, Resource.SLOTS, in_pool.held.slots, 1):
            return Need.POOL_SLOT
        if not _fits(in_pool.limits, Resource.BYTES, in_pool.held.bytes, counted):
            return Need.POOL_MEMORY
        is_slot_free = _fits(limits, Resource.SLOTS, engine.shared.slots, 1)
        kind = Resource.LONG if request.is_long else Resource.SHORT
        has_slot = is_slot_free and _fits(limits, kind, engine.shared.like(request), 1)
        has_memory = _fits(limits, Resource.BYTES, engine.shared.bytes, counted)
        if has_slot and has_memory:
            return Room.SHARED
        has_guest_slot = engine.guests.slots < limits[Resource.GUEST_SLOTS]
        if has_guest_slot and not self.share(request.engine, Sharer.ACCOUNT, request.principal.account):
            if engine.guests.bytes + counted <= limits[Resource.GUEST_BYTES]:
                return Room.GUESTS
            if has_memory:
                return Room.GUEST_SLOT
        if has_slot:
            return Need.MEMORY
        return Need.PROCESSORS if is_slot_free else Need.SLOT

    def hold(self, request: Request, pool: Pool, memory_bytes: int, room: Room, now_s: float, at_s: float) -> Holding:
        """Add a lease. at_s: see ``Holding``."""
        engine = self._engines[request.engine]
        counted = engine.budget.counted(memory_bytes)
        kept_bytes = counted if room is Room.GUESTS else 0
        holding = Holding(request, pool, now_s, memory_bytes, room is not Room.SHARED, kept_bytes, at_s)
        self._add(holding, 1, counted)
        if room is Room.GUEST_SLOT:
            engine.guests.bytes -= counted
            engine.shared.bytes += counted
        self.all.add(holding)
        return holding

    def raise_to(self, holding: Holding, memory_bytes: int) -> bool:
        """Hold more memory for a statement, if its engine and its pool have that. Guests' memory is not for that."""
        engine = self._engines[holding.request.engine]
        more = memory_bytes - holding.bytes
        if more <= 0 or holding.released:
            return not holding.released
        counted, pool = engine.budget.counted(more), holding.pool
        in_pool, limit = self._pools[pool.name], engine.budget.limit_bytes
        if limit is not None and memory_bytes > limit:
            return False
        if not _fits(engine.limits, Resource.BYTES, engine.shared.bytes, counted):
            return False
        if not _fits(in_pool.limits, Resource.BYTES, in_pool.held.bytes, counted):
            return False
        self._add(holding, 0, counted)
        if holding.is_guest:
            engine.guests.bytes -= counted
            engine.shared.bytes += counted
        holding.bytes = memory_bytes
        return True

    def release(self, holding: Holding) -> None:
        """Release a lease."""
        engine = self._engines[holding.request.engine]
        counted = engine.budget.counted(holding.bytes)
        self._add(holding, -1, -counted)
        if holding.is_guest:
            raised = counted - holding.guest_bytes
            engine.guests.bytes += raised
            engine.shared.bytes -= raised
        holding.released = True
        self.all.discard(holding)

    def _add(self, holding: Holding, slots: int, counted: int) -> None:
        request = holding.request
        engine = self._engines[request.engine]
        parts = [engine.guests if holding.is_guest else engine.shared, self._pools[holding.pool.name].held]
        keys = [
            (request.engine, Sharer.POOL, holding.pool.name),
            (request.engine, Sharer.SOURCE, request.principal.quota_key),
            (request.engine, Sharer.ACCOUNT, request.principal.account),
        ]
        parts += [self._parts.setdefault(key, Amount()) for key in keys]
        for part in parts:
            part.slots += slots
            part.long_slots += slots * request.is_long
            part.bytes += counted
        for key in keys:
            if not self._parts[key].slots:
                del self._parts[key]


def _leased(engine: _Engine) -> dict[Resource, int]:
    shared, guests = engine.shared, engine.guests
    return {
        Resource.SLOTS: shared.slots,
        Resource.LONG: shared.long_slots,
        Resource.SHORT: shared.slots - shared.long_slots,
        Resource.BYTES: shared.bytes,
        Resource.GUEST_SLOTS: guests.slots,
        Resource.GUEST_BYTES: guests.bytes,
    }


def _fits(limits: Mapping[Resource, int], resource: Resource, held: int, more: int) -> bool:
    limit = limits.get(resource)
    return limit is None or held + more <= limit
