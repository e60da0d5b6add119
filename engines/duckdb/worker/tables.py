"""A table's files as a DuckDB view: exactly those that are listed, in the declared types."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from engines.errors import UnsupportedFeature
from engines.files.listing import DataFile
from engines.files.stored_types import StoredColumn, first_misfit, holds_floats
from selector.quoting import duckdb_name, duckdb_string
from selector.types import Kind, NoSuchType
from sql.guards import OTHER_MEANING
from sql.tables import LAKE_FORMATS, Column, TableSource

FORMATS = frozenset({"parquet", "csv", "json", "orc", *LAKE_FORMATS})
_MISREAD = re.compile(r"[\n?\\]|=[^/]*=")
_PATTERN = frozenset("*?[")  # signs that DuckDB takes for a pattern in a path


def view(source: TableSource, files: Sequence[DataFile], stored: Sequence[tuple[StoredColumn, ...]] = ()) -> str:
    """Return the statement that makes a table's view over some files. Raises UnsupportedFeature.

    Columns have the declared types; a file may hold wider ones that Spark does not have, such as unsigned numbers.
    stored: the columns of each Parquet file.
    """
    if not files:
        return _view(source, "(SELECT 1) WHERE false", missing=[column.name for column in source.columns])
    if source.partition_columns and any(misreads_folders(str(file.path)) for file in files):
        raise UnsupportedFeature(f"{source.name} has partition folders with signs in their names that DuckDB misreads.")
    if source.format != "parquet":
        return _view(source, _text_scan(source, files))
    _require_alike(source, files, stored)
    present = {column.name.lower() for columns in _distinct(stored) for column in columns}
    own = (column.name for column in source.columns if column.name not in source.partition_columns)
    return _view(source, _parquet_scan(source, files, stored), missing=[c for c in own if c.lower() not in present])


def misreads_folders(path: str) -> bool:
    """Return True if DuckDB takes other values, or none, from the partition folders of a file."""
    return _MISREAD.search(path) is not None


def view_of_dataset(source: TableSource, dataset: str) -> str:
    """Return the statement that makes a table's view over a registered Arrow dataset, in the declared types."""
    return _view(source, duckdb_name(dataset))


def _view(source: TableSource, scan: str, *, missing: Collection[str] = ()) -> str:
    """Write the view. missing: columns that no file has, NULL in every row."""
    columns = ", ".join(declared_column(column, column.name in missing) for column in source.columns)
    return f"CREATE OR REPLACE VIEW {duckdb_name(source.name)} AS SELECT {columns} FROM {scan}"  # noqa: S608 - all quoted


def declared_column(column: Column, is_missing: bool = False) -> str:
    """Write a column in its declared type; one of a type that DuckDB lacks gives up where its rows are read."""
    name, kind = duckdb_name(column.name), duckdb_type(column)
    if column.type.kind is Kind.VOID:
        return f"NULL AS {name}"
    if not kind:
        reason = duckdb_string(f"{OTHER_MEANING}a column of type {column.data_type}")
        return f"CAST(error({reason}) AS VARCHAR) AS {name}"
    if column.type.is_nested and not is_missing:  # as the file has it
        return name
    return f"CAST({'NULL' if is_missing else name} AS {kind}) AS {name}"


def _require_alike(source: TableSource, files: Sequence[DataFile], stored: Sequence[tuple[StoredColumn, ...]]) -> None:
    """Refuse files whose columns DuckDB would read as other values than Spark. Raises UnsupportedFeature."""
    declared = {column.name.lower(): column for column in source.columns if column.name not in source.partition_columns}
    types = {name: column.data_type for name, column in declared.items()}
    for columns in _distinct(stored):
        misfit = first_misfit(columns, types) or next(
            (one for one in columns if one.name.lower() in declared and _differs(one, declared[one.name.lower()])), None
        )
        if misfit is not None:
            file = files[stored.index(columns)].path.name
            has = misfit.unreadable or misfit.data_type
            raise UnsupportedFeature(
                f"the file {file} of {source.name} holds {has} in the column {misfit.name}, "
                f"which is declared as {types[misfit.name.lower()]}."
            )


