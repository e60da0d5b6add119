"""Queries and their attempts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Engine, and_, exists, func, not_, or_, select, update
from sqlalchemy.orm import Session

from engines.errors import MemoryExceeded
from metastore.database.batches import batched
from metastore.database.models import AttemptRow, GatewayRow, MisestimateRow, QueryRow
from metastore.members.membership import Membership
from metastore.query_log.changes import ACTUALS, DECISION, OPEN_STATES, UNCERTAINTY
from metastore.query_log.search import QueryFilter, QueryOrder, QueryPlace, select_ids
from metastore.query_log.writer import QueryWriter
from metastore.records import Alone, Attempt, QueryRecord, QueryState, QuerySummary
from selector.estimate import Uncertainty
from selector.forecast.history import Expectation, PastRun, WorkloadKey
from sql.errors import Failure, Position

READ_AT_ONCE = 500
EVERY_QUERY = QueryFilter()
MOST_BEGUN = 5
"""Gateways under which one query may end, before it is closed."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """An open query that was taken over. request: what its first gateway recorded to run it again."""

    record: QueryRecord
    request: Any


class Queries:
    """The query log. writer: for all changes of it."""

    def __init__(self, engine: Engine, membership: Membership) -> None:
        self._engine = engine
        self._membership = membership
        self.writer = QueryWriter(engine, lambda: membership.current)

    def get(self, query_id: str) -> QueryRecord | None:
        """Return one query, or None."""
        with Session(self._engine) as session:
            row = session.get(QueryRow, query_id)
            return _record(row) if row else None

    def gateway_of(self, query_id: str) -> str | None:
        """Return the id of the gateway that runs a query, or ran it last; None: there is none."""
        with self._engine.connect() as connection:
            return connection.scalar(select(QueryRow.gateway).where(QueryRow.id == query_id))

    def search(
        self,
        wanted: QueryFilter = EVERY_QUERY,
        *,
        order: QueryOrder = QueryOrder.SUBMITTED,
        descending: bool = True,
        after: QueryPlace | None = None,
        limit: int,
    ) -> tuple[QueryRecord, ...]:
        """Return the queries of a filter, newest first or in another order. after: those behind this place."""
        dialect = self._engine.dialect.name
        chosen = select_ids(wanted, order, descending=descending, after=after, dialect=dialect).limit(limit)
        with Session(self._engine) as session:
            query_ids: Sequence[str] = session.scalars(
                chosen
            ).all()  # first alone: with their decisions, the sort would be slow
            by_id = {row.id: row for row in session.scalars(select(QueryRow).where(QueryRow.id.in_(query_ids)))}
            return tuple(_record(by_id[query_id]) for query_id in query_ids if query_id in by_id)

    def history(self, *, limit: int, since: dt.datetime | None = None) -> Iterator[tuple[QueryRecord, ...]]:
        """Yield the newest queries that were decided about and have ended, in batches, oldest first.

        since: only those submitted then or later.
        """
        wanted = select(QueryRow.id).where(QueryRow.decision.is_not(None), QueryRow.state.not_in(OPEN_STATES))
        if since is not None:
            wanted = wanted.where(QueryRow.submitted_at >= since)
        newest = wanted.order_by(QueryRow.submitted_at.desc(), QueryRow.id.desc()).limit(limit)
        with Session(self._engine) as session:
            query_ids = session.scalars(newest).all()
        for batch in batched(reversed(query_ids), READ_AT_ONCE):
            rows = select(QueryRow).where(QueryRow.id.in_(batch)).order_by(QueryRow.submitted_at, QueryRow.id)
            with Session(self._engine) as session:
                records = tuple(_record(row) for row in session.scalars(rows))
            yield records

    def runs(self, *, limit: int, before: dt.datetime | None = None) -> tuple[PastRun, ...]:
        """Return the last runs of each engine from which corrections are learned, oldest first.

        These are runs that succeeded, or that ran out of memory, unless their misestimate was forgotten.

        limit: runs per engine.
        before: only runs of queries submitted earlier.
        """
        ran_out = AttemptRow.failure == MemoryExceeded.code
        of_statement = MisestimateRow.fingerprint == QueryRow.fingerprint
        remembered = exists().where(of_statement, MisestimateRow.engine == AttemptRow.engine)
        wanted = (
            select(
                QueryRow.fingerprint,
                QueryRow.template,
                AttemptRow.engine,
                AttemptRow.started_at,
                AttemptRow.failure,
                AttemptRow.peak_bytes,
                AttemptRow.wall_s,
                AttemptRow.waited_s,
                AttemptRow.expected_bytes,
                AttemptRow.uncertainty,
                AttemptRow.limit_bytes,
                AttemptRow.expected_s,
            )
            .join(AttemptRow, AttemptRow.query_id == QueryRow.id)
            .where(
                or_(AttemptRow.state == QueryState.FINISHED, and_(ran_out, remembered)),
                QueryRow.template.is_not(None),
            )
            .order_by(AttemptRow.started_at.desc())
            .limit(limit)
        )
        if before is not None:
            wanted = wanted.where(QueryRow.submitted_at < before)
        with self._engine.connect() as connection:
            engines = connection.scalars(select(AttemptRow.engine).distinct()).all()
            rows = [row for name in engines for row in connection.execute(wanted.where(AttemptRow.engine == name))]
        return tuple(
            PastRun(
                row.engine,
                WorkloadKey(row.fingerprint, row.template),
                _expectation(row),
                ran_out=row.failure == MemoryExceeded.code,
                measured_bytes=None if row.failure == MemoryExceeded.code else row.peak_bytes,
                seconds=None if row.wall_s is None else max(0.0, row.wall_s - (row.waited_s or 0.0)),
            )
            for row in sorted(rows, key=lambda row: row.started_at)
        )

    def take_over(self, *, most: int, error: Failure, without: Collection[str] = ()) -> tuple[Orphan, ...]:
        """Take open reads of gateways that are no members any more, whose rows nobody has seen.

        Their open attempts end with ``error``. One that was begun ``MOST_BEGUN`` times is left: it may be what its
        gateways died of. without: ids to leave alone.
        """
        member, dead, taken = self._membership.current, _of_the_dead(), func.coalesce(QueryRow.taken_over, 0)
        wanted = select(QueryRow.id).where(
            QueryRow.state.in_(OPEN_STATES), dead, _may_run_again(), QueryRow.id.not_in(without)
        )
        with Session(self._engine) as session, session.begin():
            if not session.scalars(wanted.limit(1)).all():  # the usual case: no write
                return ()
            query_ids = session.scalars(wanted.limit(most).with_for_update(skip_locked=True, of=QueryRow)).all()
            own = update(QueryRow).where(QueryRow.id.in_(query_ids), dead).returning(QueryRow.id)
            owned = own.values(gateway=member, state=QueryState.QUEUED, taken_over=taken + 1)
            query_ids = session.scalars(owned).all()  # SQLite locks no rows: another member may have been faster
            lost = update(AttemptRow).where(AttemptRow.query_id.in_(query_ids), AttemptRow.state.in_(OPEN_STATES))
            session.execute(lost.values(state=QueryState.FAILED, failure=error.code, message=error.message))
            rows = session.scalars(select(QueryRow).where(QueryRow.id.in_(query_ids)))
            orphans = tuple(Orphan(_record(row), row.request) for row in rows)
        self.writer.own(query_ids)
        return orphans

    def close_orphans(self, *, at: dt.datetime, error: Failure) -> tuple[str, ...]:
        """End open queries of gateways that are no members any more, but for ``take_over``; return their ids."""
        ended = update(QueryRow).where(QueryRow.state.in_(OPEN_STATES), _of_the_dead(), not_(_may_run_again()))
        values = {
            "state": QueryState.FAILED,
            "finished_at": at,
            "error_code": error.code,
            "error_message": error.message,
        }
        with Session(self._engine) as session, session.begin():
            open_ones = select(QueryRow.id).where(QueryRow.state.in_(OPEN_STATES), _of_the_dead())
            if not session.scalars(open_ones.limit(1)).all():  # the usual case, every second: no write
                return ()
            orphans = tuple(session.scalars(ended.values(**values, request=None).returning(QueryRow.id)))
            session.execute(
                update(AttemptRow)
                .where(AttemptRow.query_id.in_(orphans), AttemptRow.state.in_(OPEN_STATES))
                .values(state=QueryState.FAILED, failure=error.code, message=error.message)
            )
            return orphans

    def with_results(self, among: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
        """Return those of some queries that finished, and those that are open."""
        finished, running = set[str](), set[str]()
        with Session(self._engine) as session:
            for batch in batched(among, READ_AT_ONCE):
                of_batch = select(QueryRow.id).where(QueryRow.id.in_(batch))
                finished.update(session.scalars(of_batch.where(QueryRow.state == QueryState.FINISHED)))
                running.update(session.scalars(of_batch.where(QueryRow.state.in_(OPEN_STATES))))
        return frozenset(finished), frozenset(running)


def _of_the_dead() -> ColumnElement[bool]:
    return or_(QueryRow.gateway.is_(None), QueryRow.gateway.not_in(select(GatewayRow.id)))


def _may_run_again() -> ColumnElement[bool]:
    """Return the condition for a read whose rows nobody has seen."""
    begun = exists().where(AttemptRow.query_id == QueryRow.id)
    is_read = or_(
        func.coalesce(QueryRow.template, "") != "", ~begun
    )  # a write has none, a command begins with its attempt
    few = func.coalesce(QueryRow.taken_over, 0) < MOST_BEGUN - 1
    return and_(QueryRow.request.is_not(None), QueryRow.gateway.is_not(None), is_read, few)


def _record(row: QueryRow) -> QueryRecord:
    error = None
    if row.error_code is not None:
        position = Position(*row.error_position) if row.error_position else None
        error = Failure(row.error_code, row.error_message or "", position)
    return QueryRecord(
        id=row.id,
        sql=row.sql,
        dialect=row.dialect,
        database=row.database,
        user=row.user,
        authenticated=row.authenticated,
        requested_engine=row.requested_engine,
        state=QueryState(row.state),
        submitted_at=row.submitted_at,
        engine=row.engine,
        fingerprint=row.fingerprint,
        template=row.template,
        statistics_version=row.statistics_version,
        decision=DECISION.validate_python(row.decision) if row.decision else None,
        attempts=tuple(_attempt(attempt) for attempt in row.attempts),
        rows=row.rows,
        result_bytes=row.result_bytes,
        error=error,
        finished_at=row.finished_at,
        summary=_summary(row),
    )


def _summary(row: QueryRow) -> QuerySummary | None:
    if row.pool is None or row.seconds is None:
        return None
    alone = None
    if row.alone_engine is not None and row.alone_s is not None:
        alone = Alone(row.alone_engine, row.alone_s, bool(row.alone_measured))
    return QuerySummary(
        pool=row.pool,
        reason=row.reason,
        seconds=row.seconds,
        attempts=row.attempt_count or 0,
        ran_out=bool(row.ran_out),
        expected_bytes=row.expected_bytes,
        peak_bytes=row.peak_bytes,
        within_bound=row.within_bound,
        alone=alone,
    )


def _attempt(row: AttemptRow) -> Attempt:
    return Attempt(
        ordinal=row.ordinal,
        engine=row.engine,
        state=QueryState(row.state),
        started_at=row.started_at,
        wall_s=row.wall_s,
        failure=row.failure,
        message=row.message,
        rows=row.rows,
        peak_bytes=row.peak_bytes,
        actuals=ACTUALS.validate_python(row.actuals) if row.actuals else None,
        waited_s=row.waited_s,
        expected=_expectation(row),
        lease_bytes=row.lease_bytes,
        threads=row.threads,
    )


def _expectation(row: Any) -> Expectation:
    uncertainty = UNCERTAINTY.validate_python(row.uncertainty) if row.uncertainty else Uncertainty()
    return Expectation(row.expected_bytes, uncertainty, row.limit_bytes, row.expected_s)
