"""The engines of a gateway, each with its budget and its circuit breaker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from engines.adapter import BuiltEngine
from engines.protocol import EngineKind, Impersonator
from gateway.errors import UnknownEngine
from gateway.routing.admission.values import EngineBudget
from gateway.routing.circuit_breaker import CircuitBreaker
from selector.forecast.lease import LEAST_BYTES
from selector.forecast.seconds import USUAL_DEPENDABLE, USUAL_FAST, Speed
from sql.tables import TableSource

GUEST_SHARE = 1 / 8  # of an engine's limit, that is kept for each guest


@dataclass(frozen=True, slots=True)
class EngineEntry(BuiltEngine):
    """One engine as it was built, with its circuit breaker."""

    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.engine.name

    @property
    def dependable(self) -> bool:
        """Tell whether it finishes at any size."""
        return self.engine.kind is EngineKind.DEPENDABLE

    @property
    def acts_for_users(self) -> bool:
        """Tell whether statements run there as the users who sent them."""
        return isinstance(self.engine, Impersonator) and self.engine.acts_for_users

    @property
    def first_speed(self) -> Speed:
        """Return its assumed speed before it has run anything."""
        return self.speed or (USUAL_DEPENDABLE if self.dependable else USUAL_FAST)

    @property
    def budget(self) -> EngineBudget:
        """Resources for all statements together; memory for guests is part of the configured capacity, if possible."""
        limit, capacity = self.limit_bytes, self.capacity_bytes
        if limit is None:
            return EngineBudget(self.name, self.engine.slots, guest_slots=self.guests, abreast=self.abreast)
        guest_bytes = self.guests * min(limit, max(LEAST_BYTES, int(GUEST_SHARE * limit)))
        if capacity is None:
            capacity = limit * self.engine.slots + guest_bytes
        guest_bytes = max(0, min(guest_bytes, capacity - limit))
        return EngineBudget(self.name, self.engine.slots, capacity, limit, self.guests, guest_bytes, self.abreast)

    def threads_for(self, requested: int | None, *, beside: int = 0) -> int:
        """Return how many threads work for a statement that asks for so many; None: for none in particular.

        beside: long statements that are there already. Who asks for nothing has its part of the threads: of their
        number the half, the quarter and so on, so that estimates of few numbers are kept.
        """
        if self.most_threads is None:
            return self.threads
        if requested is not None:
            return min(requested, self.most_threads)
        if not self.threads_by_load or not beside:
            return self.threads
        return max(1, self.threads >> beside.bit_length())

    def why_down(self) -> str | None:
        """Return why the engine is not available, None if it is."""
        status = self.engine.status()
        return self.breaker.why_open() if status.alive else status.detail


class EngineRegistry(Mapping[str, EngineEntry]):
    """All engines by name, in the order in which they were configured."""

    def __init__(self, entries: Sequence[EngineEntry]) -> None:
        self._entries = {entry.name: entry for entry in entries}

    def __getitem__(self, name: str) -> EngineEntry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def require(self, name: str | None) -> None:
        """Raise UnknownEngine for a name that no engine has; None is whichever the gateway chooses."""
        if name is not None and name not in self:
            raise UnknownEngine(f"There is no engine {name}; there are {', '.join(self)}.")

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Pass the tables to every engine."""
        for entry in self._entries.values():
            entry.engine.use_tables(tables)

    def close(self) -> None:
        """Stop every engine."""
        for entry in self._entries.values():
            entry.engine.close()
