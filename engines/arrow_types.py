"""Spark's short names of types, which the whole gateway speaks, as Arrow's types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pyarrow as pa

_PLAIN: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_NESTED = re.compile(r"(array|map|struct)<(.*)>", re.DOTALL)


def arrow_type(data_type: str) -> pa.DataType:
    """Return the type that rows of a column have; what Arrow has no type for comes as text."""
    if decimal := _DECIMAL.fullmatch(data_type):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if data_type.startswith("time("):
        return pa.time64("us")
    if nested := _NESTED.fullmatch(data_type):
        return _nested(nested[1], list(_parts(nested[2])))
    return _PLAIN.get(data_type, pa.string())


def _nested(kind: str, parts: list[str]) -> pa.DataType:
    if kind == "array":
        return pa.list_(arrow_type(parts[0]))
    if kind == "map":
        return pa.map_(arrow_type(parts[0]), arrow_type(parts[1]))
    named = (part.partition(":") for part in parts)
    return pa.struct([(name.strip(), arrow_type(inner.strip())) for name, _, inner in named])


def _parts(text: str) -> Iterator[str]:
    """Cut at the commas that stand outside of all brackets."""
    depth = start = 0
    for at, sign in enumerate(text):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()
