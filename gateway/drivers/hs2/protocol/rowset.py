"""Arrow batches to the bytes of a TRowSet, whole columns at a time.

A list of strings on the wire is a length, the bytes, the next length, and so on: that is the data of the Arrow array
which joins a column of lengths with the column of texts, element by element. Rows, which protocols before V6 want, are
the same trick once more: the data of the array that joins all columns' encoded values.

Nested values and intervals are sent as texts, which Python writes: Arrow has no kernel for JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gateway.drivers.hs2.protocol.thrift import STOP, Wire, field_head, list_head, string_head
from gateway.presentation.values.nested_texts import nested_texts
from gateway.presentation.values.plain_columns import plain


@dataclass(frozen=True, slots=True)
class _Form:
    """Encoding of a column."""

    number: int
    """Of its field in TColumn and TColumnValue."""
    wire: Wire
    dtype: str | None = None
    """None: values have lengths."""


_FORMS: Mapping[pa.DataType, _Form] = {
    pa.bool_(): _Form(1, Wire.BOOL, "u1"),
    pa.int8(): _Form(2, Wire.BYTE, "i1"),
    pa.int16(): _Form(3, Wire.I16, ">i2"),
    pa.int32(): _Form(4, Wire.I32, ">i4"),
    pa.int64(): _Form(5, Wire.I64, ">i8"),
    pa.float64(): _Form(6, Wire.DOUBLE, ">f8"),
    pa.string(): _Form(7, Wire.STRING),
    pa.binary(): _Form(8, Wire.STRING),
}
_TEXT_NUMBER = 7  # rows have no binary values: they are sent as if they were texts


def encode(
    batch: pa.RecordBatch, *, offset: int, columnar: bool, whole_nulls: bool = False, nested_json: bool = False
) -> bytes:
    """Return a TRowSet.

    offset: number of rows before.
    columnar: as in V6 and later.
    whole_nulls: send a bit for each row, as impala-shell on Python 2 requires, not only up to the last NULL.
    nested_json: write arrays, maps and structs as JSON, not in Hive's form.
    """
    arrays = [
        pa.array(nested_texts(column, as_json=nested_json), pa.string())
        if pa.types.is_nested(column.type)
        else plain(column)
        for column in batch.columns
    ]
    parts = [field_head(Wire.I64, 1), offset.to_bytes(8, "big"), field_head(Wire.LIST, 2)]
    if columnar:
        parts += (list_head(Wire.STRUCT, 0), field_head(Wire.LIST, 3), list_head(Wire.STRUCT, len(arrays)))
        for array in arrays:
            parts += _column(array, whole_nulls=whole_nulls)
    else:
        parts.append(list_head(Wire.STRUCT, batch.num_rows))
        if batch.num_rows:
            parts.append(_rows(arrays, batch.num_rows))
    parts.append(STOP)
    return b"".join(parts)


# ---------------------------------------------------------------------- columns and rows


def _column(array: pa.Array, *, whole_nulls: bool) -> list[bytes]:
    form = _FORMS[array.type]
    nulls = _nulls(array) if whole_nulls else _nulls(array).rstrip(STOP) or STOP
    values = _fixed(array, form.dtype).tobytes() if form.dtype else _data(_with_lengths(array))
    return [
        field_head(Wire.STRUCT, form.number) + field_head(Wire.LIST, 1) + list_head(form.wire, len(array)),
        values,
        field_head(Wire.STRING, 2) + string_head(len(nulls)),
        nulls,
        STOP + STOP,
    ]


def _nulls(array: pa.Array) -> bytes:
    """Return a bit per row. Hive sends them up to the last NULL, as PyHive looks at each bit."""
    if not array.null_count:
        return bytes(-(-len(array) // 8))
    return np.packbits(array.is_null().to_numpy(zero_copy_only=False), bitorder="little").tobytes()


def _rows(arrays: list[pa.Array], count: int) -> bytes:
    """Return a list's elements, each of them a TRow."""
    begin = field_head(Wire.LIST, 1) + list_head(Wire.STRUCT, len(arrays))
    head = pa.repeat(pa.scalar(begin, pa.binary()), count)
    return _data(pc.binary_join_element_wise(head, *map(_values, arrays), STOP, b""))


def _values(array: pa.Array) -> pa.Array:
    """Return the encoded TColumnValue of each row; without a value it is NULL."""
    form = _FORMS[array.type]
    number = _TEXT_NUMBER if form.dtype is None else form.number
    outer = field_head(Wire.STRUCT, number)
    if form.dtype is None:
        values = _with_lengths(array)
    else:
        values = _pieces(_fixed(array, form.dtype).tobytes(), np.dtype(form.dtype).itemsize)
    filled = pc.binary_join_element_wise(outer + field_head(form.wire, 1), values, STOP + STOP, b"")
    return (
        pc.if_else(array.is_null(), pa.scalar(outer + STOP + STOP, pa.binary()), filled) if array.null_count else filled
    )


def _fixed(array: pa.Array, dtype: str) -> np.ndarray:
    """Return the values of a column in the byte order of the protocol; NULL is zero."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    filled = array.fill_null(0) if array.null_count else array
    values: np.ndarray = filled.to_numpy(zero_copy_only=False)
    return values.astype(dtype, copy=False)


def _with_lengths(array: pa.Array) -> pa.Array:
    """Put each value's length before it, four bytes; NULL is empty."""
    array = array.cast(pa.binary())
    if array.null_count:
        array = array.fill_null(b"")
    lengths = pc.binary_length(array).to_numpy(zero_copy_only=False).astype(">i4")
    return pc.binary_join_element_wise(_pieces(lengths.tobytes(), 4), array, b"")


def _pieces(data: bytes, width: int) -> pa.Array:
    """Cut bytes into values of one width."""
    count = len(data) // width
    offsets = np.arange(0, len(data) + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _data(array: pa.Array) -> bytes:
    """Return the bytes of all values, one after the other."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    return data[int(ends[0]) : int(ends[-1])].to_pybytes() if len(array) and data is not None else b""
