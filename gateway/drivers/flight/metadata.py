"""The catalog as the tables that Flight SQL defines for it: names, types and order of columns are prescribed.

There are no catalogs, as over HiveServer2. In patterns, ``%`` is any text and ``_`` any character.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from engines.arrow_types import arrow_type
from gateway.catalog.snapshot import Relation, RelationKind
from gateway.drivers.jdbc import DRIVER_TYPES, describe, matcher, matching
from gateway.statistics.tables import rows_of
from selector.types import Jdbc
from sql.tables import Column

NO_CATALOG = None  # Flight SQL's value for objects without a catalog
NULLABLE, SEARCHABLE, SEARCHABLE_WITHOUT_LIKE = 1, 3, 2  # Flight SQL's numbers
_DATETIME = 9  # type of all dates and times, whose subcode tells which one

_TEXT, _INT, _BOOL, _BYTE = pa.string(), pa.int32(), pa.bool_(), pa.uint8()


def _schema(*fields: tuple[str, pa.DataType] | tuple[str, pa.DataType, bool]) -> pa.Schema:
    return pa.schema([pa.field(*field) for field in fields])


CATALOGS = _schema(("catalog_name", _TEXT, False))
SCHEMAS = _schema(("catalog_name", _TEXT), ("db_schema_name", _TEXT, False))
TABLE_TYPES = _schema(("table_type", _TEXT, False))
TABLES = _schema(
    ("catalog_name", _TEXT), ("db_schema_name", _TEXT), ("table_name", _TEXT, False), ("table_type", _TEXT, False)
)
TABLES_WITH_SCHEMA = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
PRIMARY_KEYS = _schema(
    ("catalog_name", _TEXT),
    ("db_schema_name", _TEXT),
    ("table_name", _TEXT, False),
    ("column_name", _TEXT, False),
    ("key_name", _TEXT),
    ("key_sequence", _INT, False),
)
FOREIGN_KEYS = _schema(
    *(
        field
        for side in ("pk", "fk")
        for field in (
            (f"{side}_catalog_name", _TEXT),
            (f"{side}_db_schema_name", _TEXT),
            (f"{side}_table_name", _TEXT, False),
            (f"{side}_column_name", _TEXT, False),
        )
    ),
    ("key_sequence", _INT, False),
    ("fk_key_name", _TEXT),
    ("pk_key_name", _TEXT),
    ("update_rule", _BYTE, False),
    ("delete_rule", _BYTE, False),
)
TYPE_INFO = _schema(
    ("type_name", _TEXT, False),
    ("data_type", _INT, False),
    ("column_size", _INT),
    ("literal_prefix", _TEXT),
    ("literal_suffix", _TEXT),
    ("create_params", pa.list_(pa.field("item", _TEXT, nullable=False))),
    ("nullable", _INT, False),
    ("case_sensitive", _BOOL, False),
    ("searchable", _INT, False),
    ("unsigned_attribute", _BOOL),
    ("fixed_prec_scale", _BOOL, False),
    ("auto_increment", _BOOL),
    ("local_type_name", _TEXT),
    ("minimum_scale", _INT),
    ("maximum_scale", _INT),
    ("sql_data_type", _INT, False),
    ("datetime_subcode", _INT),
    ("num_prec_radix", _INT),
    ("interval_precision", _INT),
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about the catalog. answer: returns rows from the databases, and the tables and views."""

    schema: pa.Schema
    """Columns of the answer."""
    answer: Callable[[Iterable[str], Iterable[Relation]], pa.Table]


