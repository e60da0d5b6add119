"""Records of statements in the metastore: each whose id a client has, and each that is about to change something.

Steps are written for many statements at once (``metastore/query_log``). A statement that only reads does not wait for
them: its id is durable before a client hears it, its end before a client hears of that. While the database does not
answer, what is under way waits for it. A statement that ends meanwhile is over for its client; the metastore is told of
it once it answers again.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from engines.compiled import CompiledStatement
from engines.errors import StatementCancelled
from gateway.errors import GatewayLost, InternalError, MetastoreUnavailable
from gateway.execution.caching.result_cache import CachedResult
from gateway.execution.records.ended import EndedQueries
from gateway.execution.records.resuming import saved
from gateway.execution.spooling.results import SpooledResult
from gateway.failures import failure_of
from gateway.statements.statement import Run, Statement
from metastore.database.retry import retry
from metastore.members.fence import EPOCH, Fenced
from metastore.records import Attempt, Misestimate, QueryRecord, QueryState
from metastore.repositories.queries import Orphan
from metastore.store import Metastore
from selector.decision import Decision, NoEngine
from selector.forecast.history import NOTHING
from sql.errors import Failure, FusionError

log = logging.getLogger(__name__)

GATEWAY_LOST = GatewayLost(
    "The gateway stopped before the query ended; send it again. Of a write, look first whether it was done."
).failure
UNRECORDED = MetastoreUnavailable(
    "The metastore did not answer when the query ended; send it again. Of a write, look first whether it was done."
).failure
INTERNAL = InternalError("The gateway failed; its log holds the query's id.").failure


class QueryLog:
    """Records of statements. Thread-safe; a run is written by the thread that it lives in.

    ended: summarises and counts.
    """

    def __init__(self, metastore: Metastore, ended: EndedQueries) -> None:
        self._ended = ended
        self._membership = metastore.membership
        self._queries = metastore.queries
        self._writer = metastore.queries.writer
        self._misestimates = metastore.misestimates
        self._late: deque[QueryRecord] = deque()
        self._catching_up = threading.Lock()

    def open(self, run: Run, *, on_failure: Callable[[], object]) -> None:
        """Begin to record a statement; ``require_open`` waits until it is durable.

        on_failure: called if that fails, so that the client is told and may repeat it.
        """
        run.opened = self._writer.open(run.record, partial(saved, run.statement))
        run.opened.add_done_callback(lambda opened: on_failure() if opened.exception() is not None else None)

    def take_over(self, most: int, *, without: Collection[str]) -> tuple[Orphan, ...]:
        """Take reads that gateways which are gone have left open, and whose rows nobody has seen.

        without: statements that still end here, from before this gateway was taken for dead.
        """
        return self._queries.take_over(most=most, error=GATEWAY_LOST, without=without)

    def begun_elsewhere(self, query_id: str) -> Run | None:
        """Return a statement of another gateway, as it is on record; None: there is none. Raises SQLAlchemyError."""
        record = self._queries.get(query_id)
        if record is None:
            return None
        run = Run(Statement(record.sql, dialect=record.dialect, database=record.database, id=record.id), record)
        run.accepted.set_result(None)
        if record.state.ended:
            run.done.set_result(record)
        else:
            run.is_lost = True
        return run

    def is_run_here(self, query_id: str) -> bool:
        """Tell whether a statement runs or ran under the id that this gateway has now. Raises SQLAlchemyError."""
        return self._queries.gateway_of(query_id) == self._membership.current

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """Have nothing written from within this context once this gateway has another id than now."""
        token = EPOCH.set(self._membership.current)
        try:
            yield
        finally:
            EPOCH.reset(token)

    def require_owned(self) -> None:
        """Raise SQLAlchemyError if other gateways own by now what this context runs."""
        self._membership.require_alive()

    def may_be_taken_over(self, run: Run) -> bool:
        """Tell whether another gateway may run a statement again, that runs here: a read whose rows nobody has seen."""
        return run.command is None and not run.rows_seen and saved(run.statement) is not None

    def keep_from_others(self, run: Run) -> None:
        """Have no other gateway run a statement again, as its client is about to see rows. Raises SQLAlchemyError."""
        run.rows_seen = True
        self._writer.wait(self._writer.keep_from_others(run.id))

    def require_open(self, run: Run) -> None:
        """Wait until a statement is recorded, as it must be before a client gets its id.

        Raises SQLAlchemyError as soon as the database does not answer: the client may ask again.
        """
        self._writer.wait(run.opened)
        self._catch_up()

    def decided(
        self,
        run: Run,
        decision: Decision,
        first: Attempt,
        query: CompiledStatement | None = None,
        statistics_version: str | None = None,
    ) -> None:
        """Record where a statement goes, with its first attempt. query, statistics_version: None of a write.

        A write waits until this is durable.
        """
        run.record = replace(
            run.record,
            decision=decision,
            fingerprint=query.fingerprint if query else None,
            template=query.template if query else None,
            statistics_version=statistics_version,
        )
        if run.opened.done():
            run.opened.result()
        decided = self._writer.decided(
            run.id,
            fingerprint=run.record.fingerprint or "",
            template=run.record.template or "",
            statistics_version=run.record.statistics_version or "",
            decision=decision,
            first=first,
        )
        if query is None:
            self.require_open(run)
            self._writer.wait(decided)

    def answered(
        self,
        run: Run,
        decision: Decision,
        query: CompiledStatement,
        statistics_version: str,
        cached: CachedResult,
    ) -> None:
        """Record that a statement ended with the result of an earlier one, and wait until that is durable.

        Raises SQLAlchemyError.
        """
        at, result = now(), cached.result
        answered = replace(
            run.record,
            state=QueryState.FINISHED,
            engine=decision.engine,
            decision=decision,
            fingerprint=query.fingerprint,
            template=query.template,
            statistics_version=statistics_version,
            rows=result.rows,
            result_bytes=result.bytes,
            finished_at=at,
        )
        summary = self._ended.summary(run.statement, answered, cached.alone)
        if run.opened.done():
            run.opened.result()
        ended = self._writer.answered(
            run.id,
            fingerprint=query.fingerprint,
            template=query.template,
            statistics_version=statistics_version,
            decision=decision,
            at=at,
            rows=result.rows,
            result_bytes=result.bytes,
            summary=summary,
        )
        answered = replace(answered, summary=summary)
        self._closed(run, answered, ended)

    def attempt_started(self, run: Run, attempt: Attempt) -> None:
        """Record an attempt that is about to begin, and wait until that is durable."""
        started = self._writer.attempt_started(run.id, attempt)
        self.require_open(run)
        self._writer.wait(started)

    def attempt_failed(self, run: Run, attempt: Attempt) -> None:
        """Record an attempt that failed, with another one to follow."""
        self._writer.attempt_ended(run.id, attempt)
        run.record = replace(run.record, attempts=(*run.record.attempts, attempt))

    def misestimated(self, missed: Misestimate) -> None:
        """Record a misestimate."""
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
        """Record the end of a statement, with its last attempt, and wait until that is durable.

        One that has ended stays as it ended. Raises SQLAlchemyError.
        """
        at = now()
        closed = replace(
            run.record,
            state=state,
            engine=attempt.engine if attempt else None,
            attempts=(*run.record.attempts, attempt) if attempt else run.record.attempts,
            rows=result.rows if result else None,
            result_bytes=result.bytes if result else None,
            error=error,
            finished_at=at,
        )
        closed = replace(closed, summary=self._ended.summary(run.statement, closed))
        if run.opened.done():
            run.opened.result()  # or the end of what is not there would be tried again and again
        ended = self._writer.close(
            run.id,
            state,
            at=at,
            attempt=attempt,
            rows=closed.rows,
            result_bytes=closed.result_bytes,
            error=error,
            summary=closed.summary,
        )
        self._closed(run, closed, ended)

    def _closed(self, run: Run, closed: QueryRecord, ended: Future[bool]) -> None:
        """Wait until the end of a statement is durable; one that has ended stays as it ended."""
        run.end_turn()
        was_open = self._writer.wait(ended)
        self.require_open(run)
        run.record = closed if was_open else retry(partial(self._queries.get, run.id)) or closed
        if was_open:
            self._ended.tell(run.statement, closed)

    def close_untried(self, run: Run, error: FusionError | NoEngine) -> None:
        """Record the end of a statement that no engine was tried for. Nothing is raised."""
        state = QueryState.CANCELLED if isinstance(error, StatementCancelled) else QueryState.FAILED
        try:
            self.close(run, state, error=failure_of(error))
        except SQLAlchemyError as unwritten:
            self.end_unrecorded(run, unwritten)

    def require_closed(self, run: Run) -> None:
        """Close a record that a defect left open. Nothing is raised."""
        try:
            if not run.record.state.ended:
                self.close(run, QueryState.FAILED, error=INTERNAL)
        except SQLAlchemyError as unwritten:
            self.end_unrecorded(run, unwritten)

    def end_unrecorded(self, run: Run, unwritten: SQLAlchemyError) -> None:
        """End a statement for its client only; its record follows once the metastore answers, unless it is lost."""
        log.warning("query %s ended without the metastore", run.id)
        run.is_lost = isinstance(unwritten, Fenced)
        error = GATEWAY_LOST if run.is_lost else UNRECORDED
        run.record = replace(run.record, state=QueryState.FAILED, error=error, finished_at=now())
        if not run.is_lost:
            self._late.append(run.record)

    def close_dead(self) -> None:
        """Close the open records of dead gateways."""
        closed = self._queries.close_orphans(at=now(), error=GATEWAY_LOST)
        if closed:
            log.warning("closed %d queries of gateways that are gone", len(closed))

    def lost(self, runs: Iterable[Run]) -> None:
        """Write nothing more of these statements, and of those not yet recorded: other gateways own them now."""
        self._writer.disown(run.id for run in runs)
        self._late.clear()

    def with_results(self, query_ids: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
        """Return those of some queries that finished, and those that a living gateway runs."""
        return self._queries.with_results(query_ids)

    def _catch_up(self) -> None:
        """Record the statements that ended while the metastore did not answer."""
        if not self._late:
            return
        with self._catching_up:
            while self._late:
                record, at = self._late[0], now()
                self._writer.wait(
                    self._writer.close(record.id, record.state, at=record.finished_at or at, error=record.error)
                )
                self._late.popleft()


def new_attempt(ordinal: int, engine: str, decision: Decision | None = None) -> Attempt:
    """Return an attempt that begins now."""
    expected = decision.expectation(engine) if decision else NOTHING
    return Attempt(ordinal, engine, QueryState.RUNNING, started_at=now(), expected=expected)


def now() -> dt.datetime:
    """Return the time as it is recorded."""
    return dt.datetime.now(dt.UTC)
