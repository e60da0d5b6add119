"""Files of a lake table's snapshot as the job reads them: with their partition values, without their deleted rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engines.files.listing import DataFile
from engines.files.manifest import Manifest, SnapshotFile


@dataclass(frozen=True, slots=True)
class StoredNames:
    """Names of the table's columns in a file.

    by_id: field ids of columns; None: they are found by name.
    by_name: names in the files by columns.
    """

    by_id: Mapping[str, int] | None
    by_name: Mapping[str, str]

    @classmethod
    def of(cls, manifest: Manifest) -> StoredNames:
        """Return the names of a snapshot's columns."""
        ids = {field.name: field.field_id for field in manifest.fields if field.field_id is not None}
        by_name = {field.name: field.stored for field in manifest.fields}
        return cls(ids if manifest.is_by_id else None, by_name)

    def in_file(self, ids: Mapping[int, str], column: str) -> str | None:
        """Return a column's name in a file; None: the file lacks it. ids: names of the file's columns by field id."""
        if self.by_id is None:
            return self.by_name.get(column, column)
        return ids.get(self.by_id[column])


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Rows of a snapshot within its files.

    names: of the table's columns in the files.
    deleted: positions of deleted rows by path.
    """

    names: StoredNames
    deleted: Mapping[str, NDArray[np.int64]]

    @classmethod
    def of(cls, manifest: Manifest) -> SnapshotRows:
        """Return the rows that a manifest lists."""
        deleted = {file.path: file.deleted for file in manifest.files if file.deleted is not None}
        return cls(StoredNames.of(manifest), deleted)


def files_of_snapshot(manifest: Manifest) -> tuple[DataFile, ...]:
    """Return the data files of a snapshot, in path order. Raises OSError for one that is gone."""
    marked = zip(manifest.files, manifest.marks(), strict=True)
    return tuple(_data_file(file, mark) for file, mark in sorted(marked, key=lambda pair: pair[0].path))


def _data_file(file: SnapshotFile, mark: int | None) -> DataFile:
    stat = os.stat(file.path)
    place = Path(file.path)
    return DataFile(place, stat.st_size, file.folder, file.partition, stat.st_mtime_ns, deleted_mark=mark)
