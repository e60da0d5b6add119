"""Rows of Parquet files that an engine wrote, as a lake table's schema wants them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from metastore.lake.values import LakeConflict, LakeUnwritable

BATCH_ROWS = 64 << 10


def batches(files: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files in a schema's columns, found by name. Raises LakeUnwritable, LakeConflict."""
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                yield _conformed(batch, schema)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    places = {name.lower(): place for place, name in enumerate(batch.schema.names)}
    columns = []
    for field in schema:
        if field.name.lower() not in places:
            raise LakeConflict(f"others have added or renamed the column {field.name}")
        values = batch.column(places[field.name.lower()])
        _require_values(field, values, field.name)
        columns.append(values.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _require_values(field: pa.Field, values: pa.Array, column: str) -> None:
    """Raise LakeUnwritable for a NULL where the schema has none, in nested fields too: a cast does not look."""
    if not field.nullable and values.null_count:
        raise LakeUnwritable(f"its column {column} does not take NULL" + (" there" if field.name != column else ""))
    if pa.types.is_struct(field.type):
        present = values.drop_null()
        for place, inner in enumerate(field.type):
            _require_values(inner, present.field(place), column)
    elif pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
        _require_values(field.type.value_field, values.flatten(), column)
    elif pa.types.is_map(field.type):
        entries = values.drop_null()
        _require_values(field.type.key_field, entries.keys, column)
        _require_values(field.type.item_field, entries.items, column)