def question(name: str, request: Any) -> Question | None:
    """Return the question in a message of Flight SQL; None: it is not about the catalog."""
    match name:
        case "CommandGetCatalogs":
            return Question(CATALOGS, lambda *_: CATALOGS.empty_table())
        case "CommandGetDbSchemas":
            return Question(SCHEMAS, lambda databases, _: _schemas(request, databases))
        case "CommandGetTables":
            schema = TABLES_WITH_SCHEMA if request.include_schema else TABLES
            return Question(schema, lambda _, relations: _tables(request, relations, schema))
        case "CommandGetTableTypes":
            return Question(TABLE_TYPES, lambda *_: rows_of(TABLE_TYPES, [[kind] for kind in RelationKind]))
        case "CommandGetPrimaryKeys":
            return Question(PRIMARY_KEYS, lambda *_: PRIMARY_KEYS.empty_table())  # files have no keys
        case "CommandGetExportedKeys" | "CommandGetImportedKeys" | "CommandGetCrossReference":
            return Question(FOREIGN_KEYS, lambda *_: FOREIGN_KEYS.empty_table())
        case "CommandGetXdbcTypeInfo":
            return Question(TYPE_INFO, lambda *_: _type_info(request))
    return None


def table_schema(table: Relation) -> pa.Schema:
    """Return the columns of a table or view, with the metadata that JDBC expects."""
    return pa.schema(
        [pa.field(column.name, arrow_type(column.type), metadata=_metadata(table, column)) for column in table.columns]
    )


def _metadata(table: Relation, column: Column) -> dict[str, str]:
    kind = describe(column.declared_type)
    metadata = {
        "DB_SCHEMA_NAME": table.database,
        "TABLE_NAME": table.name,
        "TYPE_NAME": column.declared_type.upper(),
        "PRECISION": kind.size,
        "SCALE": kind.scale,
        "IS_AUTO_INCREMENT": 0,
        "IS_CASE_SENSITIVE": int(kind.is_text),
        "IS_READ_ONLY": 0,
        "IS_SEARCHABLE": 1,
        "REMARKS": table.annotations.columns.get(column.name),
    }
    return {f"ARROW:FLIGHT:SQL:{name}": str(value) for name, value in metadata.items() if value is not None}


def _schemas(request: Any, databases: Iterable[str]) -> pa.Table:
    named = matcher(_pattern(request, "db_schema_filter_pattern"))
    names = [name for name in databases if named.fullmatch(name)] if _has_no_catalog(request) else []
    return rows_of(SCHEMAS, [[NO_CATALOG, name] for name in names])


def _tables(request: Any, relations: Iterable[Relation], schema: pa.Schema) -> pa.Table:
    matches = matching(
        relations if _has_no_catalog(request) else (),
        database=_pattern(request, "db_schema_filter_pattern"),
        table=_pattern(request, "table_name_filter_pattern"),
        kinds=request.table_types,
    )
    rows = []
    for table in matches:
        row: list[object] = [NO_CATALOG, table.database, table.name, table.kind]
        if request.include_schema:
            row.append(table_schema(table).serialize().to_pybytes())
        rows.append(row)
    return rows_of(schema, rows)


def _type_info(request: Any) -> pa.Table:
    rows = []
    for name, kind in DRIVER_TYPES.items():
        number = int(kind.jdbc) if kind.flight_sql is None else kind.flight_sql
        if request.HasField("data_type") and request.data_type != number:
            continue
        rows.append(
            [
                *(name.upper(), number, kind.size, kind.quote, kind.quote),
                ["precision", "scale"] if kind.jdbc is Jdbc.DECIMAL else None,
                *(NULLABLE, kind.is_text, SEARCHABLE if kind.is_text else SEARCHABLE_WITHOUT_LIKE),
                *(False if kind.is_number else None, False, False if kind.is_number else None, None),
                *kind.scales,
                *(number if kind.datetime_subcode is None else _DATETIME, kind.datetime_subcode, kind.radix, None),
            ]
        )
    return rows_of(TYPE_INFO, sorted(rows, key=lambda row: (row[1], row[0])))


def _has_no_catalog(request: Any) -> bool:
    """Tell whether a request asks for objects without a catalog, as all objects are."""
    return not request.HasField("catalog") or request.catalog == ""


def _pattern(request: Any, field: str) -> str | None:
    return getattr(request, field) if request.HasField(field) else None
