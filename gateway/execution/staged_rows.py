"""Staged rows: files that an engine wrote beside a table's, and the files that they replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from engines.compiled import SPARK_WRITER
from engines.files.listing import data_files
from engines.protocol import WriteTarget
from gateway.catalog.partition_values import value_of
from gateway.commands.dml.inserts import InsertInto
from gateway.statements.partitions import Overwrite
from metastore.discovery.inspector import inspect

_NO_DATA = ("_", ".")

Produce = Callable[[str, WriteTarget], pa.Schema]
"""Has an engine write a query's rows; returns the query's columns."""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows that are written and not yet committed to a table. folder: folder of their files, below the table's."""

    write: InsertInto
    commit_id: str
    folder: Path

    @property
    def root(self) -> Path:
        """The table's folder."""
        return Path(self.write.target.location)

    def produce(self, produce: Produce) -> int | None:
        """Write the rows, and return their number; None: unknown."""
        source = self.write.target
        target = target_of(self.write, self.folder, source.format)
        produce(self.write.query.sql(SPARK_WRITER), replace(target, partition_columns=source.partition_columns))
        return inspect(source.name, self.folder, format=source.format).rows if _visible_files(self.folder) else 0

    def files(self) -> list[str]:
        """Return the files that an engine wrote, as paths below the folder."""
        return _visible_files(self.folder)

    def replaced(self) -> list[str]:
        """Return the table's files whose place they take, as paths below the table's folder."""
        return _replaced(self.write, self.root, self.folder) if self.write.overwrite is not None else []


def target_of(write: InsertInto, folder: Path, format: str) -> WriteTarget:
    """Return the destination in a folder for the rows of an INSERT, with all of the table's columns."""
    types = {column.name: column for column in write.target.columns}
    others = {name: None for name in types if name not in write.columns} | dict(write.constants)
    return WriteTarget(
        str(folder),
        format,
        columns=tuple(types[name] for name in write.columns),
        constants=tuple((types[name], value) for name, value in others.items()),
        by_name=write.by_name,
    )


def _replaced(write: InsertInto, root: Path, staged: Path) -> list[str]:
    """Return the files that an overwrite takes away: all of the partitions that it means."""
    types = {column.name: column.data_type for column in write.target.columns}
    written = data_files(staged)
    dynamic = write.overwrite is Overwrite.DYNAMIC and len(write.constants) < len(write.target.partition_columns)
    names = write.target.partition_columns if dynamic else tuple(write.constants)

    def values_of(texts: Mapping[str, str | None]) -> tuple[object, ...]:
        return tuple(value_of(texts.get(name), types[name]) for name in names)

    if dynamic or written:  # the text of a constant is Spark's own, where there is a row
        meant = {values_of(file.values) for file in written}
    else:
        meant = {values_of(write.constants)}
    new = {file.path.relative_to(staged) for file in written}
    old = [file.path.relative_to(root) for file in data_files(root) if values_of(file.values) in meant]
    return [path.as_posix() for path in old if path not in new]


def _visible_files(folder: Path) -> list[str]:
    """Return the files that an engine wrote, as paths below its folder."""
    paths = sorted(file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    return [file.as_posix() for file in paths if not file.name.startswith(_NO_DATA)]
