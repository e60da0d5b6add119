"""Types of columns for HiveServer2's drivers, from Spark's short names."""

from __future__ import annotations

import pyarrow as pa

from engines.arrow_types import spark_type
from gateway.drivers.hs2.protocol.messages import (
    ColumnDescription,
    PrimitiveType,
    TableSchema,
    TypeDescription,
    TypeEntry,
    TypeQualifiers,
    TypeQualifierValue,
)
from gateway.drivers.jdbc import describe
from selector.types import DriverType, Jdbc, Kind

INTERVALS_VERSION = 7  # V8 of the protocol, the first one with intervals; older ones get texts
YEAR_MONTH, DAY_TIME = 20, 21  # of TTypeId


def table_schema(schema: pa.Schema, version: int, *, nested_as_texts: bool) -> TableSchema:
    """Describe the columns of a result. version: of the protocol.

    nested_as_texts: declare arrays, maps and structs as texts, in which form they are sent.
    """
    return TableSchema(
        [
            ColumnDescription(field.name, _of_arrow(field.type, version, nested_as_texts), position, "")
            for position, field in enumerate(schema, start=1)
        ]
    )


def _of_arrow(kind: pa.DataType, version: int, nested_as_texts: bool) -> TypeDescription:
    if version >= INTERVALS_VERSION and (pa.types.is_duration(kind) or pa.types.is_interval(kind)):
        number = DAY_TIME if pa.types.is_duration(kind) else YEAR_MONTH
        return TypeDescription([TypeEntry(PrimitiveType(number))])
    is_text = nested_as_texts and pa.types.is_nested(kind)
    return _type(describe(Kind.STRING if is_text else spark_type(kind)))


def _type(described: DriverType) -> TypeDescription:
    qualifiers = None
    if described.jdbc is Jdbc.DECIMAL:
        values = {"precision": described.size, "scale": described.scale}
        qualifiers = TypeQualifiers({name: TypeQualifierValue(number) for name, number in values.items()})
    return TypeDescription([TypeEntry(PrimitiveType(described.hs2, qualifiers))])
