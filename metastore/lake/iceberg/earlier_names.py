"""Names that columns and their nested fields had in earlier schemas of an Iceberg table, as its files may have them."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.schema import Schema, index_name_by_id
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import ListType, MapType, StructType


def changed_below(schemas: Iterable[Schema]) -> frozenset[int]:
    """Return the ids of columns one of whose nested fields had another name, or its name belonged to another field."""
    ids: dict[tuple[int, str], int] = {}
    names: dict[int, tuple[int, str]] = {}
    changed = set()
    for schema in schemas:
        for column in schema.fields:
            if isinstance(column.field_type, StructType | ListType | MapType):
                for number, name in index_name_by_id(Schema(column)).items():
                    place = column.field_id, name.partition(".")[2]
                    if ids.setdefault(place, number) != number or names.setdefault(number, place) != place:
                        changed.add(column.field_id)
    return frozenset(changed)


def ambiguous(metadata: TableMetadata) -> frozenset[int]:
    """Return the ids of columns whose name may be another column's in a file."""
    ids: dict[str, set[int]] = {}
    schemas = {schema.schema_id: schema for schema in metadata.schemas}
    for schema in schemas.values():
        for column in schema.fields:
            ids.setdefault(column.name.lower(), set()).add(column.field_id)
    numbers = {number for schema in schemas.values() for number in schema.field_ids}
    if schemas.keys() == set(range(len(schemas))) and len(numbers) == metadata.last_column_id:
        return frozenset(number for those in ids.values() if len(those) > 1 for number in those)
    return frozenset(numbers)  # older schemas are not known any more
