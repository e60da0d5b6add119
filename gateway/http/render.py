"""Arrow results as JSON and CSV, batch by batch."""

from __future__ import annotations

import io
import json
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from engines.arrow_types import spark_type
from gateway.execution.spooling.results import END_OF_STREAM, ResultFile
from gateway.http.models.common import ColumnModel
from gateway.presentation.json_values import json_value

FORMULA_STARTS = (*"=+-@\t\r\n", *"\uff1d\uff0b\uff0d\uff20")  # of a spreadsheet, also those of full width
JSON_CELLS = 16_384  # that are Python's at once

Chunks = Generator[bytes, None, None]
Messages = Iterable[pa.Message | None]


def columns(schema: pa.Schema) -> list[ColumnModel]:
    """Return names and types of a result."""
    return [ColumnModel(name=field.name, type=spark_type(field.type)) for field in schema]


def batch_rows(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """Yield a batch's rows: decimals, times and binary values as text, nested values as JSON's own."""
    values = [[json_value(value) for value in column.to_pylist()] for column in batch.columns]
    if not values:
        return iter([[] for _ in range(batch.num_rows)])
    return (list(row) for row in zip(*values, strict=True))


def json_stream(result: ResultFile, messages: Messages) -> Chunks:
    """Yield a whole result as ``{"columns": [...], "rows": [...]}``."""
    head = json.dumps([column.model_dump() for column in columns(result.schema)])
    yield f'{{"columns":{head},"rows":['.encode()
    yield from json_rows(result, messages)
    yield b"]}"


def json_rows(result: ResultFile, messages: Messages, *, max_rows: int | None = None) -> Chunks:
    """Yield rows with commas between them, the first ones or all. An empty chunk: wait a little."""
    separator = b""
    for message in messages:
        if message is None:
            yield b""
            continue
        batch = result.decode(message)
        at_once = max(1, JSON_CELLS // max(1, batch.num_columns))
        for start in range(0, batch.num_rows if max_rows is None else min(max_rows, batch.num_rows), at_once):
            count = at_once if max_rows is None else min(at_once, max_rows - start)
            yield separator + ",".join(map(_json, batch_rows(batch.slice(start, count)))).encode()
            separator = b","
        if max_rows is not None:
            max_rows -= min(max_rows, batch.num_rows)
            if not max_rows:
                return


def csv_stream(result: ResultFile, messages: Messages, *, guarded: bool = False) -> Chunks:
    """Yield a whole result as CSV with a header; nested values as JSON texts. An empty chunk: wait a little.

    guarded: texts that a spreadsheet would take for a formula have an apostrophe before them, also names of columns.
    """
    write = partial(_csv, guarded=guarded)
    yield write(_no_rows(result.schema), header=True)
    for message in messages:
        yield b"" if message is None else write(result.decode(message), header=False)


def arrow_stream(result: ResultFile, messages: Messages) -> Chunks:
    """Yield a whole result as an Arrow IPC stream, as it was spooled. An empty chunk: wait a little."""
    yield bytes(result.head.serialize())
    for message in messages:
        yield b"" if message is None else bytes(message.serialize())
    yield END_OF_STREAM


def _csv(batch: pa.RecordBatch, *, header: bool, guarded: bool) -> bytes:
    sink = io.BytesIO()
    flat = _flat(batch)
    pa_csv.write_csv(_guarded(flat) if guarded else flat, sink, pa_csv.WriteOptions(include_header=header))
    return sink.getvalue()


def _guarded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Put an apostrophe before texts that start as formulas do, whatever blanks come first."""
    names = _guarded_texts(pa.array(batch.schema.names, pa.string())).to_pylist()
    columns = [
        _guarded_texts(column) if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _guarded_texts(texts: pa.Array) -> pa.Array:
    begins = pc.utf8_slice_codeunits(pc.utf8_ltrim(texts, " "), 0, 1)
    is_formula = pc.is_in(begins, value_set=pa.array(FORMULA_STARTS, begins.type))
    return pc.if_else(
        is_formula, pc.binary_join_element_wise(pa.scalar("'", texts.type), texts, pa.scalar("", texts.type)), texts
    )


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


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
