"""The catalog at one moment, as statements are read and planned against it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from engines.protocol import Column, TableSource
from engines.table_names import database_of, name_in_database
from gateway.sql.names import Naming
from gateway.sql.planning.work import visible_views
from metastore.records import Database, View
from metastore.store import Metastore
from selector.plan import TableShape
from selector.statistics import TableStatistics

LONGEST_VERSION = 512


class HasViews(Protocol):
    """What keeps views of its own, by bare name: a session."""

    @property
    def database(self) -> str:
        """The database that it is in."""

    @property
    def views(self) -> Mapping[str, View]:
        """Views by their names."""


class KnowsTables(Protocol):
    """Who is told of the tables: all engines."""

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        """Take these tables, and no others."""


class RelationKind(StrEnum):
    """What has columns and a name, in the words of JDBC."""

    TABLE = "TABLE"
    VIEW = "VIEW"


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or a view, as clients know it that ask what there is."""

    database: str
    name: str
    kind: RelationKind
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """Tables and statistics of one version of the catalog. owners: of tables, None where they are nobody's."""

    version: int
    tables: Mapping[str, TableSource] = field(default_factory=dict)
    shapes: Mapping[str, TableShape] = field(default_factory=dict)
    statistics: Mapping[str, TableStatistics] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    databases: Mapping[str, Database] = field(default_factory=dict)
    owners: Mapping[str, str | None] = field(default_factory=dict)

    def require_database(self, name: str) -> str:
        """Return a database's name in lower case. Raises UnknownDatabase."""
        return Naming(databases=frozenset(self.databases)).require(name)

    def views_for(self, session: HasViews | None) -> Mapping[str, View]:
        """Return the views that a session's statements may name: its own hide others and tables."""
        return visible_views(self.views, session.views if session is not None else {})

    def relations_for(self, session: HasViews | None) -> Sequence[Relation]:
        """Return the tables and views that a session's statements may name, by database and name.

        A session's own views are shown in its database, where they hide what is called as they are.
        """
        found = {(database_of(name), name_in_database(name)): table.columns for name, table in self.tables.items()}
        views = {(database_of(name), name_in_database(name)): view.columns for name, view in self.views.items()}
        if session is not None:
            views |= {(session.database, name): view.columns for name, view in session.views.items()}
        kinds = dict.fromkeys(found, RelationKind.TABLE) | dict.fromkeys(views, RelationKind.VIEW)
        found |= views
        return [Relation(*key, kinds[key], found[key]) for key in sorted(found)]

    def statistics_version(self, tables: Sequence[TableSource]) -> str:
        """Return the builds that a statement over these tables is decided on; 0 where there is none.

        A text too long for the metastore's key is replaced by its hash.
        """
        builds = {table.name: self.statistics.get(table.name) for table in tables}
        text = ",".join(f"{name}@{build.version if build else 0}" for name, build in sorted(builds.items()))
        return text if len(text) <= LONGEST_VERSION else hashlib.sha256(text.encode()).hexdigest()


class CatalogView:
    """The catalog as the gateway sees it: read again when its version has changed, and told to all engines."""

    def __init__(self, metastore: Metastore, engines: KnowsTables) -> None:
        self._metastore = metastore
        self._engines = engines
        self._lock = threading.Lock()
        self._snapshot = CatalogSnapshot(version=-1)

    def current(self) -> CatalogSnapshot:
        """Return the newest snapshot."""
        version = self._metastore.catalog.version()
        with self._lock:
            if version > self._snapshot.version:
                self._snapshot = self._read(version)
                self._engines.use_tables(tuple(table for table in self._snapshot.tables.values() if not table.defect))
            return self._snapshot

    def _read(self, version: int) -> CatalogSnapshot:
        tables = self._metastore.catalog.list()
        statistics = self._metastore.statistics.current_of(table.name for table in tables)
        counted = {name: build.rows for name, build in statistics.items()}
        return CatalogSnapshot(
            version=version,
            tables={table.name: table.source for table in tables},
            shapes={
                table.name: TableShape(
                    table.name,
                    {column.name: column.data_type for column in table.source.columns},
                    table.rows if table.rows is not None else counted.get(table.name),
                )
                for table in tables
            },
            statistics=statistics,
            views={view.name: view for view in self._metastore.views.list()},
            databases={database.name: database for database in self._metastore.databases.list()},
            owners={table.name: table.owner for table in tables},
        )
