"""Nested values as texts: as Hive writes them, and as JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa

from engines.arrow_leaves import is_list, list_lengths, map_parts
from gateway.presentation.values.json_values import json_value
from gateway.presentation.values.plain_columns import plain

NULL = "null"


def nested_texts(array: pa.Array, *, as_json: bool) -> list[str | None]:
    """Return the text of each value, None for NULL.

    as_json: decimals, numbers that are not finite and keys of maps are JSON's texts; else Hive's form, which has no
    quotes around these.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        heads = [f"{_quoted(field.name)}:" for field in kind]
        columns = [nested_texts(child, as_json=as_json) for child in array.flatten()]
        rows = zip(*columns, strict=True) if columns else ((),) * len(array)
        texts = [_joined("{}", (head + (text or NULL) for head, text in zip(heads, row, strict=True))) for row in rows]
        return [text if is_valid else None for text, is_valid in zip(texts, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_map(kind):
        keys, items = (nested_texts(part, as_json=as_json) for part in map_parts(array))
        if as_json:
            keys = [key if key is None or key.startswith('"') else _quoted(key) for key in keys]
        pairs = [f"{key}:{item or NULL}" for key, item in zip(keys, items, strict=True)]
        return _grouped("{}", pairs, array)
    if is_list(kind):
        return _grouped("[]", [text or NULL for text in nested_texts(array.flatten(), as_json=as_json)], array)
    column = plain(array)
    write = _writer(column.type, in_quotes=as_json or not pa.types.is_decimal(kind), as_json=as_json)
    return [None if value is None else write(value) for value in column.to_pylist()]


def _writer(kind: pa.DataType, *, in_quotes: bool, as_json: bool) -> Callable[[Any], str]:
    if pa.types.is_binary(kind):
        return lambda value: f'"{b64encode(value).decode()}"'
    if pa.types.is_string(kind):
        return _quoted if in_quotes else str
    if pa.types.is_floating(kind) and as_json:
        return lambda value: json.dumps(json_value(value))
    return json.dumps


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _joined(brackets: str, parts: Any) -> str:
    return f"{brackets[0]}{','.join(parts)}{brackets[1]}"


def _grouped(brackets: str, elements: list[str], array: pa.Array) -> list[str | None]:
    lengths = list_lengths(array).to_pylist()
    ends = accumulate((length or 0 for length in lengths), initial=0)
    return [
        None if length is None else _joined(brackets, elements[begin:end])
        for length, (begin, end) in zip(lengths, pairwise(ends), strict=True)
    ]
