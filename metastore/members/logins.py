"""Last logins of users whom an identity provider or a directory proved, for gateways that did not see them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from metastore.database.models import LoginRow


@dataclass(frozen=True, slots=True)
class RememberedLogin:
    """The last login of a user.

    source: source of identity that proved the name.
    groups: of the user, as the source had them then.
    credential: mark of the token or password in hexadecimal digits.
    expires_at: time in seconds since 1970 from which on it counts no more.
    """

    user: str
    source: str
    groups: Sequence[str]
    credential: str
    expires_at: float


class Logins:
    """Last logins by user."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def put(self, login: RememberedLogin) -> None:
        """Replace the last login of a user; forget what has expired. Raises SQLAlchemyError."""
        expires = dt.datetime.fromtimestamp(login.expires_at, dt.UTC)
        values = {
            "source": login.source,
            "groups": list(login.groups),
            "credential": login.credential,
            "expires_at": expires,
        }
        with self._engine.begin() as connection:
            is_postgresql = connection.dialect.name == "postgresql"
            insertion = postgresql.insert(LoginRow) if is_postgresql else sqlite.insert(LoginRow)
            inserted = insertion.values({"user": login.user, **values})
            connection.execute(inserted.on_conflict_do_update(index_elements=["user"], set_=values))
            connection.execute(delete(LoginRow).where(LoginRow.expires_at < dt.datetime.now(dt.UTC)))

    def last(self, user: str) -> RememberedLogin | None:
        """Return the last login of a user; None: there is none, or it was forgotten. Raises SQLAlchemyError."""
        with self._engine.connect() as connection:
            row = connection.execute(select(LoginRow.__table__).where(LoginRow.user == user)).first()
        if row is None:
            return None
        return RememberedLogin(row.user, row.source, row.groups, row.credential, row.expires_at.timestamp())
