"""All queries whose rows may be read while they run, by their ids."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from engines.machine.threads import Threads
from gateway.execution.spooling.results import Spool
from gateway.execution.streaming.early_result import EarlyResult
from gateway.statements.statement import Run, Statement

SOON_S = 0.1  # that a query's first rows wait for others, at most, before they go to its file


class EarlyResults:
    """All early results. Thread-safe.

    enabled: default for statements whose session does not set it.
    before_first_row: function that is called before a client reads rows of a statement that runs.
    """

    def __init__(
        self, spool: Spool, *, enabled: bool, before_first_row: Callable[[Run], None] = lambda _: None
    ) -> None:
        self._spool = spool
        self._enabled = enabled
        self._before_first_row = before_first_row
        self._lock = threading.Lock()
        self._of: dict[str, EarlyResult] = {}
        self._later = _Later(SOON_S / 2)

    def begin(self, run: Run) -> EarlyResult | None:
        """Make a query's rows readable while it runs; None: its client wants whole results only."""
        if not self.is_on(run.statement):
            return None
        early = EarlyResult(run, self._spool, self._later.call, self._before_first_row)
        with self._lock:
            self._of[run.id] = early
        run.done.add_done_callback(lambda _: self._forget(run.id))
        return early

    def is_on(self, statement: Statement) -> bool:
        """Tell whether a statement's rows may be read before its end."""
        return self._enabled if statement.early_rows is None else statement.early_rows

    def find(self, query_id: str) -> EarlyResult | None:
        """Return the rows of a query that runs; None where they cannot be read before its end, or not yet."""
        with self._lock:
            return self._of.get(query_id)

    def _forget(self, query_id: str) -> None:
        with self._lock:
            self._of.pop(query_id, None)


class _Later:
    """Calls back after a while: a round, or two at most. Thread-safe; there is a thread only while somebody waits.

    It wakes up once in a round however many wait, most of them for nothing: their query has ended meanwhile.
    """

    def __init__(self, round_s: float) -> None:
        self._round_s = round_s
        self._lock = threading.Lock()
        self._threads = Threads("early rows")
        self._new: list[Callable[[], None]] = []
        self._older: list[Callable[[], None]] = []
        self._is_running = False

    def call(self, back: Callable[[], None]) -> None:
        """Call back once the time is over."""
        with self._lock:
            self._new.append(back)
            if self._is_running:
                return
            self._is_running = True
        self._threads.run(self._serve)

    def _serve(self) -> None:
        while True:
            time.sleep(self._round_s)
            with self._lock:
                due, self._older, self._new = self._older, self._new, []
                self._is_running = bool(due or self._older)
                if not self._is_running:
                    return
            for back in due:
                back()
