"""Statements that have not ended: their limit, lookup and cancellation."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from functools import partial

from gateway.commands.classification import is_quick
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.places import Places
from gateway.routing.engines import EngineRegistry
from gateway.security.principals import Principal
from gateway.statements.statement import Run

CANCEL_REPEAT_S = 0.25


class LiveStatements:
    """Statements that have not ended. Thread-safe. most: largest number of queries, and of commands, at once."""

    def __init__(self, engines: EngineRegistry, admission: Admission, most: int) -> None:
        self._engines = engines
        self._admission = admission
        self._places = Places(most)
        self._command_places = Places(most)
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()

    def place(self, principal: Principal) -> AbstractContextManager[None]:
        """Hold a place for an unrecorded statement. Raises TooManyQueries."""
        return self._places.hold(principal)

    def add(self, run: Run, *, is_accepted: bool = False) -> None:
        """Add a statement. is_accepted: by another gateway, and in its place here. Raises TooManyQueries."""
        principal = run.statement.principal
        if not is_accepted:
            places = self._command_places if is_quick(run.statement.sql) else self._places
            places.take(principal)
            run.give_back = partial(places.give_back, principal)
        with self._lock:
            self._runs[run.id] = run

    def release(self, run: Run) -> None:
        """Release a statement's place."""
        with self._lock:
            if self._runs.get(run.id) is run:
                del self._runs[run.id]
        if run.give_back is not None:
            run.give_back()

    def find(self, query_id: str) -> Run | None:
        """Return a statement that is still alive."""
        with self._lock:
            return self._runs.get(query_id)

    def all(self) -> list[Run]:
        """Return all statements that are alive."""
        with self._lock:
            return list(self._runs.values())

    def cancel(self, query_id: str) -> bool:
        """Cancel a statement; returns whether it was still alive."""
        run = self.find(query_id)
        if run is None:
            return False
        if run.cancel():
            self._admission.wake(run.id)
            threading.Thread(target=self._cancel_until_done, args=(run,), name=f"cancel {run.id}", daemon=True).start()
        return True

    def end(self, *, grace_s: float) -> None:
        """Cancel all and wait for their end."""
        runs = self.all()
        for run in runs:
            self.cancel(run.id)
        until = time.monotonic() + grace_s
        while time.monotonic() < until and any(not run.done.done() for run in runs):
            time.sleep(CANCEL_REPEAT_S)

    def _cancel_until_done(self, run: Run) -> None:
        """Repeat a cancel until the statement ends: an engine may be just about to start it."""
        while not run.done.done():
            if (engine := run.engine) is not None:
                self._engines[engine].engine.cancel(run.id)
            time.sleep(CANCEL_REPEAT_S)
