"""Lessons: statements that ran out of memory where the estimate said that they fit."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, Row, bindparam, delete, select
from sqlalchemy.orm import Session

from metastore.database.models import MisestimateRow
from metastore.database.quick_reads import QuickReads
from metastore.records import Misestimate
from metastore.repositories.catalog import note_misestimates

_ROWS = MisestimateRow.metadata.tables[MisestimateRow.__tablename__]
_ABOUT = select(_ROWS).where(_ROWS.c.fingerprint == bindparam("wanted")).order_by(_ROWS.c.recorded_at)


class Misestimates:
    """What was learned the hard way. New statistics or a new limit make a misestimate moot, without deleting it."""

    def __init__(self, engine: Engine, quick: QuickReads) -> None:
        self._engine = engine
        self._quick = quick

    def remember(self, misestimate: Misestimate) -> None:
        """Keep a misestimate; the newest of a kind wins."""
        with Session(self._engine) as session, session.begin():
            note_misestimates(session)
            session.merge(
                MisestimateRow(
                    fingerprint=misestimate.fingerprint,
                    engine=misestimate.engine,
                    statistics_version=misestimate.statistics_version,
                    limit_bytes=misestimate.limit_bytes,
                    query_id=misestimate.query_id,
                    sql=misestimate.sql,
                    estimated_bytes=misestimate.estimated_bytes,
                    model_bytes=misestimate.model_bytes,
                    peak_bytes=misestimate.peak_bytes,
                    recorded_at=misestimate.recorded_at,
                )
            )

    def about(self, fingerprint: str) -> tuple[Misestimate, ...]:
        """Return the misestimates about a statement, oldest first, whatever statistics they were made under."""
        return tuple(_record(row) for row in self._quick.rows(_ABOUT, {"wanted": fingerprint}))

    def list(self) -> tuple[Misestimate, ...]:
        """Return all misestimates, newest first."""
        with Session(self._engine) as session:
            rows = session.scalars(select(MisestimateRow).order_by(MisestimateRow.recorded_at.desc()))
            return tuple(_record(row) for row in rows)

    def forget(self, fingerprint: str) -> int:
        """Forget all misestimates about a statement; returns how many there were."""
        with Session(self._engine) as session, session.begin():
            note_misestimates(session)
            gone = session.execute(
                delete(MisestimateRow)
                .where(MisestimateRow.fingerprint == fingerprint)
                .returning(MisestimateRow.fingerprint)
            ).all()
            return len(gone)


def _record(row: MisestimateRow | Row[Any]) -> Misestimate:
    return Misestimate(
        fingerprint=row.fingerprint,
        engine=row.engine,
        statistics_version=row.statistics_version,
        limit_bytes=row.limit_bytes,
        query_id=row.query_id,
        sql=row.sql,
        estimated_bytes=row.estimated_bytes,
        model_bytes=row.model_bytes,
        peak_bytes=row.peak_bytes,
        recorded_at=row.recorded_at,
    )
