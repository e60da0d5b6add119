"""Place of a lake table: a folder of this machine, or of an object store with copies on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from metastore.lake.values import LakeUnreadable, ResolvedSnapshot, require_within
from metastore.objects.access import NO_OBJECTS, CatalogAccess, ObjectAccess
from metastore.objects.kinds.kind import InvalidLocation, ObjectStore
from metastore.objects.store import copy_of, is_remote, key_of, origin_of
from sql.names import base_name
from sql.tables import TableSource

FILES_LOOKED_AT, OBJECTS_LOOKED_AT = 64, 8
"""Footers that are read to see whether a table's files have field ids."""

_OF_A_TABLE = re.compile(r"(.+?/)(?:_delta_log/|metadata/[^/]+\.metadata\.json)")


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Place of a table.

    location: a folder, or ``s3://bucket/folder``; of a catalog's table as it was when the place was asked for last.
    store: how the object store is reached; None: the table lies on this machine.
    copies: folder of all copies of objects.
    catalog: whose table it is; None: of none.
    identifier: namespace and name in the catalog.
    access: to all stores.
    """

    location: str
    store: ObjectStore | None = None
    copies: str = ""
    catalog: CatalogAccess | None = None
    identifier: tuple[str, ...] = ()
    access: ObjectAccess = NO_OBJECTS

    @property
    def folder(self) -> str:
        """Folder of this machine that engines read the table's files in."""
        return self.location if self.store is None else str(self._copy(self.location))

    def _copy(self, location: str) -> Path:
        return copy_of(location, Path(self.copies), self.catalog.name if self.catalog is not None else "")

    @property
    def filesystem(self) -> pafs.FileSystem:
        """File system of the table, for ``path``."""
        return pafs.LocalFileSystem() if self.store is None else self.store.filesystem

    def path(self, below: str = "") -> str:
        """Return a path below the table's folder, as its file system has it."""
        return f"{key_of(self.location) if self.store is not None else self.location}/{below}".rstrip("/")

    def local(self, location: str) -> str:
        """Return the path at which engines read a file of the table. Raises LakeUnreadable for another file.

        location: not URL-encoded.
        """
        return require_within(self.folder, self._local(location))

    def _local(self, location: str) -> str:
        if "://" not in location or location.startswith("file:"):
            return local_path(location)
        if self.store is None or not is_remote(location):
            raise LakeUnreadable(f"its file {location} is not on this machine")
        try:
            return str(self._copy(location))
        except InvalidLocation as failure:
            raise LakeUnreadable(f"its file {location:.200} cannot be read: {failure}") from failure

    def files(self) -> dict[str, pafs.FileInfo]:
        """Return all files in the table's folder, by their paths below it."""
        selector = pafs.FileSelector(self.path(), recursive=True)
        return {
            file.path.removeprefix(f"{self.path()}/"): file
            for file in self.filesystem.get_file_info(selector)
            if file.type is pafs.FileType.File
        }

    def stamp(self, below: str) -> tuple[int, ...] | None:
        """Return what tells a file below the table's folder from another one of its name; None: there is none."""
        path = self.path(below)
        if self.store is not None:
            info = self.filesystem.get_file_info(path)
            return (info.size, info.mtime_ns) if info.type is pafs.FileType.File else None
        try:
            stat = os.stat(path)
        except OSError:
            return None
        return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns

    def delta_options(self) -> dict[str, str] | None:
        """Return the options by which delta-rs reaches the table."""
        return None if self.store is None else self.store.delta_options()

    def joined(self, below: str) -> str:
        """Return the location of a file below the table's folder."""
        return f"{self.location}/{below}" if self.store is not None else os.path.join(self.location, below)

    def schema_of(self, path: str) -> pa.Schema:
        """Return the schema of a Parquet file. path: as ``local`` returns it. Raises OSError, pa.ArrowException."""
        if self.store is None:
            return pq.read_schema(path)
        key = key_of(origin_of(Path(path), Path(self.copies)))
        return pq.read_schema(key, filesystem=self.filesystem)


@dataclass(frozen=True, slots=True)
class LakeState:
    """The state that a table's log has, before its files are listed.

    id: Delta's version or Iceberg's snapshot id; "empty" for a table without a snapshot.
    key: a text that no other state of this or another table has, also one at the same place later.
    place: of the table's files.
    load: lists the files. Raises LakeUnreadable.
    """

    id: str
    key: str
    place: TablePlace
    load: Callable[[], ResolvedSnapshot]


def other_tables(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the folders of other lake tables below a table's, each with a slash at its end. paths: of all files."""
    return tuple({match[1] for match in map(_OF_A_TABLE.match, paths) if match is not None})


def local_path(location: str) -> str:
    """Return the path of a location on this machine, which may be written ``file:/a``, ``file:///a`` or ``/a``."""
    return re.sub(r"^file:(//[^/]*)?", "", location)


def place_of(table: TableSource, access: ObjectAccess) -> TablePlace:
    """Return the place of a table.

    Raises LakeUnreadable where no store holds it, its catalog is gone, or the catalog's names differ by case alone.
    """
    location, name = table.location, table.catalog
    if name:
        catalog = access.catalog_named(name)
        if catalog is None:
            raise LakeUnreadable(f"the settings have no catalog {name} (catalogs.NAME)")
        exact = exact_name(table.identifiers) or base_name(table.name).partition(".")[2]
        return TablePlace(location, None, str(access.folder), catalog, tuple(exact.split(".")), access)
    if not is_remote(location):
        return TablePlace(location)
    store = access.store_of(location)
    if store is None:
        raise LakeUnreadable(f"the settings name no object store (stores.NAME.prefix) that holds {location}")
    return TablePlace(location, store, str(access.folder))


def exact_name(identifiers: Sequence[str]) -> str:
    """Return the one exact name in a catalog; "": it is spelled as here. Raises LakeUnreadable for several."""
    if len(identifiers) > 1:
        raise LakeUnreadable(
            f"its catalog has {' and '.join(identifiers)}, which differ by case alone: rename one of them there"
        )
    return identifiers[0] if identifiers else ""


@lru_cache(100_000)
def has_field_ids(path: str, place: TablePlace) -> bool:
    """Return True if all columns of a Parquet file have field ids. Raises OSError, pa.ArrowException."""
    return all(b"PARQUET:field_id" in (field.metadata or {}) for field in place.schema_of(path))


def require_field_ids(paths: Sequence[str], place: TablePlace) -> None:
    """Raise LakeUnreadable if files lack field ids: engines would read NULL from them without an error.

    Of many files, some are looked at: writers give ids to all files or to none.
    """
    most = FILES_LOOKED_AT if place.store is None else OBJECTS_LOOKED_AT
    if not all(has_field_ids(path, place) for path in paths[:: 1 + len(paths) // most]):
        raise LakeUnreadable(
            "its files have no field ids, by which its columns are found: have its writer rewrite them"
        )
