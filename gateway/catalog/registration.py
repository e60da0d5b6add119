"""START HERE: registration of tables, for routes, commands and statements that write.

A place is judged first (``locations``), then its files are looked at, then the table is put into the catalog and the
engines are told.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engines.errors import EngineError
from engines.files.listing import InspectionFailed, data_files
from gateway.catalog.new_table import NewTable
from gateway.catalog.readable_files import ReadableFiles
from gateway.security.policy import Action, Need, Owned, Policy
from gateway.security.principals import Principal
from metastore.discovery.inspector import inspect
from metastore.errors import AlreadyExists, NoDatabase, TableChanged
from metastore.records import CatalogTable, Inspection
from selector.join_keys import ColumnRef, KeyPair
from sql.errors import (
    SqlError,
    TableChangedConcurrently,
    TableExists,
    TableUnreadable,
    UnknownColumn,
    UnknownDatabase,
    UnknownTable,
)
from sql.names import did_you_mean, snapshot_name
from sql.tables import MIXED_COLUMNS, Annotations, Column, InvalidTable, TableSource, canonical

if TYPE_CHECKING:  # planners import this module, and no metastore
    from gateway.catalog.lake_tables import LakeTables
    from gateway.catalog.locations import Locations
    from gateway.planning.fairness import Requester
    from metastore.lake.resolution import PinnedState
    from metastore.lake.values import HistoryEntry, SnapshotName
    from metastore.store import Metastore

log = logging.getLogger(__name__)

LOOKS = 5  # at a table that others register in another way at the same time


class Registration:
    """Registers tables in the catalog. Thread-safe. announce: function that passes the new catalog to the engines."""

    def __init__(
        self,
        metastore: Metastore,
        locations: Locations,
        *,
        policy: Policy,
        announce: Callable[[], object],
        lake: LakeTables | None = None,
    ) -> None:
        self._metastore = metastore
        self._locations = locations
        self._policy = policy
        self._announce = announce
        self._files = ReadableFiles(is_own=self._is_own, may_be_empty=self._source_may_be_empty)
        self._lake = lake

    def add(self, new_table: NewTable, *, user: Principal) -> CatalogTable:
        """Register files as a table, or inspect one again that is registered there. user: requester.

        Raises SqlError, LocationRefused among them, and InspectionFailed.
        """
        return _retry_if_changed(new_table.name, lambda: self._add(new_table, user))

    def _add(self, new_table: NewTable, user: Principal) -> CatalogTable:
        began = _now()
        place = self._locations.place_of(new_table.location)
        self._policy.require_all(user, self._required_rights(new_table.name, place))
        registered = self._metastore.catalog.get(new_table.name)
        if registered is not None and self._is_own(registered.source):
            return self._add_own(registered, place, new_table)
        if any(view.name == new_table.name.lower() for view in self._metastore.views.list()):
            raise TableExists(f"There is a view {new_table.name} already; drop it first, or take another name.")
        self._locations.admit(place)
        options = dict(new_table.options) or None
        inspection = inspect(new_table.name, place, format=new_table.format, options=options, columns=new_table.columns)
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
        place = self._locations.place_of(new_table.location)
        self._policy.require_all(user, self._required_rights(new_table.name, place))
        self._locations.admit(place)
        if new_table.columns and self._locations.confined and not place.exists():
            inspection = _without_files(new_table, place)
            place.mkdir(parents=True)
        else:
            inspection = _inspect_new(new_table, place)
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
            self._locations.require_unchanged(table, own=self._is_own)

    def require_readable(self, tables: Iterable[TableSource]) -> None:
        """Require that all engines read the registered files alike. Raises LocationRefused, TableUnreadable."""
        for table in tables:
            self._locations.require_unchanged(table, own=self._is_own)
            if not table.is_lake:  # whose snapshot lists its files
                self._files.require(table)

    def pinned(self, tables: Iterable[TableSource], requester: Requester) -> tuple[TableSource, ...]:
        """Return lake tables with the snapshot that a statement reads; other tables stay as they are.

        Raises TableUnreadable, TableChangedConcurrently, EngineBusy, StatementCancelled, DeadlineExceeded.
        """
        return tuple(self._pinned(table, requester) if table.is_lake else table for table in tables)

    def older(self, table: TableSource, name: SnapshotName, requester: Requester) -> TableSource:
        """Return an older snapshot of a lake table, named as in statements. Raises as ``pinned`` does."""
        state = self._state(table, requester, name)
        return replace(
            table,
            name=snapshot_name(table.name, name.at, name.value),
            columns=state.columns,
            partition_columns=state.partition_columns,
            snapshot=state.snapshot,
        )

    def history(self, table: TableSource, requester: Requester) -> Sequence[HistoryEntry]:
        """Return the snapshots of a lake table, the newest first. Raises as ``pinned`` does."""
        return self._snapshots(table).history(table, requester)

    def _snapshots(self, table: TableSource) -> LakeTables:
        if self._lake is None:
            raise TableUnreadable(f"{table.name} cannot be read: this process resolves no snapshots.")
        return self._lake

    def _state(self, table: TableSource, requester: Requester, name: SnapshotName | None = None) -> PinnedState:
        return self._snapshots(table).state(table, requester, name)

    def _pinned(self, table: TableSource, requester: Requester) -> TableSource:
        if table.snapshot is not None:
            return table
        state = self._state(table, requester)
        if state.columns == table.columns and state.partition_columns == table.partition_columns:
            return replace(table, snapshot=state.snapshot)
        self._put_state(table.name, state)
        raise TableChangedConcurrently(f"The columns of {table.name} have just changed: send the statement again.")

    def refresh_after_commit(self, name: str, requester: Requester) -> None:
        """Record what the newest snapshot of a lake table has. It never fails: the commit is made, whatever comes."""
        try:
            self._put_state(name, self._state(self._registered(name).source, requester))
        except (SqlError, EngineError) as error:
            log.warning("the catalog does not know the new snapshot of %s yet: %s", name, error)

    def _put_state(self, name: str, state: PinnedState) -> None:
        began = _now()
        registered = self._registered(name)
        source = replace(registered.source, columns=state.columns, partition_columns=state.partition_columns)
        inspection = Inspection(source, state.files, state.bytes, state.snapshot.rows)
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
                yield Need(Action.WRITE_ROWS, Owned("table", table.name, table.owner))

    def _record_keys(self, pairs: Sequence[KeyPair]) -> None:
        if pairs:
            self._metastore.keys.learn(pairs, source="declared", at=_now())

    def _pairs(self, table: TableSource, keys: Sequence[tuple[str, str]]) -> list[KeyPair]:
        """Return the key pairs that keys declare. Raises SqlError for tables and columns that do not exist."""
        sources = (
            {table_of_key.name: table_of_key.source for table_of_key in self._metastore.catalog.list()} if keys else {}
        )
        sources[table.name.lower()] = table
        return [_pair(table, column, references, sources) for column, references in keys]


def _inspect_new(new_table: NewTable, place: Path) -> Inspection:
    """Look at a new table's files, if there are any. Raises InspectionFailed."""
    if new_table.columns and place.is_dir() and not data_files(place):
        return _without_files(new_table, place)
    options = dict(new_table.options) or None
    inspection = inspect(new_table.name, place, format=new_table.format, options=options, columns=new_table.columns)
    folders = [name.lower() for name in inspection.source.partition_columns]
    declared_folders = [name.lower() for name in new_table.partition_columns]
    if declared_folders and declared_folders != folders:
        has = ", ".join(folders) or "none"
        raise InspectionFailed(f"the partition folders there are {has}, not {', '.join(declared_folders)}; give these")
    return inspection


