"""Rows of Parquet files that an engine wrote, as a lake table's schema wants them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from metastore.lake.values import LakeUnwritable

BATCH_ROWS = 64 << 10


def batches(files: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files in a schema's columns, found by name. Raises LakeUnwritable."""
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                yield _conformed(batch, schema)


def reader(files: Sequence[str], schema: pa.Schema) -> pa.RecordBatchReader:
    """Return a reader of the same rows."""
    return pa.RecordBatchReader.from_batches(schema, batches(files, schema))


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    places = {name.lower(): place for place, name in enumerate(batch.schema.names)}
    columns = []
    for field in schema:
        values = batch.column(places[field.name.lower()])
        if not field.nullable and values.null_count:
            raise LakeUnwritable(f"its column {field.name} does not take NULL")
        columns.append(values.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
