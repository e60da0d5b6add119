"""Tables and views with all that SHOW and DESCRIBE tell of one."""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from gateway.catalog.lake.known_catalogs import is_secret
from selector.types import hive_name
from sql.errors import UnknownTable
from sql.tables import (
    LAKE_FORMATS,
    NOT_ANNOTATED,
    Annotations,
    Column,
    PartitionBy,
    View,
    database_of,
    name_in_database,
)

if TYPE_CHECKING:
    from gateway.catalog.snapshot import CatalogSnapshot
    from gateway.commands.services import CommandServices
    from gateway.statements.statement import Statement
    from metastore.records import CatalogTable


REDACTED = "*********(redacted)"
"""Value of a property that is a secret, as Spark shows it."""


class RelationType(StrEnum):
    """Types of tables and views, in Spark's words."""

    MANAGED = "MANAGED"
    """A table whose files the gateway made, and deletes with it."""

    EXTERNAL = "EXTERNAL"
    """A table whose files were registered."""

    VIEW = "VIEW"


@dataclass(frozen=True, slots=True)
class RelationInfo:
    """A table or a view."""

    database: str
    """"" of a view that is a session's own."""
    name: str
    type: RelationType
    columns: tuple[Column, ...]
    annotations: Annotations
    owner: str | None
    partition_columns: tuple[str, ...] = ()
    """Outermost first."""
    format: str | None = None
    """None of a view, as also the size and the time of registration."""
    bytes: int | None = None
    rows: int | None = None
    """Exact, or as statistics count them; None where they are not known."""
    registered_at: dt.datetime | None = None
    view: View | None = None
    """None of a table."""
    partition_by: tuple[PartitionBy, ...] = ()
    """Of a lake table whose partitions are no columns."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties by key, in order; the comment is Hive's property of that name."""
        comment = {"comment": self.annotations.comment} if self.annotations.comment else {}
        return dict(sorted({**self.annotations.properties, **comment}.items()))

    def comment_on(self, column: Column) -> str:
        """Return the comment on a column, "" for none."""
        return self.annotations.columns.get(column.name, "")

    def as_told_to(self, statement: Statement) -> RelationInfo:
        """Return the same with its types under the names that a statement's client knows."""
        if not statement.has_hives_types:
            return self
        columns = tuple(Column(column.name, hive_name(column.declared_type)) for column in self.columns)
        return replace(self, columns=columns)


def relation_of(services: CommandServices, name: str) -> RelationInfo:
    """Return a table, or a view that the session's statements may name. Raises UnknownTable."""
    snapshot = services.shown_catalog
    view = snapshot.views_for(services.session).get(name)
    if view is not None:
        return _of_view(view)
    table = services.table(name)
    if name not in snapshot.tables:
        raise UnknownTable(f"The table {name} is gone.")
    is_own = services.metastore.folders.get(table.source.location) is not None
    return _of_table(table, snapshot, is_own=is_own)


def described(services: CommandServices, name: str) -> RelationInfo:
    """Return a table or view with what a lake table says of itself. Raises UnknownTable, TableUnreadable."""
    relation = relation_of(services, name)
    if relation.format not in LAKE_FORMATS:
        return relation
    source = services.table(name).source
    services.registration.require_unchanged((source,))
    own = services.registration.lake.description(source, services.run.requester)
    properties = {key: REDACTED if is_secret(key) else value for key, value in own.properties.items()}
    annotations = replace(relation.annotations, properties={**relation.annotations.properties, **properties})
    return replace(relation, annotations=annotations, partition_by=own.partition_by)


def relations_in(services: CommandServices, database: str, pattern: str | None) -> Sequence[RelationInfo]:
    """Return what a database holds, and the session's own views, whose names match a pattern, by name."""
    snapshot = services.shown_catalog
    own_folders = {folder.location for folder in services.metastore.folders.list()}
    relations = [
        _of_table(table, snapshot, is_own=table.source.location in own_folders)
        for table in services.metastore.catalog.list()
        if database_of(table.name) == database and table.name in snapshot.tables
    ]
    relations += [
        _of_view(view) for view in snapshot.views_for(services.session).values() if _is_seen_in(database, view)
    ]
    names = set(matching([relation.name for relation in relations], pattern))
    seen = (relation for relation in relations if relation.name in names)
    return sorted(seen, key=lambda relation: (relation.name, relation.database))


def matching(names: Sequence[str], pattern: str | None) -> list[str]:
    """Return the names that match a pattern, where ``*`` is any text and ``|`` an alternative; None matches all."""
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
    build, source = snapshot.statistics.get(table.name), snapshot.tables[table.name]
    annotations = snapshot.annotations.get(table.name, NOT_ANNOTATED)
    is_whole = table.name not in snapshot.in_part
    return RelationInfo(
        database_of(table.name),
        name_in_database(table.name),
        RelationType.MANAGED if is_own else RelationType.EXTERNAL,
        source.columns,
        annotations,
        table.owner,
        source.partition_columns,
        source.format,
        table.bytes if is_whole else None,
        (table.rows if table.rows is not None else build.rows if build else None) if is_whole else None,
        table.registered_at,
    )
