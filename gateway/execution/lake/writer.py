"""INSERT, CREATE TABLE, TRUNCATE and ALTER TABLE of lake tables. UPDATE, DELETE and MERGE: changes.py.

Rows are written aside first. The commit writes them into the table's own files and makes them visible at once, or not
at all; it notes the statement's id, so that it is not made twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from engines.arrow_types import declared_type
from engines.compiled import SPARK_WRITER
from engines.files.manifest import read_manifest
from engines.protocol import WriteTarget
from gateway.catalog.commits import PART
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.catalog.own_folders import OwnFolders
from gateway.catalog.partition_values import value_of
from gateway.catalog.registration import Registration
from gateway.commands.ddl.columns import AddColumns, AlterColumns
from gateway.commands.ddl.tables import CreateTable
from gateway.commands.dml.inserts import InsertInto
from gateway.commands.dml.truncation import Truncate
from gateway.errors import WriteConflict, WriteFailed
from gateway.execution.lake.staging import FORMAT, files_in, rows_in, staging_folder
from gateway.execution.staged_rows import Produce, target_of
from gateway.statements.partitions import Overwrite
from gateway.statements.statement import Run
from metastore.lake.values import LakeCommit, Replaced
from metastore.records import Inspection
from metastore.repositories.databases import Databases
from sql.errors import FusionError, LocationRefused, NotAllowed, TableChangedConcurrently
from sql.tables import Column, TableSource, database_of, name_in_database

TRIES = 5
"""Times that a write is tried, while others keep committing."""


class LakeWriter:
    """Writes to lake tables. Thread-safe."""

    def __init__(self, lake: LakeTables, folders: OwnFolders, registration: Registration, databases: Databases) -> None:
        self._lake = lake
        self._folders = folders
        self._registration = registration
        self._databases = databases

    def insert(
        self, inserts: Sequence[InsertInto], run: Run, produce: Produce, read: Sequence[TableSource] = ()
    ) -> int:
        """Write all rows aside, then commit them table by table; return their number.

        read: the tables that the queries read, at the snapshots that ``produce`` reads. Raises WriteFailed, SqlError.
        TableChangedConcurrently: others have written to a table that a query reads and overwrites.
        """
        names = [write.table for write in inserts]
        for write in inserts:
            if write.overwrite is not None and names.count(write.table) > 1:
                raise NotAllowed(f"One statement overwrites {write.table} and writes to it once more: send two.")
        rows = 0
        with ExitStack() as stack:
            staged = []
            for at, write in enumerate(inserts):
                self._registration.require_unchanged((write.target,))
                self._registration.pinned((write.target,), run.requester)  # its columns may have changed
                commit_id = run.id if len(inserts) == 1 else f"{run.id}{PART}{at}"
                folder = stack.enter_context(staging_folder(self._folders, f"{write.table}-{at}", run.id))
                produce(write.query.sql(SPARK_WRITER), target_of(write, folder, FORMAT))
                staged.append((write, commit_id, files_in(folder)))
                rows += rows_in(staged[-1][2])
            done: list[str] = []
            for write, commit_id, files in staged:
                run.require()
                try:
                    self._commit(write, commit_id, files, run, _base(write, read))
                except FusionError as error:
                    if done:
                        rest = ", ".join(one.table for one, *_ in staged[len(done) :])
                        message = (
                            f"The rows for {', '.join(done)} are in their tables, those for {rest} are not: {error}"
                        )
                        raise WriteFailed(message) from error
                    raise
                done.append(write.table)
        return rows

    def _commit(self, write: InsertInto, commit_id: str, files: tuple[str, ...], run: Run, base: str | None) -> None:
        """Commit the rows of an INSERT. base: snapshot of the table that they were computed from; None: none."""
        change = LakeCommit(commit_id, "INSERT", files, _replaced(write), base=base, is_alone=base is not None)
        if change.replaced is not Replaced.FILES:
            self._lake.commit(write.target, change, run.requester)
        else:
            self._replace_partitions(write, change, run)
        self._registration.refresh_after_commit(write.table, run.requester)

    def _replace_partitions(self, write: InsertInto, change: LakeCommit, run: Run) -> None:
        """Commit rows in the place of all rows with the partition values that the statement gives."""
        for _ in range(TRIES):
            run.require()
            (pinned,) = self._registration.pinned((write.target,), run.requester)
            assert pinned.snapshot is not None
            if change.is_alone and pinned.snapshot.id != change.base:
                raise TableChangedConcurrently(f"Others have written to {write.table} meanwhile.")
            files = read_manifest(pinned.snapshot.manifest).files
            paths = {file.path: file.deleted_rows for file in files if _is_meant(write, file.constants)}
            try:
                complete = replace(change, paths=paths, base=pinned.snapshot.id, is_alone=True)
                self._lake.commit(write.target, complete, run.requester)
            except TableChangedConcurrently:
                continue
            return
        raise conflict(write.table, TRIES)

    def drop(self, table: TableSource, run: Run) -> None:
        """Drop a catalog's table; its files stay. Raises SqlError."""
        self._lake.drop(table, run.requester)

    def truncate(self, write: Truncate, run: Run) -> int:
        """Commit that all rows go. Raises SqlError."""
        assert write.target is not None
        if write.partitions is not None:
            raise NotAllowed(
                f"Partitions of the lake table {write.table} are not dropped: use DELETE with a condition."
            )
        self._registration.require_unchanged((write.target,))
        self._lake.commit(write.target, LakeCommit(run.id, "TRUNCATE", (), Replaced.EVERYTHING), run.requester)
        self._registration.refresh_after_commit(write.table, run.requester)
        return 0

    def add_columns(self, write: AddColumns, run: Run) -> None:
        """Commit columns that older rows have NULL in. Raises SqlError."""
        self._registration.require_unchanged((write.target,))
        self._lake.add_columns(write.target, write.columns, run.requester)
        self._registration.refresh_after_commit(write.table, run.requester)

    def alter_columns(self, write: AlterColumns, run: Run) -> None:
        """Commit that columns have other names or types, or go. Raises SqlError."""
        self._registration.require_unchanged((write.target,))
        self._lake.alter_columns(write.target, write.new_names, write.dropped, write.widened, run.requester)
        self._registration.refresh_after_commit(write.table, run.requester)

    def make(self, write: CreateTable, location: str, run: Run, produce: Produce) -> Inspection:
        """Make a table in a folder that is not there yet, with the rows of its query. Raises SqlError, EngineError."""
        with ExitStack() as stack:
            columns, files = write.columns, tuple[str, ...]()
            if write.query is not None:
                aside = stack.enter_context(staging_folder(self._folders, write.table, run.id))
                schema = produce(write.query.sql(SPARK_WRITER), WriteTarget(str(aside), FORMAT))
                columns = tuple(Column(field.name, declared_type(field)) for field in schema)
                files = files_in(aside)
            database = self._databases.get(database_of(write.table))
            identifiers = database.identifiers_of(name_in_database(write.table)) if database is not None else ()
            source = TableSource(write.table, location, write.format, columns, identifiers=identifiers)
            self._lake.create(source, write.partition_by, write.annotations.properties, run.requester)
            try:
                if source.catalog:  # which has said where it lies
                    source = replace(source, location=self._lake.state(source, run.requester).location)
                    self._registration.require_unchanged((source,))
                if files:
                    self._lake.commit(source, LakeCommit(run.id, "CREATE TABLE AS SELECT", files), run.requester)
            except (NotAllowed, LocationRefused):
                if source.catalog:
                    self._lake.drop(source, run.requester)
                raise
        state = self._lake.state(source, run.requester)
        made = replace(
            source, location=state.location, columns=state.columns, partition_columns=state.partition_columns
        )
        return Inspection(made, state.snapshot.files, state.snapshot.bytes, state.snapshot.rows)


