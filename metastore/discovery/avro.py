"""The columns of an Avro file, from the schema in its header, under the types that Spark reads them as."""

from __future__ import annotations

from typing import Any, BinaryIO

import fastavro
from fastavro.schema import SchemaParseException

from selector.types import BY_AVRO, DataType, InvalidType, Kind, array, decimal, map_of, struct
from sql.tables import Column, require_column_count

Schema = Any  # a name, a list (union) or a mapping, as in JSON
Named = dict[str, Schema]

_WIDENED = {
    frozenset((Kind.INT, Kind.BIGINT)): DataType(Kind.BIGINT),
    frozenset((Kind.FLOAT, Kind.DOUBLE)): DataType(Kind.DOUBLE),
}
_BROKEN = (ValueError, LookupError, TypeError, AttributeError, EOFError, RecursionError, SchemaParseException)


class AvroUnreadable(Exception):
    """The file's header does not describe a table; the message says why, as the end of a sentence."""


def read_schema(content: BinaryIO) -> Schema:
    """Return the schema in a file's header; the names of types in it are full ones."""
    try:
        return fastavro.reader(content).writer_schema
    except (*_BROKEN, OSError) as failure:
        raise AvroUnreadable("is not a readable Avro file") from failure


def columns(schema: Schema) -> tuple[Column, ...]:
    """Return a record's fields as columns. Raises AvroUnreadable, InvalidTable."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise AvroUnreadable("holds single values instead of records")
    require_column_count(len(schema.get("fields", ())))
    try:
        fields = _fields(schema, {}, ())
    except InvalidType as failure:
        raise AvroUnreadable(f"has an invalid type: {failure.message}") from failure
    except _BROKEN as failure:
        raise AvroUnreadable("has no readable schema") from failure
    return tuple(Column(name, str(kind)) for name, kind in fields)


def _fields(record: Schema, named: Named, inside: tuple[str, ...]) -> list[tuple[str, DataType]]:
    if record["name"] in inside:
        raise AvroUnreadable(f"has a record that holds itself: {record['name']}")
    named[record["name"]] = record
    inside = (*inside, record["name"])
    return [(field["name"], _type(field["type"], named, inside)) for field in record["fields"]]


def _type(schema: Schema, named: Named, inside: tuple[str, ...]) -> DataType:
    if isinstance(schema, list):
        return _union([member for member in schema if member != "null"], named, inside)
    if isinstance(schema, str):
        return DataType(BY_AVRO[schema]) if schema in BY_AVRO else _type(named[schema], named, inside)
    kind = schema["type"]
    if not isinstance(kind, str):
        return _type(kind, named, inside)
    if kind == "record":
        return struct(_fields(schema, named, inside))
    if kind == "array":
        return array(_type(schema["items"], named, inside))
    if kind == "map":
        return map_of(DataType(Kind.STRING), _type(schema["values"], named, inside))
    if kind in ("enum", "fixed"):
        named[schema["name"]] = schema
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed") and "precision" in schema:
        return decimal(int(schema["precision"]), int(schema.get("scale", 0)))
    logical = BY_AVRO.get(f"{kind} {schema.get('logicalType')}")
    return DataType(logical) if logical else _type(kind, named, inside)


def _union(members: list[Schema], named: Named, inside: tuple[str, ...]) -> DataType:
    """Return the type of a union beside NULL; Spark makes a struct of members that have no common type."""
    kinds = [_type(member, named, inside) for member in members]
    if len(kinds) <= 1:
        return kinds[0] if kinds else DataType(Kind.VOID)
    return _WIDENED.get(frozenset(kind.kind for kind in kinds)) or struct(
        (f"member{number}", kind) for number, kind in enumerate(kinds)
    )
