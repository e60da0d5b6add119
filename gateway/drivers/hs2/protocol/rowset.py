"""Arrow batches straight to the bytes of a TRowSet: whole columns at a time, no Python per value.

A list of strings on the wire is a length, the bytes, the next length, and so on: that is the data of the Arrow array
which joins a column of lengths with the column of texts, element by element. Rows, which protocols before V6 want, are
the same trick once more: the data of the array that joins all columns' encoded values.

Nested values and intervals, which travel as texts, are the exception: Arrow has no kernel that writes JSON.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engines.arrow_types import arrow_type, data_type
from gateway.drivers.hs2.protocol.thrift import STOP, Wire, field_head, list_head, string_head
from gateway.presentation.intervals import NANOSECONDS, day_time, year_month
from gateway.presentation.json_values import json_value

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": NANOSECONDS}
PLAIN_SCALE = 6  # Arrow writes decimals with more digits after the point as 1E-7 where they are small


@dataclass(frozen=True, slots=True)
class _Form:
    """How a column is written. number: of its field in TColumn and TColumnValue; dtype: None for what has lengths."""

    number: int
    wire: Wire
    dtype: str | None = None


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
_TEXT_NUMBER = 7  # a value of a row cannot be binary: it travels as if it were text


def encode(
    batch: pa.RecordBatch, *, offset: int, columnar: bool, whole_nulls: bool = False, nested_json: bool = False
) -> bytes:
    """Return a TRowSet. offset: rows that came before; columnar: as V6 and later have it.

    whole_nulls: a bit is sent for each row, which impala-shells on Python 2 rely on; else up to the last NULL.
    nested_json: arrays, maps and structs are JSON; else as Hive writes them.
    """
    nested = _json if nested_json else _hive_text
    arrays = [
        _nested(column, nested) if pa.types.is_nested(column.type) else _plain(column) for column in batch.columns
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
    """Return a bit per row. Hive sends them up to the last NULL: PyHive looks at each bit that it is sent."""
    if not array.null_count:
        return bytes(-(-len(array) // 8))
    return np.packbits(array.is_null().to_numpy(zero_copy_only=False), bitorder="little").tobytes()


def _rows(arrays: list[pa.Array], count: int) -> bytes:
    """Return a list's elements, each of them a TRow."""
    begin = field_head(Wire.LIST, 1) + list_head(Wire.STRUCT, len(arrays))
    head = pa.repeat(pa.scalar(begin, pa.binary()), count)
    return _data(pc.binary_join_element_wise(head, *map(_values, arrays), STOP, b""))


def _values(array: pa.Array) -> pa.Array:
    """Return the encoded TColumnValue of each row; one without a value is NULL."""
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
    """Return the values of a column in the order of bytes that the wire has; NULL is zero."""
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


# ---------------------------------------------------------------------- types


def _plain(array: pa.Array) -> pa.Array:
    """Turn a column into one of those that have a form."""
    types = pa.types
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if types.is_dictionary(array.type) or types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array) if types.is_run_end_encoded(array.type) else array.dictionary_decode()
    kind = array.type
    if kind in _FORMS:
        return array
    if types.is_decimal(kind):
        return _decimal(array)
    if types.is_timestamp(kind):
        return _timestamp(array)
    if types.is_date(kind):
        return array.cast(pa.date32()).cast(pa.string())
    if types.is_null(kind):
        return array.cast(pa.string())
    if kind == pa.uint64():
        return array.cast(pa.string())
    target = arrow_type(data_type(kind))
    if target == pa.float32():
        target = pa.float64()  # the wire has no other
    return array.cast(target) if target in _FORMS and target != pa.string() else _other(array)


def _other(array: pa.Array) -> pa.Array:
    """Write times of day, intervals and the like as texts."""
    if pa.types.is_duration(array.type):
        per_s = _PER_SECOND[array.type.unit]
        return _texts(array.cast(pa.int64()), lambda count: day_time(count, per_s))
    if pa.types.is_interval(array.type):
        return _texts(array, lambda value: year_month(value.months))
    return array.cast(pa.string())


def _texts(array: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else write(value) for value in array.to_pylist()], pa.string())


def _decimal(array: pa.Array) -> pa.Array:
    """Write decimals with all the digits after the point that their type has."""
    scale = array.type.scale
    if 0 <= scale <= PLAIN_SCALE:
        return array.cast(pa.string())
    if scale < 0:
        return array.cast(pa.decimal256(76, 0)).cast(pa.string())
    whole = (pa.decimal256 if array.type.bit_width == 256 else pa.decimal128)(array.type.precision, 0)
    unscaled = pa.Array.from_buffers(whole, len(array), array.buffers(), offset=array.offset).cast(pa.string())
    sign = pc.if_else(pc.starts_with(unscaled, "-"), "-", "")
    digits = pc.ascii_lpad(pc.ascii_ltrim(unscaled, "-"), scale + 1, "0").cast(pa.binary())
    before, after = pc.binary_slice(digits, 0, -scale), pc.binary_slice(digits, -scale)
    return pc.binary_join_element_wise(sign, before.cast(pa.string()), ".", after.cast(pa.string()), "")


def _timestamp(array: pa.Array) -> pa.Array:
    """Write times as Spark does: in UTC, with as many digits of a second as there are."""
    text = array.cast(pa.timestamp(array.type.unit)).cast(pa.string())
    if array.type.unit == "s":
        return text
    return pc.ascii_rtrim(pc.ascii_rtrim(text, "0"), ".")


def _nested(array: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    values = _readable(array).to_pylist(maps_as_pydicts="lossy")
    return pa.array([None if value is None else write(value) for value in values], pa.string())


def _json(value: Any) -> str:
    return json.dumps(json_value(value), ensure_ascii=False, separators=(",", ":"))


def _hive_text(value: Any) -> str:
    """Write a value inside of a nested one as Hive does: like JSON, but keys of maps and decimals are no texts."""
    match value:
        case list():
            return f"[{','.join(map(_hive_text, value))}]"
        case dict():
            return f"{{{','.join(f'{_hive_text(key)}:{_hive_text(item)}' for key, item in value.items())}}}"
        case Decimal():
            return format(value, "f")
        case bytes():
            return f'"{b64encode(value).decode()}"'
        case _:
            return json.dumps(value, ensure_ascii=False)


def _readable(array: pa.Array) -> pa.Array:
    """Write what is inside of nested values as it is written outside: Python has no date past the year 9999."""
    kind = array.type
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return array
        children = [_readable(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(children, [field.name for field in kind], mask=array.is_null())
    if pa.types.is_map(kind):
        pair = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        pairs = array.cast(pa.list_(pair))
        keys, values = pairs.flatten().flatten()
        return pa.MapArray.from_arrays(_offsets(pairs), _readable(keys), _readable(values))
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        return pa.ListArray.from_arrays(_offsets(array), _readable(array.flatten()))
    return array if pa.types.is_union(kind) or pa.types.is_decimal(kind) else _plain(array)


def _offsets(array: pa.Array) -> pa.Array:
    """Return where each list begins among all elements, NULL where it is NULL, and where the last one ends."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(np.append(0, np.cumsum(lengths)), pa.int32(), mask=np.append(nulls, False))
