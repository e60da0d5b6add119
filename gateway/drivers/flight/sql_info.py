"""Properties of the server by Flight SQL's numbers; https://arrow.apache.org/docs/format/FlightSql.html."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.metadata import version

import pyarrow as pa

from gateway import PRODUCT
from sql.allowlist.functions import function_names

Value = str | bool | int | tuple[str, ...] | dict[int, list[int]]

_BIG, _SMALL = 2, 3  # children of the union: int64, and int32 for bit masks and numbers of few values
_MEMBERS = pa.map_(pa.int32(), pa.field("value", pa.list_(pa.field("$data$", pa.int32()))))
_VALUE = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.field("string_data", pa.string()))),
        pa.field("int32_to_int32_list_map", _MEMBERS),
    ]
)
SCHEMA = pa.schema([pa.field("info_name", pa.uint32(), False), pa.field("value", _VALUE, True)])

_MASKS: Mapping[int, int] = {  # bit masks, and numbers of few values
    8: 0,  # FLIGHT_SQL_SERVER_TRANSACTION: none
    101: 0,  # FLIGHT_SQL_SERVER_TRANSACTION_TIMEOUT
    522: 0b11,  # SQL_SUPPORTED_GROUP_BY: by anything
    525: 0b11,  # SQL_SUPPORTED_GRAMMAR: minimum, core
    526: 0b1,  # SQL_ANSI92_SUPPORTED_LEVEL: entry
    533: 0,  # SQL_SCHEMAS_SUPPORTED_ACTIONS
    534: 0,  # SQL_CATALOGS_SUPPORTED_ACTIONS
    535: 0,  # SQL_SUPPORTED_POSITIONED_COMMANDS
    538: 0b111,  # SQL_SUPPORTED_SUBQUERIES: in comparisons, EXISTS, IN
    540: 0b11,  # SQL_SUPPORTED_UNIONS: UNION, UNION ALL
    564: 0b1,  # SQL_SUPPORTED_TRANSACTIONS_ISOLATION_LEVELS: none
    567: 0b10,  # SQL_SUPPORTED_RESULT_SET_TYPES: forward only
    568: 0,
    569: 0b10,  # SQL_SUPPORTED_CONCURRENCIES_FOR_RESULT_SET_FORWARD_ONLY: read only
    570: 0,
    571: 0,
}
_VALUES: Mapping[int, Value] = {
    0: PRODUCT,  # FLIGHT_SQL_SERVER_NAME
    1: version("fusion-sql-gateway"),  # FLIGHT_SQL_SERVER_VERSION
    2: pa.__version__,  # FLIGHT_SQL_SERVER_ARROW_VERSION
    3: False,  # FLIGHT_SQL_SERVER_READ_ONLY
    4: True,  # FLIGHT_SQL_SERVER_SQL
    5: False,  # FLIGHT_SQL_SERVER_SUBSTRAIT
    9: True,  # FLIGHT_SQL_SERVER_CANCEL
    10: False,  # FLIGHT_SQL_SERVER_BULK_INGESTION
    500: False,  # SQL_DDL_CATALOG
    501: False,  # SQL_DDL_SCHEMA
    502: True,  # SQL_DDL_TABLE
    503: 1,  # SQL_IDENTIFIER_CASE: insensitive
    504: "`",  # SQL_IDENTIFIER_QUOTE_CHAR
    505: 1,  # SQL_QUOTED_IDENTIFIER_CASE: insensitive
    506: True,  # SQL_ALL_TABLES_ARE_SELECTABLE
    507: 1,  # SQL_NULL_ORDERING: low
    508: (),  # SQL_KEYWORDS beyond the standard's
    509: (),  # SQL_NUMERIC_FUNCTIONS: all are listed below
    510: (),  # SQL_STRING_FUNCTIONS
    511: function_names(),  # SQL_SYSTEM_FUNCTIONS
    512: (),  # SQL_DATETIME_FUNCTIONS
    513: "\\",  # SQL_SEARCH_STRING_ESCAPE
    514: "",  # SQL_EXTRA_NAME_CHARACTERS
    515: True,  # SQL_SUPPORTS_COLUMN_ALIASING
    516: True,  # SQL_NULL_PLUS_NULL_IS_NULL
    517: {},  # SQL_SUPPORTS_CONVERT: JDBC's {fn CONVERT} is not
    518: True,  # SQL_SUPPORTS_TABLE_CORRELATION_NAMES
    519: False,  # SQL_SUPPORTS_DIFFERENT_TABLE_CORRELATION_NAMES
    520: True,  # SQL_SUPPORTS_EXPRESSIONS_IN_ORDER_BY
    521: True,  # SQL_SUPPORTS_ORDER_BY_UNRELATED
    523: True,  # SQL_SUPPORTS_LIKE_ESCAPE_CLAUSE
    524: False,  # SQL_SUPPORTS_NON_NULLABLE_COLUMNS
    527: False,  # SQL_SUPPORTS_INTEGRITY_ENHANCEMENT_FACILITY
    528: 2,  # SQL_OUTER_JOINS_SUPPORT_LEVEL: full
    529: "database",  # SQL_SCHEMA_TERM
    530: "procedure",  # SQL_PROCEDURE_TERM
    531: "",  # SQL_CATALOG_TERM: there are no catalogs
    532: False,  # SQL_CATALOG_AT_START
    536: False,  # SQL_SELECT_FOR_UPDATE_SUPPORTED
    537: False,  # SQL_STORED_PROCEDURES_SUPPORTED
    539: True,  # SQL_CORRELATED_SUBQUERIES_SUPPORTED
    **dict.fromkeys(range(541, 557), 0),  # SQL_MAX_...: no limit
    556: False,  # SQL_MAX_ROW_SIZE_INCLUDES_BLOBS
    **dict.fromkeys(range(558, 562), 0),  # SQL_MAX_...: no limit
    562: 0,  # SQL_DEFAULT_TRANSACTION_ISOLATION: none
    563: False,  # SQL_TRANSACTIONS_SUPPORTED
    565: False,  # SQL_DATA_DEFINITION_CAUSES_TRANSACTION_COMMIT
    566: False,  # SQL_DATA_DEFINITIONS_IN_TRANSACTIONS_IGNORED
    572: False,  # SQL_BATCH_UPDATES_SUPPORTED
    573: False,  # SQL_SAVEPOINTS_SUPPORTED
    574: False,  # SQL_NAMED_PARAMETERS_SUPPORTED
    575: False,  # SQL_LOCATORS_UPDATE_COPY
    576: False,  # SQL_STORED_FUNCTIONS_USING_CALL_SYNTAX_SUPPORTED
}
_STATEMENT_TIMEOUT, _LONGEST_STATEMENT = 100, 557


def sql_info(wanted: Collection[int], *, idle_s: float, statement_bytes: int) -> pa.Table:
    """Return some properties, or all of them. idle_s: time after which prepared statements are forgotten."""
    masks = {**_MASKS, _STATEMENT_TIMEOUT: min(int(idle_s * 1_000), 2**31 - 1)}
    values: dict[int, Value] = {**_VALUES, **masks, _LONGEST_STATEMENT: statement_bytes}
    children: list[list[Value]] = [[] for _ in _VALUE]
    names, kinds, offsets = [], [], []
    for name in sorted(values):
        if wanted and name not in wanted:
            continue
        kind = _SMALL if name in masks else _child(values[name])
        names.append(name)
        kinds.append(kind)
        offsets.append(len(children[kind]))
        children[kind].append(values[name])
    arrays = [pa.array(child, field.type) for child, field in zip(children, _VALUE, strict=True)]
    union = pa.UnionArray.from_buffers(
        _VALUE,
        len(names),
        [None, pa.array(kinds, pa.int8()).buffers()[1], pa.array(offsets, pa.int32()).buffers()[1]],
        children=arrays,
    )
    return pa.Table.from_arrays([pa.array(names, pa.uint32()), union], schema=SCHEMA)


def _child(value: Value) -> int:
    """Return the number of the union's child for a value."""
    match value:
        case str():
            return 0
        case bool():
            return 1
        case int():
            return _BIG
        case tuple():
            return 4
        case dict():
            return 5
