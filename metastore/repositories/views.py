"""Views: queries with a name, kept as text."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Engine, Select, select
from sqlalchemy.orm import Session

from metastore.database.annotations import decode_annotations, encode_annotations
from metastore.database.grants import forget_grants, move_grants
from metastore.database.models import ViewRow
from metastore.repositories.catalog import (
    Annotate,
    OwnerCheck,
    advance_version,
    annotate_row,
    change_owned,
    require_database,
    require_free,
)
from sql.tables import Column, InvalidTable, View


class Views:
    """Views by full name, in lower case; no table has the name of a view."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def put(self, view: View, *, at: dt.datetime, replace: bool, check: OwnerCheck = lambda _: None) -> None:
        """Store a view; one that is replaced keeps its owner.

        Raises AlreadyExists for a table's name, and for a view's without ``replace``; NoDatabase.
        """
        with Session(self._engine) as session, session.begin():
            advance_version(session)  # first: other writers wait
            require_database(session, view.name)
            row = session.get(ViewRow, view.name) if replace else None
            if row is None:
                require_free(session, view.name)
                row = ViewRow(name=view.name, owner=view.owner)
                session.add(row)
            else:
                check(row.owner)
            row.sql, row.dialect, row.created_at = view.sql, view.dialect, at
            row.columns = [[column.name, column.declared_type] for column in view.columns]
            row.database, row.annotations = view.database, encode_annotations(view.annotations)

    def remove(self, name: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Remove a view. Returns False if there is none."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.get(ViewRow, name.lower())
            if row is not None:
                check(row.owner)
                session.delete(row)
                forget_grants(session, row.name)
            return row is not None

    def rename(self, name: str, new_name: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Give a view another full name, also in another database. Returns False if there is none.

        Raises AlreadyExists, NoDatabase.
        """
        new = new_name.lower()
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.get(ViewRow, name.lower())
            if row is None:
                return False
            check(row.owner)
            require_database(session, new)
            require_free(session, new)
            move_grants(session, row.name, new)
            row.name = new
            return True

    def set_owner(self, name: str, owner: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Set a view's owner. Returns False if there is no such view."""
        return change_owned(self._engine, _row_of(name), check, lambda row: setattr(row, "owner", owner))

    def annotate(self, name: str, change: Annotate, *, check: OwnerCheck = lambda _: None) -> bool:
        """Change a view's annotations. Returns False if there is no such view."""
        return change_owned(self._engine, _row_of(name), check, lambda row: annotate_row(row, change))

    def list(self) -> tuple[View, ...]:
        """Return all views by name."""
        with Session(self._engine) as session:
            return tuple(_record(row) for row in session.scalars(select(ViewRow).order_by(ViewRow.name)))


def _record(row: ViewRow) -> View:
    columns, defect = _columns(row)
    return View(
        row.name,
        row.sql,
        row.dialect,
        columns,
        owner=row.owner,
        defect=defect,
        database=row.database,
        annotations=decode_annotations(row.annotations),
    )


def _columns(row: ViewRow) -> tuple[tuple[Column, ...], str]:
    """Return a view's columns, and the reason if they cannot be used."""
    try:
        return tuple(Column(name, kind) for name, kind in row.columns), ""
    except InvalidTable as failure:
        return (), str(failure)


def _row_of(name: str) -> Select[ViewRow]:
    return select(ViewRow).where(ViewRow.name == name.lower())
