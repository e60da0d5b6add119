"""Gateways that share the database. Each sends a heartbeat every few seconds: queries of dead ones are closed."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Engine, delete
from sqlalchemy.orm import Session

from metastore.database.models import GatewayRow

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
