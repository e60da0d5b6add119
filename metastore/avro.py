"""The columns of an Avro file, from the schema in its header, under the types that Spark reads them as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastavro

from engines.protocol import Column

Schema = Any  # a name, a list (union) or a mapping, as in JSON
Named = dict[str, Schema]

_TYPES = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}
_LOGICAL_TYPES = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
_WIDENED = {frozenset(("int", "bigint")): "bigint", frozenset(("float", "double")): "double"}


class AvroUnreadable(Exception):
    """The file's header does not describe a table; the message says why, as the end of a sentence."""


def read_schema(path: Path) -> Schema:
    """Return the schema in a file's header; the names of types in it are full ones."""
    try:
        with path.open("rb") as content:
            return fastavro.reader(content).writer_schema
    except (ValueError, LookupError, EOFError, OSError) as failure:
        raise AvroUnreadable("is not a readable Avro file") from failure


def columns(schema: Schema) -> tuple[Column, ...]:
    """Return a record's fields as columns."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise AvroUnreadable("holds single values instead of records")
    return tuple(Column(name, kind) for name, kind in _fields(schema, {}, ()))


def _fields(record: Schema, named: Named, inside: tuple[str, ...]) -> list[tuple[str, str]]:
    if record["name"] in inside:
        raise AvroUnreadable(f"has a record that holds itself: {record['name']}")
    named[record["name"]] = record
    inside = (*inside, record["name"])
    return [(field["name"], _type(field["type"], named, inside)) for field in record["fields"]]


def _type(schema: Schema, named: Named, inside: tuple[str, ...]) -> str:
    if isinstance(schema, list):
        return _union([member for member in schema if member != "null"], named, inside)
    if isinstance(schema, str):
        return _TYPES[schema] if schema in _TYPES else _type(named[schema], named, inside)
    kind = schema["type"]
    if not isinstance(kind, str):
        return _type(kind, named, inside)
    if kind == "record":
        return f"struct<{','.join(f'{name}:{inner}' for name, inner in _fields(schema, named, inside))}>"
    if kind == "array":
        return f"array<{_type(schema['items'], named, inside)}>"
    if kind == "map":
        return f"map<string,{_type(schema['values'], named, inside)}>"
    if kind in ("enum", "fixed"):
        named[schema["name"]] = schema
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed") and "precision" in schema:
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    return _LOGICAL_TYPES.get((kind, schema.get("logicalType", "")), "") or _type(kind, named, inside)


def _union(members: list[Schema], named: Named, inside: tuple[str, ...]) -> str:
    """Return the type of a union beside NULL; Spark makes a struct of members that have no common type."""
    kinds = [_type(member, named, inside) for member in members]
    if len(kinds) <= 1:
        return kinds[0] if kinds else "void"
    struct = f"struct<{','.join(f'member{n}:{kind}' for n, kind in enumerate(kinds))}>"
    return _WIDENED.get(frozenset(kinds), struct)