def _distinct(stored: Sequence[tuple[StoredColumn, ...]]) -> tuple[tuple[StoredColumn, ...], ...]:
    """Return the different ones; most files share one object."""
    return tuple(dict.fromkeys({id(columns): columns for columns in stored}.values()))


def _differs(stored: StoredColumn, column: Column) -> bool:
    """Return whether a column that Spark reads as declared comes to other values by DuckDB's casts."""
    if stored.data_type == column.data_type:
        return False
    return column.type.is_nested or Kind.BINARY in (stored.data_type, column.data_type)


def _parquet_scan(source: TableSource, files: Sequence[DataFile], stored: Sequence[tuple[StoredColumn, ...]]) -> str:
    options = hive_options(source)
    if any(holds_floats(column.data_type) for column in source.columns):
        options.append("can_have_nan=true")  # which many writers leave out of minimum and maximum
    if len(_distinct(stored)) > 1:
        options.append("union_by_name=true" if source.partition_columns else f"schema={_schema(source)}")
    return f"read_parquet({', '.join((_paths(files), *options))})"


def _text_scan(source: TableSource, files: Sequence[DataFile]) -> str:
    hive = hive_options(source)
    match source.format:
        case "csv":
            delimiter = duckdb_string(source.options.get("delimiter", ","))
            header = source.options.get("header", "false").lower()
            reading = f"delim={delimiter}, header={header}, auto_detect=false, nullstr=''"
            return f"read_csv({', '.join((_paths(files), reading, f'columns={_types(source)}', *hive))})"
        case "json":
            return f"read_json({', '.join((_paths(files), f'columns={_types(source)}', *hive))})"
        case other:
            raise UnsupportedFeature(f"DuckDB reads no {other} tables")


def file_list(paths: Iterable[str]) -> str:
    """Return a list of paths for ``read_parquet`` and its like, none of which is a pattern."""
    escaped = ("".join(f"[{sign}]" if sign in _PATTERN else sign for sign in path) for path in paths)
    return f"[{', '.join(map(duckdb_string, escaped))}]"


def _paths(files: Sequence[DataFile]) -> str:
    return file_list(str(file.path) for file in files)


def _schema(source: TableSource) -> str:
    """Write the columns to read out of files that do not all have them, or have them in several types."""
    fields = (
        f"{duckdb_string(column.name)}: {{'name': {duckdb_string(column.name)}, "
        f"'type': {duckdb_string(kind)}, 'default_value': NULL}}"
        for column in source.columns
        if (kind := duckdb_type(column))
    )
    return f"MAP {{{', '.join(fields)}}}"


def _types(source: TableSource) -> str:
    own = (column for column in source.columns if column.name not in source.partition_columns)
    pairs = (f"{duckdb_string(column.name)}: {duckdb_string(duckdb_type(column) or 'VARCHAR')}" for column in own)
    return f"{{{', '.join(pairs)}}}"


def duckdb_type(column: Column) -> str:
    """Return DuckDB's name of a column's type, "" where there is none."""
    try:
        return column.type.duckdb()
    except NoSuchType:
        return ""


def hive_options(source: TableSource) -> list[str]:
    """Return how partition folders are read. Raises UnsupportedFeature for folders around them that look alike."""
    if not source.partition_columns:
        return ["hive_partitioning=false"]
    by_name = {column.name.lower(): column.type for column in source.columns}
    around = (step.partition("=")[0].lower() for step in Path(source.location).parts if "=" in step)
    if (outer_folder := next((name for name in around if name in by_name), None)) is not None:
        raise UnsupportedFeature(
            f"{source.name} lies in a folder {outer_folder}=..., which DuckDB takes for its column."
        )
    types = ", ".join(f"{duckdb_string(name)}: {by_name[name.lower()].duckdb()}" for name in source.partition_columns)
    return ["hive_partitioning=true", f"hive_types={{{types}}}"]
