"""A look at a folder or file: what table it is, from the files themselves.

It reads files that strangers may have written. In a gateway it runs in a process of its own (``inspector.py``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from engines.protocol import FORMATS, Column, InvalidTable, TableSource, require_options
from metastore.discovery.formats import InspectionFailed, format_of, look
from metastore.records import CatalogTable, FileMark, Inspection, Partition

__all__ = ["DEFAULT_PARTITION", "DataFile", "InspectionFailed", "data_files", "inspect", "listed", "path_of"]

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # Hive's folder for NULL
LONGEST_PATH = 4_096  # as Linux has it
MOST_LEVELS = 64  # of folders
_INT_MAX = 2**31 - 1
_BIGINT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table. folder: its Hive-style partition folder relative to the table, "" without one."""

    path: Path
    bytes: int
    folder: str
    values: Mapping[str, str]
    modified_ns: int

    def mark(self, root: Path) -> FileMark:
        """Return what tells later whether this is still the same file of the table at ``root``."""
        path = self.path.name if self.path == root else self.path.relative_to(root).as_posix()
        return FileMark(path, self.bytes, self.modified_ns)


def inspect(
    name: str,
    location: str | Path,
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    columns: Sequence[Column] | None = None,
    alive: Callable[[], None] = lambda: None,
) -> Inspection:
    """Say what table lies at a location: format, columns, files, partitions, and rows where files count them.

    format, options (engines.protocol.OPTIONS) and columns: what the caller knows; the rest is found out. Text and JSON
    are judged by the first megabyte of the first file, with types wide enough for what may follow (``bigint``,
    ``double``). alive: called before each folder and file that is read.
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
    files = data_files(root, alive)
    if not files:
        raise InspectionFailed(
            f"{root} holds no data files (names that start with _ or . do not count): "
            "write the table's files there first, or give another location"
        )
    found = _format(files, format, alive)
    require_options(found, options)
    partition_columns = _partition_columns(files, root)
    told = {column.name.lower(): column for column in columns}
    inside = {column.name.lower() for column in partition_columns}
    in_files = tuple(column for name, column in told.items() if name not in inside)
    content = look(found, [file.path for file in files], options, in_files, alive)
    own = tuple(column for column in content.columns if column.name.lower() not in inside)
    return Inspection(
        source=TableSource(
            name=name,
            location=str(root),
            format=found,
            columns=own + tuple(told.get(column.name.lower(), column) for column in partition_columns),
            partition_columns=tuple(column.name for column in partition_columns),
            options=content.options,
        ),
        files=len(files),
        bytes=sum(file.bytes for file in files),
        rows=content.rows,
        partitions=_partitions(files),
        declared=bool(columns),
    )


def listed(table: CatalogTable) -> Inspection:
    """Say what lies at a registered table's location now, by the names and sizes of its files alone.

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


def data_files(root: Path, alive: Callable[[], None] = lambda: None) -> tuple[DataFile, ...]:
    """Return a table's files in path order, without hidden ones (leading ``_`` or ``.``) and empty folders.

    Links to folders do not count. Raises InspectionFailed for a link to a file outside the table's own folder.
    """
    if root.is_file():
        stat = root.stat()
        return (DataFile(root, stat.st_size, "", {}, stat.st_mtime_ns),)
    return tuple(_walk(root, (), root.resolve(), alive))


def path_of(location: str) -> Path:
    """Return the path that a location means, whether anything is there or not. Raises InspectionFailed."""
    text = location
    if text.startswith("file:"):
        text = unquote(re.sub(r"^file:(//[^/]*)?", "", text))
    elif "://" in text:
        raise InspectionFailed(f"{text} is not on this machine: give a folder or file that the gateway can read")
    if len(text) > LONGEST_PATH:
        raise InspectionFailed(f"{text[:80]}... is no path: it has more than {LONGEST_PATH:,} characters")
    if "\0" in text:
        raise InspectionFailed(f"{text!r} is no path: it holds a zero byte")
    try:
        path = Path(text).expanduser()
    except RuntimeError as failure:
        raise InspectionFailed(f"{text} begins with a home that is not known: give an absolute path") from failure
    if not path.is_absolute():
        raise InspectionFailed(f"{location!r} is no absolute path: the gateway's own folder is nobody's table")
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


def _walk(folder: Path, steps: tuple[str, ...], home: Path, alive: Callable[[], None]) -> Iterator[DataFile]:
    """Yield the files below a folder that lies ``steps`` below the table's. home: that one, links resolved."""
    if len(steps) > MOST_LEVELS:
        raise InspectionFailed(
            f"{folder} lies more than {MOST_LEVELS} folders below the table's: give one further down"
        )
    alive()
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as failure:
        raise InspectionFailed(
            f"{folder} cannot be read ({failure.strerror}): let the gateway's user read it"
        ) from failure
    values = dict(_partition_value(step) for step in steps if "=" in step)
    for entry in entries:
        if entry.name.startswith(("_", ".")):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, (*steps, entry.name), home, alive)
            continue
        try:
            if not entry.is_file():
                continue  # pipes, devices, links to folders and links that lead nowhere
            stat = entry.stat()
        except OSError:  # a link that leads to itself
            continue
        path = folder / entry.name
        if entry.is_symlink() and not path.resolve().is_relative_to(home):
            raise InspectionFailed(
                f"{path} is a link that leads out of the table's folder: put the file itself there, or remove the link"
            )
        yield DataFile(path, stat.st_size, "/".join(steps) if values else "", values, stat.st_mtime_ns)


def _partition_value(step: str) -> tuple[str, str]:
    column, _, value = step.partition("=")
    return unquote(column), unquote(value)


def _partition_columns(files: Sequence[DataFile], root: Path) -> tuple[Column, ...]:
    names = tuple(files[0].values)
    for file in files:
        if tuple(file.values) != names:
            raise InspectionFailed(
                f"{root} mixes partition folders: {_levels(names)} and {_levels(file.values)}; "
                "give every file the same levels"
            )
    return tuple(Column(name, _partition_type(file.values[name] for file in files)) for name in names)


def _levels(names: Iterable[str]) -> str:
    return "/".join(f"{name}=..." for name in names) or "none"


def _partition_type(values: Iterable[str]) -> str:
    known = [value for value in values if value != DEFAULT_PARTITION]
    if not known or not all(re.fullmatch(r"-?\d{1,19}", value) for value in known):
        return "string"
    largest = max(abs(int(value)) for value in known)
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


def _format(files: Sequence[DataFile], told: str | None, alive: Callable[[], None]) -> str:
    if told is not None:
        if told not in FORMATS:
            raise InspectionFailed(f"{told} is not a known format: give one of {', '.join(FORMATS)}")
        return told
    kinds: dict[str, str] = {}
    for file in files:
        alive()
        kinds.setdefault(format_of(file.path), file.path.name)
    if len(kinds) > 1:
        seen = " and ".join(f"{kind} ({name})" for kind, name in sorted(kinds.items()))
        raise InspectionFailed(
            f"the folder mixes formats: {seen}; move what does not belong to the table, or say which format it is"
        )
    return next(iter(kinds))
