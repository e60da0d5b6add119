"""Snapshot of the catalog, against which statements are read and planned."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

from metastore.records import AddedCatalog, CatalogTable, Database
from selector.plan import TableShape
from selector.statistics import TableStatistics
from sql.errors import UnknownDatabase
from sql.names import Naming, base_name
from sql.tables import NOT_ANNOTATED, Annotations, Column, TableSource, View, database_of, name_in_database
from sql.views import visible_views

if TYPE_CHECKING:  # planners import this module, and no metastore
    from metastore.store import Metastore

LONGEST_VERSION = 512

Named = TypeVar("Named")


class ViewHolder(Protocol):
    """A session: it holds temporary views, by bare name."""

    @property
    def database(self) -> str:
        """The database that it is in."""

    @property
    def views(self) -> Mapping[str, View]:
        """Views by their names."""


class TableUser(Protocol):
    """Users of the catalog's tables: all engines."""

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Take these tables, and no others."""


class RelationKind(StrEnum):
    """Kinds of relations, in the words of JDBC."""

    TABLE = "TABLE"
    VIEW = "VIEW"


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or a view, as clients know it that ask what there is."""

    database: str
    name: str
    kind: RelationKind
    columns: tuple[Column, ...]
    annotations: Annotations = NOT_ANNOTATED


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """Tables and statistics of one version of the catalog. Unchanged objects are shared with the version before.

    version: version of the catalog.
    tables, shapes, statistics, views, databases: by full name.
    catalogs: Iceberg catalogs that commands have added, by name.
    owners: owner of each table; None: no owner.
    annotations: comments and properties of each table that has any.
    changed: version in which each table or its statistics last changed.
    """

    version: int
    tables: Mapping[str, TableSource] = field(default_factory=dict)
    shapes: Mapping[str, TableShape] = field(default_factory=dict)
    statistics: Mapping[str, TableStatistics] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    databases: Mapping[str, Database] = field(default_factory=dict)
    catalogs: Mapping[str, AddedCatalog] = field(default_factory=dict)
    owners: Mapping[str, str | None] = field(default_factory=dict)
    annotations: Mapping[str, Annotations] = field(default_factory=dict)
    changed: Mapping[str, int] = field(default_factory=dict)

    def changed_at(self, tables: Sequence[TableSource]) -> int:
        """Return the version since which nothing about these tables has changed."""
        return max((self.changed[base_name(table.name)] for table in tables), default=0)

    def require_database(self, name: str) -> str:
        """Return a database's name in lower case. Raises UnknownDatabase."""
        return Naming(databases=frozenset(self.databases)).require(name)

    def views_for(self, session: ViewHolder | None) -> Mapping[str, View]:
        """Return the views that a session's statements may name: its own hide others and tables."""
        return visible_views(self.views, session.views if session is not None else {})

    def relations_for(self, session: ViewHolder | None) -> Sequence[Relation]:
        """Return the tables and views that a session's statements may name, by database and name.

        A session's own views are shown in its database, where they hide what is called as they are.
        """
        relations: dict[tuple[str, str], Relation] = {}

        def add(
            database: str, name: str, kind: RelationKind, source: TableSource | View, annotations: Annotations
        ) -> None:
            relations[database, name] = Relation(database, name, kind, source.columns, annotations)

        for name, table in self.tables.items():
            annotations = self.annotations.get(name, NOT_ANNOTATED)
            add(database_of(name), name_in_database(name), RelationKind.TABLE, table, annotations)
        for name, view in self.views.items():
            add(database_of(name), name_in_database(name), RelationKind.VIEW, view, view.annotations)
        if session is not None:
            for name, view in session.views.items():
                add(session.database, name, RelationKind.VIEW, view, view.annotations)
        return [relations[key] for key in sorted(relations)]

    def statistics_version(self, tables: Sequence[TableSource]) -> str:
        """Return the builds that a statement over these tables is decided on; 0 where there is none.

        A text too long for the metastore's key is replaced by its hash.
        """
        builds = {table.name: self.statistics.get(table.name) for table in tables}
        text = ",".join(f"{name}@{build.version if build else 0}" for name, build in sorted(builds.items()))
        return text if len(text) <= LONGEST_VERSION else hashlib.sha256(text.encode()).hexdigest()


class CatalogView:
    """The catalog as the gateway sees it: read again when its version has changed, as far as tables changed.

    Engines are told of tables that are new, defined otherwise or gone, and of nothing else.
    """

    def __init__(self, metastore: Metastore, engines: TableUser) -> None:
        self._metastore = metastore
        self._engines = engines
        self._lock = threading.Lock()
        self._snapshot = CatalogSnapshot(version=-1)
        self._read: Mapping[str, CatalogTable] = {}  # the tables of the snapshot

    @property
    def latest(self) -> CatalogSnapshot:
        """The snapshot that was read last, without a look whether there is a newer one. Does not block."""
        return self._snapshot

    def knows_database(self, name: str) -> bool:
        """Tell whether a database is in the snapshot that was read last. Does not block."""
        try:
            self._snapshot.require_database(name)
        except UnknownDatabase:
            return False
        return True

    def current(self) -> CatalogSnapshot:
        """Return the newest snapshot."""
        version = self._metastore.catalog.version()
        with self._lock:
            if version > self._snapshot.version:
                before = self._snapshot
                self._snapshot = self._next(version)
                if self._snapshot.tables is not before.tables:
                    usable = (table for table in self._snapshot.tables.values() if not table.defect)
                    self._engines.use_tables(tuple(usable))
            return self._snapshot

    def _next(self, version: int) -> CatalogSnapshot:
        """Read the changes since the last snapshot. A changed table or build is another object than before."""
        previous, read_before = self._snapshot, self._read
        read = self._read = {table.name: table for table in self._metastore.catalog.list()}
        built = self._metastore.statistics.current_of(read)
        same = {
            name
            for name, table in read.items()
            if read_before.get(name) is table and previous.statistics.get(name) is built.get(name)
        }
        return CatalogSnapshot(
            version=version,
            tables=_reuse_unchanged(previous.tables, {name: table.source for name, table in read.items()}),
            shapes={
                name: previous.shapes[name] if name in same else _shape(table, built.get(name))
                for name, table in read.items()
            },
            statistics=built,
            views=_reuse_unchanged(previous.views, {view.name: view for view in self._metastore.views.list()}),
            databases={database.name: database for database in self._metastore.databases.list()},
            catalogs=_reuse_unchanged(
                previous.catalogs, {catalog.name: catalog for catalog in self._metastore.added_catalogs.list()}
            ),
            owners={name: table.owner for name, table in read.items()},
            annotations={name: table.annotations for name, table in read.items() if table.annotations != NOT_ANNOTATED},
            changed={name: previous.changed[name] if name in same else version for name in read},
        )


def _reuse_unchanged(previous: Mapping[str, Named], current: Mapping[str, Named]) -> Mapping[str, Named]:
    """Return the current mapping with the previous objects of equal values; all equal: the previous mapping."""
    merged = {name: previous[name] if previous.get(name) == value else value for name, value in current.items()}
    if merged.keys() == previous.keys() and all(previous[name] is value for name, value in merged.items()):
        return previous
    return merged


def _shape(table: CatalogTable, statistics: TableStatistics | None) -> TableShape:
    rows = statistics.rows if table.rows is None and statistics is not None else table.rows
    columns = {column.name: column.data_type for column in table.source.columns}
    return TableShape(table.name, columns, rows)
