"""Tables and views with all that is known of each, as statements that ask are answered."""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from engines.protocol import Column
from engines.table_names import database_of, name_in_database
from gateway.catalog.snapshot import CatalogSnapshot, CatalogView
from gateway.errors import UnknownTable
from gateway.statements.session import Session
from gateway.statements.statement import Statement
from metastore.records import Annotations, CatalogTable, View
from metastore.store import Metastore
from selector.types import hive_name


class RelationType(StrEnum):
    """What a table or view is, in Spark's words."""

    MANAGED = "MANAGED"
    """A table whose files the gateway made, and deletes with it."""

    EXTERNAL = "EXTERNAL"
    """A table whose files were registered."""

    VIEW = "VIEW"


@dataclass(frozen=True, slots=True)
class RelationInfo:
    """A table or a view. database: "" of a view that is a session's own.

    format, bytes, registered_at: of a table. rows: exact, or as statistics count them; None where they are not known.
    view: None of a table. partition_columns: outermost first.
    """

    database: str
    name: str
    type: RelationType
    columns: tuple[Column, ...]
    annotations: Annotations
    owner: str | None
    partition_columns: tuple[str, ...] = ()
    format: str | None = None
    bytes: int | None = None
    rows: int | None = None
    registered_at: dt.datetime | None = None
    view: View | None = None

    def comment_on(self, column: Column) -> str:
        """Return what people say of a column, "" for nothing."""
        return self.annotations.columns.get(column.name, "")

    def as_told_to(self, statement: Statement) -> RelationInfo:
        """Return the same with its types under the names that a statement's client knows."""
        if not statement.has_hives_types:
            return self
        columns = tuple(Column(column.name, hive_name(column.data_type)) for column in self.columns)
        return replace(self, columns=columns)


class Relations:
    """Looks tables and views up by their full names. Thread-safe."""

    def __init__(self, metastore: Metastore, catalog: CatalogView) -> None:
        self._metastore = metastore
        self._catalog = catalog

    def table(self, name: str) -> CatalogTable:
        """Return a table. Raises UnknownTable where it is gone since its name was read."""
        table = self._metastore.catalog.get(name)
        if table is None:
            raise UnknownTable(f"The table {name} is gone.")
        return table

    def relation(self, name: str, session: Session | None) -> RelationInfo:
        """Return a table, or a view that a session's statements may name. Raises UnknownTable."""
        snapshot = self._catalog.current()
        view = snapshot.views_for(session).get(name)
        if view is not None:
            return _of_view(view)
        table = self.table(name)
        is_own = self._metastore.folders.get(table.source.location) is not None
        return _of_table(table, snapshot, is_own=is_own)

    def in_database(self, database: str, pattern: str | None, session: Session | None) -> Sequence[RelationInfo]:
        """Return what a database holds, and a session's own views, whose names match, by name."""
        snapshot = self._catalog.current()
        own_folders = {folder.location for folder in self._metastore.folders.list()}
        found = [
            _of_table(table, snapshot, is_own=table.source.location in own_folders)
            for table in self._metastore.catalog.list()
            if database_of(table.name) == database
        ]
        found += [_of_view(view) for view in snapshot.views_for(session).values() if _is_seen_in(database, view)]
        wanted = set(matching([each.name for each in found], pattern))
        return sorted((each for each in found if each.name in wanted), key=lambda each: (each.name, each.database))


def matching(names: Sequence[str], pattern: str | None) -> list[str]:
    """Return the names that match one of a pattern's alternatives: ``*`` is any text, ``|`` stands between them."""
    if pattern is None:
        return list(names)
    patterns = [_literally(part) for part in pattern.lower().split("|")]
    return [name for name in names if any(fnmatch.fnmatchcase(name.lower(), part) for part in patterns)]


def _literally(pattern: str) -> str:
    """Turn Impala's pattern, where only ``*`` is special, into one of fnmatch."""
    return "*".join(re.sub(r"([?\[])", r"[\1]", part) for part in pattern.split("*"))


def _is_seen_in(database: str, view: View) -> bool:
    return view.temporary or database_of(view.name) == database


def _of_view(view: View) -> RelationInfo:
    return RelationInfo(
        "" if view.temporary else database_of(view.name),
        view.name if view.temporary else name_in_database(view.name),
        RelationType.VIEW,
        view.columns,
        view.annotations,
        view.owner,
        view=view,
    )


def _of_table(table: CatalogTable, snapshot: CatalogSnapshot, *, is_own: bool) -> RelationInfo:
    build = snapshot.statistics.get(table.name)
    return RelationInfo(
        database_of(table.name),
        name_in_database(table.name),
        RelationType.MANAGED if is_own else RelationType.EXTERNAL,
        table.source.columns,
        table.annotations,
        table.owner,
        table.source.partition_columns,
        table.source.format,
        table.bytes,
        table.rows if table.rows is not None else build.rows if build else None,
        table.registered_at,
    )
