"""A table's files as a DuckDB view."""

from __future__ import annotations

from pathlib import Path

from engines.errors import UnsupportedFeature
from engines.protocol import Column, TableSource

FORMATS = frozenset({"parquet", "csv", "json", "orc"})
_VISIBLE = "[!_.]*"  # whatever it is called: Hive and Impala write files without an ending
_TYPES = {  # Spark's short names that DuckDB spells differently
    "byte": "TINYINT",
    "short": "SMALLINT",
    "long": "BIGINT",
    "float": "FLOAT",
    "string": "VARCHAR",
    "binary": "BLOB",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}


def view(source: TableSource) -> str:
    """Return the statement that makes a table's view. Raises UnsupportedFeature for a form it cannot read.

    Columns have the declared types; a file may hold wider ones that Spark does not have, such as unsigned numbers.
    """
    columns = ", ".join(_declared(column) for column in source.columns)
    return f"CREATE OR REPLACE VIEW {quoted_name(source.name)} AS SELECT {columns} FROM {_scan(source)}"  # noqa: S608 - all quoted


def view_of_dataset(source: TableSource, dataset: str) -> str:
    """Return the statement that makes a table's view over a registered Arrow dataset, in the declared types."""
    columns = ", ".join(_declared(column) for column in source.columns)
    return f"CREATE OR REPLACE VIEW {quoted_name(source.name)} AS SELECT {columns} FROM {quoted_name(dataset)}"  # noqa: S608 - all quoted


def _declared(column: Column) -> str:
    name = quoted_name(column.name)
    if "<" in column.data_type:  # nested: in Spark's words
        return name
    return f"CAST({name} AS {_type(column.data_type)}) AS {name}"


def quoted_name(name: str) -> str:
    """Quote an identifier."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Quote a string."""
    return "'" + text.replace("'", "''") + "'"


def _scan(source: TableSource) -> str:
    files = quoted_text(_pattern(source))
    hive = _hive_arguments(source)
    match source.format:
        case "parquet":
            return f"read_parquet({files}{hive})"
        case "csv":
            delimiter = quoted_text(source.options.get("delimiter", ","))
            header = source.options.get("header", "false").lower()
            reading = f"delim={delimiter}, header={header}, auto_detect=false, nullstr=''"
            return f"read_csv({files}, {reading}, columns={_types(source)}{hive})"
        case "json":
            return f"read_json({files}, columns={_types(source)}{hive})"
        case other:
            raise UnsupportedFeature(f"DuckDB reads no {other} tables")


def _pattern(source: TableSource) -> str:
    location = Path(source.location)
    if not location.is_dir():
        return str(location)
    return str(location.joinpath(*[_VISIBLE] * len(source.partition_columns), _VISIBLE))


def _types(source: TableSource) -> str:
    own = (column for column in source.columns if column.name not in source.partition_columns)
    pairs = (f"{quoted_text(column.name)}: {quoted_text(_type(column.data_type))}" for column in own)
    return "{" + ", ".join(pairs) + "}"


def _type(data_type: str) -> str:
    return _TYPES.get(data_type, data_type.upper())


def _hive_arguments(source: TableSource) -> str:
    if not source.partition_columns:
        return ", hive_partitioning=false"
    by_name = {column.name: column.data_type for column in source.columns}
    types = ", ".join(f"{quoted_text(name)}: {_type(by_name[name])}" for name in source.partition_columns)
    return f", hive_partitioning=true, hive_types={{{types}}}"
