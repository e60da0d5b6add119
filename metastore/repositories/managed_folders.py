"""Folders that the gateway creates, and writes that it commits: recorded before it touches a file.

A folder without a record is not the gateway's: its presence on the disk does not prove who created it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.orm import Session

from metastore.database.models import ManagedFolderRow, TableCommitRow
from metastore.records import ManagedFolder, TableCommit


class ManagedFolders:
    """Folders that the gateway created for tables. Nothing else is ever deleted with a table."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, folder: ManagedFolder, *, at: dt.datetime) -> None:
        """Record a folder that is about to be created."""
        with self._engine.begin() as connection:
            connection.execute(
                insert(ManagedFolderRow).values(location=folder.location, query_id=folder.query_id, created_at=at)
            )

    def get(self, location: str) -> ManagedFolder | None:
        """Return the record of exactly this folder; None: the gateway did not create it."""
        with Session(self._engine) as session:
            row = session.get(ManagedFolderRow, location)
            return ManagedFolder(row.location, row.query_id) if row else None

    def list(self) -> tuple[ManagedFolder, ...]:
        """Return all folders by their location."""
        with Session(self._engine) as session:
            rows = session.scalars(select(ManagedFolderRow).order_by(ManagedFolderRow.location))
            return tuple(ManagedFolder(row.location, row.query_id) for row in rows)

    def remove(self, location: str) -> None:
        """Remove the record of a deleted folder."""
        with self._engine.begin() as connection:
            connection.execute(delete(ManagedFolderRow).where(ManagedFolderRow.location == location))


class TableCommits:
    """Running INSERTs: from before their first file until all files are in their table."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, query_id: str, location: str, *, at: dt.datetime) -> None:
        """Record that a query is about to write into a table's folder."""
        with self._engine.begin() as connection:
            connection.execute(insert(TableCommitRow).values(query_id=query_id, location=location, begun_at=at))

    def prepare(self, query_id: str, *, files: Sequence[str], replaced: Sequence[str]) -> None:
        """Record the files of a commit before it begins."""
        with self._engine.begin() as connection:
            connection.execute(
                update(TableCommitRow)
                .where(TableCommitRow.query_id == query_id)
                .values(files=list(files), replaced=list(replaced))
            )

    def list(self, location: str | None = None) -> tuple[TableCommit, ...]:
        """Return the running INSERTs in one table's folder or in all, the oldest first."""
        chosen = select(TableCommitRow).order_by(TableCommitRow.query_id)
        if location is not None:
            chosen = chosen.where(TableCommitRow.location == location)
        with Session(self._engine) as session:
            return tuple(_commit(row) for row in session.scalars(chosen))

    def end(self, query_id: str) -> None:
        """Remove the record of a write that is complete."""
        with self._engine.begin() as connection:
            connection.execute(delete(TableCommitRow).where(TableCommitRow.query_id == query_id))


def _commit(row: TableCommitRow) -> TableCommit:
    files = None if row.files is None else tuple(row.files)
    return TableCommit(row.query_id, row.location, files, tuple(row.replaced or ()))
