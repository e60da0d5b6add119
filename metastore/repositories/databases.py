"""Databases with their comments and properties, and catalogs that commands add, whose namespaces are databases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields

from sqlalchemy import Engine, Select, select
from sqlalchemy.orm import Session

from metastore.database.grants import ALL_IN, forget_grants
from metastore.database.models import AddedCatalogRow, DatabaseRow, TableRow, ViewRow
from metastore.errors import AlreadyExists, DatabaseInUse
from metastore.records import AddedCatalog, Database
from metastore.repositories.catalog import OwnerCheck, advance_version, change_owned, replace_names_in
from sql.tables import database_of


class Databases:
    """Databases by name, in lower case."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, database: Database) -> None:
        """Add a database. Raises AlreadyExists."""
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
                    identifiers=list(database.identifiers),
                )
            )

    def remove(self, name: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Remove an empty database. Returns False if there is none. Raises DatabaseInUse."""
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
            forget_grants(session, row.name + ALL_IN)
            return True

    def set_owner(self, name: str, owner: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Set a database's owner. Returns False if there is no such database."""
        return change_owned(self._engine, _row_of(name), check, lambda row: setattr(row, "owner", owner))

    def set_properties(self, name: str, properties: Mapping[str, str], *, check: OwnerCheck = lambda _: None) -> bool:
        """Add or replace properties of a database. Returns False if there is no such database."""

        def change(row: DatabaseRow) -> None:
            row.properties = {**row.properties, **properties}

        return change_owned(self._engine, _row_of(name), check, change)

    def set_comment(self, name: str, comment: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Set a database's comment. Returns False if there is no such database."""
        return change_owned(self._engine, _row_of(name), check, lambda row: setattr(row, "comment", comment))

    def get(self, name: str) -> Database | None:
        """Return one database, or None."""
        with Session(self._engine) as session:
            row = session.scalar(_row_of(name))
            return _record(row) if row else None

    def list(self) -> tuple[Database, ...]:
        """Return all databases by name."""
        with Session(self._engine) as session:
            return tuple(_record(row) for row in session.scalars(select(DatabaseRow).order_by(DatabaseRow.name)))


class AddedCatalogs:
    """Iceberg catalogs that commands have added, by name."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, catalog: AddedCatalog) -> None:
        """Add a catalog. Raises AlreadyExists."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)  # first: other writers wait
            if session.get(AddedCatalogRow, catalog.name) is not None:
                raise AlreadyExists(catalog.name)
            session.add(AddedCatalogRow(**{**asdict(catalog), "properties": dict(catalog.properties)}))

    def remove(self, name: str) -> bool:
        """Remove a catalog with the names of its tables. Returns False if there is none."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.get(AddedCatalogRow, name)
            if row is None:
                return False
            session.delete(row)
            replace_names_in(session, name, {})
            return True

    def list(self) -> tuple[AddedCatalog, ...]:
        """Return all added catalogs by name."""
        with Session(self._engine) as session:
            rows = session.scalars(select(AddedCatalogRow).order_by(AddedCatalogRow.name))
            names = [field.name for field in fields(AddedCatalog)]
            return tuple(AddedCatalog(**{name: getattr(row, name) for name in names}) for row in rows)


def _record(row: DatabaseRow) -> Database:
    return Database(row.name, row.comment, dict(row.properties), row.owner, tuple(row.identifiers))


def _row_of(name: str) -> Select[DatabaseRow]:
    return select(DatabaseRow).where(DatabaseRow.name == name.lower())
