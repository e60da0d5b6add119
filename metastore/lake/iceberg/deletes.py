"""Deletes of an Iceberg table's rows, by position: Parquet files with them, and deletion vectors in Puffin files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import FileScanTask, StaticTable
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from metastore.lake.place import TablePlace
from metastore.lake.values import LakeUnreadable


class Deletes:
    """Positions of deleted rows, by data file; each delete file is read once.

    Deletion vectors come with all files of a partition (pyiceberg 0.12), so each is assigned by the file it names.
    """

    def __init__(self, table: StaticTable, tasks: Sequence[FileScanTask], place: TablePlace) -> None:
        self._place = place
        self._positions: dict[str, dict[str, NDArray[np.int64]]] = {}
        for delete in {delete.file_path: delete for task in tasks for delete in task.delete_files}.values():
            self._positions[delete.file_path] = self._read(delete, table.io)

    def of(self, task: FileScanTask, path: str) -> NDArray[np.int64] | None:
        """Return the deleted positions of a data file. path: at which engines read it."""
        parts = [self._positions[delete.file_path].get(path) for delete in task.delete_files]
        present = [part for part in parts if part is not None]
        return np.unique(np.concatenate(present)) if present else None

    def _read(self, delete: DataFile, io: FileIO) -> dict[str, NDArray[np.int64]]:
        """Return the positions that a delete file names, by data file."""
        with io.new_input(delete.file_path).open() as file:
            if delete.file_format is FileFormat.PUFFIN:
                vectors = deletion_vectors_from_puffin_file(PuffinFile(file.read()))
                return {
                    self._place.local(one.referenced_data_file): one.to_vector().to_numpy().astype(np.int64)
                    for one in vectors
                }
            if delete.file_format is not FileFormat.PARQUET:
                raise LakeUnreadable(
                    f"it has delete files of {delete.file_format.value}; only Parquet and Puffin are read"
                )
            table = pq.read_table(file, columns=["file_path", "pos"])
        by_file = {}
        for name in pc.unique(table["file_path"]).to_pylist():
            rows = table.filter(pc.equal(table["file_path"], name))["pos"]
            by_file[self._place.local(name)] = rows.to_numpy().astype(np.int64)
        return by_file
