"""One try of a change: which files hold rows to be changed, and what is written in their place."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from engines.arrow_types import spark_type
from engines.compiled import SPARK_WRITER
from engines.files.listing import DataFile, data_files
from engines.protocol import TableFiles, WriteTarget
from gateway.commands.dml import change_queries as queries
from gateway.commands.dml.change_queries import ChangeKind, ChangeRows
from gateway.errors import SeveralMatches
from gateway.execution.staged_rows import Produce
from metastore.discovery.inspection import path_of
from metastore.discovery.inspector import inspect
from sql.tables import Column, TableSource

_HIDDEN = "_"  # before names of folders, so that nobody takes what is in them for the table's


class TableMoved(Exception):
    """The table's files are no longer those that the try began with."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a try wrote. files: new ones, as paths below the staged folder. replaced: files of the table that go.

    updated, deleted, inserted: rows; None where it is not known.
    """

    files: tuple[str, ...]
    replaced: tuple[DataFile, ...]
    updated: int | None = 0
    deleted: int | None = 0
    inserted: int | None = 0


class Rewrite:
    """One try. staged: the folder for what it writes. files: all of the table's. read: those of all tables it reads."""

    def __init__(
        self,
        change: ChangeRows,
        staged: Path,
        number: int,
        files: tuple[DataFile, ...],
        read: tuple[TableFiles, ...],
        produce: Produce,
    ) -> None:
        self._change = change
        self._staged = staged
        self._number = number
        self._files = files
        self._read = read
        self._produce = produce
        self._written: tuple[str, ...] = ()

    def run(self) -> Changed:
        """Write what the change needs. Raises EngineError, SeveralMatches, TableMoved, InspectionFailed, OSError."""
        change, files = self._change, self._files
        if change.rows is None and change.added is None:
            rows = self._inspected(Path(change.target.location)) if files else 0
            if rows != 0:
                self._write(queries.none(change), "rows", files, replaces_all=True)
            return Changed(self._written, files if rows != 0 else (), deleted=rows)
        if change.source is not None:
            self._read += (self._write_source(change.source.sql(SPARK_WRITER)),)
        touched, updated, deleted = self._touched()
        if touched:
            self._write(queries.rewritten(change), "rows", touched, replaces_all=len(touched) == len(files))
        inserted = self._write(queries.added(change), "added", files) if change.added is not None else 0
        return Changed(self._written, touched, updated, deleted, inserted)

    def discard(self) -> None:
        """Delete what was written for the table."""
        for file in self._written:
            (self._staged / file).unlink()

    def _write_source(self, sql: str) -> TableFiles:
        """Write the source's rows: they are the same then, each time that they are read."""
        folder = self._folder("source")
        schema = self._produce(sql, WriteTarget(str(folder), "parquet", read=self._read))
        columns = tuple(Column(field.name, spark_type(field.type)) for field in schema)
        place = TableSource(queries.SOURCE, str(folder), "parquet", columns)
        return TableFiles(place, tuple(str(file.path) for file in data_files(folder)))

    def _touched(self) -> tuple[tuple[DataFile, ...], int | None, int | None]:
        """Return the files that hold rows to be changed, and how many rows get values and how many go."""
        change = self._change
        if change.rows is None or not self._files:
            return (), 0, 0
        if not change.repeatable:  # the second look might find other rows than the first one
            return self._files, None, None
        folder = self._folder("found")
        self._produce(queries.found(change), WriteTarget(str(folder), "parquet", read=self._reads(self._files)))
        found = pa.concat_tables([pq.read_table(file.path) for file in data_files(folder)]).to_pylist()
        if change.single_match and any(row[queries.MATCHES] > 1 for row in found):
            most = max(row[queries.MATCHES] for row in found)
            message = (
                f"A row of {change.target.name} meets {most} rows of the source, so that it is not clear which of them "
                "counts; nothing was changed. Let the source have one row for each, or say more behind ON."
            )
            raise SeveralMatches(message)
        known = {file.path: file for file in self._files}
        hit = [row for row in found if row[queries.UPDATED] or row[queries.DELETED]]
        touched = [known.get(path_of(row[queries.FILE])) for row in hit]
        if None in touched:
            raise TableMoved
        updated, deleted = (sum(row[name] for row in hit) for name in (queries.UPDATED, queries.DELETED))
        return tuple(file for file in touched if file is not None), updated, deleted

    def _write(self, sql: str, name: str, files: tuple[DataFile, ...], *, replaces_all: bool = False) -> int | None:
        """Write rows for the table, and return how many.

        files: those of it that the query reads. replaces_all: no other file of the table stays, so that an empty one,
        which engines leave where there is no partition, is its last: DuckDB reads no table without files.
        """
        target = self._change.target
        folder = self._folder(name)
        place = WriteTarget(
            str(folder),
            target.format,
            columns=target.columns,
            partition_columns=target.partition_columns,
            read=self._reads(files),
        )
        self._produce(sql, place)
        new = data_files(folder)
        rows = self._inspected(folder) if new else 0
        if rows == 0 and not replaces_all:
            return 0
        for file in new:
            below = file.path.relative_to(folder)
            (self._staged / below).parent.mkdir(parents=True, exist_ok=True)
            os.rename(file.path, self._staged / below)
            self._written += (below.as_posix(),)
        shutil.rmtree(folder)
        return rows

    def _reads(self, files: tuple[DataFile, ...]) -> tuple[TableFiles, ...]:
        source = replace(self._change.target, name=queries.CHANGED)
        paths = tuple(str(file.path) for file in files)
        row = queries.ROW if self._change.kind is ChangeKind.MERGE else None  # it keeps filters away from the files
        return (*self._read, TableFiles(source, paths, file_column=queries.FILE, row_column=row))

    def _inspected(self, folder: Path) -> int | None:
        """Return how many rows a folder's files hold."""
        target = self._change.target
        return inspect(target.name, folder, format=target.format).rows

    def _folder(self, name: str) -> Path:
        return self._staged / f"{_HIDDEN}{self._number}-{name}"
