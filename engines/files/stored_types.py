"""Types of columns in Parquet and ORC files, and the types as which Spark reads them without a loss."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from engines.arrow_types import data_type, stored_type
from selector.types import DataType, Field, Group, InvalidType, Kind, array, map_of, parse, struct

_SPARKS_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_INTERVAL = "an interval"
_UNREADABLE = {
    "FLOAT16": "a FLOAT16",
    "INTERVAL": _INTERVAL,
    "GEOMETRY": "a GEOMETRY",
    "GEOGRAPHY": "a GEOGRAPHY",
}  # logical and converted types
_WHOLE = tuple(kind for kind in Kind if kind.row.group is Group.WHOLE)  # from the narrowest to the widest
_TEXTS = frozenset(kind for kind in Kind if kind.row.group in (Group.TEXT, Group.BINARY))
_MOMENTS = frozenset(kind for kind in Kind if kind.row.group is Group.MOMENT)
_TYPES_REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of one file.

    data_type: as Spark reads it.
    unreadable: type of its values that Spark cannot read; "": it can read all.
    is_unsigned: an unsigned number, which Spark does not widen to a decimal.
    field_id: by which lake tables find it; None: the file has none.
    """

    name: str
    data_type: str
    unreadable: str = ""
    is_unsigned: bool = False
    field_id: int | None = None

    def fits(self, declared: str) -> bool:
        """Return True if Spark reads it as the declared type without changing a value."""
        if self.unreadable or not fits(self.data_type, declared):
            return False
        return not self.is_unsigned or declared == self.data_type or parse(declared).kind is not Kind.DECIMAL


class StoredColumns:
    """Columns of files that are read one after the other: the same object while a file is like the one before."""

    def __init__(self) -> None:
        self._schema: Any = None
        self._note: bytes | None = None
        self._columns: tuple[StoredColumn, ...] = ()

    def parquet(self, footer: Any) -> tuple[StoredColumn, ...]:
        """Return the columns of a Parquet file. footer: pyarrow's FileMetaData."""
        note = (footer.metadata or {}).get(_SPARKS_SCHEMA)
        if self._is_another(footer.schema, note):
            self._columns = tuple(_parquet_columns(footer.schema, note))
        return self._columns

    def orc(self, schema: pa.Schema) -> tuple[StoredColumn, ...]:
        """Return the columns of an ORC file, whose times Spark reads as instants."""
        if self._is_another(schema, None):
            self._columns = tuple(StoredColumn(field.name, str(_with_zone(data_type(field.type)))) for field in schema)
        return self._columns

    def _is_another(self, schema: Any, note: bytes | None) -> bool:
        same = self._schema is not None and note == self._note and schema.equals(self._schema)
        self._schema, self._note = schema, note
        return not same


@lru_cache(_TYPES_REMEMBERED)
def fits(stored: str, declared: str) -> bool:
    """Return True if Spark 4.3 reads a stored column as the declared type without changing a value.

    Its Parquet reader also reads an INT as a SMALLINT, and numbers as dates, with other values
    (``ParquetVectorUpdaterFactory``).
    """
    return stored == declared or _fits(parse(stored), parse(declared))


@lru_cache(_TYPES_REMEMBERED)
def holds_floats(declared: str) -> bool:
    """Return True if a type is or contains FLOAT or DOUBLE, whose values may be NaN and -0.0."""
    return _holds_floats(parse(declared))


def _holds_floats(whole: DataType) -> bool:
    return whole.kind.row.group is Group.FLOATING or any(_holds_floats(field.type) for field in whole.fields)


@lru_cache(_TYPES_REMEMBERED)
def texts_and_bytes(declared: str) -> frozenset[Kind]:
    """Return which of STRING and BINARY a type is or contains; all texts count as STRING."""
    return _texts_and_bytes(parse(declared))


