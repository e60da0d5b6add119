"""Distinct values of columns, from the sketches that Spark, Trino and others add to an Iceberg table.

The number stands in the table's metadata beside the place of the sketch (Puffin's specification, property ``ndv`` of
``apache-datasketches-theta-v1``), so that no Puffin file is read.
"""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

_THETA = "apache-datasketches-theta-v1"


def distinct_values(metadata: TableMetadata, schema: Schema, snapshot_id: int | None) -> dict[str, float]:
    """Return the distinct values of columns, by names, as the newest sketches up to a snapshot tell them."""
    made_ms = {one.snapshot_id: one.timestamp_ms for one in metadata.snapshots}
    read_ms = made_ms.get(snapshot_id or 0, 0)
    names = {field.field_id: field.name for field in schema.fields}
    distinct = {}
    for file in sorted(metadata.statistics, key=lambda one: made_ms.get(one.snapshot_id, 0)):
        if made_ms.get(file.snapshot_id, 0) <= read_ms:
            for blob in file.blob_metadata:
                ndv = (blob.properties or {}).get("ndv", "")
                if blob.type == _THETA and len(blob.fields) == 1 and blob.fields[0] in names and ndv.isdecimal():
                    distinct[names[blob.fields[0]]] = float(ndv)
    return distinct
