"""Statements that write: a dependable engine writes files, the gateway makes them a table's.

Files are written beside the table first, in a folder that no reader looks into. Renaming that folder is the commit:
from then on its files are moved into the table, by the next gateway if this one is killed meanwhile. Before it, nothing
of them is ever seen. A new table is seen once it is in the catalog.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from engines.protocol import Column, TableSource, WriteTarget
from gateway.sql.writes import CreateTable, DropTable, InsertInto, Write
from gateway.statements import Run
from metastore.catalog import AlreadyThere
from metastore.inspection import DEFAULT_PARTITION, InspectionFailed, data_files, inspect, spark_type
from metastore.records import CatalogTable, Failure, Inspection
from metastore.store import Metastore

log = logging.getLogger(__name__)

TABLE_EXISTS = "TABLE_EXISTS"
WRITE_FAILED = "WRITE_FAILED"
INSERTABLE = ("parquet", "orc")
ROWS_WRITTEN = pa.schema([("rows_written", pa.int64())])

_STAGED = ".fusion-write-"
_COMMITTED = ".fusion-commit-"
_REPLACED = "replaced.json"
_NO_DATA = ("_", ".")

Produce = Callable[[str, WriteTarget], pa.Schema]


class WriteFailed(Exception):
    """A write that was accepted came to nothing; the table is as it was."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(code, message)


class TableWriter:
    """Carries writes out. Thread-safe; each runs in the thread of its statement. warehouse: folder of new tables."""

    def __init__(self, metastore: Metastore, warehouse: Path) -> None:
        self._metastore = metastore
        self._warehouse = warehouse

    def write(self, write: Write, run: Run, produce: Produce) -> pa.Table:
        """Do what a write says, with rows that ``produce`` writes; tell how many. Raises WriteFailed, EngineError."""
        try:
            match write:
                case CreateTable():
                    rows = self._create(write, run, produce)
                case InsertInto():
                    rows = self._insert(write, run, produce)
                case DropTable():
                    rows = self._drop(write)
        except OSError as error:
            raise WriteFailed(WRITE_FAILED, f"Files could not be written: {error.strerror or error}.") from error
        return pa.table([[rows]], schema=ROWS_WRITTEN)

    def recover(self) -> None:
        """End what an earlier gateway had begun: committed files go into their table, others are deleted."""
        for table in self._metastore.catalog.list():
            root = Path(table.source.location)
            if not root.is_dir():
                continue
            for folder in [*root.glob(f"{_STAGED}*"), *root.glob(f"{_COMMITTED}*")]:
                query = self._metastore.queries.get(folder.name.rpartition("-")[2])
                if query is not None and not query.state.ended:
                    continue  # another gateway is at it
                if folder.name.startswith(_COMMITTED):
                    _move_in(folder, root)
                    self._look_again(table)
                    log.warning("the files of an earlier write were moved into %s", table.source.name)
                else:
                    shutil.rmtree(folder, ignore_errors=True)

    def _create(self, write: CreateTable, run: Run, produce: Produce) -> int | None:
        if self._metastore.catalog.get(write.table) is not None:
            return self._exists(write)
        folder = self._warehouse / f"{write.table}-{run.id}"
        target = WriteTarget(str(folder), write.format, partition_columns=write.partition_columns)
        kept = False
        try:
            schema = produce(_query(write), target)
            found = _made(write, folder, schema)
            self._metastore.catalog.put(found, at=dt.datetime.now(dt.UTC), new=True)
            kept = True
        except AlreadyThere:
            return self._exists(write)
        finally:
            if not kept:
                shutil.rmtree(folder, ignore_errors=True)
        return found.rows

    def _exists(self, write: CreateTable) -> int:
        if write.if_not_exists:
            return 0
        raise WriteFailed(TABLE_EXISTS, f"There is a table {write.table} already.")

    def _insert(self, write: InsertInto, run: Run, produce: Produce) -> int | None:
        source = write.target
        root = Path(source.location)
        if source.format not in INSERTABLE or root.is_file():
            what = "one file" if root.is_file() else source.format
            raise WriteFailed(
                WRITE_FAILED, f"Rows can be added to tables in {' or '.join(INSERTABLE)}; this is {what}."
            )
        types = {column.name: column for column in source.columns}
        others = {name: None for name in types if name not in write.columns} | dict(write.constants)
        target = WriteTarget(
            str(root / f"{_STAGED}{run.id}"),
            source.format,
            columns=tuple(types[name] for name in write.columns),
            constants=tuple((types[name], value) for name, value in others.items()),
            partition_columns=source.partition_columns,
        )
        staged = Path(target.folder)
        try:
            produce(write.query.sql("spark"), target)
            files = [file for file in staged.rglob("*") if file.is_file() and not file.name.startswith(_NO_DATA)]
            rows = inspect(source.name, staged, format=source.format).rows if files else 0
            replaced = _replaced(write, root) if write.overwrite else []
            (staged / _REPLACED).write_text(json.dumps(replaced), encoding="utf-8")
            committed = staged.rename(root / f"{_COMMITTED}{run.id}")
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        _move_in(committed, root)
        table = self._metastore.catalog.get(source.name)
        if table is not None and table.source.location == source.location:
            self._look_again(table)
        return rows

    def _drop(self, write: DropTable) -> int:
        table = self._metastore.catalog.get(write.table)
        if table is None or not self._metastore.catalog.remove(write.table):
            return 0
        if Path(table.source.location).parent == self._warehouse:
            shutil.rmtree(table.source.location, ignore_errors=True)
        return 0

    def _look_again(self, table: CatalogTable) -> None:
        """Put a table into the catalog as its files are now; its columns stay."""
        source = table.source
        try:
            found = inspect(
                source.name, source.location, format=source.format, options=source.options, columns=source.columns
            )
        except InspectionFailed:  # nothing is left in it
            found = Inspection(source, files=0, bytes=0, rows=0)
        found = replace(found, declared=table.declared)
        self._metastore.catalog.put(found, at=dt.datetime.now(dt.UTC))


