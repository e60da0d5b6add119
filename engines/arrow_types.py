"""Conversion between Arrow's types and those of the selector, which does not import Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import pyarrow as pa

from selector.types import MAX_PRECISION, DataType, Kind, array, decimal, map_of, struct

COLLATION = "collation"
"""Key of the metadata of a result's column: the collation of its text."""

_ZONE = ", tz="


def _named(name: str) -> pa.DataType | None:
    """Return the type that Arrow prints under a name; None: it needs parts or digits that the name lacks."""
    begin, zoned, rest = name.removesuffix("]").partition(_ZONE)
    if zoned:
        return pa.timestamp(begin.rpartition("[")[2], tz=rest)
    return None if name in _MADE else pa.type_for_alias(name)


_MADE: Mapping[str, Callable[[DataType, Sequence[pa.DataType]], pa.DataType]] = {
    "decimal128": lambda whole, _: pa.decimal128(whole.precision, whole.scale),
    "list": lambda _, parts: pa.list_(parts[0]),
    "map": lambda _, parts: pa.map_(*parts),
    "struct": lambda whole, parts: pa.struct(
        [(field.name, part) for field, part in zip(whole.fields, parts, strict=True)]
    ),
}
_PLAIN: Mapping[Kind, pa.DataType] = {kind: named for kind in Kind if (named := _named(kind.row.arrow)) is not None}
_KINDS: Mapping[pa.DataType, Kind] = {
    **{_PLAIN[kind]: kind for kind in reversed(Kind) if kind in _PLAIN},
    **{_named(name): kind for kind in Kind for name in kind.row.arrow_too},
}
"""Of several kinds with the same type, the first one."""


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type of a column's rows; text if Arrow has no such type."""
    plain = _PLAIN.get(data_type.kind)
    if plain is not None:
        return plain
    return _MADE[data_type.kind.row.arrow](data_type, [arrow_type(field.type) for field in data_type.fields])


def data_type(arrow: pa.DataType) -> DataType:
    """Return the type as which Spark reads an Arrow type."""
    types = pa.types
    if isinstance(arrow, pa.BaseExtensionType):
        return data_type(arrow.storage_type)
    if types.is_dictionary(arrow) or types.is_run_end_encoded(arrow):
        return data_type(arrow.value_type)
    if types.is_struct(arrow):
        return struct((field.name, data_type(field.type)) for field in arrow)
    if types.is_map(arrow):
        return map_of(data_type(arrow.key_type), data_type(arrow.item_type))
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return array(data_type(arrow.value_type))
    if types.is_uint64(arrow):
        return decimal(20)
    if types.is_decimal(arrow) and arrow.precision <= MAX_PRECISION:  # no engine has wider ones
        return DataType(Kind.DECIMAL, arrow.precision, arrow.scale)
    if types.is_timestamp(arrow):
        return DataType(Kind.TIMESTAMP if arrow.tz else Kind.TIMESTAMP_NTZ)
    if types.is_time(arrow):
        return DataType(Kind.TIME, 6)
    if (
        types.is_decimal(arrow)
        or types.is_binary(arrow)
        or types.is_large_binary(arrow)
        or types.is_fixed_size_binary(arrow)
        or types.is_binary_view(arrow)
    ):
        return DataType(Kind.BINARY)
    return DataType(_KINDS.get(arrow, Kind.STRING))


@lru_cache(1_024)
def spark_type(arrow: pa.DataType) -> str:
    """Return the short name of the type as which Spark reads an Arrow type."""
    return str(data_type(arrow))


def declared_type(column: pa.Field) -> str:
    """Return the type of a table's column that is created from a column of a query's result."""
    collation = (column.metadata or {}).get(COLLATION.encode())
    return spark_type(column.type) + (f" collate {collation.decode()}" if collation else "")


def stored_type(arrow: pa.DataType) -> str:
    """Return the short name of the type as which Spark reads a column of a file: durations are numbers there."""
    return str(Kind.BIGINT) if pa.types.is_duration(arrow) else spark_type(arrow)
