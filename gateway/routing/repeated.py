"""What is the same for a statement that is asked again and again: its misestimates on record, and where it goes.

A decision takes longer than some statements do. One about a statement that ran often, that is short and sure to fit
holds for ``KEPT_S``, as long as the catalog and the engines are as they were; who waits may be others by then.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from cachetools import LRUCache

from engines.compiled import CompiledStatement
from gateway.catalog.snapshot import CatalogSnapshot
from gateway.routing.admission.values import LONG_S
from gateway.routing.engines import EngineRegistry
from metastore.records import Misestimate
from metastore.repositories.misestimates import Misestimates
from selector.decision import Decision, Rule

KEPT_S = 0.1
OFTEN = 16  # runs of a statement, after which one more hardly changes what is expected of it
SURE = 0.99  # probability of fitting
MOST_KEPT = 1_024


class KnownMisses:
    """Misestimates as they are on record, by statement. Thread-safe."""

    def __init__(self, misestimates: Misestimates) -> None:
        self._misestimates = misestimates
        self._lock = threading.Lock()
        self._known: LRUCache[str, tuple[int, tuple[Misestimate, ...]]] = LRUCache(MOST_KEPT)
        self._forgotten = 0  # times that something was forgotten, which may be what is just being read

    def about(self, fingerprint: str, changes: int) -> tuple[Misestimate, ...]:
        """Return those of a statement, oldest first. changes: how often any changed, by the catalog's snapshot."""
        with self._lock:
            known, forgotten = self._known.get(fingerprint), self._forgotten
        if known is not None and known[0] == changes:
            return known[1]
        found = self._misestimates.about(fingerprint)
        with self._lock:
            if forgotten == self._forgotten:
                self._known[fingerprint] = changes, found
        return found

    def forget(self, fingerprint: str) -> None:
        """Have them read anew: this gateway has changed them."""
        with self._lock:
            self._known.pop(fingerprint, None)
            self._forgotten += 1


@dataclass(frozen=True, slots=True)
class Asked:
    """What a decision about a query rests on beside the query and the catalog, as long as there are no rules."""

    fingerprint: str
    account: str
    pool: str
    pinned: str | None
    rule: Rule
    threads: int | None


@dataclass(frozen=True, slots=True)
class _Kept:
    query: CompiledStatement
    snapshot: CatalogSnapshot
    down: tuple[str | None, ...]
    until_s: float
    decision: Decision


class RepeatedDecisions:
    """Decisions of the last moment. Thread-safe."""

    def __init__(self, engines: EngineRegistry) -> None:
        self._engines = engines
        self._lock = threading.Lock()
        self._kept: LRUCache[Asked, _Kept] = LRUCache(MOST_KEPT)

    def find(self, asked: Asked, query: CompiledStatement, snapshot: CatalogSnapshot) -> Decision | None:
        """Return the decision that still holds; None where there is none."""
        with self._lock:
            kept = self._kept.get(asked)
        if kept is None or kept.query is not query or kept.snapshot is not snapshot or time.monotonic() > kept.until_s:
            return None
        return kept.decision if kept.down == self._down() else None

    def keep(self, asked: Asked, query: CompiledStatement, snapshot: CatalogSnapshot, decision: Decision) -> None:
        """Keep a decision for a moment, if the same statement may go by it."""
        learned, price = decision.estimate.learned, decision.price(decision.engine)
        if learned is None or not learned.of_statement or learned.runs < OFTEN:
            return
        if price is None or price.fits is None or price.fits < SURE or price.seconds > LONG_S:
            return
        kept = _Kept(query, snapshot, self._down(), time.monotonic() + KEPT_S, decision)
        with self._lock:
            self._kept[asked] = kept

    def forget(self, fingerprint: str) -> None:
        """Decide anew about a statement: it took what nobody expected."""
        with self._lock:
            for asked in [asked for asked in self._kept if asked.fingerprint == fingerprint]:
                del self._kept[asked]

    def _down(self) -> tuple[str | None, ...]:
        return tuple(entry.why_down() for entry in self._engines.values())
