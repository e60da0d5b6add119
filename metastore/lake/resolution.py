"""START HERE: a state of a lake table becomes a manifest, which is written once.

``pin`` and ``history`` take values alone: the gateway runs them in processes of their own, as metadata comes from
strangers.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from cachetools import LRUCache

from engines.files.manifest import ROWS_OF_METADATA, about_table, delete_old, totals_of
from metastore.lake.place import LakeState, TablePlace, place_of
from metastore.lake.values import (
    At,
    HistoryEntry,
    LakeUnreadable,
    SnapshotName,
    TableDescription,
    TableGone,
    followed,
    one_line,
)
from metastore.objects.access import NO_OBJECTS, CatalogAccess, ObjectAccess
from metastore.objects.kinds.kind import ObjectStore
from sql.errors import TableUnreadable, UnknownTable
from sql.tables import LAKE_FORMATS, Column, Snapshot, TableSource

_VERSION = version("fusion-sql-gateway")
_FOLDERS = {"delta": "_delta_log", "iceberg": "metadata"}
"""Folder by which the format of a table is known."""


@dataclass(frozen=True, slots=True)
class PinnedState:
    """A state of a lake table with its manifest.

    location: of the table's files.
    store: how they are reached; None: they lie on this machine.
    """

    columns: tuple[Column, ...]
    partition_columns: tuple[str, ...]
    snapshot: Snapshot
    location: str
    store: ObjectStore | None = None


_pinned: LRUCache[Path, PinnedState] = LRUCache(1_024)
"""States by their manifests, as long as this process lives."""


def pin(table: TableSource, name: SnapshotName | None, folder: Path, access: ObjectAccess = NO_OBJECTS) -> PinnedState:
    """Return a state of a registered table. folder: for manifests. Raises TableUnreadable, UnknownTable."""
    with _as_table_unreadable(table):
        return pin_location(table.format, place_of(table, access), name, folder)


def format_at(table: TableSource, access: ObjectAccess = NO_OBJECTS) -> str | None:
    """Return the lake format of the table at a registered place; None: there is none. Raises TableUnreadable."""
    with _as_table_unreadable(table):
        place = place_of(table, access)
        try:
            folders = place.filesystem.get_file_info([place.path(folder) for folder in _FOLDERS.values()])
        except OSError as failure:
            raise LakeUnreadable(f"its object store does not answer as it should ({one_line(failure)})") from failure
        directory = pafs.FileType.Directory  # pyarrow lists none in Google's stores, but finds one by its name
        return next((format for format, info in zip(_FOLDERS, folders, strict=True) if info.type is directory), None)


def listing(catalog: CatalogAccess) -> dict[str, list[str]]:
    """Return the names of a catalog's tables by namespace. Raises TableUnreadable."""
    from metastore.lake.iceberg import catalogs  # with it come the libraries of catalogs

    try:
        return catalogs.listing(catalog)
    except LakeUnreadable as failure:
        raise TableUnreadable(f"The tables of {catalog.name} cannot be listed: {failure}.") from failure


def history(table: TableSource, access: ObjectAccess = NO_OBJECTS) -> Sequence[HistoryEntry]:
    """Return the snapshots of a registered table, the newest first. Raises TableUnreadable."""
    with _as_table_unreadable(table):
        entries: Sequence[HistoryEntry] = module_of(table.format).history(place_of(table, access))
        return entries


def description(table: TableSource, access: ObjectAccess = NO_OBJECTS) -> TableDescription:
    """Return what a registered table's metadata say of it. Raises TableUnreadable."""
    with _as_table_unreadable(table):
        own: TableDescription = module_of(table.format, "writing").description(place_of(table, access))
        return own


@contextmanager
def _as_table_unreadable(table: TableSource) -> Iterator[None]:
    """Raise TableUnreadable in the place of LakeUnreadable, without the table's location."""
    try:
        yield
    except TableGone as failure:
        raise UnknownTable(f"There is no table {table.name} any more: {failure}.", name=table.name) from failure
    except LakeUnreadable as failure:
        reason = str(failure).replace(table.location, table.name)
        raise TableUnreadable(f"{table.name} cannot be read: {reason}.") from failure


def pin_location(format: str, place: TablePlace, name: SnapshotName | None, folder: Path) -> PinnedState:
    """Return a state of the table at a place. Raises LakeUnreadable."""

    def file_of(key: str, suffix: str) -> Path:
        exact = f"{_VERSION} {folder} {key}"  # another version may read tables otherwise
        return folder / f"{hashlib.sha256(exact.encode()).hexdigest()[:32]}{suffix}"

    if name is not None and name.at is At.METADATA:
        rows_of = partial(file_of, suffix=ROWS_OF_METADATA)
        state: LakeState = module_of(format, "metadata_tables").state(place, name.value, rows_of)
    else:
        state = state_of(format, place, name)
    manifest = file_of(state.key, ".arrow")
    with suppress(OSError, pa.ArrowException):  # there is none yet
        os.utime(manifest)
        pinned = _pinned.get(manifest) or _written(manifest, state)
        pinned = _pinned[manifest] = replace(pinned, store=state.place.store)  # it may have new keys
        return pinned
    followed.cache_clear()
    with _uncollected():
        resolved = state.load()
    _require_distinct(resolved.columns)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = {"columns": [asdict(column) for column in resolved.columns], "partitions": resolved.partition_columns}
    replace(resolved.manifest, folder=state.place.folder).write(manifest, about)
    delete_old(folder)
    pinned = _pinned[manifest] = _written(manifest, state)
    return pinned


def _written(manifest: Path, state: LakeState) -> PinnedState:
    """Return the state of a written manifest, perhaps by another process. Raises OSError, pa.ArrowException."""
    about, totals = about_table(manifest), totals_of(str(manifest))
    return PinnedState(
        tuple(Column(**column) for column in about["columns"]),
        tuple(about["partitions"]),
        Snapshot(state.id, str(manifest), totals.rows, state.place.folder, totals.files, totals.bytes),
        state.place.location,
        state.place.store,
    )


@contextmanager
def _uncollected() -> Iterator[None]:
    """Search no garbage meanwhile: what is read of a log all stays, and searching it takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _require_distinct(columns: Sequence[Column]) -> None:
    """Raise LakeUnreadable for two columns whose names differ by case alone."""
    names: dict[str, str] = {}
    for column in columns:
        other = names.setdefault(column.name.lower(), column.name)
        if other is not column.name:
            raise LakeUnreadable(
                f"its columns {other} and {column.name} differ by case alone, which engines do not tell apart: have "
                "its writer rename one of them"
            )


def state_of(format: str, place: TablePlace, name: SnapshotName | None = None) -> LakeState:
    """Return a state of the table at a place; None: the newest. Raises LakeUnreadable."""
    state: LakeState = module_of(format).state(place, name)
    return state


def module_of(format: str, name: str = "reading") -> Any:
    """Return a module of a format's folder. Raises LakeUnreadable."""
    if format not in LAKE_FORMATS:
        raise ValueError(f"{format} is no lake format")
    try:
        return importlib.import_module(f"metastore.lake.{format}.{name}")
    except ModuleNotFoundError as failure:
        raise LakeUnreadable(
            f"the library of {format} is not installed: pip install 'fusion-sql-gateway[lake]'"
        ) from failure
