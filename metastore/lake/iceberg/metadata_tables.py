"""Tables of what the metadata of an Iceberg table says, such as ``t.snapshots`` and ``t.files``, by Spark's names."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import Table

from engines.files.manifest import Manifest, SnapshotFile
from metastore.lake.iceberg.reading import EMPTY, column, opened, readable, stored
from metastore.lake.place import LakeState, TablePlace
from metastore.lake.values import LakeUnreadable, ResolvedSnapshot
from sql.tables import METADATA_TABLES

_LEFT_OUT = frozenset({"readable_metrics"})
"""Columns that other ones have already, in another form."""
_MOMENT = pa.timestamp("us", tz="UTC")


def state(place: TablePlace, name: str, file: Callable[[str], Path]) -> LakeState:
    """Return a metadata table of the newest state of a table, as a state of its own. Raises LakeUnreadable.

    file: returns the path of the Parquet file for a state's key.
    """
    if name not in METADATA_TABLES:
        raise LakeUnreadable(f"there is no metadata table {name}; there are {', '.join(METADATA_TABLES)}")
    with readable():
        table, _ = opened(place)
        snapshot = table.current_snapshot()
        if snapshot is None and name == "partitions":
            raise LakeUnreadable("nothing was written to it yet, so that it has no partitions")
        metadata = table.metadata
        key = f"iceberg {table.metadata_location} {metadata.table_uuid} {metadata.last_updated_ms} {name}"
        path = file(key)
        return LakeState(
            EMPTY if snapshot is None else str(snapshot.snapshot_id),
            key,
            TablePlace(str(path)),
            partial(_load, table, name, path),
        )


def _load(table: Table, name: str, path: Path) -> ResolvedSnapshot:
    """Write the rows of a metadata table into a file, and return it as a table's only one."""
    with readable():
        rows = getattr(table.inspect, name)()  # pyiceberg's methods have Spark's names
        wanted = [one for one in rows.schema if one.name not in _LEFT_OUT and not _is_empty(one.type)]
        schema = assign_fresh_schema_ids(
            _pyarrow_to_schema_without_ids(pa.schema([pa.field(one.name, _in_micros(one.type)) for one in wanted]))
        )
        rows = rows.select([one.name for one in wanted]).cast(schema_to_pyarrow(schema, include_field_ids=False))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as draft:
        pq.write_table(rows, draft)
    os.replace(draft.name, path)
    files = (SnapshotFile(str(path), path.stat().st_size, rows.num_rows, {}),)
    fields = tuple(stored(field, by_name=True) for field in schema.fields)
    return ResolvedSnapshot(tuple(map(column, schema.fields)), (), Manifest(fields, files))


def _is_empty(kind: pa.DataType) -> bool:
    """Return True for a struct without fields, which Parquet cannot hold: the partition of a table without any."""
    return bool(pa.types.is_struct(kind) and kind.num_fields == 0)


def _in_micros(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column; moments are in UTC."""
    return _MOMENT if pa.types.is_timestamp(kind) else kind
