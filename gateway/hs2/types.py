"""Types of columns: Spark's short names, which the whole gateway speaks, as HiveServer2's drivers know them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from gateway.hs2.messages import (
    ColumnDescription,
    PrimitiveType,
    TableSchema,
    TypeDescription,
    TypeEntry,
    TypeId,
    TypeQualifiers,
    TypeQualifierValue,
)
from metastore.inspection import spark_type

LONGEST_TEXT = 2**31 - 1
_NAME = re.compile(r"(\w+)(?:\((\d+),(\d+)\))?")


class Jdbc(IntEnum):
    """Numbers of java.sql.Types."""

    BIT = -7
    TINYINT = -6
    BIGINT = -5
    BINARY = -2
    NULL = 0
    DECIMAL = 3
    INTEGER = 4
    SMALLINT = 5
    REAL = 6  # as Hive's driver has it: FLOAT
    DOUBLE = 8
    VARCHAR = 12
    BOOLEAN = 16
    DATE = 91
    TIMESTAMP = 93
    OTHER = 1111
    JAVA_OBJECT = 2000
    STRUCT = 2002
    ARRAY = 2003


@dataclass(frozen=True, slots=True)
class Described:
    """A type of Hive's; None where something does not apply to it.

    size: digits, characters or bytes as JDBC counts them. scale: digits after the point. radix: of numbers.
    """

    type_id: TypeId
    jdbc: Jdbc
    size: int | None = None
    scale: int | None = None
    radix: int | None = None


KNOWN: Mapping[str, Described] = {
    "boolean": Described(TypeId.BOOLEAN, Jdbc.BOOLEAN, 1),
    "tinyint": Described(TypeId.TINYINT, Jdbc.TINYINT, 3, 0, 10),
    "smallint": Described(TypeId.SMALLINT, Jdbc.SMALLINT, 5, 0, 10),
    "int": Described(TypeId.INT, Jdbc.INTEGER, 10, 0, 10),
    "bigint": Described(TypeId.BIGINT, Jdbc.BIGINT, 19, 0, 10),
    "float": Described(TypeId.FLOAT, Jdbc.REAL, 7, 7, 10),
    "double": Described(TypeId.DOUBLE, Jdbc.DOUBLE, 15, 15, 10),
    "string": Described(TypeId.STRING, Jdbc.VARCHAR, LONGEST_TEXT),
    "timestamp": Described(TypeId.TIMESTAMP, Jdbc.TIMESTAMP, 29, 9),
    "timestamp_ntz": Described(TypeId.TIMESTAMP, Jdbc.TIMESTAMP, 29, 9),
    "binary": Described(TypeId.BINARY, Jdbc.BINARY, LONGEST_TEXT),
    "array": Described(TypeId.ARRAY, Jdbc.ARRAY),
    "map": Described(TypeId.MAP, Jdbc.JAVA_OBJECT),
    "struct": Described(TypeId.STRUCT, Jdbc.STRUCT),
    "decimal": Described(TypeId.DECIMAL, Jdbc.DECIMAL, 38, 18, 10),
    "date": Described(TypeId.DATE, Jdbc.DATE, 10),
    "void": Described(TypeId.NULL, Jdbc.NULL),
}


def describe(name: str) -> Described:
    """Return the type behind a Spark name such as ``decimal(10,2)``; what Hive has no type for comes as a string."""
    found = _NAME.match(name)
    known = KNOWN.get(found[1], KNOWN["string"]) if found else KNOWN["string"]
    if found and known.type_id is TypeId.DECIMAL and found[2]:
        return Described(TypeId.DECIMAL, Jdbc.DECIMAL, int(found[2]), int(found[3]), 10)
    return known


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
    if described.type_id is TypeId.DECIMAL:
        values = {"precision": described.size, "scale": described.scale}
        qualifiers = TypeQualifiers({name: TypeQualifierValue(number) for name, number in values.items()})
    return TypeDescription([TypeEntry(PrimitiveType(described.type_id, qualifiers))])
