"""Service accounts: users that are programs. A token is on record as its hash alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from metastore.database.models import ServiceAccountRow


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A user that is a program.

    role: name of its role; None: the settings decide.
    groups: names, sorted.
    token: SHA-256 of its token, in hexadecimal digits.
    expires_at: end of the token.
    earlier_token: SHA-256 of the token before the last rotation; None: it counts no more.
    earlier_until: end of the earlier token.
    created_by: name of the user who added it.
    """

    name: str
    role: str | None
    groups: Sequence[str]
    token: str
    expires_at: dt.datetime
    created_at: dt.datetime
    created_by: str
    earlier_token: str | None = None
    earlier_until: dt.datetime | None = None


class ServiceAccounts:
    """All service accounts. Every method raises SQLAlchemyError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list(self) -> tuple[ServiceAccount, ...]:
        """Return all accounts, by name."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(ServiceAccountRow.__table__).order_by(ServiceAccountRow.name))
            return tuple(ServiceAccount(**row._mapping) for row in rows)

    def get(self, name: str) -> ServiceAccount | None:
        """Return an account; None: there is none."""
        with self._engine.connect() as connection:
            row = connection.execute(
                select(ServiceAccountRow.__table__).where(ServiceAccountRow.name == name)
            ).one_or_none()
        return ServiceAccount(**row._mapping) if row is not None else None

    def add(self, account: ServiceAccount) -> bool:
        """Add an account; False: there is one of this name."""
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(ServiceAccountRow).values(asdict(account)))
        except IntegrityError:
            return False
        return True

    def change(self, account: ServiceAccount, *, token: str) -> bool:
        """Replace an account that has a token; False: it is gone, or has another token by now."""
        with self._engine.begin() as connection:
            own = update(ServiceAccountRow).where(
                ServiceAccountRow.name == account.name, ServiceAccountRow.token == token
            )
            return connection.execute(own.values(asdict(account))).rowcount > 0

    def remove(self, name: str) -> bool:
        """Remove an account; False: there is none."""
        with self._engine.begin() as connection:
            return connection.execute(delete(ServiceAccountRow).where(ServiceAccountRow.name == name)).rowcount > 0
