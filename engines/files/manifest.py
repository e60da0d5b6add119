"""Manifest of one snapshot of a table: exactly the files, and the rows of them, that make it up.

The gateway resolves a snapshot once per statement and writes the manifest; every engine that is tried reads the files
that it lists, so that a failover answers from the same data. A manifest is an Arrow file that is never changed: its
name is made of the table and the snapshot. The snapshot of a plain table is the list of its files at one moment; they
may be changed by others, so that the manifest also says how each was then.
"""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engines.files.listing import DEFAULT_PARTITION, DataFile
from engines.files.pruning import Bounds, with_bounds, write_table

_NOTE = b"fusion.manifest"
_IN_UTC = re.compile(r"(\d{4,}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\+00:00\Z")
_KEPT = 256  # manifests that a process keeps in memory
KEEP_S = 86_400.0
"""Age from which a manifest is deleted that no statement asked for since; a statement may live for hours."""
ROWS_OF_METADATA = ".parquet"
"""End of the name of a file with the rows of a metadata table, beside its manifest."""
_FILES = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("rows", pa.int64()),
        pa.field("constants", pa.int32(), nullable=False),
        pa.field("deleted", pa.list_(pa.int64())),
        pa.field("modified_ns", pa.int64()),
        pa.field("inode", pa.uint64()),
        pa.field("version", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class StoredField:
    """Place of one column of the table in its data files.

    name: of the table's column.
    stored: name of the field in the files.
    field_id: by which the files name the field, whatever it is called there; None: by ``stored``.
    spark: the field as Spark's JSON schema has it, nested names and field ids included.
    is_plain_below: its nested fields, if any, have the column's own names in all files.
    is_named_alone: no file has another column by the name of this one.
    """

    name: str
    stored: str
    field_id: int | None
    spark: Mapping[str, Any]
    is_plain_below: bool = True
    is_named_alone: bool = True


class FileChange(StrEnum):
    """Change of a listed file. REPLACED: another file or other content is there."""

    GONE = "is gone"
    REPLACED = "has changed"


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotFile:
    """One data file of a snapshot.

    path: absolute.
    rows: that it stores, deleted ones too; None: unknown.
    constants: columns that the file does not store, with their value as text; None: NULL.
    deleted: shape (deleted rows,), int64, ascending: positions of rows that do not belong to the snapshot.
    modified_ns, inode: of a file of a plain table, which others may change; None: nobody changes it.
    version: number that another file of its name, in a table made anew, does not have; None: names are not used again.
    """

    path: str
    bytes: int
    rows: int | None
    constants: Mapping[str, str | None]
    deleted: NDArray[np.int64] | None = None
    modified_ns: int | None = None
    inode: int | None = None
    version: int | None = None

    def change(self) -> FileChange | None:
        """Look at what became of the file since it was listed; None: it is the same."""
        try:
            stat = os.stat(self.path)
        except OSError:
            return FileChange.GONE
        if self.modified_ns is None:
            return None
        is_same = (stat.st_size, stat.st_mtime_ns, stat.st_ino) == (self.bytes, self.modified_ns, self.inode)
        return None if is_same else FileChange.REPLACED

    @property
    def deleted_rows(self) -> int:
        """Number of its rows that do not belong to the snapshot."""
        return 0 if self.deleted is None else len(self.deleted)

    @property
    def deleted_mark(self) -> int | None:
        """Number that tells which of its rows are deleted; None: of a plain table, whose files may change."""
        if self.modified_ns is not None:
            return None
        return 0 if self.deleted is None else self.deleted_rows << 32 | zlib.crc32(self.deleted.tobytes())

    @property
    def partition(self) -> Mapping[str, str]:
        """Its constants as folders of plain tables have them: timestamps are in UTC, without a time zone."""
        return {
            name: DEFAULT_PARTITION if value is None else _IN_UTC.sub(r"\1", value)
            for name, value in self.constants.items()
        }

    @property
    def folder(self) -> str:
        """Name of its partition, as folders of plain tables are called; "": there is none."""
        return "/".join(f"{quote(name)}={quote(value)}" for name, value in self.partition.items())

    @property
    def has_deleted(self) -> bool:
        """True if some of its rows do not belong to the snapshot."""
        return self.deleted_rows > 0


@dataclass(frozen=True, slots=True)
class Totals:
    """Rows (None: a file does not tell), files and bytes of a manifest."""

    rows: int | None
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """The data files of a snapshot, and how they store its columns.

    folder: in which they lie.
    bounds: of columns, by their names in the table; they are written, and read by ``pruning.py`` alone.
    distinct: number of distinct values of columns, by their names in the table, where the table's metadata tells it;
        they are written, and read by ``distinct_values`` alone.
    """

    fields: tuple[StoredField, ...]
    files: tuple[SnapshotFile, ...]
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    folder: str = ""
    distinct: Mapping[str, float] = field(default_factory=dict)

    @property
    def rows(self) -> int | None:
        """Rows of the snapshot; None: a file does not tell."""
        total = 0
        for file in self.files:
            if file.rows is None:
                return None
            total += file.rows - file.deleted_rows
        return total

    @property
    def is_by_id(self) -> bool:
        """True if columns are found in the files by field id, False if by name."""
        return all(field.field_id is not None for field in self.fields)

    def data_files(self) -> tuple[DataFile, ...]:
        """Return the files as a listing has them, without the values of partition folders: engines read these."""
        marks = self.marks()
        return tuple(
            DataFile(Path(file.path), file.bytes, "", {}, file.modified_ns or file.version or 0, deleted_mark=mark)
            for file, mark in zip(self.files, marks, strict=True)
        )

    def marks(self) -> Sequence[int | None]:
        """Return of each file what tells which of its rows, and fields for columns, count; None: of a plain table."""
        places = [(field.name, field.field_id or field.stored) for field in self.fields]
        fields = zlib.crc32(repr(places).encode()) if any(name != place for name, place in places) else 0
        return [None if file.deleted_mark is None else file.deleted_mark ^ fields for file in self.files]

    def limited_to(self, paths: Sequence[str]) -> Manifest:
        """Return a manifest of some of the files."""
        wanted = frozenset(paths)
        return Manifest(self.fields, tuple(file for file in self.files if file.path in wanted), folder=self.folder)

    def relative(self, file: SnapshotFile) -> str:
        """Return the path of a file below the table's folder; of a table that is one file, its name."""
        return os.path.relpath(file.path, self.folder) if file.path != self.folder else os.path.basename(file.path)

    def by_constants(self) -> Sequence[tuple[Mapping[str, str | None], Sequence[SnapshotFile]]]:
        """Return the files in groups with the same constants."""
        groups: dict[tuple[tuple[str, str | None], ...], list[SnapshotFile]] = {}
        for file in self.files:
            groups.setdefault(tuple(file.constants.items()), []).append(file)
        return [(dict(constants), files) for constants, files in groups.items()]

    def write(self, path: Path, about: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Write it under its final name in one step. about: what else ``about_table`` returns, as JSON has it."""
        groups: dict[tuple[tuple[str, str | None], ...], int] = {}
        numbers = [groups.setdefault(tuple(file.constants.items()), len(groups)) for file in self.files]
        note = {
            "fields": [asdict(one) for one in self.fields],
            "constants": [dict(group) for group in groups],
            "folder": self.folder,
            "distinct": dict(self.distinct),
            "about": dict(about),
        }
        table = pa.table(
            {
                "path": [file.path for file in self.files],
                "bytes": [file.bytes for file in self.files],
                "rows": [file.rows for file in self.files],
                "constants": numbers,
                "deleted": [file.deleted for file in self.files],
                "modified_ns": [file.modified_ns for file in self.files],
                "inode": [file.inode for file in self.files],
                "version": [file.version for file in self.files],
            },
            schema=_FILES.with_metadata({_NOTE: json.dumps(note).encode()}),
        )
        write_table(with_bounds(table, self.bounds), path)


@lru_cache(1_024)
def totals_of(path: str) -> Totals:
    """Return the totals of a manifest. Raises OSError."""
    with pa.memory_map(path) as source:
        table = pa.ipc.open_file(source).read_all()
    rows = None
    if not table["rows"].null_count:
        deleted = pc.sum(pc.list_value_length(table["deleted"])).as_py() or 0
        rows = int((pc.sum(table["rows"]).as_py() or 0) - deleted)
    return Totals(rows, len(table), int(pc.sum(table["bytes"]).as_py() or 0))


def about_table(path: Path) -> Mapping[str, Any]:
    """Return what was written about the table of a manifest. Raises OSError, pa.ArrowException."""
    with pa.memory_map(str(path)) as source:
        note = json.loads((pa.ipc.open_file(source).schema.metadata or {})[_NOTE])
    about: Mapping[str, Any] = note["about"]
    return about


def distinct_values(files: pa.Table) -> Mapping[str, float]:
    """Return the number of distinct values of columns that the Arrow table of a manifest tells, by their names."""
    distinct: Mapping[str, float] = json.loads((files.schema.metadata or {})[_NOTE]).get("distinct", {})
    return distinct


@lru_cache(_KEPT)
def read_manifest(path: str) -> Manifest:
    """Return a manifest. Raises OSError, FileNotFoundError among them."""
    with pa.memory_map(path) as source:
        table = pa.ipc.open_file(source).read_all()
    note = json.loads((table.schema.metadata or {})[_NOTE])
    deleted_rows = table["deleted"]
    if deleted_rows.null_count == len(deleted_rows):
        deleted_rows = [None] * len(deleted_rows)
    else:
        deleted_rows = [deleted.values.to_numpy() if deleted.is_valid else None for deleted in deleted_rows]
    names = ("path", "bytes", "rows", "constants", "modified_ns", "inode", "version")
    plain = [table[name].to_pylist() for name in names]
    files = (
        SnapshotFile(path, size, rows, note["constants"][constants], deleted, modified_ns, inode, version)
        for path, size, rows, constants, modified_ns, inode, version, deleted in zip(*plain, deleted_rows, strict=True)
    )
    return Manifest(tuple(StoredField(**field) for field in note["fields"]), tuple(files), folder=note["folder"])


def delete_old(folder: Path) -> None:
    """Delete the manifests that no statement asked for during ``KEEP_S``."""
    before_s = time.time() - KEEP_S
    for path in folder.glob("*.arrow"):
        try:
            if path.stat().st_mtime < before_s:
                path.unlink()
                path.with_suffix(ROWS_OF_METADATA).unlink(missing_ok=True)
        except FileNotFoundError:  # another process was faster
            continue
