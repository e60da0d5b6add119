"""Misestimates: statements that ran out of memory although their estimate was below the limit."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Engine, Row, bindparam, delete, select
from sqlalchemy.orm import Session

from metastore.database.models import MisestimateRow
from metastore.records import Misestimate

_ROWS = MisestimateRow.metadata.tables[MisestimateRow.__tablename__]
_ABOUT = select(_ROWS).where(_ROWS.c.fingerprint == bindparam("wanted")).order_by(_ROWS.c.recorded_at)
_FIELDS = tuple(field.name for field in fields(Misestimate))  # columns have the same names


class Misestimates:
    """All misestimates. New statistics or a new limit make one irrelevant, but do not delete it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def remember(self, misestimate: Misestimate) -> None:
        """Store a misestimate. It replaces one of the same fingerprint, engine, statistics and limit."""
        with Session(self._engine) as session, session.begin():
            session.merge(MisestimateRow(**asdict(misestimate)))

    def about(self, fingerprint: str) -> tuple[Misestimate, ...]:
        """Return the misestimates about a statement under any statistics, oldest first."""
        with self._engine.connect() as connection:
            return tuple(map(_record, connection.execute(_ABOUT, {"wanted": fingerprint})))

    def list(self) -> tuple[Misestimate, ...]:
        """Return all misestimates, newest first."""
        with Session(self._engine) as session:
            rows = session.scalars(select(MisestimateRow).order_by(MisestimateRow.recorded_at.desc()))
            return tuple(_record(row) for row in rows)

    def forget(self, fingerprint: str) -> int:
        """Forget all misestimates about a statement. Returns their number."""
        with self._engine.begin() as connection:
            return connection.execute(delete(MisestimateRow).where(MisestimateRow.fingerprint == fingerprint)).rowcount


def _record(row: MisestimateRow | Row[Any]) -> Misestimate:
    return Misestimate(**{name: getattr(row, name) for name in _FIELDS})