def conflict(table: str, tries: int) -> WriteConflict:
    """Return the error of a commit that others were faster than each time."""
    return WriteConflict(
        f"Others wrote to {table} each of the {tries} times that the commit was tried. Nothing was changed; send the "
        "statement again when they write less often."
    )


def _base(write: InsertInto, read: Sequence[TableSource]) -> str | None:
    """Return the snapshot that an INSERT OVERWRITE reads of its own table; None: it reads nothing of it."""
    if write.overwrite is None:
        return None
    own = (table.snapshot for table in read if table.name == write.target.name)
    return next((snapshot.id for snapshot in own if snapshot is not None), None)


def _replaced(write: InsertInto) -> Replaced:
    """Return whose place the rows of an INSERT take."""
    if write.overwrite is None:
        return Replaced.NOTHING
    constant_columns, all_columns = len(write.constants), len(write.target.partition_columns)
    is_hidden = write.target.format == "iceberg"  # whose partitions are known to its log alone
    if write.overwrite is Overwrite.DYNAMIC and (constant_columns < all_columns or is_hidden):
        return Replaced.PARTITIONS
    return Replaced.FILES if constant_columns else Replaced.EVERYTHING


def _is_meant(write: InsertInto, constants: Mapping[str, str | None]) -> bool:
    """Return True if a file's rows have the partition values that a statement gives."""
    types = {column.name: column.data_type for column in write.target.columns}
    return all(
        value_of(constants.get(name), types[name]) == value_of(text, types[name])
        for name, text in write.constants.items()
    )