def _texts_and_bytes(whole: DataType) -> frozenset[Kind]:
    own = Kind.STRING if whole.kind.row.group is Group.TEXT else whole.kind
    below = (_texts_and_bytes(field.type) for field in whole.fields)
    return frozenset({own} & {Kind.STRING, Kind.BINARY}).union(*below)


def _fits(stored: DataType, declared: DataType) -> bool:
    one, other = stored.kind, declared.kind
    if one is other and stored.is_nested:
        return _fields_fit(stored, declared)
    if one is Kind.VOID:
        return other is Kind.VOID or other in (*_WHOLE, Kind.DOUBLE, Kind.DATE)
    if one in _TEXTS and other in _TEXTS:
        return True
    if one in _MOMENTS and other in _MOMENTS:
        return True
    if one in _WHOLE:
        digits = (Kind.BIGINT if one is Kind.BIGINT else Kind.INT).row.digits or 0  # as a file stores them
        return (
            (other in _WHOLE and _WHOLE.index(other) >= _WHOLE.index(one))
            or (other is Kind.DOUBLE and one is not Kind.BIGINT)
            or (other is Kind.DECIMAL and _whole_digits(declared) >= digits)
        )
    if one is Kind.DECIMAL and other is Kind.DECIMAL:
        return (declared.scale or 0) >= (stored.scale or 0) and _whole_digits(declared) >= _whole_digits(stored)
    if one is Kind.TIME and other is Kind.TIME:
        return True
    return (one, other) in ((Kind.FLOAT, Kind.DOUBLE), (Kind.DATE, Kind.TIMESTAMP_NTZ)) or stored == declared


def _fields_fit(stored: DataType, declared: DataType) -> bool:
    if stored.kind is Kind.STRUCT:  # by name; one that a file lacks is NULL
        types = {field.name.lower(): field.type for field in stored.fields}
        pairs = [(types.get(field.name.lower()), field.type) for field in declared.fields]
        return any(one for one, _ in pairs) and all(one is None or _fits(one, other) for one, other in pairs)
    return all(_fits(one.type, other.type) for one, other in zip(stored.fields, declared.fields, strict=True))


def _whole_digits(decimal: DataType) -> int:
    return (decimal.precision or 0) - (decimal.scale or 0)


def _parquet_columns(schema: Any, note: bytes | None) -> Iterator[StoredColumn]:
    """Yield the columns of a file. note: Spark's own schema; None: another program wrote the file."""
    by_spark = _types_by_spark(note)
    is_annotated = "(Variant(" in str(schema)
    place = 0
    for field in schema.to_arrow_schema():
        leaves = [schema.column(place + at) for at in range(_leaf_count(field.type))]
        place += len(leaves)
        written = by_spark.get(field.name)
        names = frozenset(_plain_types(written))
        stored = stored_type(field.type)
        if any(name.startswith("interval") for name in names):
            yield StoredColumn(field.name, stored, _INTERVAL)
        elif _has_variant(field.type) and (is_annotated or Kind.VARIANT in names):
            yield _variant(field, written)
        else:
            if any(leaf.physical_type == "INT96" for leaf in leaves):  # an instant, but Arrow's type has no zone
                stored = str(_with_zone(parse(stored)))
            problem = next(filter(None, map(_unreadable, leaves)), "")
            is_unsigned = pa.types.is_unsigned_integer(field.type)
            yield StoredColumn(field.name, stored, problem, is_unsigned, _field_id(field))


def _field_id(field: pa.Field) -> int | None:
    number = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if number is None else int(number)


def _leaf_count(arrow: pa.DataType) -> int:
    if isinstance(arrow, pa.BaseExtensionType):
        return _leaf_count(arrow.storage_type)
    if pa.types.is_dictionary(arrow) or not pa.types.is_nested(arrow):
        return 1
    return sum(_leaf_count(arrow.field(at).type) for at in range(arrow.num_fields))


