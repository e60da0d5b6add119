"""Arrow results as JSON and CSV, batch by batch."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from engines.arrow_types import spark_type
from gateway.http.models import ColumnModel
from gateway.json_values import json_value
from gateway.results import Page, Spool


def columns(schema: pa.Schema) -> list[ColumnModel]:
    """Return names and types of a result."""
    return [ColumnModel(name=field.name, type=spark_type(field.type)) for field in schema]


def rows(page: Page) -> list[list[Any]]:
    """Return a page's rows as JSON can carry them."""
    return [row for batch in page.batches for row in batch_rows(batch)]


def batch_rows(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """Yield a batch's rows: decimals, times and binary values as text, nested values as JSON's own."""
    values = [[json_value(value) for value in column.to_pylist()] for column in batch.columns]
    if not values:
        return iter([[] for _ in range(batch.num_rows)])
    return (list(row) for row in zip(*values, strict=True))


def json_stream(spool: Spool, query_id: str) -> Iterator[bytes]:
    """Yield a whole result as ``{"columns": [...], "rows": [...]}``."""
    with spool.open(query_id) as reader:
        head = json.dumps([column.model_dump() for column in columns(reader.schema)])
        yield f'{{"columns":{head},"rows":['.encode()
        separator = ""
        for batch in reader:
            text = ",".join(json.dumps(row) for row in batch_rows(batch))
            if text:
                yield f"{separator}{text}".encode()
                separator = ","
        yield b"]}"


def csv_stream(spool: Spool, query_id: str) -> Iterator[bytes]:
    """Yield a whole result as CSV with a header; nested values as JSON texts."""
    with spool.open(query_id) as reader:
        header = True
        empty = reader.schema.empty_table().to_batches() or [
            pa.RecordBatch.from_arrays([pa.array([], field.type) for field in reader.schema], schema=reader.schema)
        ]
        for batch in [*empty[:1], *reader]:
            sink = io.BytesIO()
            pa_csv.write_csv(_flat(batch), sink, pa_csv.WriteOptions(include_header=header))
            header = False
            if sink.tell():
                yield sink.getvalue()


def arrow_stream(spool: Spool, query_id: str) -> Iterator[bytes]:
    """Yield a whole result as an Arrow IPC stream, as it was spooled."""
    with spool.path(query_id).open("rb") as file:
        while chunk := file.read(1 << 20):
            yield chunk


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch that CSV can carry."""
    arrays, names = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        nested = (
            pa.types.is_nested(field.type) or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
        )
        if nested:
            texts = [None if v is None else _text(json_value(v)) for v in column.to_pylist()]
            column = pa.array(texts, pa.string())
        arrays.append(column)
        names.append(field.name)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
