"""Names that columns and their nested fields had in earlier schemas of an Iceberg table, as its files may have them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.schema import Schema, index_by_id, index_name_by_id
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import ListType, MapType, StructType

from metastore.lake.place import FILES_LOOKED_AT, TablePlace, has_field_ids, require_field_ids
from metastore.lake.values import LakeUnreadable

_NAME_MAPPING = "schema.name-mapping.default"


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


def lacks_ids(table: Table, paths: Sequence[str], place: TablePlace) -> bool:
    """Return True if files have no field ids. Raises LakeUnreadable where some have, or names were changed."""
    if _NAME_MAPPING not in table.properties:
        require_field_ids(paths, place)
        return False
    with_ids = {has_field_ids(path, place) for path in paths}
    if with_ids <= {True}:
        return False
    names = dict(_mapped(json.loads(table.properties[_NAME_MAPPING])))
    fields = index_by_id(table.schema())
    renamed = [one.name for number, one in fields.items() if names.get(number, set()) - {one.name.lower()}]
    if len(with_ids) > 1 or renamed:
        raise LakeUnreadable(
            "some of its files have no field ids, and its columns were renamed or its other files have some: "
            "have its writer rewrite the files (rewrite_data_files)"
        )
    unmapped = {field.name.lower() for field in table.schema().fields if field.field_id not in names}
    for path in paths[:: 1 + len(paths) // FILES_LOOKED_AT] if unmapped else ():
        stored = unmapped.intersection(name.lower() for name in place.schema_of(path).names)
        if stored:
            raise LakeUnreadable(
                f"its files store the column {min(stored)}, which its name mapping leaves out: have its writer add it "
                f"({_NAME_MAPPING}), or rewrite the files"
            )
    return True


def _mapped(mapping: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int | None, set[str]]]:
    """Yield the names in a name mapping by field id, those of nested fields too."""
    for entry in mapping:
        yield entry.get("field-id"), {name.lower() for name in entry["names"]}
        yield from _mapped(entry.get("fields", ()))
