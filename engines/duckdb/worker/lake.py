"""A lake table's snapshot as a DuckDB view: the files of its manifest, without their deleted rows.

Files are grouped by their constants (values of columns that they do not store), each group a branch of a UNION ALL,
which DuckDB prunes by a filter on such a column. Only files with deleted rows are joined against positions, which
DuckDB does in two thirds of the time of one join for all (measured for 100 million rows in 20 files).

Files that may differ are read by a schema. DuckDB then takes each table for one of a single row when it orders joins,
so files that are all alike are read as those of a plain table, with constants by their folders' names. A join of both
kinds would hold the larger side in memory: all lake tables of a statement are read in the one way or in the other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa

from engines.duckdb.worker.tables import declared_column, duckdb_type, file_list, hive_options, misreads_folders
from engines.errors import UnsupportedFeature
from engines.files.listing import DEFAULT_PARTITION, DataFile
from engines.files.manifest import Manifest, SnapshotFile, StoredField
from engines.files.stored_types import StoredColumn, holds_floats, texts_and_bytes
from selector.quoting import duckdb_name, duckdb_string
from selector.types import Kind
from sql.tables import Column, TableSource

MOST_BRANCHES = 500
MOST_ALIKE = 1_000
"""Files that are looked into for whether they are alike; a footer takes 0.2 ms, once for each worker."""
_ROW, _POSITION = "file_row_number", "position"
_PLAIN_NAME = re.compile(r"[\w .-]+")
"""Names of columns that DuckDB finds in folders' names."""
_IN_FOLDERS = (Kind.STRING, Kind.DATE, Kind.BOOLEAN, Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)
"""Kinds of values whose text in a folder's name DuckDB reads as they are."""

Register = Callable[[str, pa.Table], object]
ColumnsOf = Callable[[Sequence[DataFile]], Sequence[tuple[StoredColumn, ...]]]


def view(source: TableSource, manifest: Manifest, register: Register, columns_of: ColumnsOf) -> str:
    """Return the statement that makes the view of a snapshot. Raises UnsupportedFeature.

    register: makes an Arrow table known by a name. columns_of: as in ``view_of_alike``.
    """
    _require_stored_as_declared(source, manifest, columns_of)
    branches = []
    for constants, files in manifest.by_constants():
        whole = [file for file in files if not file.has_deleted]
        if whole:
            branches.append(_select(source, _scan(source, manifest, whole), constants))
        for file in files:
            if file.has_deleted:
                if any(column.name.lower() == _ROW for column in source.columns):
                    raise UnsupportedFeature(f"{source.name} has a column {_ROW}, which hides the numbers of rows.")
                positions = f"{source.name}\ndeleted {len(branches)}"  # no table's name has two lines
                register(positions, pa.table({_POSITION: file.deleted}))
                scan = (
                    f"{_scan(source, manifest, [file])} AS data ANTI JOIN {duckdb_name(positions)} AS deleted "
                    f"ON data.{_ROW} = deleted.{_POSITION}"
                )
                branches.append(_select(source, scan, constants))
    if len(branches) > MOST_BRANCHES:
        raise UnsupportedFeature(
            f"{source.name} has {len(branches):,} partitions and files with deleted rows; DuckDB gets "
            f"{MOST_BRANCHES:,} at most."
        )
    if not branches:
        branches = [_select(source, "(SELECT 1) WHERE false", {column.name: None for column in source.columns})]
    return f"CREATE OR REPLACE VIEW {duckdb_name(source.name)} AS {' UNION ALL '.join(branches)}"


def planned_view(source: TableSource, manifest: Manifest) -> str:
    """Return the statement that makes a view for EXPLAIN: one scan of all files, whose plan names all columns."""
    if not manifest.files:
        return view(source, manifest, _no_table, lambda _: ())
    stored = {field.name for field in manifest.fields}
    others = [column for column in source.columns if column.name not in stored]
    select = _select(source, _scan(source, manifest, manifest.files, others), {})
    return f"CREATE OR REPLACE VIEW {duckdb_name(source.name)} AS {select}"


def view_of_alike(source: TableSource, manifest: Manifest, columns_of: ColumnsOf) -> str | None:
    """Return the statement for files that all store the same columns, in the table's types; None: they differ.

    columns_of: reads the columns of files from their footers. Raises FileNotFoundError for a file that is gone.
    """
    if not 0 < len(manifest.files) <= MOST_ALIKE or any(file.has_deleted for file in manifest.files):
        return None
    try:
        columns, *others = set(columns_of(manifest.data_files()))
        options = hive_options(source)
    except UnsupportedFeature:
        return None
    names = {column.name.lower() for column in columns}
    if others or len(names) < len(columns):
        return None
    types = {column.name: column for column in source.columns}
    of_folders = [types[name] for name in source.partition_columns]
    if not all(_PLAIN_NAME.fullmatch(name) for name in source.partition_columns):
        return None
    if not names.isdisjoint(name.lower() for name in source.partition_columns):
        return None
    if of_folders and not all(_are_in_folders(file, of_folders, source.folder) for file in manifest.files):
        return None
    selected: dict[str, str | None] = {column.name: declared_column(column) for column in of_folders}
    for field in manifest.fields:
        selected[field.name] = _column_alike(types[field.name], field, manifest.is_by_id, columns)
    expressions = [selected[column.name] for column in source.columns]
    if None in expressions:
        return None
    scan = _read(manifest.files, options, manifest, types)
    select = ", ".join(map(str, expressions))
    return f"CREATE OR REPLACE VIEW {duckdb_name(source.name)} AS SELECT {select} FROM {scan}"  # noqa: S608 - all quoted


