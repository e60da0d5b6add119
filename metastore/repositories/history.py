"""Retention of the metastore's history: ended queries with attempts, misestimates, jobs, comparisons of answers.

Rows are deleted in small batches, each in a transaction of its own, so that nobody waits for them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Engine, Select, Text, cast, delete, func, select
from sqlalchemy.orm import Session

from metastore.database.batches import batched
from metastore.database.models import (
    AttemptRow,
    JobTableRow,
    MisestimateRow,
    ParityCaseRow,
    ParityCountRow,
    QueryRow,
    StatisticsJobRow,
)
from metastore.records import QueryState

BATCH_ROWS = 200
_ENDED = tuple(state for state in QueryState if state.ended)


@dataclass(frozen=True, slots=True)
class HistorySize:
    """Size of the history.

    bytes: of statements and decisions, approximately.
    oldest: time of the oldest query; None: there is no query.
    """

    queries: int
    bytes: int
    oldest: dt.datetime | None


class History:
    """All that has ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def size(self) -> HistorySize:
        """Return the size; it reads all statements."""
        with Session(self._engine) as session:
            count, used_bytes, oldest = session.execute(
                select(func.count(), func.sum(_bytes()), func.min(QueryRow.submitted_at)).select_from(QueryRow)
            ).one()
        return HistorySize(int(count), int(used_bytes or 0), oldest)

    def drop_older(self, than: dt.datetime) -> int:
        """Delete a batch of ended rows that began before a time. Returns the number of rows; 0: none is left."""
        jobs = select(StatisticsJobRow.id).where(
            StatisticsJobRow.finished_at.is_not(None), StatisticsJobRow.created_at < than
        )
        return (
            self._drop_queries(_oldest().where(QueryRow.submitted_at < than).limit(BATCH_ROWS))
            + self._drop_jobs(jobs.limit(BATCH_ROWS))
            + self._drop_misestimates(than)
            + self._drop_comparisons(than)
        )

    def drop_oldest(self, count: int) -> int:
        """Delete some of the oldest queries that have ended, at most a batch. Returns their number."""
        return self._drop_queries(_oldest().limit(min(count, BATCH_ROWS)))

    def drop_oldest_bytes(self, excess_bytes: int) -> int:
        """Delete the oldest ended queries until so many bytes are free, at most a batch. Returns the freed bytes."""
        with Session(self._engine) as session:
            oldest = session.execute(_oldest().add_columns(_bytes()).limit(BATCH_ROWS)).all()
        chosen, freed_bytes = list[str](), 0
        for query_id, size in oldest:
            if freed_bytes >= excess_bytes:
                break
            chosen.append(query_id)
            freed_bytes += int(size or 0)
        return freed_bytes if self._drop_these(chosen) else 0

    def owners(self, query_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the users of queries, by query id."""
        users: dict[str, str] = {}
        with Session(self._engine) as session:
            for ids in batched(query_ids, BATCH_ROWS):
                rows = session.execute(select(QueryRow.id, QueryRow.user).where(QueryRow.id.in_(ids))).all()
                users.update((row.id, row.user) for row in rows)
        return users

    def _drop_queries(self, wanted: Select[str]) -> int:
        with Session(self._engine) as session:
            return self._drop_these(list(session.scalars(wanted)))

    def _drop_these(self, query_ids: Sequence[str]) -> int:
        if query_ids:
            with self._engine.begin() as connection:
                connection.execute(delete(AttemptRow).where(AttemptRow.query_id.in_(query_ids)))
                connection.execute(delete(QueryRow).where(QueryRow.id.in_(query_ids)))
        return len(query_ids)

    def _drop_jobs(self, wanted: Select[str]) -> int:
        with self._engine.begin() as connection:
            jobs = list(connection.scalars(wanted))
            if jobs:
                connection.execute(delete(JobTableRow).where(JobTableRow.job_id.in_(jobs)))
                connection.execute(delete(StatisticsJobRow).where(StatisticsJobRow.id.in_(jobs)))
        return len(jobs)

    def _drop_comparisons(self, than: dt.datetime) -> int:
        """Delete cases of differing answers that are released, and counts of days."""
        cases = delete(ParityCaseRow).where(ParityCaseRow.released_at < than)
        counts = delete(ParityCountRow).where(ParityCountRow.day < f"{than:%Y%m%d}")
        with self._engine.begin() as connection:
            return connection.execute(cases).rowcount + connection.execute(counts).rowcount

    def _drop_misestimates(self, than: dt.datetime) -> int:
        with self._engine.begin() as connection:
            return connection.execute(delete(MisestimateRow).where(MisestimateRow.recorded_at < than)).rowcount


def _oldest() -> Select[str]:
    return select(QueryRow.id).where(QueryRow.state.in_(_ENDED)).order_by(QueryRow.submitted_at)


def _bytes() -> ColumnElement[int]:
    """Return the approximate bytes of a row: its statement and its decision, the long ones."""
    decision = func.coalesce(func.length(cast(QueryRow.decision, Text)), 0)
    return func.length(QueryRow.sql) + decision
