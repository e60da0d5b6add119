"""The catalog as the tables that JDBC defines for it: names and order of columns are prescribed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from gateway import PRODUCT
from gateway.catalog.snapshot import CatalogView, Relation, RelationKind
from gateway.drivers.hs2.protocol.messages import (
    ColumnsRequest,
    FunctionsRequest,
    InfoValue,
    OperationType,
    SchemasRequest,
    SessionRequest,
    TablesRequest,
)
from gateway.drivers.jdbc import DRIVER_TYPES, describe, matcher, matching
from gateway.statements.session import Session
from gateway.statistics.tables import rows_of
from selector.types import BY_NAME, Jdbc, hive_name
from sql.allowlist.functions import function_names

NO_CATALOG = ""
NULLABLE, SEARCHABLE, UNKNOWN_RESULT = 1, 3, 1  # java.sql.DatabaseMetaData's numbers

_TEXT, _INT, _SMALL, _BOOL = pa.string(), pa.int32(), pa.int16(), pa.bool_()

CATALOGS = pa.schema([("TABLE_CAT", _TEXT)])
SCHEMAS = pa.schema([("TABLE_SCHEM", _TEXT), ("TABLE_CATALOG", _TEXT)])
TABLE_TYPES = pa.schema([("TABLE_TYPE", _TEXT)])
TABLES = pa.schema(
    [
        (name, _TEXT)
        for name in (
            *("TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE", "REMARKS"),
            *("TYPE_CAT", "TYPE_SCHEM", "TYPE_NAME", "SELF_REFERENCING_COL_NAME", "REF_GENERATION"),
        )
    ]
)
COLUMNS = pa.schema(
    [
        *((name, _TEXT) for name in ("TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "COLUMN_NAME")),
        ("DATA_TYPE", _INT),
        ("TYPE_NAME", _TEXT),
        *((name, _INT) for name in ("COLUMN_SIZE", "BUFFER_LENGTH", "DECIMAL_DIGITS", "NUM_PREC_RADIX", "NULLABLE")),
        ("REMARKS", _TEXT),
        ("COLUMN_DEF", _TEXT),
        *((name, _INT) for name in ("SQL_DATA_TYPE", "SQL_DATETIME_SUB", "CHAR_OCTET_LENGTH", "ORDINAL_POSITION")),
        *((name, _TEXT) for name in ("IS_NULLABLE", "SCOPE_CATALOG", "SCOPE_SCHEMA", "SCOPE_TABLE")),
        ("SOURCE_DATA_TYPE", _SMALL),
        ("IS_AUTO_INCREMENT", _TEXT),
    ]
)
TYPE_INFO = pa.schema(
    [
        ("TYPE_NAME", _TEXT),
        ("DATA_TYPE", _INT),
        ("PRECISION", _INT),
        *((name, _TEXT) for name in ("LITERAL_PREFIX", "LITERAL_SUFFIX", "CREATE_PARAMS")),
        ("NULLABLE", _SMALL),
        ("CASE_SENSITIVE", _BOOL),
        ("SEARCHABLE", _SMALL),
        *((name, _BOOL) for name in ("UNSIGNED_ATTRIBUTE", "FIXED_PREC_SCALE", "AUTO_INCREMENT")),
        ("LOCAL_TYPE_NAME", _TEXT),
        ("MINIMUM_SCALE", _SMALL),
        ("MAXIMUM_SCALE", _SMALL),
        *((name, _INT) for name in ("SQL_DATA_TYPE", "SQL_DATETIME_SUB", "NUM_PREC_RADIX")),
    ]
)
FUNCTIONS = pa.schema(
    [
        *((name, _TEXT) for name in ("FUNCTION_CAT", "FUNCTION_SCHEM", "FUNCTION_NAME", "REMARKS")),
        ("FUNCTION_TYPE", _INT),
        ("SPECIFIC_NAME", _TEXT),
    ]
)
PRIMARY_KEYS = pa.schema(
    [
        *((name, _TEXT) for name in ("TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "COLUMN_NAME")),
        ("KEQ_SEQ", _INT),
        ("PK_NAME", _TEXT),
    ]
)
CROSS_REFERENCE = pa.schema(
    [
        *((f"{side}TABLE_{part}", _TEXT) for side in ("PK", "FK") for part in ("CAT", "SCHEM", "NAME")),
        *((name, _TEXT) for name in ("PKCOLUMN_NAME", "FKCOLUMN_NAME")),
        *((name, _INT) for name in ("KEQ_SEQ", "UPDATE_RULE", "DELETE_RULE")),
        *((name, _TEXT) for name in ("FK_NAME", "PK_NAME")),
        ("DEFERRABILITY", _INT),
    ]
)


def schemas(request: SchemasRequest, databases: Iterable[str]) -> pa.Table:
    """Return the databases whose names match."""
    named = matcher(request.schema)
    return rows_of(SCHEMAS, [[name, NO_CATALOG] for name in databases if named.fullmatch(name)])


def tables(request: TablesRequest, relations: Iterable[Relation]) -> pa.Table:
    """Return tables and views whose names match."""
    matches = matching(relations, database=request.schema, table=request.table, kinds=request.types or ())
    nothing = [None] * (len(TABLES) - 5)
    rows = ([NO_CATALOG, table.database, table.name, table.kind, table.annotations.comment] for table in matches)
    return rows_of(TABLES, [[*row, *nothing] for row in rows])


def columns(request: ColumnsRequest, relations: Iterable[Relation]) -> pa.Table:
    """Return columns whose names match, of tables and views whose names match."""
    named = matcher(request.column)
    rows = []
    for table in matching(relations, database=request.schema, table=request.table):
        for ordinal, column in enumerate(table.columns, start=1):
            if named.fullmatch(column.name) is None:
                continue
            kind = describe(column.declared_type)
            remarks = table.annotations.columns.get(column.name, "")
            octets = kind.size if kind.is_text or kind.jdbc is Jdbc.BINARY else None
            rows.append(
                [
                    *(NO_CATALOG, table.database, table.name, column.name, int(kind.jdbc)),
                    *(hive_name(column.declared_type).upper(), kind.size, None, kind.scale, kind.radix, NULLABLE),
                    *(remarks, None, None, None, octets, ordinal, "YES", None, None, None, None, "NO"),
                ]
            )
    return rows_of(COLUMNS, rows)


def functions(request: FunctionsRequest) -> pa.Table:
    """Return allowed functions whose names match."""
    named = matcher(request.function)
    names = [name for name in function_names() if named.fullmatch(name)]
    return rows_of(FUNCTIONS, [[None, None, name, "", UNKNOWN_RESULT, name] for name in names])


def type_info() -> pa.Table:
    """Return the types of columns."""
    rows = []
    for name, kind in DRIVER_TYPES.items():
        if BY_NAME[name].row.hive is not None:  # it has another name in Hive
            continue
        rows.append(
            [
                *(name.upper(), int(kind.jdbc), kind.size, kind.quote, kind.quote, None),
                *(NULLABLE, kind.is_text, SEARCHABLE),
                *(not kind.is_number, False, False, None, *kind.scales, None, None, kind.radix),
            ]
        )
    return rows_of(TYPE_INFO, rows)


@dataclass(frozen=True, slots=True)
class Question:
    """A call about the catalog."""

    request: type[SessionRequest]
    kind: OperationType
    answer: Callable[[Any, CatalogView, Session], pa.Table]


QUESTIONS: Mapping[str, Question] = {
    "GetTypeInfo": Question(SessionRequest, OperationType.GET_TYPE_INFO, lambda *_: type_info()),
    "GetCatalogs": Question(SessionRequest, OperationType.GET_CATALOGS, lambda *_: CATALOGS.empty_table()),
    "GetSchemas": Question(
        SchemasRequest,
        OperationType.GET_SCHEMAS,
        lambda request, catalog, session: schemas(request, catalog.shown_to(session.principal).databases),
    ),
    "GetTables": Question(
        TablesRequest,
        OperationType.GET_TABLES,
        lambda request, catalog, session: tables(request, catalog.shown_to(session.principal).relations_for(session)),
    ),
    "GetTableTypes": Question(
        SessionRequest,
        OperationType.GET_TABLE_TYPES,
        lambda *_: rows_of(TABLE_TYPES, [[kind] for kind in RelationKind]),
    ),
    "GetColumns": Question(
        ColumnsRequest,
        OperationType.GET_COLUMNS,
        lambda request, catalog, session: columns(request, catalog.shown_to(session.principal).relations_for(session)),
    ),
    "GetFunctions": Question(FunctionsRequest, OperationType.GET_FUNCTIONS, lambda request, *_: functions(request)),
    "GetPrimaryKeys": Question(SessionRequest, OperationType.UNKNOWN, lambda *_: PRIMARY_KEYS.empty_table()),
    "GetCrossReference": Question(SessionRequest, OperationType.UNKNOWN, lambda *_: CROSS_REFERENCE.empty_table()),
}


def properties(user: str, statement_bytes: int) -> Mapping[int, InfoValue]:
    """Return the properties of the server by the protocol's numbers; zero: no limit."""
    texts = {
        2: PRODUCT,  # CLI_DATA_SOURCE_NAME
        13: PRODUCT,  # CLI_SERVER_NAME
        14: "\\",  # CLI_SEARCH_PATTERN_ESCAPE
        17: PRODUCT,  # CLI_DBMS_NAME
        18: version("fusion-sql-gateway"),  # CLI_DBMS_VER
        19: "Y",  # CLI_ACCESSIBLE_TABLES
        20: "N",  # CLI_ACCESSIBLE_PROCEDURES
        25: "N",  # CLI_DATA_SOURCE_READ_ONLY
        29: "`",  # CLI_IDENTIFIER_QUOTE_CHAR
        47: user,  # CLI_USER_NAME
        73: "N",  # CLI_INTEGRITY
        90: "N",  # CLI_ORDER_BY_COLUMNS_IN_SELECT
        94: "",  # CLI_SPECIAL_CHARACTERS
        10_003: "N",  # CLI_CATALOG_NAME
        10_004: "UTF-8",  # CLI_COLLATION_SEQ
    }
    lengths = {
        **dict.fromkeys((0, 1, 30, 31, 32, 34, 35, 97, 98, 99, 100, 101, 102, 104, 106, 107, 10_005), 0),
        105: statement_bytes,  # CLI_MAX_STATEMENT_LEN
    }
    return {number: InfoValue(text=text) for number, text in texts.items()} | {
        number: InfoValue(length=length) for number, length in lengths.items()
    }
