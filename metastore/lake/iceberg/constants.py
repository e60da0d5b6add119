"""Values of partition columns that data files do not store ("Column Projection" of the specification)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField

from metastore.lake.place import TablePlace


def constants_of(
    file: DataFile, spec: PartitionSpec, schema: Schema, place: TablePlace, *, by_name: bool
) -> Mapping[str, str | None]:
    """Return the values of identity partitions whose columns a file does not store. by_name: it has no field ids."""
    constants: dict[str, str | None] = {}
    for at, partition in enumerate(spec.fields):
        if not isinstance(partition.transform, IdentityTransform) or partition.source_id not in schema.field_ids:
            continue
        if not by_name and partition.source_id in (file.value_counts or {}):
            continue  # it is stored, as its values were counted
        column = schema.find_field(partition.source_id)
        if not _is_stored(column, place.schema_of(place.local(file.file_path)), by_name=by_name):
            value = file.partition[at]
            if isinstance(value, bytes):
                constants[column.name] = value.hex()
            else:
                text = partition.transform.to_human_string(column.field_type, value)
                constants[column.name] = None if value is None else text
    return constants


def _is_stored(column: NestedField, stored: pa.Schema, *, by_name: bool) -> bool:
    if by_name:
        return column.name.lower() in {name.lower() for name in stored.names}
    wanted = str(column.field_id).encode()
    return any((field.metadata or {}).get(b"PARQUET:field_id") == wanted for field in stored)
