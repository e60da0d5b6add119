"""Waiting for engines: until one can take a query, until it is known whether it fits, or until a lost one is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from engines.compiled import CompiledStatement
from engines.errors import StatementCancelled
from gateway.catalog.snapshot import CatalogSnapshot
from gateway.execution.failover import PlannedAttempt
from gateway.routing.engines import EngineRegistry
from gateway.routing.router import Router
from gateway.statements.statement import Run, WaitsFor
from metastore.database.retry import retry
from selector.decide import LIKELY
from selector.decision import Decision, NoEngine
from sql.errors import RuleDenied

RETURN_POLL_S = 0.25
CANCELLED = "The statement was cancelled."
WAIT_FACTOR = 3.0  # times that a miss takes, or costs, for which others wait to hear of it
SHORTEST_S = 1.0  # that a miss is taken to take
SURE = 0.99  # probability of fitting, from which nobody waits for anybody


@dataclass(frozen=True, slots=True)
class _Try:
    """First attempt of a statement on an engine. ended: event that is set once its outcome is recorded."""

    run_id: str
    ended: threading.Event = field(default_factory=threading.Event)


class _FirstTries:
    """Statements that may not fit and are being tried. Thread-safe.

    Another run of the same text waits for how that ends: otherwise as many would run out of memory on the same ground
    as clients ask at the same time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tries: dict[tuple[str, str], _Try] = {}

    def claim(self, run: Run, fingerprint: str, decision: Decision) -> _Try | None:
        """Claim the first attempt, or return the one that runs; None: the statement is sure to fit."""
        price, learned = decision.price(decision.engine), decision.estimate.learned
        if price is None or price.fits is None or price.fits >= SURE:
            return None
        if learned is not None and learned.of_statement and price.fits >= LIKELY:  # it fitted before
            return None
        with self._lock:
            return self._tries.setdefault((fingerprint, decision.engine), _Try(run.id))

    def end(self, run: Run) -> None:
        """Wake up the other runs, once the outcome is recorded."""
        with self._lock:
            own = [key for key, attempt in self._tries.items() if attempt.run_id == run.id]
            for key in own:
                self._tries.pop(key).ended.set()


class Waiting:
    """Waits of queries for engines, of at most ``queue_s`` seconds. Thread-safe."""

    def __init__(self, engines: EngineRegistry, router: Router, queue_s: float) -> None:
        self._tries = _FirstTries()
        self._engines = engines
        self._router = router
        self._queue_s = queue_s

    def decision(self, run: Run, query: CompiledStatement, snapshot: CatalogSnapshot) -> Decision:
        """Decide; wait if an engine is soon available, or if another run of the same text is its first attempt.

        Raises NoEngine, LocationRefused, RuleDenied, EngineError.
        """
        route = partial(self._router.route, run.statement, query, snapshot, run.requester)
        try:
            decided = self._awaited(run, query, route)
        except RuleDenied as denied:
            self._router.rules.hit(denied.rule)
            raise
        self._router.rules.hit(decided.matched)
        return decided

    def _awaited(self, run: Run, query: CompiledStatement, decide: Callable[[], Decision]) -> Decision:
        until_s = time.monotonic() + min(self._queue_s, run.remaining_s)
        patient_until_s = until_s
        while True:
            try:
                decided = retry(decide)
                this = self._tries.claim(run, query.fingerprint, decided) if not decided.strict else None
                if this is None or time.monotonic() > patient_until_s:
                    return decided
                if this.run_id == run.id:
                    return self._again(run, decided, decide)
            except NoEngine as none:
                able = self._engines if none.only is None else none.only
                rests_s = [self._engines[name].breaker.open_for_s() for name in able]
                wait_s = min((rest_s for rest_s in rests_s if rest_s > 0), default=None)
                if wait_s is None or time.monotonic() + wait_s > until_s:
                    raise
                with run.waits(WaitsFor.ENGINE):
                    if not run.wait(wait_s):
                        raise StatementCancelled(CANCELLED) from None
            else:
                price = decided.price(decided.engine)
                wait_s = WAIT_FACTOR * max(SHORTEST_S, price.miss_s if price else 0.0)
                patient_until_s = min(patient_until_s, time.monotonic() + wait_s)
                with run.waits(WaitsFor.FIRST_TRY, decided.engine):
                    while not this.ended.wait(RETURN_POLL_S) and time.monotonic() < patient_until_s:
                        run.require()

    def _again(self, run: Run, decided: Decision, decide: Callable[[], Decision]) -> Decision:
        """Decide once more, with the recorded outcomes of the earlier runs."""
        again = retry(decide)
        if again.engine != decided.engine:
            self._tries.end(run)
        return again

    def tried(self, run: Run) -> None:
        """Wake up other runs of the same text, once this one's outcome is recorded."""
        self._tries.end(run)

    def returned(self, run: Run, lost: Sequence[PlannedAttempt]) -> list[str]:
        """Wait until one of the engines that a query has lost is available again, and return its name.

        What only reads may be tried there once more.
        """
        engines = [this.engine for this in lost]
        until_s = time.monotonic() + min(self._queue_s, run.remaining_s)
        with run.waits(WaitsFor.ENGINE):
            while engines and time.monotonic() < until_s and not run.cancelled:
                back = [name for name in engines if self._engines[name].why_down() is None]
                if back:
                    return back
                run.wait(RETURN_POLL_S)
        return []
