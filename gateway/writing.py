"""Statements that write: a dependable engine writes files, the gateway makes them a table's.

Files are written beside the table first, in a folder that no reader looks into. Renaming that folder is the commit:
from then on its files are moved into the table, and what they replace is deleted last. Where this gateway cannot, or
is killed meanwhile, the next write to the table or the next gateway does it. Before the rename nothing of them is ever
seen. Commits of one table come one after the other. A new table is seen once it is in the catalog.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from engines.arrow_types import spark_type
from engines.protocol import Column, InvalidTable, TableSource, WriteTarget
from gateway.partition_values import value_of
from gateway.security.policy import Action, Policy
from gateway.sql.writes import CreateTable, DropTable, InsertInto, Overwrite, Write
from gateway.statements import Run
from metastore.catalog import AlreadyThere
from metastore.inspection import InspectionFailed, data_files
from metastore.inspector import inspect
from metastore.patience import insist
from metastore.records import CatalogTable, Failure, Inspection, QueryState
from metastore.store import Metastore
from selector.quoting import spark_name

log = logging.getLogger(__name__)

TABLE_EXISTS = "TABLE_EXISTS"
WRITE_FAILED = "WRITE_FAILED"
WRITE_PENDING = "WRITE_PENDING"
PATIENCE_S = 5.0  # with a disk that does not take committed files
INSERTABLE = ("parquet", "orc")
ROWS_WRITTEN = pa.schema([("rows_written", pa.int64())])

_STAGED = ".fusion-write-"
_COMMITTED = ".fusion-commit-"
_REPLACED = "replaced.json"
_NO_DATA = ("_", ".")
_PAUSE_S = 0.1
_CAME_TO_NOTHING = (QueryState.FAILED, QueryState.CANCELLED)

Produce = Callable[[str, WriteTarget], pa.Schema]


class WriteFailed(Exception):
    """A write that was accepted came to nothing; the table is as it was. With WRITE_PENDING, it is only late."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(code, message)


