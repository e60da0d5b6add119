"""Values that readers of lake formats take and return."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from engines.files.manifest import Manifest, SnapshotFile
from sql.tables import Column, PartitionBy

PARQUET_ID = "parquet.field.id"
"""Key of a field id in Spark's JSON schema."""
LONGEST_REASON = 300
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


class LakeUnreadable(Exception):
    """A lake table cannot be read; the message is a clause that says why and what to do."""


class TableGone(LakeUnreadable):
    """A catalog has no such table."""


class LakeUnwritable(Exception):
    """A commit to a lake table is refused; the message is a clause that says why and what to do."""


class LakeConflict(Exception):
    """Others have committed what the commit rests on: its rows have to be computed anew."""


class Replaced(StrEnum):
    """Data files whose place the rows of a commit take."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    PARTITIONS = "partitions"
    """Those in the partitions of the rows that come."""
    FILES = "files"
    """Those that the commit names."""


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """One commit to a lake table.

    query_id: of the statement; it is noted in the table's log, so that no commit is made twice.
    operation: for the table's history, such as INSERT.
    files: Parquet files on this machine with the rows to add: all columns of the table, by name.
    replaced: which data files go.
    paths: the data files that go with FILES, by absolute path, each with the number of its deleted rows.
    base: id of the snapshot that ``paths`` are of, or that the rows to add were computed from.
    is_alone: any commit of others since ``base`` is a conflict.
    """

    query_id: str
    operation: str
    files: tuple[str, ...] = ()
    replaced: Replaced = Replaced.NOTHING
    paths: Mapping[str, int] = field(default_factory=dict)
    base: str | None = None
    is_alone: bool = False


class At(StrEnum):
    """Ways to name a snapshot."""

    VERSION = "version"
    """Delta's version number; Iceberg's snapshot id, or the name of a branch or tag."""
    TIMESTAMP = "timestamp"
    """The last snapshot at a moment, given in milliseconds since 1970, UTC."""
    METADATA = "metadata"
    """Metadata of the newest snapshot, by the name of a metadata table."""


@dataclass(frozen=True, slots=True)
class SnapshotName:
    """The snapshot that a statement asks for."""

    at: At
    value: str


@dataclass(frozen=True, slots=True)
class ResolvedSnapshot:
    """One snapshot of a lake table.

    columns: of the table in this snapshot, in its order.
    partition_columns: names of columns that no file stores: the log tells their values.
    """

    columns: tuple[Column, ...]
    partition_columns: tuple[str, ...]
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One snapshot of a table's history.

    at_ms: when it was committed, in milliseconds since 1970, UTC.
    operation: of its writer, such as WRITE or append.
    details: what the writer noted of it.
    """

    id: str
    at_ms: int
    operation: str
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableDescription:
    """Description of a table by its metadata.

    partition_by: of partitions that are not columns; none where they are.
    """

    properties: Mapping[str, str]
    partition_by: tuple[PartitionBy, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletedFile:
    """A file that was deleted, or would be. path: below the table's folder. bytes: None: unknown."""

    path: str
    bytes: int | None


def require_base(change: LakeCommit, current: str) -> None:
    """Raise LakeConflict where a commit has to be the next one after its base, and others were faster."""
    if change.is_alone and current != change.base:
        raise LakeConflict(f"others have committed {current} after {change.base}")


def named_files(change: LakeCommit, files: Iterable[SnapshotFile], current: str) -> list[SnapshotFile]:
    """Return the data files that a commit names. files: of the snapshot ``current``. Raises LakeConflict."""
    require_base(change, current)
    present = {file.path: file for file in files}
    for path, deleted in change.paths.items():
        if path not in present or present[path].deleted_rows != deleted:
            raise LakeConflict("others have replaced its files, or deleted rows of them")
    return [present[path] for path in change.paths]


def one_line(failure: Exception) -> str:
    """Return an error of a library as a part of a message, without colors of a terminal."""
    return " ".join(_COLORS.sub("", f"{type(failure).__name__}: {failure}").split())[:LONGEST_REASON]


@lru_cache(8_192)
def followed(folder: str) -> str:
    """Return a folder with links followed; remembered until ``cache_clear``, as tables have many files in each."""
    return os.path.realpath(folder)


def require_within(folder: str, path: str) -> str:
    """Return a path that lies in a table's folder, with links followed. Raises LakeUnreadable for another one."""
    try:
        real = os.path.realpath(path) if os.path.islink(path) else os.path.join(followed(os.path.dirname(path)), "file")
        is_within = real.startswith(f"{followed(folder)}{os.sep}")
    except ValueError as failure:
        raise LakeUnreadable(f"its log names a file {path!r:.80}, which is not a path") from failure
    if not is_within:
        raise LakeUnreadable(f"its file {path} lies outside the table's folder: register the folder that holds both")
    return path
