"""The only listing of a table's files, with the partition values of their folders' names.

Names are ignored as by Spark 4.3 (``HadoopFSUtils.shouldFilterOutPathName``, ``PartitioningUtils.parsePartition``), so
that Spark, which lists folders itself, reads the same files. Folders that Spark would refuse, or read differently from
other engines, are refused here, with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from engines.files.lake_formats import lake_format

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # Hive's folder for NULL
MOST_LEVELS = 64  # of folders
_COPYING = "._COPYING_"  # ending of a file that `hdfs dfs -put` is still writing
_NOT_ASCII = re.compile(r"%[89A-Fa-f][0-9A-Fa-f]")


class InspectionFailed(Exception):
    """The location has no readable table; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class FileMark:
    """Size and time of a file, to detect a change.

    path: relative to the table's location.
    modified_ns: of a file of a lake table, which only loses rows and fields, ``DataFile.deleted_mark``.
    """

    path: str
    bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table.

    folder: its partition folder relative to the table, without other folders; "": there is none.
    inode: number of the file on its disk: another one took its place if it differs.
    status_ns: time of its last status change, which nobody can set back.
    deleted_mark: of a file of a lake table, which is never written again: number that tells which of its rows and
        fields count; None: times tell a change.
    """

    path: Path
    bytes: int
    folder: str
    values: Mapping[str, str]
    modified_ns: int
    inode: int = 0
    status_ns: int = 0
    deleted_mark: int | None = None

    def mark(self, root: Path) -> FileMark:
        """Return the mark of the file in the table at ``root``."""
        path = self.path.name if self.path == root else self.path.relative_to(root).as_posix()
        return FileMark(path, self.bytes, self.modified_ns if self.deleted_mark is None else self.deleted_mark)


def is_hidden(name: str) -> bool:
    """Return True for names of files and folders that are not part of a table."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith(_COPYING)


def data_files(root: Path, alive: Callable[[], None] = lambda: None) -> tuple[DataFile, ...]:
    """Return a table's files in path order, with those of sub-folders, without hidden ones. A file may be empty.

    Links to folders are ignored. Raises InspectionFailed for folders of a lake format, for a link to a file outside the
    table's own folder, and for folders that engines would read differently.

    alive: called before each folder.
    """
    if root.is_file():
        return (_data_file(root, root.stat(), "", {}),)
    return tuple(_walk(root, (), root.resolve(), alive))


def partition_names(files: Sequence[DataFile], root: Path) -> tuple[str, ...]:
    """Return the partition columns that all files have, outermost first. Raises InspectionFailed."""
    names = tuple(files[0].values) if files else ()
    for file in files:
        if tuple(file.values) != names:
            raise InspectionFailed(
                f"{root} mixes partition folders: {_levels(names)} and {_levels(file.values)}; "
                "give every file the same levels"
            )
    return names


def _levels(names: Iterable[str]) -> str:
    return "/".join(f"{name}=..." for name in names) or "none"


def _walk(folder: Path, steps: tuple[str, ...], home: Path, alive: Callable[[], None]) -> Iterator[DataFile]:
    """Yield the files below a folder. steps: its path below the table's folder. home: that folder, links resolved."""
    if len(steps) > MOST_LEVELS:
        raise InspectionFailed(
            f"{folder} is more than {MOST_LEVELS} folders below the table's folder: give a folder further down"
        )
    alive()
    try:
        with os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    except OSError as failure:
        raise InspectionFailed(
            f"{folder} cannot be read ({failure.strerror}): let the gateway's user read it"
        ) from failure
    if (lake := lake_format(folder, [entry.name for entry in entries])) is not None:
        raise InspectionFailed(lake.refusal(folder))
    values: Mapping[str, str] | None = None
    partition = ""
    for entry in entries:
        if is_hidden(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, (*steps, entry.name), home, alive)
            continue
        try:
            if not entry.is_file():
                continue  # pipes, devices, links to folders and links that lead nowhere
            stat = entry.stat()
        except OSError:  # a link that leads to itself, or a file that has just gone
            continue
        path = folder / entry.name
        if entry.is_symlink() and not path.resolve().is_relative_to(home):
            raise InspectionFailed(
                f"{path} is a link that leads out of the table's folder: put the file itself there, or remove the link"
            )
        if values is None:
            levels = _partition_levels(steps, folder)
            values, partition = _values(levels, folder), "/".join(levels)
        yield _data_file(path, stat, partition, values)


def _data_file(path: Path, stat: os.stat_result, folder: str, values: Mapping[str, str]) -> DataFile:
    return DataFile(path, stat.st_size, folder, values, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns)


def _partition_levels(steps: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Return the steps that are partition folders. Raises InspectionFailed for one below another folder."""
    levels = [step for step in steps if "=" in step]
    if list(steps[: len(levels)]) != levels:
        plain = next(step for step in steps if "=" not in step)
        raise InspectionFailed(
            f"{folder} has the partition folder {levels[-1]} below {plain}, which is not a partition folder: "
            "register the folders that contain partitions as separate tables"
        )
    return tuple(levels)


def _values(levels: Sequence[str], folder: Path) -> Mapping[str, str]:
    values: dict[str, str] = {}
    for level in levels:
        column, _, value = level.partition("=")
        if not column or not value:
            missing = "value" if column else "name"
            raise InspectionFailed(
                f"{folder} has the partition folder {level!r} without a {missing}, which Spark refuses; "
                f"the folder for NULL is called {column or 'column'}={DEFAULT_PARTITION}"
            )
        if _NOT_ASCII.search(level) or "\\" in level:
            raise InspectionFailed(
                f"{folder} has the partition folder {level!r}, which engines read as different texts; its name has no "
                "backslash, and only ASCII characters are escaped in it"
            )
        column = unquote(column)
        if column.lower() in map(str.lower, values):
            raise InspectionFailed(f"{folder} has two partition folders of the column {column}, one in the other")
        values[column] = unquote(value)
    return values
