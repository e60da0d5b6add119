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
    lacking = {
        partition.source_id: (at, partition.transform)
        for at, partition in enumerate(spec.fields)
        if isinstance(partition.transform, IdentityTransform)
        and partition.source_id in schema.field_ids
        and (by_name or partition.source_id not in (file.value_counts or {}))  # it is stored if values were counted
    }
    if not lacking:
        return {}
    stored = place.schema_of(place.local(file.file_path))
    constants: dict[str, str | None] = {}
    for number, (at, transform) in lacking.items():
        column, value = schema.find_field(number), file.partition[at]
        if not _is_stored(column, stored, by_name=by_name):
            text = value.hex() if isinstance(value, bytes) else transform.to_human_string(column.field_type, value)
            constants[column.name] = None if value is None else text
    return constants


def _is_stored(column: NestedField, stored: pa.Schema, *, by_name: bool) -> bool:
    if by_name:
        return column.name.lower() in {name.lower() for name in stored.names}
    wanted = str(column.field_id).encode()
    return any((field.metadata or {}).get(b"PARQUET:field_id") == wanted for field in stored)
