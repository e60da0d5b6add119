"""Values as JSON can carry them exactly, for every interface that writes JSON."""

from __future__ import annotations

import base64
import math
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engines.arrow_leaves import is_list, list_lengths, map_parts
from gateway.presentation.values.plain_columns import moment_texts, plain


def json_value(value: Any) -> Any:
    """Return a value of Python's as JSON can carry it exactly."""
    match value:
        case float():
            return _json_number(value)
        case Decimal():
            return format(value, "f")
        case list() | tuple():
            return [json_value(item) for item in value]
        case dict():
            return {str(key): json_value(item) for key, item in value.items()}
        case _:
            return value


def json_column(array: pa.Array) -> list[Any]:
    """Return the values of a column of rows as JSON can carry them exactly.

    Decimals, dates, times and intervals are texts; binary values are base64. A map is a list of its pairs, as is a
    struct with two fields of one name.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_map(kind):
        return _grouped(_pairs(zip(*map(json_column, map_parts(array)), strict=True)), array)
    if is_list(kind):
        return _grouped(json_column(array.flatten()), array)
    column = plain(array, _iso_moments)
    values: list[Any] = column.to_pylist()
    if pa.types.is_binary(column.type):
        return [None if value is None else base64.b64encode(value).decode() for value in values]
    if pa.types.is_floating(column.type):
        return [None if value is None else _json_number(value) for value in values]
    return values


def _structs(array: pa.StructArray) -> list[Any]:
    names = [field.name for field in array.type]
    columns = [json_column(child) for child in array.flatten()]
    rows = zip(*columns, strict=True) if columns else ((),) * len(array)
    make = dict if len(set(names)) == len(names) else _pairs
    valid_rows = zip(rows, array.is_valid().to_pylist(), strict=True)
    return [make(zip(names, row, strict=True)) if is_valid else None for row, is_valid in valid_rows]


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")


def _pairs(pairs: Any) -> list[list[Any]]:
    return [list(pair) for pair in pairs]


def _grouped(elements: list[Any], array: pa.Array) -> list[list[Any] | None]:
    """Return the elements of all lists of a column as one Python list for each; NULL is None."""
    lengths = list_lengths(array).to_pylist()
    ends = accumulate(length or 0 for length in lengths)
    return [None if size is None else elements[end - size : end] for size, end in zip(lengths, ends, strict=True)]


def _iso_moments(array: pa.Array) -> pa.Array:
    """Write dates and times as ISO 8601 has it, with a blank before the time of day, in UTC: ``+00:00``."""
    texts = moment_texts(array)
    if pa.types.is_date(array.type):
        return texts
    texts = pc.replace_substring_regex(texts, r"\.0+$", "")
    zoned = pa.types.is_timestamp(array.type) and array.type.tz is not None
    return pc.binary_join_element_wise(texts, "+00:00", "") if zoned else texts
