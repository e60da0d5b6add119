"""A table's files as an external table of Impala's: names, types and the statements that declare it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from engines.errors import UnsupportedFeature
from selector.quoting import spark_name, spark_string
from selector.types import DataType, NoSuchType
from sql.tables import DEFAULT_DATABASE, TableSource, database_of, full_name, in_two_parts, name_in_database

FORMATS = frozenset({"parquet", "orc"})
"""Not text: Impala knows no quotes around a field. Not JSON, which only newer releases read."""

DEFINITION = "fusion.definition"  # the property that tells which tables are the gateway's own
_STORED_AS = {"parquet": "PARQUET", "orc": "ORC"}
_NAME = re.compile(r"\w+", re.ASCII)
_DIGEST_HEX = 8


def name_in_impala(name: str) -> str:
    """Return what a table is called there, where names are letters, digits and underscores."""
    if _NAME.fullmatch(name):
        return name.lower()
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_HEX]
    return f"{re.sub(r'[^0-9A-Za-z_]', '_', name).lower()}_{digest}"


def renamed(tables: Iterable[TableSource]) -> dict[str, str]:
    """Return Impala's names of tables by ours, both quoted, where they differ."""
    return {spark_name(table.name): _in_two_parts(table.name) for table in tables if not _NAME.fullmatch(table.name)}


def definition(source: TableSource) -> str:
    """Return a digest of all that makes a table: another one means that it has to be declared anew."""
    return hashlib.sha256(_body(source).encode()).hexdigest()[: 2 * _DIGEST_HEX]


def create(source: TableSource, database: str) -> str:
    """Return the statement that declares a table. Raises UnsupportedFeature for what Impala cannot read."""
    # Dropping an external table leaves its files where they are, as long as nobody says otherwise.
    properties = f"{spark_string(DEFINITION)}={spark_string(definition(source))}, 'external.table.purge'='false'"
    name = qualified(source.name, database)
    return f"CREATE EXTERNAL TABLE IF NOT EXISTS {name} {_body(source)} TBLPROPERTIES ({properties})"


def has_nested(source: TableSource) -> bool:
    """Tell whether a table has columns that Impala leaves out of ``*`` unless it is told not to."""
    return any(column.type.is_nested for column in source.columns)


def qualified(name: str, database: str) -> str:
    """Return a table's full name, quoted. database: of those that are in the gateway's default one."""
    two_parts = _in_two_parts(name)
    return two_parts if database_of(name) != DEFAULT_DATABASE else f"{spark_name(database)}.{two_parts}"


def _in_two_parts(name: str) -> str:
    return in_two_parts(full_name(database_of(name), name_in_impala(name_in_database(name))))


def _body(source: TableSource) -> str:
    if source.format not in FORMATS:
        raise UnsupportedFeature(f"Impala reads no {source.format} tables.")
    types = {column.name: _type(source, column.type) for column in source.columns}
    own = [column.name for column in source.columns if column.name not in source.partition_columns]
    parted = f" PARTITIONED BY ({_columns(source.partition_columns, types)})" if source.partition_columns else ""
    stored = f"STORED AS {_STORED_AS[source.format]} LOCATION {spark_string(source.location)}"
    return f"({_columns(own, types)}){parted} {stored}"


def _columns(names: Iterable[str], types: Mapping[str, str]) -> str:
    return ", ".join(f"{spark_name(name)} {types[name]}" for name in names)


def _type(source: TableSource, data_type: DataType) -> str:
    try:
        return data_type.impala()
    except NoSuchType as error:
        raise UnsupportedFeature(f"Impala takes no column of type {error}, as {source.name} has one.") from error
