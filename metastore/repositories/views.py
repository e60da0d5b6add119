"""Views: queries with a name, kept as text."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from engines.protocol import Column, InvalidTable
from metastore.database.annotations import decode_annotations, encode_annotations
from metastore.database.models import TableRow, ViewRow
from metastore.records import View
from metastore.repositories.catalog import AlreadyExists, Annotate, OwnerCheck, advance_version, require_database


class Views:
    """Views by full name, in lower case; no table has the name of a view."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def put(self, view: View, *, at: dt.datetime, replace: bool, check: OwnerCheck = lambda _: None) -> None:
        """Keep a view; one that is replaced keeps its owner, whom ``check`` hears of.

        Raises AlreadyExists for a table's name, and for a view's if it is not to be replaced; NoDatabase.
        """
        with Session(self._engine) as session, session.begin():
            advance_version(session)  # first: other writers wait
            require_database(session, view.name)
            row = session.get(ViewRow, view.name)
            taken = session.scalar(select(TableRow.id).where(TableRow.name == view.name)) is not None
            if taken or (row is not None and not replace):
                raise AlreadyExists(view.name)
            if row is None:
                row = ViewRow(name=view.name, owner=view.owner)
                session.add(row)
            else:
                check(row.owner)
            row.sql, row.dialect, row.created_at = view.sql, view.dialect, at
            row.columns = [[column.name, column.data_type] for column in view.columns]
            row.database, row.annotations = view.database, encode_annotations(view.annotations)

    def remove(self, name: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Forget a view; returns whether it was there. check: hears its owner."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.get(ViewRow, name.lower())
            if row is not None:
                check(row.owner)
                session.delete(row)
            return row is not None

    def rename(self, name: str, new_name: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Give a view another full name, in whatever database; returns whether it was there. check: hears its owner.

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
            taken = session.scalar(select(TableRow.id).where(TableRow.name == new)) is not None
            if taken or session.get(ViewRow, new) is not None:
                raise AlreadyExists(new)
            row.name = new
            return True

    def set_owner(self, name: str, owner: str, *, check: OwnerCheck = lambda _: None) -> bool:
        """Give a view to somebody. check: hears whose it was. Returns whether it was there."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.get(ViewRow, name.lower())
            if row is not None:
                check(row.owner)
                row.owner = owner
            return row is not None

    def annotate(self, name: str, change: Annotate, *, check: OwnerCheck = lambda _: None) -> bool:
        """Change what is said of a view. check: hears its owner. Returns whether it was there."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.get(ViewRow, name.lower())
            if row is not None:
                check(row.owner)
                row.annotations = encode_annotations(change(decode_annotations(row.annotations)))
            return row is not None

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
    """Return a view's columns, and why they cannot be used, if so."""
    try:
        return tuple(Column(name, kind) for name, kind in row.columns), ""
    except InvalidTable as failure:
        return (), str(failure)