def _query(write: CreateTable) -> str:
    if write.query is not None:
        return write.query.sql("spark")
    columns = ", ".join(f"CAST(NULL AS {column.data_type}) AS {_quoted(column.name)}" for column in write.columns)
    return f"SELECT {columns} WHERE FALSE"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _made(write: CreateTable, folder: Path, schema: pa.Schema) -> Inspection:
    """Say what table was made. Its columns are the query's, whatever the files can say of their types."""
    columns = write.columns or tuple(Column(field.name, spark_type(field.type)) for field in schema)
    by_name = {column.name.lower(): column.name for column in columns}
    folders = tuple(by_name[name.lower()] for name in write.partition_columns)
    own = tuple(column for column in columns if column.name not in folders)
    last = tuple(next(column for column in columns if column.name == name) for name in folders)
    if data_files(folder):
        return inspect(write.table, folder, format=write.format, columns=own + last)
    source = TableSource(write.table, str(folder), write.format, own + last, partition_columns=folders)
    return Inspection(source, files=0, bytes=0, rows=0, declared=True)


def _replaced(write: InsertInto, root: Path) -> list[str]:
    """Return the files that an overwrite takes away: all, or those of the partitions that it names."""
    wanted = {name: DEFAULT_PARTITION if value is None else value for name, value in write.constants.items()}
    return [
        file.path.relative_to(root).as_posix()
        for file in data_files(root)
        if all(file.values.get(name) == value for name, value in wanted.items())
    ]


def _move_in(committed: Path, root: Path) -> None:
    """Make committed files the table's; may be called again after it was broken off."""
    manifest = committed / _REPLACED
    if manifest.exists():
        for replaced in json.loads(manifest.read_text(encoding="utf-8")):
            (root / replaced).unlink(missing_ok=True)
        manifest.unlink()
    for file in list(_data(committed)):
        place = root / file.relative_to(committed)
        place.parent.mkdir(parents=True, exist_ok=True)
        file.rename(place)
    shutil.rmtree(committed)


def _data(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        if file.is_file() and not file.name.startswith(_NO_DATA):
            yield file
