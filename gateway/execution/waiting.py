"""Waiting for engines: until one can take a query, or until one that was lost under it is there again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from engines.errors import StatementCancelled
from gateway.catalog.snapshot import CatalogSnapshot
from gateway.execution.failover import PlannedAttempt
from gateway.routing.engines import EngineRegistry
from gateway.routing.router import Router
from gateway.sql.compiled import CompiledStatement
from gateway.statements.statement import Run
from metastore.database.retry import retry
from selector.decide import Decision, NoEngine

RETURN_POLL_S = 0.25


class Waiting:
    """How long queries wait for engines. Thread-safe. queue_s: at most."""

    def __init__(self, engines: EngineRegistry, router: Router, queue_s: float) -> None:
        self._engines = engines
        self._router = router
        self._queue_s = queue_s

    def decision(self, run: Run, query: CompiledStatement, snapshot: CatalogSnapshot) -> Decision:
        """Decide; where no engine can take it now but one will soon, wait for that.

        Raises NoEngine, LocationRefused, EngineError.
        """
        pinned = run.statement.pinned or query.engine
        decide = partial(self._router.decide, query, snapshot, pinned=pinned, asker=run.asker)
        until_s = time.monotonic() + min(self._queue_s, run.remaining_s)
        while True:
            try:
                return retry(decide)
            except NoEngine:
                rests_s = [each.breaker.open_for_s() for each in self._engines.values() if pinned in (None, each.name)]
                wait_s = min((rest_s for rest_s in rests_s if rest_s > 0), default=None)
                if wait_s is None or time.monotonic() + wait_s > until_s:
                    raise
            if not run.wait(wait_s):
                raise StatementCancelled("The statement was cancelled.")

    def returned(self, run: Run, lost: Sequence[PlannedAttempt]) -> list[str]:
        """Wait until one of the engines that were lost under a query is there again, and name it.

        What only reads may be tried there once more.
        """
        engines = [this.engine for this in lost]
        until_s = time.monotonic() + min(self._queue_s, run.remaining_s)
        while engines and time.monotonic() < until_s and not run.cancelled:
            back = [name for name in engines if self._engines[name].why_down() is None]
            if back:
                return back
            run.wait(RETURN_POLL_S)
        return []
