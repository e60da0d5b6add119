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
from gateway.presentation.values.json_values import json_column
from gateway.presentation.values.plain_columns import PLAIN_SCALE, has_four_digit_years, moment_texts, plain

FORMULA_STARTS = (*"=+-@\t\r\n", *"\uff1d\uff0b\uff0d\uff20")  # of a spreadsheet, also those of full width
JSON_CELLS = 16_384  # that are Python objects at once

Chunks = Generator[bytes, None, None]
Messages = Iterable[pa.Message | None]


def columns(schema: pa.Schema) -> list[ColumnModel]:
    """Return names and types of a result."""
    return [ColumnModel(name=field.name, type=spark_type(field.type)) for field in schema]


def batch_rows(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """Yield a batch's rows: decimals, times and binary values as text, nested values as JSON arrays and objects."""
    values = [json_column(column) for column in batch.columns]
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
            rows = batch_rows(batch.slice(start, count))
            yield separator + ",".join(json.dumps(row, allow_nan=False) for row in rows).encode()
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
    yield write(pa.RecordBatch.from_pylist([], result.schema), header=True)
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
    columns, names = list(map(_csv_column, batch.columns)), batch.schema.names
    if guarded:
        columns = [
            text if pa.types.is_decimal(column.type) or pa.types.is_floating(column.type) else _guarded(text)
            for column, text in zip(batch.columns, columns, strict=True)
        ]
        names = _guarded(pa.array(names, pa.string())).to_pylist()
    written = pa.RecordBatch.from_arrays(columns, names=names)
    pa_csv.write_csv(written, sink, pa_csv.WriteOptions(include_header=header))
    return sink.getvalue()


def _guarded(column: pa.Array) -> pa.Array:
    """Put an apostrophe before texts that start like a formula, after any blanks."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    starts = pc.utf8_slice_codeunits(pc.utf8_ltrim(column, " "), 0, 1)
    is_formula = pc.is_in(starts, value_set=pa.array(FORMULA_STARTS, starts.type))
    apostrophe, nothing = pa.scalar("'", column.type), pa.scalar("", column.type)
    return pc.if_else(is_formula, pc.binary_join_element_wise(apostrophe, column, nothing), column)


def _csv_column(column: pa.Array) -> pa.Array:
    """Return a column that Arrow writes as CSV in the documented form."""
    kind = column.type
    if pa.types.is_nested(kind):
        return pa.array([None if value is None else json.dumps(value) for value in json_column(column)], pa.string())
    if pa.types.is_null(kind) or pa.types.is_time(kind):
        return column
    if pa.types.is_floating(kind):
        return column if pc.all(pc.is_finite(column)).as_py() is not False else _not_finite(column)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return column if has_four_digit_years(column) else _csv_moments(column)
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= PLAIN_SCALE:
        return column
    column = plain(column)
    return pa.array(json_column(column), pa.string()) if pa.types.is_binary(column.type) else column


def _not_finite(column: pa.Array) -> pa.Array:
    """Write numbers as in JSON, where Arrow would write nan and inf."""
    texts = column.cast(pa.string())
    return pc.replace_substring(pc.replace_substring(texts, "nan", "NaN"), "inf", "Infinity")


def _csv_moments(column: pa.Array) -> pa.Array:
    """Write dates and timestamps of any year as Arrow writes others."""
    texts = moment_texts(column)
    zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    return pc.binary_join_element_wise(texts, "Z", "") if zoned else texts
