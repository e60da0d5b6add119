"""START HERE: registration of tables, for routes, commands and statements that write.

A place is judged (``locations``), then its files are looked at, then the catalog and the engines are told. It is long
because all that changes a table's record is in one class.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engines.compiled import CompiledStatement
from engines.errors import EngineError
from engines.files.listing import InspectionFailed, data_files
from gateway.catalog.lake.needed_files import with_needed_files
from gateway.catalog.new_table import NewTable, inspect_new, key_pairs, without_files
from gateway.catalog.readable_files import ReadableFiles
from gateway.planning.fairness import Requester
from gateway.security.policy import Action, Need, Owned, Policy
from gateway.security.principals import IN_PROCESS, Principal
from metastore.discovery.inspector import inspect
from metastore.errors import AlreadyExists, NoDatabase, TableChanged
from metastore.objects.store import is_remote
from metastore.records import CatalogTable, Inspection
from selector.join_keys import KeyPair
from sql.errors import (
    NotAllowed,
    SqlError,
    TableChangedConcurrently,
    TableExists,
    TableUnreadable,
    UnknownDatabase,
    UnknownTable,
)
from sql.names import snapshot_name
from sql.tables import LAKE_FORMATS, MIXED_COLUMNS, Annotations, Column, TableSource

if TYPE_CHECKING:  # planners import this module, and no metastore
    from gateway.catalog.lake.lake_tables import LakeTables
    from gateway.catalog.lake.object_files import ObjectFiles
    from gateway.catalog.locations import Locations
    from metastore.lake.resolution import PinnedState
    from metastore.lake.values import SnapshotName
    from metastore.store import Metastore

log = logging.getLogger(__name__)

LOOK_S = 60.0  # longest wait for the log of a table in an object store
LOOKS = 5  # at a table that others register in another way at the same time


class Registration:
    """Registers tables in the catalog. Thread-safe.

    announce: function that passes the new catalog to the engines.
    lists: folder for lists of tables' files.
    """

    def __init__(
        self,
        metastore: Metastore,
        locations: Locations,
        *,
        policy: Policy,
        announce: Callable[[], object],
        lists: Path,
        lake: LakeTables | None = None,
        objects: ObjectFiles | None = None,
    ) -> None:
        self._metastore = metastore
        self._locations = locations
        self._policy = policy
        self._announce = announce
        self.files = ReadableFiles(lists, is_own=self._is_own, may_be_empty=self._source_may_be_empty)
        self._lake = lake
        self._objects = objects

    def add(self, new_table: NewTable, *, user: Principal) -> CatalogTable:
        """Register files as a table, or inspect one again that is registered there. user: requester.

        Raises SqlError, LocationRefused among them, and InspectionFailed.
        """
        return _retry_if_changed(new_table.name, lambda: self._add(new_table, user))

    def _add(self, new_table: NewTable, user: Principal) -> CatalogTable:
        began = _now()
        place = self._place_of(new_table.location)
        self._policy.require_all(user, self._required_rights(new_table.name, place))
        registered = self._metastore.catalog.get(new_table.name)
        if registered is not None and self._is_own(registered.source):
            return self._add_own(registered, place, new_table)
        if any(view.name == new_table.name.lower() for view in self._metastore.views.list()):
            raise TableExists(f"There is a view {new_table.name} already; drop it first, or take another name.")
        if is_remote(new_table.location):
            inspection = self._inspect_objects(new_table, user)
        else:
            self._locations.admit(place)
            options = dict(new_table.options) or None
            inspection = inspect(
                new_table.name, place, format=new_table.format, options=options, columns=new_table.columns
            )
        pairs = self._pairs(inspection.source, new_table.keys)
        check = self._policy.owner_check(user, Action.REPLACE, "table", new_table.name)
        table = self._metastore.catalog.put(
            inspection, at=began, new=registered is None, instead_of=registered, owner=user.owner, check=check
        )
        self._record_keys(pairs)
        self._announce()
        return table

    def create(self, new_table: NewTable, *, user: Principal) -> CatalogTable:
        """Register a new table, which may have no files yet if its columns are declared. user: requester.

        Raises SqlError, TableExists and LocationRefused among them, and InspectionFailed.
        """
        began = _now()
        place = self._place_of(new_table.location)
        self._policy.require_all(user, self._required_rights(new_table.name, place))
        if is_remote(new_table.location):
            inspection = self._inspect_objects(new_table, user)
        else:
            inspection = self._inspect_folder(new_table, place)
        try:
            table = self._metastore.catalog.put(
                inspection, at=began, new=True, owner=user.owner, annotations=new_table.annotations
            )
        except AlreadyExists as error:
            raise TableExists(f"There is a table or view {new_table.name} already.") from error
        except NoDatabase as error:
            raise UnknownDatabase(f"There is no database {error}; make it first: CREATE DATABASE {error}.") from error
        self._announce()
        return table

    def _place_of(self, location: str) -> Path:
        """Return a location as a path, to be compared with others. Raises LocationRefused, InspectionFailed."""
        if is_remote(location):
            return Path(self._locations.admit_remote(location))
        return self._locations.place_of(location)

    def admit_new(self, name: str, location: str, *, user: Principal) -> str:
        """Return a location at which a user may make a lake table, as it is registered.

        Raises AccessDenied, LocationRefused, NotAllowed.
        """
        try:
            place = self._place_of(location)
            self._policy.require_all(user, self._required_rights(name, place))
            if is_remote(location):
                canonical = self._locations.admit_remote(location)
                source = TableSource(name, canonical, LAKE_FORMATS[0], ())
                if self.lake.format_at(source, _requester(user)) is not None:
                    raise NotAllowed(
                        f"There is a table in {location} already; without columns and query it is registered."
                    )
                return canonical
            self._locations.admit(place)
        except InspectionFailed as failure:
            raise NotAllowed(f"{name} cannot be made there: {failure}.") from failure
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise NotAllowed(f"{location} is not empty: give an empty folder, or one that is not there.")
        return str(place)

    def _inspect_objects(self, new_table: NewTable, user: Principal) -> Inspection:
        """Look at the log of a lake table in an object store. Raises SqlError, EngineError, InspectionFailed."""
        location = self._locations.admit_remote(new_table.location)
        if new_table.columns or new_table.options:
            raise InspectionFailed(
                "a table in an object store has the columns of its log: leave columns and options out"
            )
        requester = _requester(user)
        source = TableSource(new_table.name, location, new_table.format or LAKE_FORMATS[0], ())
        if new_table.format not in (None, *LAKE_FORMATS):
            raise InspectionFailed(
                f"tables of {new_table.format} files are not read from object stores; {' and '.join(LAKE_FORMATS)} are"
            )
        if new_table.format is None:
            format = self.lake.format_at(source, requester)
            if format is None:
                raise InspectionFailed(f"{location} holds no {' or '.join(LAKE_FORMATS)} table")
            source = replace(source, format=format)
        if source.format == "iceberg":
            self._locations.require_in_no_warehouse(location)
        return _inspection_of(source, self.lake.state(source, requester))

    def _inspect_folder(self, new_table: NewTable, place: Path) -> Inspection:
        """Look at the files of a new table, which may have none yet. Raises LocationRefused, InspectionFailed."""
        self._locations.admit(place)
        if new_table.columns and self._locations.confined and not place.exists():
            inspection = without_files(new_table, place)
            place.mkdir(parents=True)
            return inspection
        return inspect_new(new_table, place)

    def add_columns(self, name: str, columns: Sequence[Column], *, user: Principal) -> CatalogTable:
        """Add columns behind those that a table's files have; files without them give NULL.

        Raises UnknownTable, AccessDenied, TableChangedConcurrently, NotAllowed.
        """
        return _retry_if_changed(name, lambda: self._add_columns(name, columns, user))

    def _add_columns(self, name: str, columns: Sequence[Column], user: Principal) -> CatalogTable:
        table = self._registered(name)
        source = table.source
        existing_names = {column.name.lower() for column in source.columns}
        new = tuple(column for column in columns if column.name.lower() not in existing_names)
        own = tuple(column for column in source.columns if column.name not in source.partition_columns)
        folders = tuple(column for column in source.columns if column.name in source.partition_columns)
        wider = replace(source, columns=(*own, *new, *folders), options={**source.options, MIXED_COLUMNS: "true"})
        inspection = Inspection(wider, table.files, table.bytes, table.rows, table.partitions, declared=True)
        check = self._policy.owner_check(user, Action.ALTER, "table", name)
        return self._metastore.catalog.put(inspection, at=_now(), instead_of=table, check=check)

    def refresh(self, name: str) -> CatalogTable:
        """Inspect a registered table's files again.

        Raises UnknownTable (also where it is dropped meanwhile), TableChangedConcurrently, LocationRefused,
        InspectionFailed.
        """
        refreshed = _retry_if_changed(name, lambda: self._refresh(name))
        self._announce()
        return refreshed

    def _refresh(self, name: str) -> CatalogTable:
        began = _now()
        table = self._registered(name)
        source = table.source
        self.require_unchanged((source,))
        if source.catalog or is_remote(source.location):
            inspection = _inspection_of(source, self.lake.state(source, _requester(IN_PROCESS)))
            return self._metastore.catalog.put(inspection, at=began, instead_of=table)
        declared_columns = source.columns if table.declared else None
        try:
            inspection = inspect(
                name, source.location, format=source.format, options=source.options, columns=declared_columns
            )
        except InspectionFailed:
            self._registered(name)  # files of a table that was dropped are gone with it
            if not self._may_be_empty(table):
                raise
            inspection = Inspection(source, files=0, bytes=0, rows=0, declared=table.declared)
        return self._metastore.catalog.put(inspection, at=began, instead_of=table)

    def refresh_after_write(self, name: str) -> CatalogTable:
        """Inspect a table's files after a write; its columns stay.

        Raises UnknownTable, also where it is dropped meanwhile, TableChangedConcurrently, InspectionFailed.
        """
        return _retry_if_changed(name, lambda: self._refresh_after_write(name))

    def _refresh_after_write(self, name: str) -> CatalogTable:
        began = _now()
        table = self._registered(name)
        source = table.source
        try:
            inspection = inspect(
                source.name, source.location, format=source.format, options=source.options, columns=source.columns
            )
        except InspectionFailed:
            if data_files(Path(source.location)):  # they are there, and could not be looked at now
                raise
            inspection = Inspection(source, files=0, bytes=0, rows=0)
        return self._metastore.catalog.put(replace(inspection, declared=table.declared), at=began, instead_of=table)

    def register_created(
        self, inspection: Inspection, *, user: Principal, annotations: Annotations, replace: bool = False
    ) -> CatalogTable:
        """Register a table that a statement created. user: requester. replace: replace a table of the same name.

        Raises AlreadyExists, and AccessDenied where that other one is not the user's to replace.
        """
        check = self._policy.owner_check(user, Action.REPLACE, "table", inspection.source.name)
        return self._metastore.catalog.put(
            inspection, at=_now(), new=not replace, owner=user.owner, annotations=annotations, check=check
        )

    def require_unchanged(self, tables: Iterable[TableSource]) -> None:
        """Require that the tables of a statement are still what was registered. Raises LocationRefused."""
        for table in tables:
            if not table.catalog or os.path.isabs(table.location):
                self._locations.require_unchanged(table, own=self._is_own)

    @contextmanager
    def reading(
        self, tables: Sequence[TableSource], columns: frozenset[str] | None, require: Callable[[], None]
    ) -> Iterator[None]:
        """Have an engine read tables' files while the block runs.

        columns: that are read of any table, in small letters; None: all.
        require: raises once nobody waits any more.

        Raises LocationRefused, TableUnreadable, ObjectStoreUnavailable, ObjectCacheFull.
        """
        self.require_unchanged(tables)
        with nullcontext() if self._objects is None else self._objects.reading(tables, columns, require):
            yield

    def in_object_stores(self, tables: Sequence[TableSource]) -> Sequence[TableSource]:
        """Return the tables that engines read copies of."""
        return [] if self._objects is None else [table for table, _ in self._objects.remote(tables)]

    @contextmanager
    def planning(self, tables: Sequence[TableSource], require: Callable[[], None]) -> Iterator[None]:
        """Have an engine plan a query of tables while the block runs. Raises as ``reading`` does."""
        self.require_unchanged(tables)
        with nullcontext() if self._objects is None else self._objects.planning(tables, require):
            yield

    def pinned(self, tables: Sequence[TableSource], requester: Requester) -> tuple[TableSource, ...]:
        """Return tables with the snapshot that a statement reads: of a plain table, the list of its files.

        Raises LocationRefused, TableUnreadable, TableChangedConcurrently, EngineError.
        """
        self.require_unchanged(tables)
        return tuple(
            self._pinned(table, requester) if table.is_lake else self.files.pinned(table, requester) for table in tables
        )

    def pinned_query(self, query: CompiledStatement, requester: Requester) -> CompiledStatement:
        """Return a query with its tables' snapshots and the files that it needs of them. Raises as ``pinned`` does."""
        pinned = self.pinned(query.tables, requester)
        return replace(query, tables=tuple(with_needed_files(table, query.ranges) for table in pinned))

    def older(self, table: TableSource, name: SnapshotName, requester: Requester) -> TableSource:
        """Return an older snapshot of a lake table, named as in statements. Raises as ``pinned`` does."""
        state = self.lake.state(table, requester, name)
        return replace(
            table,
            name=snapshot_name(table.name, name.at, name.value),
            columns=state.columns,
            partition_columns=state.partition_columns,
            snapshot=state.snapshot,
        )

    @property
    def lake(self) -> LakeTables:
        """The reader and writer of lake tables. Raises TableUnreadable."""
        if self._lake is None:
            raise TableUnreadable("This process reads no lake tables.")
        return self._lake

    def _pinned(self, table: TableSource, requester: Requester) -> TableSource:
        if table.snapshot is not None:
            return table
        try:
            state = self.lake.state(table, requester)
        except UnknownTable:
            self._metastore.catalog.remove(table.name)
            self._announce()
            raise
        if _inspection_of(table, state).source == table:
            return replace(table, snapshot=state.snapshot)
        if not state.columns:
            raise TableUnreadable(f"{table.name} cannot be read: it has no columns.")
        self._put_state(table.name, state)
        raise TableChangedConcurrently(f"The columns of {table.name} have just changed: send the statement again.")

    def refresh_after_commit(self, name: str, requester: Requester) -> None:
        """Record what the newest snapshot of a lake table has. It never fails: the commit is made, whatever comes."""
        try:
            source = self._registered(name).source
            self._put_state(name, self.lake.state(source, requester))
        except (SqlError, EngineError) as error:
            log.warning("the catalog does not know the new snapshot of %s yet: %s", name, error)

    def _put_state(self, name: str, state: PinnedState) -> None:
        began = _now()
        registered = self._registered(name)
        inspection = _inspection_of(registered.source, state)
        if registered.source.catalog:
            self._locations.require_apart(inspection.source, (one.source for one in self._metastore.catalog.list()))
        with suppress(TableChanged):
            self._metastore.catalog.put(inspection, at=began, instead_of=registered)
        self._announce()

    def _registered(self, name: str) -> CatalogTable:
        table = self._metastore.catalog.get(name)
        if table is None:  # since the statement was parsed
            raise UnknownTable(f"The table {name} is gone.", name=name)
        return table

    def _may_be_empty(self, table: CatalogTable) -> bool:
        """Tell whether a table may have no files: its columns are declared, and its folder exists."""
        place = Path(table.source.location)
        return (table.declared or self._is_own(table.source)) and place.is_dir() and not data_files(place)

    def _source_may_be_empty(self, source: TableSource) -> bool:
        table = self._metastore.catalog.get(source.name)
        return table is not None and self._may_be_empty(table)

    def _is_own(self, table: TableSource) -> bool:
        return self._metastore.folders.get(table.location) is not None

    def _add_own(self, table: CatalogTable, place: Path, new_table: NewTable) -> CatalogTable:
        """Inspect a table again that the gateway made: its location and its columns must not change."""
        if str(place) != table.source.location:
            raise TableExists(f"{table.name} is a table that a statement made, with files of its own; drop it first.")
        self.require_unchanged((table.source,))
        pairs = self._pairs(table.source, new_table.keys)
        refreshed = self.refresh_after_write(table.name)
        self._record_keys(pairs)
        self._announce()
        return refreshed

    def _required_rights(self, name: str, place: Path) -> Iterator[Need]:
        """Yield the rights that a registration needs: who writes to the new table writes to all at its location."""
        yield Need(Action.REGISTER)
        for table in self._metastore.catalog.list():
            location = Path(table.source.location)
            if table.name == name.lower():
                yield Need(Action.REPLACE, Owned("table", table.name, table.owner))
            elif location.is_relative_to(place) or place.is_relative_to(location):
                yield Need(Action.SHARE_PLACE, Owned("table", table.name, table.owner))

    def _record_keys(self, pairs: Sequence[KeyPair]) -> None:
        if pairs:
            self._metastore.keys.learn(pairs, source="declared", at=_now())

    def _pairs(self, table: TableSource, keys: Sequence[tuple[str, str]]) -> list[KeyPair]:
        """Return the key pairs that keys declare. Raises SqlError for tables and columns that do not exist."""
        tables = [one.source for one in self._metastore.catalog.list()] if keys else []
        return key_pairs(table, keys, tables)


def _inspection_of(source: TableSource, state: PinnedState) -> Inspection:
    """Return what a state says of a lake table."""
    location = state.location if source.catalog else source.location
    current = replace(source, location=location, columns=state.columns, partition_columns=state.partition_columns)
    return Inspection(current, state.snapshot.files, state.snapshot.bytes, state.snapshot.rows)


def _requester(user: Principal) -> Requester:
    return Requester(user.account, time.monotonic() + LOOK_S)


def _retry_if_changed(name: str, look: Callable[[], CatalogTable]) -> CatalogTable:
    """Inspect a table, and once more if it was changed meanwhile. Raises TableChangedConcurrently."""
    for _ in range(LOOKS):
        try:
            return look()
        except (AlreadyExists, TableChanged):
            continue
        except NoDatabase as error:
            raise UnknownDatabase(f"There is no database {error}; make it first: CREATE DATABASE {error}.") from error
    raise TableChangedConcurrently(f"Others kept registering {name} anew while its files were inspected; try again.")


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
