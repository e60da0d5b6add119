"""Inputs of admission (budgets, pools, requests) and its state (leases, waits)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.security.principals import IN_PROCESS, Principal

DEFAULT_POOL = "default"
"""The pool of statements that name none, or one that is not configured."""

POOL = "pool:"
"""Before a pool's name, where engines and pools are listed together."""

LONG_S = 0.2
"""From which a statement is a long one, with which short ones do not wait in one line."""


class Need(StrEnum):
    """Reasons for which a statement waits."""

    SLOT = "slot"
    MEMORY = "memory"
    POOL_SLOT = "pool slot"
    POOL_MEMORY = "pool memory"
    PROCESSORS = "processors"
    """There is a slot, though as many long statements run as are let, or as many short ones, whichever it is."""
    TURN = "turn"
    """There is room, but others come first."""

    @property
    def of_pool(self) -> bool:
        """Tell whether it is the pool that has no room."""
        return self in (Need.POOL_SLOT, Need.POOL_MEMORY)


class Resource(StrEnum):
    """Resources of an engine or a pool; those of guests are only an engine's."""

    SLOTS = "slots"
    LONG = "long"
    """Slots of long statements."""
    SHORT = "short"
    BYTES = "bytes"
    GUEST_SLOTS = "guest slots"
    GUEST_BYTES = "guest bytes"


class WhenFull(StrEnum):
    """Handling of a statement whose pool is full."""

    NEXT = "next"
    """The next engine is tried."""
    REFUSE = "refuse"
    """It is refused with 503."""


@dataclass(frozen=True, slots=True)
class EngineBudget:
    """Resources of one engine for all statements together.

    slots: statements that run at once.
    capacity_bytes: memory of all of them; None: memory is not counted, as on an engine that spills.
    limit_bytes: largest memory of one statement.
    guest_slots: extra slots for small statements of users who hold none, so that others' long ones do not block them.
    guest_bytes: part of the capacity that is reserved for these.
    abreast: long statements that run at once, and short ones beside them; None: as many as slots.
    """

    name: str
    slots: int
    capacity_bytes: int | None = None
    limit_bytes: int | None = None
    guest_slots: int = 0
    guest_bytes: int = 0
    abreast: int | None = None

    @property
    def shared_bytes(self) -> int | None:
        """Memory that is not kept for anybody."""
        return None if self.capacity_bytes is None else self.capacity_bytes - self.guest_bytes

    def counted(self, memory_bytes: int) -> int:
        """Return the bytes of a lease that count."""
        return 0 if self.capacity_bytes is None else memory_bytes

    def share(self, slots: int, counted_bytes: int) -> float:
        """Return the larger one of the shares of its slots and of its memory, 0..1."""
        of_slots = slots / (self.slots + self.guest_slots)
        return max(of_slots, counted_bytes / self.capacity_bytes) if self.capacity_bytes else of_slots


@dataclass(frozen=True, slots=True)
class Pool:
    """Limits of a group of statements, over all engines together; None: no limit.

    weight: share relative to other pools that wait.
    memory_bytes, slots: largest leases at once.
    queue: largest number of statements that wait.
    queue_s: longest wait.
    when_full: handling of a statement whose pool is full.
    """

    name: str
    weight: float = 1.0
    memory_bytes: int | None = None
    slots: int | None = None
    queue: int | None = None
    queue_s: float | None = None
    when_full: WhenFull = WhenFull.NEXT


def limits_of(budget: EngineBudget) -> dict[Resource, int]:
    """Return the resources of an engine; one without a limit is missing."""
    limits = {
        Resource.SLOTS: budget.slots,
        Resource.LONG: budget.abreast,
        Resource.SHORT: budget.abreast,
        Resource.BYTES: budget.shared_bytes,
        Resource.GUEST_SLOTS: budget.guest_slots,
        Resource.GUEST_BYTES: budget.guest_bytes,
    }
    return {resource: limit for resource, limit in limits.items() if limit is not None}


def pool_limits(pool: Pool) -> dict[Resource, int]:
    """Return the resources of a pool; one without a limit is missing."""
    limits = {Resource.SLOTS: pool.slots, Resource.BYTES: pool.memory_bytes}
    return {resource: limit for resource, limit in limits.items() if limit is not None}


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a statement for a lease on an engine.

    engine: name of the engine.
    memory_bytes: memory to lease.
    principal: user of the statement.
    pool: name of the pool.
    query_id: id of the statement.
    expected_s: expected run time there in seconds; None: unknown.
    threads, careful: see ``engines.protocol.Lease``.
    """

    engine: str
    memory_bytes: int
    principal: Principal = IN_PROCESS
    pool: str = ""
    query_id: str = ""
    expected_s: float | None = None
    threads: int | None = None
    careful: bool = False

    @property
    def is_long(self) -> bool:
        """Tell whether it is expected to keep processors busy for long, or not known not to."""
        return self.expected_s is None or self.expected_s > LONG_S


@dataclass(frozen=True, slots=True)
class Waiting:
    """Statement that waits. place: position in its engine's queue, from 1. expected_s: seconds until it starts."""

    query_id: str
    engine: str
    pool: str
    account: str
    memory_bytes: int
    needs: Need
    since: dt.datetime
    place: int
    expected_s: float


@dataclass(frozen=True, slots=True)
class Leased:
    """Lease that is held. memory_bytes: None: memory is not counted on its engine."""

    query_id: str
    engine: str
    pool: str
    memory_bytes: int | None
    threads: int | None
    since: dt.datetime


@dataclass(frozen=True, slots=True)
class EngineState:
    """An engine's budget, what is held of it, and how many wait for it."""

    budget: EngineBudget
    slots_held: int
    bytes_held: int
    waiting: int


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool, what is held in it over all engines, and how many wait in it."""

    pool: Pool
    slots_held: int
    bytes_held: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Admission of other gateways, as they last told of it.

    sums: slots, bytes and waiting statements, by engine, and by ``pool:`` and name.
    leases: of their statements.
    """

    sums: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    leases: tuple[Leased, ...] = ()


@dataclass(frozen=True, slots=True)
class AdmissionState:
    """All engines and all pools at one moment."""

    engines: tuple[EngineState, ...]
    pools: tuple[PoolState, ...]

    def plus(self, elsewhere: Elsewhere) -> AdmissionState:
        """Return the state with what other gateways hold."""

        def summed(state: EngineState | PoolState, name: str) -> tuple[int, int, int]:
            slots, held, waiting = elsewhere.sums.get(name, (0, 0, 0))
            return state.slots_held + slots, state.bytes_held + held, state.waiting + waiting

        return AdmissionState(
            tuple(EngineState(state.budget, *summed(state, state.budget.name)) for state in self.engines),
            tuple(PoolState(state.pool, *summed(state, POOL + state.pool.name)) for state in self.pools),
        )
