"""Columns of Parquet files by their footers, each looked at once as long as the file stays as it is."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from engines.errors import UnsupportedFeature
from engines.files.listing import DataFile
from engines.files.stored_types import StoredColumn, StoredColumns

MOST_FOOTERS = 1 << 16  # files; then all are forgotten


class Footers:
    """Columns of files, as their footers have them. Not thread-safe."""

    def __init__(self) -> None:
        self._columns: dict[tuple[str, int, int], tuple[StoredColumn, ...]] = {}

    def columns_of(self, files: Sequence[DataFile]) -> list[tuple[StoredColumn, ...]]:
        """Return the columns of each file. Raises UnsupportedFeature for one that cannot be read."""
        if len(self._columns) > MOST_FOOTERS:
            self._columns.clear()
        alike = StoredColumns()
        return [self._columns_of(file, alike) for file in files]

    def _columns_of(self, file: DataFile, alike: StoredColumns) -> tuple[StoredColumn, ...]:
        key = str(file.path), file.bytes, file.modified_ns
        columns = self._columns.get(key)
        if columns is None:
            try:
                columns = alike.parquet(pq.read_metadata(file.path))
            except FileNotFoundError:  # it has just gone
                raise
            except (pa.ArrowException, OSError) as failure:
                raise UnsupportedFeature(f"the file {file.path.name} is no readable Parquet file.") from failure
            self._columns[key] = columns
        return columns
