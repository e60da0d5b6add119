"""Types of columns: Spark's short names, which the whole gateway speaks, as HiveServer2's drivers know them."""

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
from selector.types import DriverType, Jdbc


def table_schema(schema: pa.Schema) -> TableSchema:
    """Describe the columns of a result."""
    return TableSchema(
        [
            ColumnDescription(field.name, _type(describe(spark_type(field.type))), position, "")
            for position, field in enumerate(schema, start=1)
        ]
    )


def _type(described: DriverType) -> TypeDescription:
    qualifiers = None
    if described.jdbc is Jdbc.DECIMAL:
        values = {"precision": described.size, "scale": described.scale}
        qualifiers = TypeQualifiers({name: TypeQualifierValue(number) for name, number in values.items()})
    return TypeDescription([TypeEntry(PrimitiveType(described.hs2, qualifiers))])
