"""A table that somebody asks to register, and what its files say of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engines.files.listing import InspectionFailed, data_files
from metastore.discovery.inspector import inspect
from metastore.records import Inspection
from selector.join_keys import ColumnRef, KeyPair
from sql.errors import UnknownColumn, UnknownTable
from sql.names import did_you_mean
from sql.tables import NOT_ANNOTATED, Annotations, Column, InvalidTable, TableSource, canonical


@dataclass(frozen=True, slots=True)
class NewTable:
    """Files that are to be a table."""

    name: str
    location: str
    format: str | None = None
    """None to find out."""
    options: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    """None to find out."""
    keys: tuple[tuple[str, str], ...] = ()
    """Pairs: a column of it, and the ``table.column`` that it refers to."""
    partition_columns: tuple[str, ...] = ()
    """Of the columns, those that the folders have; none for whichever these are."""
    annotations: Annotations = NOT_ANNOTATED


def inspect_new(new_table: NewTable, place: Path) -> Inspection:
    """Look at a new table's files, if there are any. Raises InspectionFailed."""
    if new_table.columns and place.is_dir() and not data_files(place):
        return without_files(new_table, place)
    options = dict(new_table.options) or None
    inspection = inspect(new_table.name, place, format=new_table.format, options=options, columns=new_table.columns)
    folders = [name.lower() for name in inspection.source.partition_columns]
    declared_folders = [name.lower() for name in new_table.partition_columns]
    if declared_folders and declared_folders != folders:
        has = ", ".join(folders) or "none"
        raise InspectionFailed(f"the partition folders there are {has}, not {', '.join(declared_folders)}; give these")
    return inspection


def without_files(new_table: NewTable, place: Path) -> Inspection:
    """Return an inspection of a table with declared columns and no files yet. Raises InspectionFailed."""
    try:
        source = TableSource(
            new_table.name,
            str(place),
            new_table.format or "parquet",
            _folders_last(new_table.columns, new_table.partition_columns),
            partition_columns=_as_spelled(new_table),
            options=dict(new_table.options),
        )
    except InvalidTable as error:
        raise InspectionFailed(f"{new_table.name} cannot be a table: {error}") from error
    return Inspection(source, files=0, bytes=0, rows=0, declared=True)


def _folders_last(columns: Sequence[Column], folders: Sequence[str]) -> tuple[Column, ...]:
    names = [name.lower() for name in folders]
    last = sorted(
        (column for column in columns if column.name.lower() in names), key=lambda c: names.index(c.name.lower())
    )
    return (*(column for column in columns if column.name.lower() not in names), *last)


def _as_spelled(new_table: NewTable) -> tuple[str, ...]:
    """Return the partition columns as the columns are spelled."""
    spelled = {column.name.lower(): column.name for column in new_table.columns}
    return tuple(spelled[name.lower()] for name in new_table.partition_columns)


def key_pairs(table: TableSource, keys: Sequence[tuple[str, str]], tables: Iterable[TableSource]) -> list[KeyPair]:
    """Return the key pairs that a table's keys declare. Raises SqlError for tables and columns that do not exist."""
    sources = {other.name: other for other in tables}
    sources[table.name.lower()] = table
    return [_pair(table, column, references, sources) for column, references in keys]


def _pair(table: TableSource, column: str, references: str, tables: Mapping[str, TableSource]) -> KeyPair:
    name, _, other = references.rpartition(".")
    name = canonical(name)
    if name not in tables:
        raise UnknownTable(f"There is no table {name}{did_you_mean(name, tables)}")
    return KeyPair.of(_column(table, column), _column(tables[name], other))


def _column(table: TableSource, name: str) -> ColumnRef:
    columns = {column.name.lower() for column in table.columns}
    if name.lower() not in columns:
        raise UnknownColumn(f"There is no column {name} in {table.name}{did_you_mean(name, columns)}")
    return ColumnRef(table.name.lower(), name.lower())