def _are_in_folders(file: SnapshotFile, columns: Sequence[Column], folder: str) -> bool:
    """Return True if a file's folders say what the log says of the columns that it does not store.

    folder: of the table.
    """
    if misreads_folders(file.path) or any(column.type.kind not in _IN_FOLDERS for column in columns):
        return False
    steps = os.path.relpath(file.path, folder).split(os.sep)[:-1]
    values = [(name, unquote(value)) for name, _, value in (step.partition("=") for step in steps)]
    constants = {column.name: file.constants[column.name] for column in columns}
    in_log = {name: DEFAULT_PARTITION if value is None else value for name, value in constants.items()}
    return sorted(values) == sorted(in_log.items()) and DEFAULT_PARTITION not in constants.values()


def _column_alike(column: Column, field: StoredField, by_id: bool, stored: Sequence[StoredColumn]) -> str | None:
    """Return the expression that reads a column; None: it is not stored in the column's type."""
    own = _stored(field, by_id, stored)
    kind, name = duckdb_type(column), duckdb_name(column.name)
    if len(own) != 1 or not kind or not field.is_plain_below or own[0].unreadable or own[0].is_unsigned:
        return None
    if own[0].data_type != column.data_type:
        return None
    expression = duckdb_name(own[0].name)
    return f"{expression if column.type.is_nested else f'CAST({expression} AS {kind})'} AS {name}"


def _require_stored_as_declared(source: TableSource, manifest: Manifest, columns_of: ColumnsOf) -> None:
    """Raise UnsupportedFeature for files whose values DuckDB would change without a word.

    It reads bytes as text, and text as bytes, by escapes, and rounds nanoseconds. Where a table has no bytes, all that
    a file stores without a type is read as text (``binary_as_string``).
    """
    types = {column.name: column.data_type for column in source.columns}
    has_bytes = _has_bytes(manifest, types)
    if not has_bytes and len(manifest.files) > MOST_ALIKE:
        return
    for columns in set(columns_of(manifest.data_files())):
        for field in manifest.fields:
            for own in _stored(field, manifest.is_by_id, columns):
                if own.unreadable or (has_bytes and not _is_text_where(own.data_type, types[field.name])):
                    raise UnsupportedFeature(
                        f"a file of {source.name} stores the column {field.name} as {own.unreadable or own.data_type}."
                    )


def _is_text_where(stored: str, declared: str) -> bool:
    """Return True if a file stores texts as texts and bytes as bytes. Types that have both have to be the same."""
    wanted = texts_and_bytes(declared)
    return stored == declared if len(wanted) > 1 else texts_and_bytes(stored) <= wanted


def _has_bytes(manifest: Manifest, types: Mapping[str, str]) -> bool:
    return any(Kind.BINARY in texts_and_bytes(types[field.name]) for field in manifest.fields)


def _stored(field: StoredField, by_id: bool, columns: Sequence[StoredColumn]) -> list[StoredColumn]:
    """Return the columns of a file that a field of the table means."""
    return [one for one in columns if (one.field_id == field.field_id if by_id else one.name == field.stored)]


def _no_table(name: str, table: pa.Table) -> None:
    raise AssertionError("a snapshot without files has no deleted rows")


def _select(source: TableSource, scan: str, constants: Mapping[str, str | None]) -> str:
    columns = ", ".join(_column(column, constants) for column in source.columns)
    return f"SELECT {columns} FROM {scan}"  # noqa: S608 - all quoted


def _column(column: Column, constants: Mapping[str, str | None]) -> str:
    if column.name not in constants:
        return declared_column(column)
    value, name = constants[column.name], duckdb_name(column.name)
    if value is None:
        return declared_column(column, is_missing=True)
    if column.type.kind is Kind.BINARY:
        return f"unhex({duckdb_string(value)}) AS {name}"
    return f"CAST({duckdb_string(value)} AS {duckdb_type(column)}) AS {name}"


def _scan(
    source: TableSource,
    manifest: Manifest,
    files: Sequence[SnapshotFile],
    missing: Sequence[Column] = (),
) -> str:
    types = {column.name: column for column in source.columns}
    options = ["hive_partitioning=false", f"schema={_schema(manifest, types, missing)}"]
    return _read(files, options, manifest, types)


def _read(
    files: Sequence[SnapshotFile], options: Sequence[str], manifest: Manifest, types: Mapping[str, Column]
) -> str:
    if any(holds_floats(types[field.name].data_type) for field in manifest.fields):
        options = [*options, "can_have_nan=true"]  # which many writers leave out of minimum and maximum
    if not _has_bytes(manifest, {name: column.data_type for name, column in types.items()}):
        options = [*options, "binary_as_string=true"]
    return f"read_parquet({', '.join((file_list(file.path for file in files), *options))})"


def _schema(manifest: Manifest, types: Mapping[str, Column], missing: Sequence[Column]) -> str:
    """Return the columns to read, by field id or by name. missing: columns of the plan that no file stores."""
    by_id = manifest.is_by_id
    entries = []
    for field in manifest.fields:
        if not field.is_plain_below:
            raise UnsupportedFeature(f"it cannot find renamed fields of the column {field.name} in its files.")
        key = str(field.field_id) if by_id else duckdb_string(field.stored)
        entries.append(_entry(key, types[field.name]))
    for number, column in enumerate(missing, start=1):
        entries.append(_entry(str(-number) if by_id else duckdb_string(column.name), column))
    return f"MAP {{{', '.join(entries)}}}"


def _entry(key: str, column: Column) -> str:
    kind = duckdb_type(column)
    if not kind:
        raise UnsupportedFeature(f"its column {column.name} has the type {column.data_type}, which DuckDB lacks.")
    name = duckdb_string(column.name)
    return f"{key}: {{'name': {name}, 'type': {duckdb_string(kind)}, 'default_value': NULL}}"
