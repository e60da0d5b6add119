"""What the metastore holds of statements: each step is written before the next begins.

While the database does not answer, what is under way waits for it. A statement that ends meanwhile is over for its
client; the metastore is told of it once it answers again.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from engines.errors import EngineError, StatementCancelled
from gateway.errors import (
    GatewayError,
    GatewayStopped,
    InternalError,
    MetastoreUnavailable,
    NoEngineAvailable,
    failure_of,
)
from gateway.execution.results import SpooledResult
from gateway.sql.compiled import CompiledStatement
from gateway.statements.statement import Run
from metastore.database.retry import retry, retry_insert
from metastore.records import Attempt, Failure, Misestimate, QueryRecord, QueryState
from metastore.store import Metastore
from selector.decision import Decision, NoEngine
from selector.forecast.history import NOTHING

log = logging.getLogger(__name__)

GATEWAY_STOPPED = GatewayStopped(
    "The gateway stopped before the query ended; send it again. Of a write, look first whether it was done."
).failure
UNRECORDED = MetastoreUnavailable(
    "The metastore did not answer when the query ended; send it again. Of a write, look first whether it was done."
).failure
INTERNAL = InternalError("The gateway failed; its log holds the query's id.").failure


class QueryLog:
    """Records of statements. Thread-safe; a run is written by the thread that it lives in.

    gateway: this one's name in the metastore.
    """

    def __init__(self, metastore: Metastore, gateway: str) -> None:
        self._gateway = gateway
        self._queries = metastore.queries
        self._misestimates = metastore.misestimates
        self._late: deque[QueryRecord] = deque()
        self._catching_up = threading.Lock()

    def open(self, run: Run) -> None:
        """Put a statement on record. Raises SQLAlchemyError at once: it has not begun, and its client may ask again."""
        try:
            self._queries.open(run.record, gateway=self._gateway)
            self._catch_up()
        except SQLAlchemyError:
            self.end_unrecorded(run)
            raise

    def decided(
        self,
        run: Run,
        decision: Decision,
        first: Attempt,
        query: CompiledStatement | None = None,
        statistics_version: str | None = None,
    ) -> None:
        """Record where a statement goes, with its first attempt. query, statistics_version: None of a write."""
        run.record = replace(
            run.record,
            decision=decision,
            fingerprint=query.fingerprint if query else None,
            template=query.template if query else None,
            statistics_version=statistics_version,
        )
        decided = partial(
            self._queries.decided,
            run.id,
            fingerprint=run.record.fingerprint or "",
            template=run.record.template or "",
            statistics_version=run.record.statistics_version or "",
            decision=decision,
            first=first,
        )
        retry_insert(decided)

    def attempt_started(self, run: Run, attempt: Attempt) -> None:
        """Record an attempt that is about to begin."""
        retry_insert(partial(self._queries.attempt_started, run.id, attempt))

    def attempt_failed(self, run: Run, attempt: Attempt) -> None:
        """Record an attempt that failed, with another one to follow, or beside it."""
        retry(partial(self._queries.attempt_ended, run.id, attempt))
        run.record = replace(run.record, attempts=_in_order(run, attempt))

    def misestimated(self, missed: Misestimate) -> None:
        """Remember that a statement did not fit."""
        retry(partial(self._misestimates.remember, missed))

    def close(
        self,
        run: Run,
        state: QueryState,
        *,
        attempt: Attempt | None = None,
        result: SpooledResult | None = None,
        error: Failure | None = None,
    ) -> None:
        """Record the end of a statement, with its last attempt. One that has ended stays as it ended."""
        at = now()
        closed = replace(
            run.record,
            state=state,
            engine=attempt.engine if attempt else None,
            attempts=_in_order(run, attempt) if attempt else run.record.attempts,
            rows=result.rows if result else None,
            result_bytes=result.bytes if result else None,
            error=error,
            finished_at=at,
        )
        close = partial(
            self._queries.close,
            run.id,
            state,
            at=at,
            attempt=attempt,
            rows=closed.rows,
            result_bytes=closed.result_bytes,
            error=error,
        )
        run.record = closed if retry(close) else retry(partial(self._queries.get, run.id)) or closed

    def close_untried(self, run: Run, error: GatewayError | EngineError | NoEngine) -> None:
        """Record the end of a statement that no engine was tried for. Nothing is raised."""
        if isinstance(error, NoEngine):
            error = NoEngineAvailable(f"No engine can take it: {error}")
        state = QueryState.CANCELLED if isinstance(error, StatementCancelled) else QueryState.FAILED
        try:
            self.close(run, state, error=failure_of(error))
        except SQLAlchemyError:
            self.end_unrecorded(run)

    def require_closed(self, run: Run) -> None:
        """Close what a defect left open. Nothing is raised."""
        try:
            if not run.record.state.ended:
                self.close(run, QueryState.FAILED, error=INTERNAL)
        except SQLAlchemyError:
            self.end_unrecorded(run)

    def end_unrecorded(self, run: Run) -> None:
        """End a statement for its client alone; the metastore is told of it once it answers."""
        log.warning("query %s ended without the metastore", run.id)
        run.record = replace(run.record, state=QueryState.FAILED, error=UNRECORDED, finished_at=now())
        self._late.append(run.record)

    def recover(self) -> int:
        """Close what an earlier process of this gateway left open; returns how many there were."""
        return len(self._queries.close_orphans(at=now(), error=GATEWAY_STOPPED, own=self._gateway))

    def close_dead(self) -> None:
        """Close what other gateways left open that are dead."""
        closed = self._queries.close_orphans(at=now(), error=GATEWAY_STOPPED)
        if closed:
            log.warning("closed %d queries of gateways that gave no sign of life", len(closed))

    def finished(self, query_ids: Iterable[str]) -> frozenset[str]:
        """Return those of some queries whose results are worth keeping."""
        return self._queries.finished(query_ids)

    def _catch_up(self) -> None:
        """Tell the metastore of statements that ended while it did not answer; each is forgotten once it is told."""
        with self._catching_up:
            while self._late:
                record = self._late[0]
                self._queries.close(record.id, record.state, at=record.finished_at or now(), error=record.error)
                self._late.popleft()


def new_attempt(ordinal: int, engine: str, decision: Decision | None = None) -> Attempt:
    """Return an attempt that begins now."""
    expected = decision.expectation(engine) if decision else NOTHING
    return Attempt(ordinal, engine, QueryState.RUNNING, started_at=now(), expected=expected)


def _in_order(run: Run, attempt: Attempt) -> tuple[Attempt, ...]:
    """Return a query's attempts that have ended with another one, as they began: of two at once, either ends first."""
    return tuple(sorted((*run.record.attempts, attempt), key=lambda each: each.ordinal))


def now() -> dt.datetime:
    """Return the time as it is recorded."""
    return dt.datetime.now(dt.UTC)
