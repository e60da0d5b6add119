"""One try of a change: which data files hold rows to be changed, and what is written in their place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from engines.arrow_types import spark_type
from engines.compiled import SPARK_WRITER
from engines.files.manifest import Manifest, SnapshotFile
from engines.protocol import TableFiles, WriteTarget
from gateway.commands.dml import change_queries as queries
from gateway.commands.dml.change_queries import ChangeKind, ChangeRows
from gateway.errors import SeveralMatches
from gateway.execution.lake.staging import FORMAT, files_in, rows_in
from gateway.execution.staged_rows import Produce
from metastore.discovery.inspection import path_of
from sql.tables import Column, TableSource


@dataclass(frozen=True, slots=True)
class Changed:
    """Result of a try.

    files: paths of new Parquet files with all columns of the table.
    replaced: data files of the table that go.
    updated, deleted, inserted: rows; None: unknown.
    """

    files: tuple[str, ...]
    replaced: tuple[SnapshotFile, ...]
    updated: int | None = 0
    deleted: int | None = 0
    inserted: int | None = 0


class Rewrite:
    """One try.

    target: the table with the snapshot that the try changes.
    manifest: of that snapshot.
    folder: for what is written; it may not exist yet.
    read: other tables' files.
    """

    def __init__(
        self,
        change: ChangeRows,
        target: TableSource,
        manifest: Manifest,
        folder: Path,
        read: tuple[TableFiles, ...],
        produce: Produce,
    ) -> None:
        self._change = change
        self._target = target
        self._manifest = manifest
        self._folder = folder
        self._read = read
        self._produce = produce

    def run(self) -> Changed:
        """Write what the change needs. Raises EngineError, SeveralMatches, OSError."""
        change, files = self._change, self._manifest.files
        if change.rows is None and change.added is None:
            return Changed((), files, deleted=self._manifest.rows)
        if change.source is not None:
            self._read += (self._write_source(change.source.sql(SPARK_WRITER)),)
        touched, updated, deleted = self._touched()
        rewritten_files = self._write(queries.rewritten(change), "rows", touched) if touched else ()
        added = self._write(queries.added(change), "added", files) if change.added is not None else ()
        return Changed((*rewritten_files, *added), touched, updated, deleted, rows_in(added))

    def _write_source(self, sql: str) -> TableFiles:
        """Write the source's rows, so that each of the other queries reads the same ones."""
        folder = self._folder / "source"
        schema = self._produce(sql, WriteTarget(str(folder), FORMAT, read=self._read))
        columns = tuple(Column(field.name, spark_type(field.type)) for field in schema)
        return TableFiles(TableSource(queries.SOURCE, str(folder), FORMAT, columns), files_in(folder))

    def _touched(self) -> tuple[tuple[SnapshotFile, ...], int | None, int | None]:
        """Return the files that hold rows to be changed, and how many rows get values and how many go."""
        change = self._change
        if change.rows is None or not self._manifest.files:
            return (), 0, 0
        if not change.repeatable:  # the second look might find other rows than the first one
            return self._manifest.files, None, None
        folder = self._folder / "found"
        reads = self._reads(self._manifest.files)
        self._produce(queries.found(change), WriteTarget(str(folder), FORMAT, read=reads))
        rows = pa.concat_tables([pq.read_table(path) for path in files_in(folder)]).to_pylist()
        if change.single_match and any(row[queries.MATCHES] > 1 for row in rows):
            most = max(row[queries.MATCHES] for row in rows)
            raise SeveralMatches(
                f"A row of {change.target.name} meets {most} rows of the source, so that it is not clear which of them "
                "counts; nothing was changed. Let the source have one row for each, or say more behind ON."
            )
        by_path = {Path(file.path): file for file in self._manifest.files}
        hit = [row for row in rows if row[queries.UPDATED] or row[queries.DELETED]]
        touched = tuple(by_path[path_of(row[queries.FILE])] for row in hit)
        updated, deleted = (sum(row[name] for row in hit) for name in (queries.UPDATED, queries.DELETED))
        return touched, updated, deleted

    def _write(self, sql: str, name: str, files: tuple[SnapshotFile, ...]) -> tuple[str, ...]:
        """Write rows for the table, and return the paths of their files. files: those of it that the query reads."""
        folder = self._folder / name
        target = WriteTarget(str(folder), FORMAT, columns=self._target.columns, read=self._reads(files))
        self._produce(sql, target)
        return files_in(folder)

    def _reads(self, files: tuple[SnapshotFile, ...]) -> tuple[TableFiles, ...]:
        source = replace(self._target, name=queries.CHANGED)
        row = queries.ROW if self._change.kind is ChangeKind.MERGE else None
        paths = tuple(file.path for file in files)
        return (*self._read, TableFiles(source, paths, file_column=queries.FILE, row_column=row))
