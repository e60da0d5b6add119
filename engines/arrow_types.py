"""Types as Arrow's, and Arrow's as types: the selector, where types are defined, knows no Arrow."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from selector.types import MAX_PRECISION, DataType, Kind, array, decimal, map_of, struct

_PLAIN: Mapping[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.TINYINT: pa.int8(),
    Kind.SMALLINT: pa.int16(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.BINARY: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time64("us"),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.TIMESTAMP_NTZ: pa.timestamp("us"),
    Kind.VOID: pa.null(),
}
_KINDS: Mapping[pa.DataType, Kind] = {
    **{arrow: kind for kind, arrow in _PLAIN.items() if kind not in (Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)},
    pa.uint8(): Kind.SMALLINT,
    pa.uint16(): Kind.INT,
    pa.uint32(): Kind.BIGINT,
    pa.float16(): Kind.FLOAT,
    pa.date64(): Kind.DATE,
}


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the type that rows of a column have; what Arrow has no type for comes as text."""
    parts = [field.type for field in data_type.fields]
    match data_type.kind:
        case Kind.DECIMAL:
            return pa.decimal128(data_type.precision, data_type.scale)
        case Kind.ARRAY:
            return pa.list_(arrow_type(parts[0]))
        case Kind.MAP:
            return pa.map_(arrow_type(parts[0]), arrow_type(parts[1]))
        case Kind.STRUCT:
            return pa.struct([(field.name, arrow_type(field.type)) for field in data_type.fields])
    return _PLAIN.get(data_type.kind, pa.string())


def data_type(arrow: pa.DataType) -> DataType:
    """Return the type that Spark reads an Arrow type as."""
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


def spark_type(arrow: pa.DataType) -> str:
    """Return the short name of the type that Spark reads an Arrow type as."""
    return str(data_type(arrow))


def stored_type(arrow: pa.DataType) -> str:
    """Return the short name of the type that Spark reads a column of a file as: durations are numbers there."""
    return str(Kind.BIGINT) if pa.types.is_duration(arrow) else spark_type(arrow)
