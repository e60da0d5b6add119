"""Failover: the next engine and lease of a query, given how the earlier attempts failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engines.errors import (
    DataError,
    EngineBusy,
    EngineError,
    EngineRestarted,
    EngineUnavailable,
    MemoryExceeded,
)
from metastore.records import Attempt
from selector.decision import Decision
from sql.errors import FusionError

LOSSES = 1
"""How often a query goes back to an engine that was lost under it: it may be what kills the engine."""

SECOND_OPINION_S = 5.0
"""How long a query whose data is wrong to one engine waits for a slot of another one."""

RESTARTS = 10
"""How often a query goes back to an engine that was restarted on purpose: others may bring that about."""


@dataclass(frozen=True, slots=True)
class PlannedAttempt:
    """One attempt on one engine.

    engine: name of the engine.
    careful: after an out-of-memory of a dependable engine, see ``Lease.careful``.
    whole: with the engine's whole limit, after an out-of-memory with a smaller lease.
    """

    engine: str
    careful: bool = False
    whole: bool = False


class FailoverPlan:
    """Attempts of one query, in the order of a decision's ranking.

    waiting: attempts to come.
    lost: attempts that are repeated once their engine is available again.
    data_error: error that an engine reported for the data; another engine may accept it.
    """

    def __init__(self, ranking: Sequence[str], *, dependable: Collection[str]) -> None:
        self.waiting = [PlannedAttempt(engine) for engine in ranking]
        self.lost: list[PlannedAttempt] = []
        self.data_error: DataError | None = None
        self._dependable = frozenset(dependable)
        self._losses: Counter[tuple[PlannedAttempt, bool]] = Counter()

    def ends_with(self, this: PlannedAttempt) -> bool:
        """Tell whether no other engine may follow an attempt: at most its own, once more."""
        return all(other.engine == this.engine for other in (*self.waiting, *self.lost))

    def next(self) -> PlannedAttempt:
        """Return the next attempt."""
        return self.waiting.pop(0)

    def may_continue(self, this: PlannedAttempt, error: EngineError, *, lease_was_small: bool = False) -> bool:
        """Record the failure of an attempt; tell whether another one may follow.

        lease_was_small: it ran out of a lease below the engine's limit, and the whole limit is worth another try.
        """
        if not error.fails_over:
            return False
        if isinstance(error, DataError):
            self.data_error = error
        if isinstance(error, MemoryExceeded) and error.while_planning:
            return bool(self.waiting or self.lost)  # on this engine it would do so again
        if isinstance(error, MemoryExceeded) and this.engine in self._dependable and not this.careful:
            self.waiting.insert(0, PlannedAttempt(this.engine, careful=True))
        if isinstance(error, MemoryExceeded) and lease_was_small and not this.whole:
            self.waiting.insert(0, PlannedAttempt(this.engine, whole=True))
        if isinstance(error, EngineUnavailable):
            on_purpose = isinstance(error, EngineRestarted)
            self._losses[this, on_purpose] += 1
            if self._losses[this, on_purpose] <= (RESTARTS if on_purpose else LOSSES):
                self.lost.append(this)
        return bool(self.waiting or self.lost)

    def final_error(self, error: FusionError) -> FusionError:
        """Return the error for the client: an engine's error about the data rather than that other engines are busy."""
        return self.data_error if self.data_error and isinstance(error, EngineBusy | EngineUnavailable) else error

    def resume(self, engines: Collection[str]) -> None:
        """Queue the lost attempts whose engines are available again; drop the others."""
        self.waiting += [lost for lost in self.lost if lost.engine in engines]
        self.lost = []


def whole_limit_pays(decision: Decision, attempt: Attempt) -> bool:
    """Tell whether an attempt that ran out of memory should be repeated with the engine's whole limit.

    It is not where the engine says that it had more than it was leased: then the lease was not too small.
    """
    price, lease_bytes = decision.price(attempt.engine), attempt.lease_bytes
    considered = decision.on(attempt.engine)
    if price is None or considered is None or considered.limit_bytes is None or lease_bytes is None:
        return False
    return price.whole_pays and lease_bytes < considered.limit_bytes and (attempt.peak_bytes or 0) <= lease_bytes
