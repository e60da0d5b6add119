"""HiveServer2's columns -> Arrow. Values are converted by Arrow's own kernels, never one by one.

Impala sends decimals, dates and timestamps as text. Timestamps keep microseconds, as those of every other engine here;
a moment has no zone in Impala and is one of UTC, the zone that the adapter sets for its sessions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engines.arrow_types import arrow_type
from selector.types import DataType, Kind

MICROSECONDS_WIDTH = len("2024-02-29 12:34:56.123456")

_TYPES: Mapping[str, pa.DataType] = {
    kind.row.impala: arrow_type(DataType(kind))
    for kind in reversed(Kind)
    if kind.row.impala and "{" not in kind.row.impala
}
"""Impala's names of types that need no digits; its one timestamp is the first of ours. All others are text."""

_MEMBERS: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolVal",
    pa.int8(): "byteVal",
    pa.int16(): "i16Val",
    pa.int32(): "i32Val",
    pa.int64(): "i64Val",
    pa.float32(): "doubleVal",
    pa.float64(): "doubleVal",
    pa.binary(): "binaryVal",
}
"""The member of TColumn that carries a type; all others travel as text."""


def schema_of(columns: Sequence[tuple[Any, ...]]) -> pa.Schema:
    """Return the schema of a result. columns: as ``Operation.columns`` has them."""
    return pa.schema([pa.field(column[0], _type(column)) for column in columns])


def batch_of(rows: Any, schema: pa.Schema) -> pa.RecordBatch | None:
    """Return the rows of a TRowSet; None where it has none."""
    if rows is None or not rows.columns:
        return None
    arrays = [_array(sent, field.type) for sent, field in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema) if len(arrays[0]) else None


def _type(column: tuple[Any, ...]) -> pa.DataType:
    name, precision, scale = column[1], column[4], column[5]
    if name == "DECIMAL":
        return pa.decimal128(precision, scale)
    return _TYPES.get(name, pa.string())


def _array(sent: Any, kind: pa.DataType) -> pa.Array:
    member = _MEMBERS.get(kind, "stringVal")
    data = getattr(sent, member)
    nulls = _nulls(data.nulls, len(data.values))
    if member not in ("stringVal", "binaryVal"):
        sent_as = pa.float64() if member == "doubleVal" else kind
        array = pa.array(data.values, sent_as, mask=nulls)
        return array if sent_as == kind else array.cast(kind, safe=False)
    array = pa.array(data.values, pa.binary(), mask=nulls)
    if pa.types.is_binary(kind):
        return array
    text = array.cast(pa.string())
    if pa.types.is_timestamp(kind):
        moments = pc.utf8_slice_codeunits(text, 0, MICROSECONDS_WIDTH).cast(pa.timestamp("us"))
        return moments.cast(kind)
    return text if pa.types.is_string(kind) else text.cast(kind)


def _nulls(bits: bytes, rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which rows are null. bits: one per row, the lowest first; zeros at the end may be missing."""
    whole = np.zeros((rows + 7) // 8, np.uint8)  # numpy does not clear what it adds to no bits at all
    sent = np.frombuffer(bits, np.uint8)[: whole.size]
    whole[: sent.size] = sent
    return np.unpackbits(whole, count=rows, bitorder="little").astype(np.bool_)
