"""Databases: which there are, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from engines.table_names import database_of
from metastore.database.models import DatabaseRow, TableRow, ViewRow
from metastore.records import Database
from metastore.repositories.catalog import AlreadyExists, OwnerCheck, advance_version


class DatabaseInUse(Exception):
    """A database that is to be forgotten holds tables or views. Its argument is their full names."""


class Databases:
    """Databases by name, in lower case."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, database: Database) -> None:
        """Keep a new one. Raises AlreadyExists."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)  # first: other writers wait
            if session.get(DatabaseRow, database.name) is not None:
                raise AlreadyExists(database.name)
            session.add(
                DatabaseRow(
                    name=database.name,
                    comment=database.comment,
                    properties=dict(database.properties),
                    owner=database.owner,
                )
            )

    def remove(self, name: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Forget one that holds nothing; returns whether it was there. check: hears its owner. Raises DatabaseInUse."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.get(DatabaseRow, name.lower())
            if row is None:
                return False
            check(row.owner)
            held = [
                full
                for names in (select(TableRow.name), select(ViewRow.name))
                for full in session.scalars(names)
                if database_of(full) == row.name
            ]
            if held:
                raise DatabaseInUse(sorted(held))
            session.delete(row)
            return True

    def set_owner(self, name: str, owner: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Give one to somebody. check: hears whose it was. Returns whether it was there."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.get(DatabaseRow, name.lower())
            if row is not None:
                check(row.owner)
                row.owner = owner
            return row is not None

    def set_properties(self, name: str, properties: Mapping[str, str], *, check: OwnerCheck = lambda _: None) -> bool:
        """Tell properties of one, beside those told before. check: hears its owner. Returns whether it was there."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.get(DatabaseRow, name.lower())
            if row is not None:
                check(row.owner)
                row.properties = {**row.properties, **properties}
            return row is not None

    def set_comment(self, name: str, comment: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Say what one is for. check: hears its owner. Returns whether it was there."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.get(DatabaseRow, name.lower())
            if row is not None:
                check(row.owner)
                row.comment = comment
            return row is not None

    def list(self) -> tuple[Database, ...]:
        """Return all databases by name."""
        with Session(self._engine) as session:
            rows = session.scalars(select(DatabaseRow).order_by(DatabaseRow.name))
            return tuple(Database(row.name, row.comment, dict(row.properties), row.owner) for row in rows)
