"""Engines that all gateways drain."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from metastore.database.models import DrainedEngineRow


@dataclass(frozen=True, slots=True)
class Drained:
    """An engine that takes no new statements. by: name of the user who drains it."""

    engine: str
    by: str
    since: dt.datetime


class DrainedEngines:
    """All engines that are drained."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, drained: Drained) -> None:
        """Record a drain; one that is on record stays."""
        with Session(self._engine) as session, session.begin():
            if session.get(DrainedEngineRow, drained.engine) is None:
                session.add(DrainedEngineRow(engine=drained.engine, by=drained.by, since=drained.since))

    def remove(self, engine: str) -> None:
        """End a drain."""
        with self._engine.begin() as connection:
            connection.execute(delete(DrainedEngineRow).where(DrainedEngineRow.engine == engine))

    def list(self) -> tuple[Drained, ...]:
        """Return all drains."""
        with Session(self._engine) as session:
            return tuple(Drained(row.engine, row.by, row.since) for row in session.scalars(select(DrainedEngineRow)))
