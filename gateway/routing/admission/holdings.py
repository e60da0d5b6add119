"""Leases that are held: by engine, by pool, and by user. Nothing here waits or is thread-safe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from gateway.routing.admission.values import EngineBudget, Need, Pool, Request


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
    """Lease that one statement holds. pool: resolved pool. guest_bytes: part of ``bytes`` that is for guests."""

    request: Request
    pool: Pool
    since_s: float
    bytes: int
    is_guest: bool
    guest_bytes: int
    released: bool = False


@dataclass(slots=True)
class _Engine:
    budget: EngineBudget
    shared: Amount = field(default_factory=Amount)
    guests: Amount = field(default_factory=Amount)


class Holdings:
    """Sums of all holdings, which no call can bring above a budget or a pool's limits."""

    def __init__(self, engines: Mapping[str, EngineBudget], pools: Mapping[str, Pool]) -> None:
        self._engines = {name: _Engine(budget) for name, budget in engines.items()}
        self._pools = {name: Amount() for name in pools}
        self._parts: dict[tuple[str, Sharer, str], Amount] = {}
        self.all: set[Holding] = set()

    def on(self, engine: str) -> Amount:
        """Return the sum of an engine's leases."""
        held = self._engines[engine]
        shared, guests = held.shared, held.guests
        return Amount(shared.slots + guests.slots, shared.long_slots + guests.long_slots, shared.bytes + guests.bytes)

    def shared(self, engine: str) -> Amount:
        """Return the leases of an engine without those of guests."""
        return self._engines[engine].shared

    def in_pool(self, pool: str) -> Amount:
        """Return the sum of a pool's leases, over all engines."""
        return self._pools[pool]

    def share(self, engine: str, sharer: Sharer, name: str) -> float:
        """Return the larger one of the shares of an engine's slots and of its memory that somebody holds, 0..1."""
        part = self._parts.get((engine, sharer, name))
        if part is None:
            return 0.0
        budget = self._engines[engine].budget
        of_slots = part.slots / (budget.slots + budget.guest_slots)
        return max(of_slots, part.bytes / budget.capacity_bytes) if budget.capacity_bytes else of_slots

    def room(self, request: Request, pool: Pool, memory_bytes: int) -> Room | Need:
        """Return the room for a statement, or the need that is not met."""
        engine = self._engines[request.engine]
        budget, counted = engine.budget, engine.budget.counted(memory_bytes)
        held = self._pools[pool.name]
        if pool.slots is not None and held.slots >= pool.slots:
            return Need.POOL_SLOT
        if pool.memory_bytes is not None and held.bytes + counted > pool.memory_bytes:
            return Need.POOL_MEMORY
        is_slot_free = engine.shared.slots < budget.slots
        has_slot = is_slot_free and (budget.abreast is None or engine.shared.like(request) < budget.abreast)
        has_memory = budget.shared_bytes is None or engine.shared.bytes + counted <= budget.shared_bytes
        if has_slot and has_memory:
            return Room.SHARED
        has_guest_slot = engine.guests.slots < budget.guest_slots
        if has_guest_slot and not self.share(request.engine, Sharer.ACCOUNT, request.principal.account):
            if engine.guests.bytes + counted <= budget.guest_bytes:
                return Room.GUESTS
            if has_memory:
                return Room.GUEST_SLOT
        if has_slot:
            return Need.MEMORY
        return Need.PROCESSORS if is_slot_free else Need.SLOT

    def hold(self, request: Request, pool: Pool, memory_bytes: int, room: Room, now_s: float) -> Holding:
        """Add a lease."""
        engine = self._engines[request.engine]
        counted = engine.budget.counted(memory_bytes)
        kept_bytes = counted if room is Room.GUESTS else 0
        holding = Holding(request, pool, now_s, memory_bytes, room is not Room.SHARED, kept_bytes)
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
        limit, shared = engine.budget.limit_bytes, engine.budget.shared_bytes
        if limit is not None and memory_bytes > limit:
            return False
        if shared is not None and engine.shared.bytes + counted > shared:
            return False
        if pool.memory_bytes is not None and self._pools[pool.name].bytes + counted > pool.memory_bytes:
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
        parts = [engine.guests if holding.is_guest else engine.shared, self._pools[holding.pool.name]]
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
