"""A table's files as a DuckDB view."""

from __future__ import annotations

from pathlib import Path

from engines.errors import UnsupportedFeature
from engines.protocol import MIXED_COLUMNS, Column, TableSource
from selector.quoting import duckdb_name, duckdb_string

FORMATS = frozenset({"parquet", "csv", "json", "orc"})
_VISIBLE = "[!_.]*"  # whatever it is called: Hive and Impala write files without an ending


def view(source: TableSource) -> str:
    """Return the statement that makes a table's view. Raises UnsupportedFeature for a form it cannot read.

    Columns have the declared types; a file may hold wider ones that Spark does not have, such as unsigned numbers.
    """
    columns = ", ".join(_declared(column) for column in source.columns)
    return f"CREATE OR REPLACE VIEW {duckdb_name(source.name)} AS SELECT {columns} FROM {_scan(source)}"  # noqa: S608 - all quoted


def view_of_dataset(source: TableSource, dataset: str) -> str:
    """Return the statement that makes a table's view over a registered Arrow dataset, in the declared types."""
    columns = ", ".join(_declared(column) for column in source.columns)
    return f"CREATE OR REPLACE VIEW {duckdb_name(source.name)} AS SELECT {columns} FROM {duckdb_name(dataset)}"  # noqa: S608 - all quoted


def _declared(column: Column) -> str:
    name = duckdb_name(column.name)
    if column.type.is_nested:  # as the file has it
        return name
    return f"CAST({name} AS {column.type.duckdb()}) AS {name}"


def _scan(source: TableSource) -> str:
    files = duckdb_string(_pattern(source))
    hive = _hive_arguments(source)
    match source.format:
        case "parquet":
            mixed = ", union_by_name=true" if source.options.get(MIXED_COLUMNS, "").lower() == "true" else ""
            return f"read_parquet({files}{hive}{mixed})"
        case "csv":
            delimiter = duckdb_string(source.options.get("delimiter", ","))
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
    pairs = (f"{duckdb_string(column.name)}: {duckdb_string(column.type.duckdb())}" for column in own)
    return "{" + ", ".join(pairs) + "}"


def _hive_arguments(source: TableSource) -> str:
    if not source.partition_columns:
        return ", hive_partitioning=false"
    by_name = {column.name: column.type for column in source.columns}
    types = ", ".join(f"{duckdb_string(name)}: {by_name[name].duckdb()}" for name in source.partition_columns)
    return f", hive_partitioning=true, hive_types={{{types}}}"
