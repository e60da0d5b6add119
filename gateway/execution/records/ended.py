"""Ended queries: a summary on the record of each, one line in the log, and counters for the metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from engines.errors import MemoryExceeded
from gateway.routing.engines import EngineRegistry
from gateway.security import audit
from gateway.statements.statement import Statement
from gateway.statements.totals import QueryTotals
from metastore.records import Alone, Attempt, QueryRecord, QueryState, QuerySummary
from selector.decision import Decision
from sql.errors import AccessDenied, LocationRefused, RuleDenied

log = logging.getLogger("fusion.query")

REFUSED = frozenset({AccessDenied.code, RuleDenied.code, LocationRefused.code})
"""Errors of statements that their user may not run."""


class EndedQueries:
    """Summarises queries as they end. Thread-safe. pool_of: returns the name of the pool that a statement is in."""

    def __init__(self, engines: EngineRegistry, pool_of: Callable[[str], str]) -> None:
        self._engines = engines
        self._pool_of = pool_of
        self.totals = QueryTotals()

    def summary(self, statement: Statement, ended: QueryRecord, answered_alone: Alone | None = None) -> QuerySummary:
        """Return the summary of a query. answered_alone: of the query whose result answers this one."""
        decision = ended.decision
        reason = decision.reasons[0].code.value if decision is not None and decision.reasons else None
        if reason is None and ended.error is not None:
            reason = ended.error.code
        measured = _measured(ended.attempts, decision)
        seconds = (ended.finished_at - ended.submitted_at).total_seconds() if ended.finished_at else 0.0
        return QuerySummary(
            pool=self._pool_of(statement.pool),
            reason=reason,
            seconds=max(0.0, seconds),
            attempts=len(ended.attempts),
            ran_out=any(attempt.failure == MemoryExceeded.code for attempt in ended.attempts),
            expected_bytes=measured[0] if measured else None,
            peak_bytes=measured[1] if measured else None,
            within_bound=_within_bound(ended.attempts, decision),
            alone=answered_alone or self._alone(ended),
        )

    def tell(self, statement: Statement, ended: QueryRecord) -> None:
        """Count a query, and write its line into the log and into the audit file."""
        summary = ended.summary
        if summary is None:
            return
        error = ended.error.code if ended.error else None
        audit.note_statement(
            statement.user,
            statement.principal.address,
            allowed=error not in REFUSED,
            sql=ended.sql,
            query_id=ended.id,
            state=ended.state.value,
            engine=ended.engine,
            error=error,
        )
        self.totals.add(ended, summary)
        if log.isEnabledFor(logging.INFO):
            where = f" on {ended.engine}" if ended.engine else ""
            why = f" because {summary.reason}" if summary.reason else ""
            tried = [attempt.engine for attempt in ended.attempts[:-1]]
            why += f", after {' and '.join(dict.fromkeys(tried))} failed" if tried else ""
            text = f"query {ended.id}: {ended.state}{where}{why}, {summary.seconds:.3f} s"
            log.info("%s", text, extra={"fields": fields_of(ended, summary)})

    def _alone(self, ended: QueryRecord) -> Alone | None:
        """Return what the dependable engine alone would have taken.

        A query that did not finish would not have finished there either: only what it spent there is known.
        """
        there = [attempt for attempt in ended.attempts if self._is_dependable(attempt.engine)]
        if there:
            return Alone(there[-1].engine, sum(attempt.run_s or 0.0 for attempt in there), measured=True)
        if ended.state is not QueryState.FINISHED or ended.decision is None:
            return None
        price = next((price for price in ended.decision.prices if self._is_dependable(price.engine)), None)
        return None if price is None else Alone(price.engine, price.seconds, measured=False)

    def _is_dependable(self, engine: str) -> bool:
        return engine in self._engines and self._engines[engine].dependable


def fields_of(ended: QueryRecord, summary: QuerySummary) -> dict[str, object]:
    """Return the fields of a query's line in the log; no text of the statement is among them."""
    return {
        "event": "query",
        "query_id": ended.id,
        "user": ended.user,
        "pool": summary.pool,
        "state": ended.state.value,
        "engine": ended.engine,
        "reason": summary.reason,
        "error": ended.error.code if ended.error else None,
        "template": ended.template,
        "seconds": round(summary.seconds, 6),
        "rows": ended.rows,
        "result_bytes": ended.result_bytes,
        "expected_bytes": summary.expected_bytes,
        "peak_bytes": summary.peak_bytes,
        "attempts": [
            {"engine": attempt.engine, "seconds": round(attempt.run_s or 0.0, 6), "failure": attempt.failure}
            for attempt in ended.attempts
        ],
    }


def _measured(attempts: Iterable[Attempt], decision: Decision | None) -> tuple[int, int] | None:
    """Return expected and measured peak of the first attempt that has both."""
    for attempt in attempts:
        considered = decision.on(attempt.engine) if decision is not None else None
        if considered is not None and considered.estimate.peak_bytes is not None and attempt.peak_bytes is not None:
            return considered.estimate.peak_bytes, attempt.peak_bytes
    return None


def _within_bound(attempts: Sequence[Attempt], decision: Decision | None) -> bool | None:
    """Tell whether the first measured peak is not above the upper bound of its estimate.

    What ran out of memory is known to be above the bound only if its peak is: it would have taken more.
    """
    for attempt in attempts:
        considered = decision.on(attempt.engine) if decision is not None else None
        bound_bytes = considered.estimate.upper_bytes if considered is not None else None
        if bound_bytes is None or attempt.peak_bytes is None:
            continue
        if attempt.peak_bytes > bound_bytes:
            return False
        return None if attempt.failure == MemoryExceeded.code else True
    return None
