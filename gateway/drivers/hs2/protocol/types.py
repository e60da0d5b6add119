"""Types of columns: Spark's short names, which the whole gateway speaks, as HiveServer2's drivers know them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from engines.arrow_types import spark_type
from gateway.drivers.hs2.protocol.messages import (
    ColumnDescription,
    PrimitiveType,
    TableSchema,
    TypeDescription,
    TypeEntry,
    TypeId,
    TypeQualifiers,
    TypeQualifierValue,
)
from gateway.drivers.jdbc import Described, Jdbc, describe

TYPE_IDS: Mapping[Jdbc, TypeId] = {
    Jdbc.BOOLEAN: TypeId.BOOLEAN,
    Jdbc.TINYINT: TypeId.TINYINT,
    Jdbc.SMALLINT: TypeId.SMALLINT,
    Jdbc.INTEGER: TypeId.INT,
    Jdbc.BIGINT: TypeId.BIGINT,
    Jdbc.REAL: TypeId.FLOAT,
    Jdbc.DOUBLE: TypeId.DOUBLE,
    Jdbc.VARCHAR: TypeId.STRING,
    Jdbc.TIMESTAMP: TypeId.TIMESTAMP,
    Jdbc.BINARY: TypeId.BINARY,
    Jdbc.ARRAY: TypeId.ARRAY,
    Jdbc.JAVA_OBJECT: TypeId.MAP,
    Jdbc.STRUCT: TypeId.STRUCT,
    Jdbc.DECIMAL: TypeId.DECIMAL,
    Jdbc.DATE: TypeId.DATE,
    Jdbc.NULL: TypeId.NULL,
}


def table_schema(schema: pa.Schema) -> TableSchema:
    """Describe the columns of a result."""
    return TableSchema(
        [
            ColumnDescription(field.name, _type(describe(spark_type(field.type))), position, "")
            for position, field in enumerate(schema, start=1)
        ]
    )


def _type(described: Described) -> TypeDescription:
    qualifiers = None
    if described.jdbc is Jdbc.DECIMAL:
        values = {"precision": described.size, "scale": described.scale}
        qualifiers = TypeQualifiers({name: TypeQualifierValue(number) for name, number in values.items()})
    return TypeDescription([TypeEntry(PrimitiveType(TYPE_IDS[described.jdbc], qualifiers))])
