"""Scope of a scan: the whole table, the files that are new since the last one, or a sample."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from engines.files.listing import DataFile
from engines.files.manifest import read_manifest
from metastore.records import StatisticsPart
from sql.tables import TableSource
from statsproc.read.files import FileShape, FileUnusable, Piece, fields_of, look, look_at_all, splits_of
from statsproc.read.lake import SnapshotRows
from statsproc.read.plain_text import pieces_of
from statsproc.read.scan import FolderFiles
from statsproc.sketches.column_summary import is_text

FEWEST_PIECES = 8  # of a sample, if there are so many
DIRECT = ("parquet", "orc")  # formats that tasks read themselves


@dataclass(frozen=True, slots=True)
class ScanScope:
    """Files to read, and summaries that still hold.

    to_read: files to read, by partition.
    reused: partitions whose stored summary is still valid; it is merged with that of the files to read, if any.
    """

    to_read: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    reused: Mapping[str, StatisticsPart] = field(default_factory=dict)

    @property
    def files(self) -> int:
        """Tell how many files are read."""
        return sum(len(files) for files in self.to_read.values())


@dataclass(frozen=True, slots=True)
class Pieces:
    """Files of a scope, cut for reading.

    shapes: contents of their footers.
    splits: pieces for tasks that read by themselves.
    folders: files for Spark's reader; text has both, since only reading shows whether it is plain.
    share: share of the scope, by rows if they are known, else by bytes.
    """

    shapes: tuple[FileShape, ...]
    splits: tuple[Piece, ...]
    folders: tuple[FolderFiles, ...]
    share: float = 1.0

    @property
    def rows(self) -> int | None:
        """Rows in all files, read or not; None where footers do not tell."""
        return None if (self.folders or self.splits) and not self.shapes else sum(shape.rows for shape in self.shapes)


def snapshot_of(source: TableSource) -> SnapshotRows | None:
    """Return the rows of a lake table's snapshot; None: it is a table of files."""
    return None if source.snapshot is None else SnapshotRows.of(read_manifest(source.snapshot.manifest))


def everything(files: Iterable[DataFile]) -> ScanScope:
    """Read all files."""
    return ScanScope(to_read=_by_folder(files))


def changed(
    files: Iterable[DataFile], root: Path, stored: Sequence[StatisticsPart], *, only: Sequence[str] = ()
) -> ScanScope:
    """Return the scope of files that changed since the stored summaries. only: partitions to consider; empty: all.

    A partition that only gained files is merged with what they hold; one in which a file changed or went is read
    anew; one that is gone takes its summary with it.
    """
    current = _by_folder(files)
    by_folder = {part.folder: part for part in stored}
    to_read: dict[str, tuple[DataFile, ...]] = {}
    reused: dict[str, StatisticsPart] = {}
    for folder, members in current.items():
        part = by_folder.get(folder)
        if only and folder not in only:
            if part is not None:
                reused[folder] = part
            continue
        now = {file.mark(root): file for file in members}
        before = set(part.files) if part is not None else set()
        if part is not None and before <= set(now):
            reused[folder] = part
            new = tuple(file for mark, file in now.items() if mark not in before)
            if new:
                to_read[folder] = new
        else:
            to_read[folder] = members
    return ScanScope(to_read, reused)


def pieces(scope: ScanScope, source: TableSource, columns: Mapping[str, str], *, share: float = 1.0) -> Pieces:
    """Look at the files and cut them. columns: to read. share: to read of row groups, or of files. Raises FileUnusable.

    The share is drawn by the table's name, so that the same data give the same statistics.
    """
    files = [(folder, file) for folder, members in scope.to_read.items() for file in members]
    chance = np.random.Generator(np.random.PCG64(zlib.crc32(source.name.encode())))
    shapes: list[FileShape] = []
    snapshot = snapshot_of(source)
    if source.format in DIRECT or snapshot is not None:
        shapes = look_at_all(
            [
                partial(
                    look,
                    file.path,
                    source.format if snapshot is None else "parquet",
                    folder,
                    file_bytes=file.bytes,
                    modified_ns=file.modified_ns,
                )
                for folder, file in files
            ]
        )
    if shapes and not any(shape.through_spark for shape in shapes):
        groups = [(shape, group) for shape in shapes for group in range(len(shape.groups))]
        sizes = [shape.groups[group][0] for shape, group in groups]
        drawn = groups if share >= 1.0 else [groups[i] for i in _drawn(chance, sizes, share)]
        wanted: dict[str, list[int]] = {}
        for shape, group in drawn:
            wanted.setdefault(shape.path, []).append(group)
        splits = [
            split
            for shape in shapes
            if shape.path in wanted
            for split in splits_of(
                shape,
                fields_of(shape, columns, is_text=is_text, names=None if snapshot is None else snapshot.names),
                sorted(wanted[shape.path]),
                None if snapshot is None else snapshot.deleted.get(shape.path),
            )
        ]
        rows = sum(shape.rows for shape in shapes)
        read = sum(shape.groups[group][0] for shape, group in drawn)
        return Pieces(tuple(shapes), tuple(splits), (), read / rows if rows else 1.0)
    if snapshot is not None and files:
        raise FileUnusable(f"{source.name} has files of Spark 2, whose early dates only Spark reads: rewrite them")
    chosen = files if share >= 1.0 else [files[i] for i in _drawn(chance, [file.bytes for _, file in files], share)]
    folders = _folders((folder, str(file.path), file.bytes) for folder, file in chosen)
    plain = [list(pieces_of(source, file, folder, columns)) for folder, file in chosen if file.bytes]
    together = [piece for of_file in plain for piece in of_file] if all(plain) else []  # one reader for all files
    size = sum(file.bytes for _, file in files)
    return Pieces(
        tuple(shapes), tuple(together), folders, sum(folder.bytes for folder in folders) / size if size else 1.0
    )


def whole_files(splits: Iterable[Piece]) -> tuple[FolderFiles, ...]:
    """Return the files of splits, for Spark's reader."""
    return _folders({(split.folder, split.path, split.file_bytes) for split in splits})


def _folders(files: Iterable[tuple[str, str, int]]) -> tuple[FolderFiles, ...]:
    """Put files together by folder. files: folder, path and bytes of each."""
    grouped: dict[str, list[tuple[str, int]]] = {}
    for folder, path, size in files:
        grouped.setdefault(folder, []).append((path, size))
    return tuple(
        FolderFiles(folder, tuple(path for path, _ in members), sum(size for _, size in members))
        for folder, members in grouped.items()
    )


def _by_folder(files: Iterable[DataFile]) -> dict[str, tuple[DataFile, ...]]:
    grouped: dict[str, list[DataFile]] = {}
    for file in files:
        grouped.setdefault(file.folder, []).append(file)
    return {folder: tuple(members) for folder, members in sorted(grouped.items())}


def _drawn(chance: np.random.Generator, sizes: Sequence[int], share: float) -> list[int]:
    """Draw pieces until they hold a share of all, at least several: neighbours in a table are alike."""
    order = chance.permutation(len(sizes))
    held = np.cumsum(np.array(sizes, dtype=np.float64)[order])
    enough = int(np.searchsorted(held, share * held[-1], side="left")) + 1 if len(sizes) else 0
    return sorted(order[: max(enough, FEWEST_PIECES)].tolist())
