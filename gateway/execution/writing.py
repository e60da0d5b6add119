"""Statements that write: a dependable engine writes files, the gateway makes them a table's (``gateway.catalog``).

A new table is written into a folder of its own and seen once it is in the catalog. Rows for a table that exists are
written beside its files first, in a folder that no reader looks into, and then committed.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from engines.files.listing import DataFile, InspectionFailed, data_files
from engines.protocol import WriteTarget
from gateway.catalog.commits import PART, Commits, FolderBusy
from gateway.catalog.empty_files import write_empty_file
from gateway.catalog.folders import Folder
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.catalog.own_folders import OwnFolders
from gateway.catalog.registration import Registration
from gateway.commands.command import Write
from gateway.commands.ddl.columns import AddColumns, AlterColumns
from gateway.commands.ddl.databases import DropDatabase
from gateway.commands.ddl.tables import CreateTable, DropTable
from gateway.commands.dml.change_queries import ChangeRows
from gateway.commands.dml.inserts import InsertInto, InsertIntoSeveral
from gateway.commands.dml.truncation import Truncate
from gateway.errors import TableBusy, WriteFailed, WritePending
from gateway.execution.lake.changes import LakeChanges
from gateway.execution.lake.writer import LakeWriter
from gateway.execution.new_tables import make_table
from gateway.execution.staged_rows import Produce, StagedRows
from gateway.security.policy import Action, Policy
from gateway.statements.statement import Run
from metastore.database.retry import retry
from metastore.errors import AlreadyExists, DatabaseInUse, NoDatabase
from metastore.records import Partition
from metastore.store import Metastore
from sql.errors import (
    DatabaseNotEmpty,
    NotAllowed,
    TableChangedConcurrently,
    TableExists,
    UnknownDatabase,
    UnknownPartition,
    UnknownTable,
)
from sql.tables import LAKE_FORMATS, TABLE_FORMATS, Annotations, InvalidTable, TableSource, catalog_of, database_of

log = logging.getLogger(__name__)

RETRY_S = 5.0  # with a disk that does not take committed files
TURN_S = 60.0  # longest wait for others who commit to the same table
RECOVERY_TURN_S = 1.0
ROWS_WRITTEN = pa.schema([("rows_written", pa.int64())])

NAMES_SHOWN = 5  # of what stands in the way

Sources = Sequence[TableSource]
_NO_DATA = ("_", ".")
_PAUSE_S = 0.1


def produce_nothing(_sql: str, _target: WriteTarget) -> pa.Schema:
    """Produce no rows: for statements that need no engine."""
    raise AssertionError("a statement without a query has no rows to write")


class TableWriter:
    """Runs writes. Thread-safe; each in the thread of its statement. folders: of new tables."""

    def __init__(
        self,
        metastore: Metastore,
        folders: OwnFolders,
        registration: Registration,
        lake: LakeTables,
        *,
        policy: Policy | None = None,
        retry_s: float = RETRY_S,
        turn_s: float = TURN_S,
    ) -> None:
        self._metastore = metastore
        self._policy = policy or Policy()
        self._registration = registration
        self._folders = folders
        self._commits = Commits(metastore)
        self._retry_s = retry_s
        self._turn_s = turn_s
        self._lake = LakeWriter(lake, self._folders, registration, metastore.databases)
        self._changes = LakeChanges(lake, self._folders, registration)

    def write(self, write: Write, run: Run, produce: Produce = produce_nothing, read: Sources = ()) -> pa.Table:
        """Do what a write says, with rows that ``produce`` writes of what was ``read``; tell how many.

        Raises WriteFailed, TableExists, EngineError.
        """
        self._folders.delete_retired()
        try:
            match write:
                case CreateTable():
                    rows = self._create(write, run, produce)
                case InsertInto():
                    rows = self._insert((write,), run, produce, read)
                case InsertIntoSeveral():
                    rows = self._insert(write.inserts, run, produce, read)
                case Truncate():
                    rows = self._truncate(write, run)
                case AddColumns():
                    rows = self._add_columns(write, run)
                case AlterColumns():
                    rows = self._alter_columns(write, run)
                case ChangeRows():
                    return self._changes.change(write, run, produce)
                case DropTable():
                    rows = self._drop(write.table, run) if write.existing else 0
                case DropDatabase():
                    rows = self._drop_database(write, run)
                case _:
                    raise TypeError(f"no writer for {write!r}")
        except FolderBusy as error:
            raise TableBusy(
                f"Others have been writing to the files of {_table_of(write)} for {self._turn_s:g} s. Nothing was "
                "changed; send it again. Where it stays so, the administrator looks for a process that hangs and holds "
                "the table's folder (with fuser or lsof), and ends it.",
            ) from error
        except OSError as error:
            raise WriteFailed(f"Files could not be written: {error.strerror or error}.") from error
        except InspectionFailed as error:  # before a commit; after one, nothing of a look comes here
            raise WriteFailed(f"What was written cannot be looked at: {error}.") from error
        return pa.table([[rows]], schema=ROWS_WRITTEN)

    def recover(self) -> None:
        """End what an earlier gateway had begun: committed files go into their table, others are deleted."""
        self._folders.adopt()
        names: dict[Path, list[str]] = {}
        for table in self._metastore.catalog.list():
            names.setdefault(Path(table.source.location), []).append(table.name)
        for root in self._commits.unfinished():
            if not root.is_dir():
                continue
            table_names = names.get(root, [])
            try:
                with self._commits.alone(root, wait_s=RECOVERY_TURN_S) as folder:
                    if not self._commits.finish(folder, root, sweep=True):
                        continue
                for name in table_names:
                    self._registration.refresh_after_write(name)
            except FolderBusy:
                log.warning("another process writes to %s, and ends earlier writes, too", ", ".join(table_names))
            except (OSError, UnknownTable, TableChangedConcurrently, InspectionFailed) as error:
                log.warning("files of an earlier write wait to be moved into %s: %s", ", ".join(table_names), error)
            else:
                log.warning("the files of an earlier write were moved into %s", ", ".join(table_names))
        for root in names:
            self._commits.warn_of_unknown(root)
        self._folders.sweep()

    def _create(self, write: CreateTable, run: Run, produce: Produce) -> int | None:
        replaced = self._metastore.catalog.get(write.table)
        if replaced is not None and not write.replace:
            return self._exists(write)
        if write.location or catalog_of(write.table):
            return self._create_elsewhere(write, run, produce)
        location = self._folders.reserve_for(write.table, write.format, run.id)
        is_registered = False
        try:
            if write.format in LAKE_FORMATS:
                inspection = self._lake.make(write, location, run, produce)
            else:
                inspection = make_table(write, Path(location), run, produce)
            self._folders.share(location)
            user = run.statement.principal
            self._registration.register_created(
                inspection, user=user, annotations=write.kept_annotations, replace=write.replace
            )
            is_registered = True
            if replaced is not None:
                self._folders.retire(replaced.source.location)
        except AlreadyExists:
            return self._exists(write)
        except NoDatabase as error:
            raise UnknownDatabase(f"The database {error} is gone.") from error
        except (InvalidTable, InspectionFailed) as error:
            raise WriteFailed(f"The table cannot be made: {error}.") from error
        finally:
            if not is_registered:
                self._folders.delete(location)
        return inspection.rows

    def _create_elsewhere(self, write: CreateTable, run: Run, produce: Produce) -> int | None:
        """Make a lake table in a folder that the statement names, or in a catalog.

        What fails leaves no table that is registered, perhaps files.
        """
        user = run.statement.principal
        location = write.table
        if write.location:
            location = self._registration.admit_new(write.table, write.location, user=user)
        inspection = self._lake.make(write, location, run, produce)
        try:
            self._registration.register_created(inspection, user=user, annotations=write.kept_annotations)
        except AlreadyExists:
            return self._exists(write)
        except NoDatabase as error:
            raise UnknownDatabase(f"The database {error} is gone.") from error
        return inspection.rows

    def _exists(self, write: CreateTable) -> int:
        if write.if_not_exists:
            return 0
        raise TableExists(f"There is a table {write.table} already.")

    def _insert(self, inserts: Sequence[InsertInto], run: Run, produce: Produce, read: Sources) -> int | None:
        """Write all rows beside their tables first, then commit them table by table, with all others kept out."""
        in_lake = [write for write in inserts if write.target.is_lake]
        if len(in_lake) == len(inserts):
            return self._lake.insert(inserts, run, produce, read)
        if in_lake:
            raise NotAllowed(
                f"One statement writes to lake tables or to others: send one for {in_lake[0].table} alone."
            )
        waiting: list[StagedRows] = []
        numbers: list[int | None] = []
        try:
            for at, write in enumerate(inserts):
                self._require_insertable(write)
                place = Path(write.target.location)
                commit_id = run.id if len(inserts) == 1 else f"{run.id}{PART}{at}"
                waiting.append(StagedRows(write, commit_id, self._commits.begin(commit_id, place)))
            for staged in waiting:
                numbers.append(staged.produce(produce))
            with contextlib.ExitStack() as stack:
                roots = sorted({staged.root for staged in waiting})  # in one order, so that nobody waits in a circle
                alone = partial(self._commits.alone, wait_s=self._turn_s, require=run.require)
                folders = {root: stack.enter_context(alone(root)) for root in roots}
                for root, folder in folders.items():
                    self._commits.finish(folder, root)
                committed: list[StagedRows] = []
                try:
                    for staged in list(waiting):
                        files, replaced = staged.files(), staged.replaced()
                        self._commits.commit(folders[staged.root], staged.commit_id, files=files, replaced=replaced)
                        waiting.remove(staged)
                        committed.append(staged)
                except OSError as error:
                    if not committed:
                        raise
                    done, rest = (", ".join(staged.write.table for staged in some) for some in (committed, waiting))
                    message = (
                        f"The rows for {done} are in their tables, those for {rest} are not: {error.strerror or error}."
                    )
                    raise WriteFailed(message) from error
                finally:
                    for staged in committed:
                        self._make_visible(staged.write.target, folders[staged.root])
        finally:
            for staged in waiting:
                self._commits.give_up(staged.commit_id, staged.root)
        counted = [number for number in numbers if number is not None]
        return sum(counted) if len(counted) == len(numbers) else None

    def _require_insertable(self, write: InsertInto) -> None:
        """Refuse rows for files that none can be put beside. Raises WriteFailed, LocationRefused."""
        source = write.target
        is_file = Path(source.location).is_file()
        if source.format not in TABLE_FORMATS or is_file:
            what = "one file" if is_file else source.format
            formats = ", ".join((*TABLE_FORMATS, *LAKE_FORMATS))
            raise WriteFailed(f"Rows can be added to tables in the formats {formats}; this is {what}.")
        self._registration.require_unchanged((source,))
        if write.overwrite is not None:
            self._require_alone(source)

    def _truncate(self, write: Truncate, run: Run) -> int:
        """Take rows out of a table, as INSERT OVERWRITE would."""
        table = self._metastore.catalog.get(write.table)
        if table is None or write.target is None:
            return 0
        source = table.source
        if source.is_lake:
            return self._lake.truncate(write, run)
        meant = {part.path for part in table.partitions if write.means(part)}
        if write.partitions is not None and not meant:
            if not write.if_exists:
                raise UnknownPartition("No partition matches.", write.partitions[0][0].position)
            return 0
        if not self._folders.made(source.location):
            message = (
                f"The files of {source.name} were not made by the gateway, so that none is deleted. DROP TABLE forgets "
                "them; REFRESH looks again once their owner has deleted some."
            )
            raise NotAllowed(message)
        self._registration.require_unchanged((source,))
        self._require_alone(source)

        def is_replaced(file: DataFile) -> bool:
            return write.partitions is None or file.folder in meant

        return self._exchange(source, run, (), is_replaced)

    def _add_columns(self, write: AddColumns, run: Run) -> int:
        """Add columns, and a file that has them, so that engines that ask the files find them, too."""
        if not write.columns:
            return 0
        self._registration.require_unchanged((write.target,))
        if write.target.is_lake:
            self._lake.add_columns(write, run)
        else:
            table = self._registration.add_columns(write.table, write.columns, user=run.statement.principal)
            if Path(table.source.location).is_dir():
                self._exchange(table.source, run, table.partitions[:1], lambda _: False)
        if write.comments:
            comments = dict(write.comments)
            self._metastore.catalog.annotate(
                write.table, lambda annotations: replace(annotations, columns={**annotations.columns, **comments})
            )
        return 0

    def _alter_columns(self, write: AlterColumns, run: Run) -> int:
        """Rename, drop or widen columns of a lake table; what is said of a column goes with it."""
        self._lake.alter_columns(write, run)

        def moved(annotations: Annotations) -> Annotations:
            comments = {
                write.new_names.get(name, name): comment
                for name, comment in annotations.columns.items()
                if name not in write.dropped
            }
            return replace(annotations, columns=comments)

        self._metastore.catalog.annotate(write.table, moved)
        return 0

    def _exchange(
        self, source: TableSource, run: Run, within: Sequence[Partition], is_replaced: Callable[[DataFile], bool]
    ) -> int:
        """Commit that files go and one without rows comes, which tells the columns that all have.

        within: the partition whose folder it comes into, where the table has some and not all files go.
        """
        root = Path(source.location)
        staged = self._commits.begin(run.id, root)
        committed = False
        try:
            place = staged / within[0].path if within else staged
            place.mkdir(parents=True)
            files = []
            if within or not source.partition_columns:
                own = tuple(column for column in source.columns if column.name not in source.partition_columns)
                name = write_empty_file(place, run.id, source.format, own)
                files = [(place / name).relative_to(staged).as_posix()] if name is not None else []
            with self._commits.alone(root, wait_s=self._turn_s, require=run.require) as folder:
                self._commits.finish(folder, root)
                run.require()
                replaced = [file.path.relative_to(root).as_posix() for file in data_files(root) if is_replaced(file)]
                self._commits.commit(folder, run.id, files=files, replaced=replaced)
                committed = True
                self._make_visible(source, folder)
        finally:
            if not committed:
                self._commits.give_up(run.id, root)
        return 0

    def _require_alone(self, source: TableSource) -> None:
        """Refuse to replace files that another table holds, too. Raises WriteFailed."""
        root = Path(source.location)
        for table in self._metastore.catalog.list():
            place = Path(table.source.location)
            if table.name != source.name and (place.is_relative_to(root) or root.is_relative_to(place)):
                raise WriteFailed(f"The files of {source.name} are also those of {table.name}; none is replaced.")

    def _make_visible(self, source: TableSource, folder: Folder) -> None:
        """Move files that are committed into their table. Raises WritePending."""
        root = Path(source.location)
        until = time.monotonic() + self._retry_s
        while True:
            try:
                self._commits.finish(folder, root)
                break
            except OSError as error:
                if time.monotonic() > until:
                    why = error.strerror or error
                    message = (
                        f"The write is committed, do not send it again; its files are not in the table yet ({why}). "
                        "The next write to the table moves them in, or the gateway when it starts again."
                    )
                    raise WritePending(message) from error
            time.sleep(_PAUSE_S)
        table = retry(partial(self._metastore.catalog.get, source.name))
        if table is None or table.source.location != source.location:
            return
        try:
            retry(partial(self._registration.refresh_after_write, source.name))
        except (OSError, UnknownTable, TableChangedConcurrently, InspectionFailed) as error:  # the rows are written
            log.warning("the catalog does not know the new files of %s: %s", source.name, error)

    def _drop_database(self, write: DropDatabase, run: Run) -> int:
        if not write.existing:
            return 0
        principal = run.statement.principal
        if write.cascade:
            for table in self._metastore.catalog.list():
                if database_of(table.name) == write.database:
                    run.require()
                    self._drop(table.name, run)
            for view in self._metastore.views.list():
                if database_of(view.name) == write.database:
                    check = self._policy.owner_check(principal, Action.DROP, "view", view.name)
                    self._metastore.views.remove(view.name, check=check)
        check = self._policy.owner_check(principal, Action.DROP, "database", write.database)
        database = self._metastore.databases.get(write.database)
        if "." in write.database and database is not None:
            self._registration.lake.require_database(database, run.requester, there=False)
        try:
            self._metastore.databases.remove(write.database, check=check)
        except DatabaseInUse as error:
            relations = error.args[0]
            listed = ", ".join(relations[:NAMES_SHOWN]) + (", ..." if len(relations) > NAMES_SHOWN else "")
            message = f"The database {write.database} holds {listed}; drop these first, or add CASCADE."
            raise DatabaseNotEmpty(message) from error
        return 0

    def _drop(self, name: str, run: Run) -> int:
        table = self._metastore.catalog.get(name)
        if table is None:
            return 0
        root = Path(table.source.location)
        check = self._policy.owner_check(run.statement.principal, Action.DROP, "table", name)
        if table.source.catalog:
            check(table.owner)
            self._lake.drop(table.source, run)
            self._metastore.catalog.remove(name, check=check)
            return 0
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # it is gone, or a link by now: what is left is a name in the catalog
                stack.enter_context(self._commits.alone(root, wait_s=self._turn_s, require=run.require))
            if self._metastore.catalog.remove(name, check=check):
                self._folders.delete(table.source.location)
        return 0


def _table_of(write: Write) -> str:
    return f"a table of {write.database}" if isinstance(write, DropDatabase) else next(write.table_names(()))
