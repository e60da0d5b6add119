"""Nested Arrow arrays, rebuilt with every leaf converted by a function; and text as valid UTF-8.

Arrow has no kernel that converts values inside of a map, or values that their Python type cannot hold. START HERE:
``with_leaves``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Convert = Callable[[pa.Array], pa.Array]


def with_leaves(array: pa.Array, convert: Convert, *, named: pa.DataType | None = None) -> pa.Array:
    """Return the same nesting with converted leaves.

    named: a type of this nesting with the names of the result's fields; None: the array's names.
    """
    kind = array.type
    fields = named or kind
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            return array
        children = [
            with_leaves(child, convert, named=field.type) for child, field in zip(array.flatten(), fields, strict=True)
        ]
        typed = [field.with_type(child.type) for field, child in zip(fields, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=typed, mask=array.is_null())
    if pa.types.is_map(kind):
        parts = zip(map_parts(array), (fields.key_field, fields.item_field), strict=True)
        typed, children = [], []
        for part, field in parts:
            children.append(with_leaves(part, convert, named=field.type))
            typed.append(field.with_type(children[-1].type))
        return pa.MapArray.from_arrays(list_offsets(array), *children, type=pa.map_(*typed))
    if is_list(kind):
        values = with_leaves(array.flatten(), convert, named=fields.value_type)
        return pa.ListArray.from_arrays(
            list_offsets(array), values, type=pa.list_(fields.value_field.with_type(values.type))
        )
    return convert(array)


def is_list(kind: pa.DataType) -> bool:
    """Return True for a list of any layout."""
    types = pa.types
    return bool(types.is_nested(kind) and not (types.is_struct(kind) or types.is_map(kind) or types.is_union(kind)))


def map_parts(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """Return all keys and all values of a column of maps, without those of NULL maps."""
    offsets = array.offsets.to_numpy()
    begin, end = int(offsets[0]), int(offsets[-1])
    parts = [part.slice(begin, end - begin) for part in (array.keys, array.items)]
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    lengths = np.diff(offsets)
    if lengths[is_null].any():
        parts = [part.filter(pa.array(np.repeat(~is_null, lengths))) for part in parts]
    return parts[0], parts[1]


def list_lengths(array: pa.Array) -> pa.Array:
    """Return the number of elements of each list or map; NULL for NULL."""
    if not pa.types.is_map(array.type):
        return pc.list_value_length(array)
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(np.diff(array.offsets.to_numpy()), pa.int32(), mask=is_null)


def list_offsets(array: pa.Array) -> pa.Array:
    """Return the offset of each list or map among all elements, NULL for NULL, and the end of the last one."""
    lengths = list_lengths(array).fill_null(0).to_numpy(zero_copy_only=False)
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(np.append(0, np.cumsum(lengths)), pa.int32(), mask=np.append(nulls, False))


def with_valid_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with valid UTF-8: invalid bytes become U+FFFD, as by Spark's make_valid_utf8."""
    invalid = [number for number, column in enumerate(batch.columns) if _has_invalid_text(column)]
    for number in invalid:
        column = with_leaves(batch.column(number), _decoded)
        batch = batch.set_column(number, batch.schema.field(number), column)
    return batch


def _has_invalid_text(array: pa.Array) -> bool:
    if not _has_text(array.type):
        return False
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return True
    return False


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


@lru_cache(1_024)
def _has_text(kind: pa.DataType) -> bool:
    return _is_text(kind) or any(_has_text(kind.field(place).type) for place in range(kind.num_fields))


def _decoded(array: pa.Array) -> pa.Array:
    if not _is_text(array.type):
        return array
    texts = [
        None if value is None else value.decode(errors="replace") for value in array.cast(pa.large_binary()).to_pylist()
    ]
    return pa.array(texts, array.type)