def _without_files(new_table: NewTable, place: Path) -> Inspection:
    """Return an inspection of a table with declared columns and no files yet. Raises InspectionFailed."""
    try:
        source = TableSource(
            new_table.name,
            str(place),
            new_table.format or "parquet",
            _folders_last(new_table.columns, new_table.partition_columns),
            partition_columns=_as_spelled(new_table),
            options=dict(new_table.options),
        )
    except InvalidTable as error:
        raise InspectionFailed(f"{new_table.name} cannot be a table: {error}") from error
    return Inspection(source, files=0, bytes=0, rows=0, declared=True)


def _folders_last(columns: Sequence[Column], folders: Sequence[str]) -> tuple[Column, ...]:
    names = [name.lower() for name in folders]
    last = sorted(
        (column for column in columns if column.name.lower() in names), key=lambda c: names.index(c.name.lower())
    )
    return (*(column for column in columns if column.name.lower() not in names), *last)


def _as_spelled(new_table: NewTable) -> tuple[str, ...]:
    """Return the partition columns as the columns are spelled."""
    spelled = {column.name.lower(): column.name for column in new_table.columns}
    return tuple(spelled[name.lower()] for name in new_table.partition_columns)


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


def _pair(table: TableSource, column: str, references: str, tables: Mapping[str, TableSource]) -> KeyPair:
    name, _, other = references.rpartition(".")
    name = canonical(name)
    if name not in tables:
        raise UnknownTable(f"There is no table {name}{did_you_mean(name, tables)}")
    return KeyPair.of(_column(table, column), _column(tables[name], other))


def _column(table: TableSource, name: str) -> ColumnRef:
    columns = {column.name.lower() for column in table.columns}
    if name.lower() not in columns:
        raise UnknownColumn(f"There is no column {name} in {table.name}{did_you_mean(name, columns)}")
    return ColumnRef(table.name.lower(), name.lower())


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
