"""Snapshot of the catalog, against which statements are read and planned."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

from cachetools import LRUCache

from gateway.security.access.control import AccessControl
from gateway.security.access.user_access import UserAccess
from gateway.security.principals import Principal
from metastore.records import AddedCatalog, CatalogTable, Database, StatisticsJob
from selector.join_keys import KeyPair
from selector.plan import TableShape
from selector.statistics import TableStatistics
from sql.errors import AccessDenied, UnknownDatabase, UnknownTable
from sql.names import Naming, base_name, did_you_mean
from sql.tables import NOT_ANNOTATED, Annotations, Column, TableSource, View, canonical, database_of, name_in_database
from sql.views import visible_views

if TYPE_CHECKING:  # planners import this module, and no metastore
    from metastore.store import Metastore

LONGEST_VERSION = 512
SHOWN_KEPT = 32  # snapshots as users may see them

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
    in_part: tables and views of which a user may see a part alone, in a snapshot that is shown to one.
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
    in_part: frozenset[str] = frozenset()

    def changed_at(self, tables: Sequence[TableSource]) -> int:
        """Return the version since which nothing about these tables has changed."""
        return max((self.changed[base_name(table.name)] for table in tables), default=0)

    def shown(self, table: CatalogTable) -> CatalogTable | None:
        """Return what a snapshot that is shown to a user tells of a table; None: the user may not know of it.

        The size of a table of which a user may see a part is not told: it has 0 files.
        """
        source = self.tables.get(table.name)
        if source is None:
            return None
        if table.name not in self.in_part:
            return table
        annotations = self.annotations.get(table.name, NOT_ANNOTATED)
        return replace(table, source=source, bytes=0, rows=None, files=0, partitions=(), annotations=annotations)

    def shows_whole(self, names: Iterable[str]) -> bool:
        """Tell whether a snapshot that is shown to a user has all of these tables, with all rows and columns."""
        return all(name in self.tables and name not in self.in_part for name in names)

    def shows_key(self, pair: KeyPair) -> bool:
        """Tell whether a user to whom this snapshot is shown may know of a pair of columns that is joined."""
        return self.shows_whole((pair.left.table, pair.right.table))

    def require_whole(self, user: Principal, names: Iterable[str]) -> None:
        """Raise UnknownTable, AccessDenied for tables that the user to whom this is shown may not see whole."""
        for name in names:
            if canonical(name) not in self.tables:
                raise UnknownTable(f"There is no table {name}{did_you_mean(name, self.tables)}")
            if canonical(name) in self.in_part:
                raise AccessDenied(f"{user.name} may see a part of {name} alone, and statistics take all of it.")

    def shows_job(self, job: StatisticsJob) -> bool:
        """Tell whether a user to whom this snapshot is shown may know of a job."""
        return self.shows_whole(job.request.tables)

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

    def __init__(self, metastore: Metastore, engines: TableUser, rights: AccessControl | None = None) -> None:
        """Build it. rights: of users; None: everybody may read everything."""
        self._metastore = metastore
        self._engines = engines
        self.rights = rights or AccessControl()
        self._lock = threading.Lock()
        self._snapshot = CatalogSnapshot(version=-1)
        self._read: Mapping[str, CatalogTable] = {}  # the tables of the snapshot
        self._shown: LRUCache[object, CatalogSnapshot] = LRUCache(SHOWN_KEPT)  # by rights

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
                if self.rights.is_on:
                    self.rights.use(self._metastore.access.read())
                self._snapshot = self._next(version)
                if self._snapshot.tables is not before.tables:
                    usable = (table for table in self._snapshot.tables.values() if not table.defect)
                    self._engines.use_tables(tuple(usable))
            return self._snapshot

    def shown_to(self, user: Principal) -> CatalogSnapshot:
        """Return what a user may see of the newest snapshot."""
        snapshot = self.current()
        access = self.rights.of(user, snapshot)
        if access is None:
            return snapshot
        key = access.key
        with self._lock:
            shown = self._shown.get(key)
        if shown is None or shown.version != snapshot.version:
            shown = _shown(snapshot, access)
            with self._lock:
                self._shown[key] = shown
        return shown

    def require_database(self, name: str, user: Principal, *, of_now: bool = False) -> str:
        """Return the name of a database that a user may know of, in lower case; without a look at what is new.

        Raises UnknownDatabase.
        """
        snapshot = self.current() if of_now else self._snapshot
        access = self.rights.of(user, snapshot)
        names = snapshot.databases if access is None else filter(access.sees_database, snapshot.databases)
        return Naming(databases=frozenset(names)).require(name)

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


def _shown(snapshot: CatalogSnapshot, access: UserAccess) -> CatalogSnapshot:
    """Return what a user may see: relations and columns; statistics only of relations that may be seen whole."""
    tables, views, in_part = dict[str, TableSource](), dict[str, View](), set[str]()
    for name, table in snapshot.tables.items():
        columns = _shown_columns(name, table.columns, access, in_part)
        if columns is not None:
            names = {column.name for column in columns}
            folders = tuple(column for column in table.partition_columns if column in names)
            is_same = len(columns) == len(table.columns)
            tables[name] = table if is_same else replace(table, columns=columns, partition_columns=folders)
    for name, view in snapshot.views.items():
        columns = _shown_columns(name, view.columns, access, in_part)
        if columns is not None:
            sql = view.sql if view.owner is not None and view.owner == access.user else ""  # it names what it reads
            views[name] = replace(view, sql=sql, columns=columns, annotations=_of_columns(view.annotations, columns))
    whole = tables.keys() - in_part
    return replace(
        snapshot,
        tables=tables,
        views=views,
        shapes={name: shape for name, shape in snapshot.shapes.items() if name in whole},
        statistics={name: build for name, build in snapshot.statistics.items() if name in whole},
        databases={name: one for name, one in snapshot.databases.items() if access.sees_database(name)},
        annotations={
            name: _of_columns(annotations, tables[name].columns)
            for name, annotations in snapshot.annotations.items()
            if name in tables
        },
        in_part=frozenset(in_part),
    )


def _shown_columns(
    name: str, columns: tuple[Column, ...], access: UserAccess, in_part: set[str]
) -> tuple[Column, ...] | None:
    """Return the columns of a relation that a user may see; None: the user may not know of it."""
    if not access.sees(name):
        return None
    restriction = access.restriction(name, columns)
    if restriction is None:
        return columns
    in_part.add(name)
    return tuple(column for column in columns if column.name in restriction.columns)


def _of_columns(annotations: Annotations, columns: Sequence[Column]) -> Annotations:
    """Return annotations without the comments on other columns."""
    names = {column.name for column in columns}
    return replace(annotations, columns={name: text for name, text in annotations.columns.items() if name in names})


def _shape(table: CatalogTable, statistics: TableStatistics | None) -> TableShape:
    rows = statistics.rows if table.rows is None and statistics is not None else table.rows
    columns = {column.name: column.data_type for column in table.source.columns}
    return TableShape(table.name, columns, rows)
