"""Gateways that share the database: each gives a sign every few seconds, so that only dead ones' queries are closed."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Engine, delete
from sqlalchemy.orm import Session

from metastore.database.models import GatewayRow

SILENCE = dt.timedelta(seconds=60)
"""Without a sign, after which a gateway counts as dead."""


class Gateways:
    """Signs of life."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def seen(self, gateway: str, *, at: dt.datetime) -> None:
        """Give a sign."""
        with Session(self._engine) as session, session.begin():
            session.merge(GatewayRow(id=gateway, seen_at=at))

    def forget(self, gateway: str) -> None:
        """Note that a gateway has ended by itself."""
        with self._engine.begin() as connection:
            connection.execute(delete(GatewayRow).where(GatewayRow.id == gateway))