def _unreadable(leaf: Any) -> str:
    """Return the type of a leaf that Spark 4.3 cannot read; "": it can."""
    logical = leaf.logical_type
    if leaf.converted_type in _UNREADABLE or logical.type in _UNREADABLE:
        return _UNREADABLE.get(logical.type) or _UNREADABLE[leaf.converted_type]
    if logical.type == "DECIMAL" and leaf.precision > 38:
        return f"a DECIMAL of {leaf.precision} digits"
    if logical.type in ("TIME", "TIMESTAMP"):
        unit = json.loads(logical.to_json())["timeUnit"]
        if logical.type == "TIMESTAMP" and unit == "nanoseconds":
            return "a TIMESTAMP in nanoseconds"
        if logical.type == "TIME" and unit == "milliseconds":
            return "a TIME in milliseconds"
    return ""


def _with_zone(whole: DataType) -> DataType:
    if whole.kind is Kind.TIMESTAMP_NTZ:
        return DataType(Kind.TIMESTAMP)
    return replace(whole, fields=tuple(Field(field.name, _with_zone(field.type)) for field in whole.fields))


def _variant(field: pa.Field, written: Any) -> StoredColumn:
    if _is_variant(field.type):
        return StoredColumn(field.name, str(Kind.VARIANT))
    try:
        return StoredColumn(field.name, str(_written(written)))
    except (InvalidType, LookupError, TypeError):  # only Spark's own schema has the place of a variant within a column
        return StoredColumn(field.name, stored_type(field.type), "a VARIANT within another type")


def _has_variant(arrow: pa.DataType) -> bool:
    return _is_variant(arrow) or any(_has_variant(field.type) for field in _parts(arrow))


def _is_variant(arrow: pa.DataType) -> bool:
    """Return True if a type has the form of a variant; its name in the file's schema makes it one."""
    if not pa.types.is_struct(arrow):
        return False
    types = {field.name: field.type for field in arrow}
    needed = [types.get(name) for name in ("metadata", "value")]
    return types.keys() <= {"metadata", "value", "typed_value"} and all(kind == pa.binary() for kind in needed)


def _parts(arrow: pa.DataType) -> Iterator[pa.Field]:
    if pa.types.is_nested(arrow) and not pa.types.is_dictionary(arrow):
        yield from (arrow.field(at) for at in range(arrow.num_fields))


def _types_by_spark(note: bytes | None) -> Mapping[str, Any]:
    """Return the types of the columns, as JSON, from Spark's note in a file; empty for files of other programs."""
    try:
        return {field["name"]: field["type"] for field in json.loads(note or b"{}")["fields"]}
    except (ValueError, LookupError, TypeError, RecursionError):  # Spark ignores a broken note, too
        return {}


def _plain_types(written: Any) -> Iterator[str]:
    """Yield the names of the types inside a type of Spark's JSON that are not nested themselves."""
    waiting = [written]
    while waiting:
        match waiting.pop():
            case str(name):
                yield name
            case {"type": "struct", "fields": list(fields)}:
                waiting.extend(field.get("type") for field in fields if isinstance(field, dict))
            case {"type": _, **parts}:
                waiting.extend(parts.get(part) for part in ("elementType", "keyType", "valueType", "sqlType"))


def _written(spark_json: Any) -> DataType:
    if isinstance(spark_json, str):
        return parse(spark_json)
    match spark_json["type"]:
        case "struct":
            return struct((field["name"], _written(field["type"])) for field in spark_json["fields"])
        case "array":
            return array(_written(spark_json["elementType"]))
        case "map":
            return map_of(_written(spark_json["keyType"]), _written(spark_json["valueType"]))
    return _written(spark_json["sqlType"])  # of a user-defined type


def first_misfit(stored: Sequence[StoredColumn], declared: Mapping[str, str]) -> StoredColumn | None:
    """Return the first column of a file that Spark cannot read as declared; None: all fit.

    declared: types by the columns' names in lower case, without those of partition folders.
    """
    for column in stored:
        wanted = declared.get(column.name.lower())
        if wanted is not None and not column.fits(wanted):
            return column
    return None