class TableWriter:
    """Carries writes out. Thread-safe; each runs in the thread of its statement. warehouse: folder of new tables."""

    def __init__(
        self, metastore: Metastore, warehouse: Path, *, policy: Policy | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        self._metastore = metastore
        self._policy = policy or Policy()
        self._warehouse = warehouse
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._of_folder: dict[Path, threading.Lock] = {}

    def write(self, write: Write, run: Run, produce: Produce) -> pa.Table:
        """Do what a write says, with rows that ``produce`` writes; tell how many. Raises WriteFailed, EngineError."""
        try:
            match write:
                case CreateTable():
                    rows = self._create(write, run, produce)
                case InsertInto():
                    rows = self._insert(write, run, produce)
                case DropTable():
                    rows = self._drop(write, run)
        except OSError as error:
            raise WriteFailed(WRITE_FAILED, f"Files could not be written: {error.strerror or error}.") from error
        return pa.table([[rows]], schema=ROWS_WRITTEN)

    def recover(self) -> None:
        """End what an earlier gateway had begun: committed files go into their table, others are deleted."""
        tables = self._metastore.catalog.list()
        for table in tables:
            root = Path(table.source.location)
            if not root.is_dir():
                continue
            for folder in root.glob(f"{_STAGED}*"):
                if not self._is_at_work(folder):
                    shutil.rmtree(folder, ignore_errors=True)
            for folder in root.glob(f"{_COMMITTED}*"):
                if self._is_at_work(folder):
                    continue
                try:
                    with self._alone(root):
                        _move_in(folder, root)
                        self._look_again(table)
                except OSError as error:
                    log.warning("files of an earlier write wait to be moved into %s: %s", table.source.name, error)
                else:
                    log.warning("the files of an earlier write were moved into %s", table.source.name)
        for folder in self._warehouse.glob("*-*"):
            query = self._metastore.queries.get(folder.name.rpartition("-")[2])
            if query is not None and query.state in _CAME_TO_NOTHING and not _is_used(folder, tables):
                shutil.rmtree(folder, ignore_errors=True)
                log.warning("%s was deleted: its table was never made", folder)

    def _is_at_work(self, folder: Path) -> bool:
        """Tell whether another gateway still works on what a folder is for."""
        query = self._metastore.queries.get(folder.name.rpartition("-")[2])
        return query is not None and not query.state.ended

    @contextlib.contextmanager
    def _alone(self, root: Path) -> Iterator[None]:
        """Let nobody else commit to a table's folder: no other thread, nor another gateway where the disk has locks."""
        with self._lock:
            lock = self._of_folder.setdefault(root, threading.Lock())
        with lock:
            folder = os.open(root, os.O_RDONLY)
            try:
                with contextlib.suppress(OSError):  # not every network disk locks folders
                    fcntl.flock(folder, fcntl.LOCK_EX)
                yield
            finally:
                os.close(folder)

    def _create(self, write: CreateTable, run: Run, produce: Produce) -> int | None:
        if self._metastore.catalog.get(write.table) is not None:
            return self._exists(write)
        folder = self._warehouse / f"{write.table}-{run.id}"
        target = WriteTarget(str(folder), write.format, partition_columns=write.partition_columns)
        kept = False
        try:
            schema = produce(_query(write), target)
            found = _made(write, folder, schema)
            self._metastore.catalog.put(
                found, at=dt.datetime.now(dt.UTC), new=True, owner=run.statement.principal.owner
            )
            kept = True
        except AlreadyThere:
            return self._exists(write)
        except (InvalidTable, InspectionFailed) as error:
            raise WriteFailed(WRITE_FAILED, f"The table cannot be made: {error}.") from error
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
            with self._alone(root):
                _end_commits(root)
                replaced = _replaced(write, root, staged) if write.overwrite is not None else []
                (staged / _REPLACED).write_text(json.dumps(replaced), encoding="utf-8")
                staged.rename(root / f"{_COMMITTED}{run.id}")
                self._make_visible(source)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        return rows

    def _make_visible(self, source: TableSource) -> None:
        """Move files that are committed into their table. Raises WriteFailed, with WRITE_PENDING."""
        root = Path(source.location)
        until = time.monotonic() + self._patience_s
        while True:
            try:
                _end_commits(root)
                break
            except OSError as error:
                if time.monotonic() > until:
                    why = error.strerror or error
                    message = (
                        f"The write is committed, do not send it again; its files are not in the table yet ({why}). "
                        "The next write to the table moves them in, or the gateway when it starts again."
                    )
                    raise WriteFailed(WRITE_PENDING, message) from error
            time.sleep(_PAUSE_S)
        table = insist(partial(self._metastore.catalog.get, source.name))
        if table is None or table.source.location != source.location:
            return
        try:
            insist(partial(self._look_again, table))
        except OSError as error:  # the rows are there all the same
            log.warning("the catalog does not know the new files of %s: %s", source.name, error)

    def _drop(self, write: DropTable, run: Run) -> int:
        table = self._metastore.catalog.get(write.table)
        if table is None:
            return 0
        root = Path(table.source.location)
        with self._alone(root) if root.is_dir() else contextlib.nullcontext():
            check = self._policy.owner_check(run.statement.principal, Action.DROP, "table", write.table)
            if not self._metastore.catalog.remove(write.table, check=check):
                return 0
            if root.parent == self._warehouse and not _is_used(root, self._metastore.catalog.list()):
                shutil.rmtree(root, ignore_errors=True)
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
    columns = ", ".join(f"CAST(NULL AS {column.type.spark()}) AS {spark_name(column.name)}" for column in write.columns)
    return f"SELECT {columns} WHERE FALSE"


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


def _is_used(folder: Path, tables: Iterable[CatalogTable]) -> bool:
    """Tell whether a table lies in a folder, or around it."""
    own = folder.resolve()
    places = [Path(table.source.location).resolve() for table in tables]
    return any(place.is_relative_to(own) or own.is_relative_to(place) for place in places)


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


def _end_commits(root: Path) -> None:
    """Make all committed files of a folder the table's, the oldest write's first."""
    for committed in sorted(root.glob(f"{_COMMITTED}*")):
        _move_in(committed, root)


def _move_in(committed: Path, root: Path) -> None:
    """Make committed files the table's; may be called again after it was broken off.

    What they replace goes last: a reader meanwhile may see old and new rows, and never misses any.
    """
    manifest = committed / _REPLACED
    for file in [file for file in _data(committed) if file != manifest]:
        place = root / file.relative_to(committed)
        place.parent.mkdir(parents=True, exist_ok=True)
        file.rename(place)
    if manifest.exists():
        for replaced in json.loads(manifest.read_text(encoding="utf-8")):
            (root / replaced).unlink(missing_ok=True)
    shutil.rmtree(committed)


def _data(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        if file.is_file() and not file.name.startswith(_NO_DATA):
            yield file
