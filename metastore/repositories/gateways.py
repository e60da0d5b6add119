"""Gateways that share the database, and the engines that all of them drain.

Each gateway sends a heartbeat every few seconds: queries of dead ones are closed.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from metastore.database.models import DrainedEngineRow, GatewayRow

SILENCE = dt.timedelta(seconds=60)
"""A gateway without a heartbeat for so long counts as dead."""


class Gateways:
    """Heartbeats of gateways."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def seen(self, gateway: str, *, at: dt.datetime) -> None:
        """Store a heartbeat."""
        with Session(self._engine) as session, session.begin():
            session.merge(GatewayRow(id=gateway, seen_at=at))

    def forget(self, gateway: str) -> None:
        """Remove a gateway that ends regularly."""
        with self._engine.begin() as connection:
            connection.execute(delete(GatewayRow).where(GatewayRow.id == gateway))


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
