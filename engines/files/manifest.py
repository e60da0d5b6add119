"""Manifest of one snapshot of a lake table: exactly the files, and the rows of them, that make it up.

The gateway resolves a snapshot once per statement and writes the manifest; every engine that is tried reads the files
that it lists, so that a failover answers from the same data. A manifest is an Arrow file that is never changed: its
name is made of the table and the snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engines.files.pruning import Bounds, with_bounds, write_table

_NOTE = b"fusion.manifest"
_KEPT = 64  # manifests that a process keeps in memory
_FILES = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("rows", pa.int64()),
        pa.field("constants", pa.int32(), nullable=False),
        pa.field("deleted", pa.list_(pa.int64())),
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
    """

    name: str
    stored: str
    field_id: int | None
    spark: Mapping[str, Any]
    is_plain_below: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotFile:
    """One data file of a snapshot.

    path: absolute.
    rows: that it stores, deleted ones too; None: unknown.
    constants: columns that the file does not store, with their value as text; None: NULL.
    deleted: shape (deleted rows,), int64, ascending: positions of rows that do not belong to the snapshot.
    """

    path: str
    bytes: int
    rows: int | None
    constants: Mapping[str, str | None]
    deleted: NDArray[np.int64] | None = None

    @property
    def deleted_rows(self) -> int:
        """Number of its rows that do not belong to the snapshot."""
        return 0 if self.deleted is None else len(self.deleted)

    @property
    def has_deleted(self) -> bool:
        """True if some of its rows do not belong to the snapshot."""
        return self.deleted_rows > 0


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """The data files of a snapshot, and how they store its columns.

    bounds: of columns, by their names in the table; they are written, and read by ``pruning.py`` alone.
    """

    fields: tuple[StoredField, ...]
    files: tuple[SnapshotFile, ...]
    bounds: Mapping[str, Bounds] = field(default_factory=dict)

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

    def limited_to(self, paths: Sequence[str]) -> Manifest:
        """Return a manifest of some of the files."""
        wanted = frozenset(paths)
        return Manifest(self.fields, tuple(file for file in self.files if file.path in wanted))

    def by_constants(self) -> Sequence[tuple[Mapping[str, str | None], Sequence[SnapshotFile]]]:
        """Return the files in groups with the same constants."""
        groups: dict[tuple[tuple[str, str | None], ...], list[SnapshotFile]] = {}
        for file in self.files:
            groups.setdefault(tuple(file.constants.items()), []).append(file)
        return [(dict(constants), files) for constants, files in groups.items()]

    def write(self, path: Path) -> None:
        """Write it under its final name in one step."""
        groups: dict[tuple[tuple[str, str | None], ...], int] = {}
        numbers = [groups.setdefault(tuple(file.constants.items()), len(groups)) for file in self.files]
        note = {"fields": [asdict(one) for one in self.fields], "constants": [dict(group) for group in groups]}
        table = pa.table(
            {
                "path": [file.path for file in self.files],
                "bytes": [file.bytes for file in self.files],
                "rows": [file.rows for file in self.files],
                "constants": numbers,
                "deleted": [file.deleted for file in self.files],
            },
            schema=_FILES.with_metadata({_NOTE: json.dumps(note).encode()}),
        )
        write_table(with_bounds(table, self.bounds), path)


@lru_cache(1_024)
def rows_in(path: str) -> int | None:
    """Return the rows of a manifest's files, None where a file does not tell. Raises OSError."""
    with pa.memory_map(path) as source:
        table = pa.ipc.open_file(source).read_all()
    if table["rows"].null_count:
        return None
    deleted = pc.sum(pc.list_value_length(table["deleted"])).as_py() or 0
    return int((pc.sum(table["rows"]).as_py() or 0) - deleted)


@lru_cache(_KEPT)
def read_manifest(path: str) -> Manifest:
    """Return a manifest. Raises OSError, FileNotFoundError among them."""
    with pa.memory_map(path) as source:
        table = pa.ipc.open_file(source).read_all()
    note = json.loads((table.schema.metadata or {})[_NOTE])
    columns = [table.column(name) for name in _FILES.names]
    files = (
        SnapshotFile(
            path=str(path.as_py()),
            bytes=size.as_py(),
            rows=rows.as_py(),
            constants=note["constants"][constants.as_py()],
            deleted=deleted.values.to_numpy() if deleted.is_valid else None,
        )
        for path, size, rows, constants, deleted in zip(*columns, strict=True)
    )
    return Manifest(tuple(StoredField(**field) for field in note["fields"]), tuple(files))
