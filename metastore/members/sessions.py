"""Sessions of drivers as any gateway can continue them: what a session's own gateway has written last."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Engine, delete, insert, select, update

from metastore.database.models import DriverSessionRow
from metastore.members.membership import database_time


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A session of a driver.

    id: 64 characters at most, by which its handle is found; not the handle itself, which would let anybody in.
    user, authenticated, address: its user, and whether a password proved that, and where the client is.
    credential: mark of the password in hexadecimal digits; empty: none was needed.
    state: settings and more, as its door wrote it.
    """

    id: str
    user: str
    authenticated: bool
    address: str
    credential: str
    state: Mapping[str, Any]


class DriverSessions:
    """Sessions that are open. Each lasts until it is removed, or nobody has used it for as long as it is kept."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, saved: SavedSession, *, keep_s: float) -> None:
        """Add a session. Raises SQLAlchemyError."""
        with self._engine.begin() as connection:
            row = {**asdict(saved), "expires_at": database_time(connection) + dt.timedelta(seconds=keep_s)}
            connection.execute(insert(DriverSessionRow).values(row))

    def change(self, session_id: str, state: Mapping[str, Any], *, keep_s: float) -> None:
        """Change a session, if it has not ended. Raises SQLAlchemyError."""
        with self._engine.begin() as connection:
            expires = database_time(connection) + dt.timedelta(seconds=keep_s)
            own = update(DriverSessionRow).where(DriverSessionRow.id == session_id)
            connection.execute(own.values(state=dict(state), expires_at=expires))

    def get(self, session_id: str) -> SavedSession | None:
        """Return a session; None: there is none, or nobody has used it for too long. Raises SQLAlchemyError."""
        with self._engine.connect() as connection:
            row = connection.execute(
                select(DriverSessionRow.__table__).where(
                    DriverSessionRow.id == session_id, DriverSessionRow.expires_at > database_time(connection)
                )
            ).first()
        if row is None:
            return None
        return SavedSession(row.id, row.user, row.authenticated, row.address, row.credential, row.state)

    def use(self, session_ids: Collection[str], *, keep_s: float) -> Sequence[str]:
        """Keep sessions from expiring; return those that have not ended. Raises SQLAlchemyError."""
        with self._engine.begin() as connection:
            expires = database_time(connection) + dt.timedelta(seconds=keep_s)
            used = update(DriverSessionRow).where(DriverSessionRow.id.in_(session_ids)).returning(DriverSessionRow.id)
            return connection.scalars(used.values(expires_at=expires)).all()

    def remove(self, session_id: str) -> None:
        """End a session. Raises SQLAlchemyError."""
        with self._engine.begin() as connection:
            connection.execute(delete(DriverSessionRow).where(DriverSessionRow.id == session_id))

    def remove_expired(self) -> int:
        """Remove sessions that nobody has used for too long, and return how many there were. Raises SQLAlchemyError."""
        with self._engine.begin() as connection:
            expired = DriverSessionRow.expires_at < database_time(connection)
            if connection.scalar(select(DriverSessionRow.id).where(expired).limit(1)) is None:  # usually: no write
                return 0
            return connection.execute(delete(DriverSessionRow).where(expired)).rowcount
