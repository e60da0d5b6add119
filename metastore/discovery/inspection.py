"""Inspection of a folder or file: the table that its files make up.

The files may come from strangers: a gateway inspects them in a process of its own (``inspector.py``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from engines.files.lake_formats import LakeFormat, lake_format
from engines.files.listing import DEFAULT_PARTITION, DataFile, InspectionFailed, data_files, partition_names
from metastore.discovery.formats import format_of, look, look_for_misfits
from metastore.records import CatalogTable, Inspection, Partition
from sql.bounds import LONGEST_PATH
from sql.tables import FORMATS, LAKE_FORMATS, Column, InvalidTable, TableSource, require_options

__all__ = ["DEFAULT_PARTITION", "DataFile", "InspectionFailed", "data_files", "inspect", "listed", "path_of"]

_INT_MAX = 2**31 - 1
_BIGINT_MAX = 2**63 - 1


def inspect(
    name: str,
    location: str | Path,
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    columns: Sequence[Column] | None = None,
    alive: Callable[[], None] = lambda: None,
) -> Inspection:
    """Return the table at a location: format, columns, files, partitions, and rows where files count them.

    Of text and JSON the first megabyte of the first file is read, and types are wide enough for what may follow
    (``bigint``, ``double``).

    format, options (sql.tables.OPTIONS), columns: given by the caller; None: detected.
    alive: called before each folder and file that is read.
    """
    try:
        return _inspect(name, location, format, dict(options or {}), columns or (), alive)
    except InvalidTable as failure:
        raise InspectionFailed(f"{name} cannot be a table: {failure}") from failure


def _inspect(
    name: str,
    location: str | Path,
    format: str | None,
    options: dict[str, str],
    columns: Sequence[Column],
    alive: Callable[[], None],
) -> Inspection:
    root = _root(location)
    if (lake := _lake_format(root)) is not None:
        return _lake_inspection(name, root, lake, format, options, columns)
    files = data_files(root, alive)
    if not files:
        raise InspectionFailed(
            f"{root} holds no data files (names that start with _ or . do not count): "
            "write the table's files there first, or give another location"
        )
    format = _format(files, format, alive)
    require_options(format, options)
    partition_columns = _partition_columns(files, root)
    declared = {column.name.lower(): column for column in columns}
    in_folders = {column.name.lower() for column in partition_columns}
    in_files = tuple(column for name, column in declared.items() if name not in in_folders)
    content = look(format, [file.path for file in files if file.bytes] or [files[0].path], options, in_files, alive)
    own = tuple(column for column in content.columns if column.name.lower() not in in_folders)
    return Inspection(
        source=TableSource(
            name=name,
            location=str(root),
            format=format,
            columns=own + tuple(declared.get(column.name.lower(), column) for column in partition_columns),
            partition_columns=tuple(column.name for column in partition_columns),
            options=content.options,
        ),
        files=len(files),
        bytes=sum(file.bytes for file in files),
        rows=content.rows,
        partitions=_partitions(files),
        declared=bool(columns),
    )


def _lake_format(root: Path) -> LakeFormat | None:
    """Return the lake format of the table in a folder that can be read by its log; None: there is none."""
    lake = lake_format(root, os.listdir(root)) if root.is_dir() else None
    return lake if lake is not None and lake.format else None


def _lake_inspection(
    name: str, root: Path, lake: LakeFormat, format: str | None, options: Mapping[str, str], columns: Sequence[Column]
) -> Inspection:
    if format not in (None, lake.format):
        raise InspectionFailed(
            f"{root} is a table of {lake.name}, whose log tells its rows: give the format {lake.format}"
        )
    if columns or options:
        raise InspectionFailed(
            f"{root} is a table of {lake.name}, whose log tells its columns: leave columns and options out"
        )
    from metastore.lake.place import TablePlace
    from metastore.lake.resolution import state_of  # with it come the libraries of the formats
    from metastore.lake.values import LakeUnreadable

    try:
        resolved = state_of(lake.format, TablePlace(str(root))).load()
    except LakeUnreadable as failure:
        raise InspectionFailed(f"{root} cannot be read: {failure}") from failure
    source = TableSource(name, str(root), lake.format, resolved.columns, resolved.partition_columns)
    files = resolved.manifest.files
    return Inspection(source, len(files), sum(file.bytes for file in files), resolved.manifest.rows)


def require_fitting(source: TableSource, files: Sequence[str], alive: Callable[[], None] = lambda: None) -> None:
    """Raise InspectionFailed unless some files of a table hold its columns as they are declared."""
    own = [column for column in source.columns if column.name not in source.partition_columns]
    look_for_misfits(source.format, [Path(file) for file in files], own, alive)


def listed(table: CatalogTable) -> Inspection:
    """Return a registered table as it is now, by the names and sizes of its files alone.

    Columns stay as they are registered, but for those of partition folders; rows are not counted.
    """
    source = table.source
    root = _root(source.location)
    files = data_files(root)
    in_folders = _partition_columns(files, root) if files else ()
    own = tuple(column for column in source.columns if column.name not in source.partition_columns)
    return Inspection(
        source=replace(source, columns=own + in_folders, partition_columns=tuple(c.name for c in in_folders)),
        files=len(files),
        bytes=sum(file.bytes for file in files),
        rows=None,
        partitions=_partitions(files),
        declared=table.declared,
    )


def path_of(location: str) -> Path:
    """Return the path of a location, which need not exist. Raises InspectionFailed."""
    text = location
    if text.startswith("file:"):
        text = unquote(re.sub(r"^file:(//[^/]*)?", "", text))
    elif "://" in text:
        raise InspectionFailed(f"{text} is not on this machine: give a folder or file that the gateway can read")
    if len(text) > LONGEST_PATH:
        raise InspectionFailed(f"{text[:80]}... is not a path: it has more than {LONGEST_PATH:,} characters")
    if "\0" in text:
        raise InspectionFailed(f"{text!r} is not a path: it contains a zero byte")
    try:
        path = Path(text).expanduser()
    except RuntimeError as failure:
        raise InspectionFailed(f"{text} begins with the home of an unknown user: give an absolute path") from failure
    if not path.is_absolute():
        raise InspectionFailed(f"{location!r} is not an absolute path: give one that begins with /")
    return path


def _root(location: str | Path) -> Path:
    root = path_of(location) if isinstance(location, str) else location.absolute()
    try:
        exists = root.exists()
    except OSError as failure:
        raise InspectionFailed(f"{root} cannot be read: {failure.strerror}") from failure
    if not exists:
        raise InspectionFailed(f"there is no {root}: check the spelling, and that the gateway sees this disk")
    if not root.is_dir() and not root.is_file():
        raise InspectionFailed(f"{root} is neither a folder nor a plain file")
    return root


def _partition_columns(files: Sequence[DataFile], root: Path) -> tuple[Column, ...]:
    names = partition_names(files, root)
    return tuple(Column(name, _partition_type(file.values[name] for file in files)) for name in names)


def _partition_type(values: Iterable[str]) -> str:
    texts = [value for value in values if value != DEFAULT_PARTITION]
    if not texts or not all(re.fullmatch(r"-?\d{1,19}", text) for text in texts):
        return "string"
    largest = max(abs(int(text)) for text in texts)
    return "int" if largest <= _INT_MAX else "bigint" if largest <= _BIGINT_MAX else "string"


def _partitions(files: Sequence[DataFile]) -> tuple[Partition, ...]:
    by_folder: dict[str, list[DataFile]] = {}
    for file in files:
        if file.values:
            by_folder.setdefault(file.folder, []).append(file)
    return tuple(
        Partition(folder, members[0].values, len(members), sum(member.bytes for member in members))
        for folder, members in sorted(by_folder.items())
    )


def _format(files: Sequence[DataFile], declared: str | None, alive: Callable[[], None]) -> str:
    if declared is not None:
        if declared in LAKE_FORMATS:
            raise InspectionFailed(f"there is no {declared} table: give the folder that holds its log")
        if declared not in FORMATS:
            raise InspectionFailed(f"{declared} is not a known format: give one of {', '.join(FORMATS)}")
        return declared
    kinds: dict[str, str] = {}
    for file in files:
        alive()
        kinds.setdefault(format_of(file.path), file.path.name)
    if len(kinds) > 1:
        seen = " and ".join(f"{kind} ({name})" for kind, name in sorted(kinds.items()))
        raise InspectionFailed(
            f"the folder mixes formats: {seen}; give a location that holds the files of one table, or say which "
            "format it is"
        )
    return next(iter(kinds))
