"""What the gateway answers by itself: a parsed command becomes an Arrow table, as Impala would answer it."""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
import time
from collections.abc import Mapping, Sequence
from typing import assert_never

import pyarrow as pa

from engines.errors import DeadlineExceeded, StatementCancelled
from engines.protocol import Column
from engines.table_names import DEFAULT_DATABASE
from gateway.catalog.registration import Registration
from gateway.catalog.snapshot import CatalogView
from gateway.commands.views import ViewMaker
from gateway.errors import (
    DatabaseExists,
    NoSession,
    NothingToAmend,
    SqlError,
    StatisticsFailed,
    TableUnreadable,
    UnknownDatabase,
    UnknownPartition,
    UnknownTable,
)
from gateway.security.policy import Action, Policy
from gateway.sql.commands.commands import (
    Command,
    ComputeIncrementalStats,
    ComputeStats,
    Condition,
    CreateDatabase,
    CreateView,
    Describe,
    DescribeDatabase,
    DropIncrementalStats,
    DropStats,
    DropView,
    OwnedKind,
    Refresh,
    ResetOptions,
    SetColumnStats,
    SetOption,
    SetOwner,
    SetRows,
    ShowColumns,
    ShowColumnStats,
    ShowDatabases,
    ShowOptions,
    ShowTables,
    ShowTableStats,
    UseDatabase,
)
from gateway.sql.dialects.names import IMPALA
from gateway.sql.names import CATALOG
from gateway.statements.session import Session
from gateway.statements.settings import OBEYED, level_of, options_of_impala
from gateway.statements.statement import Run
from gateway.statistics.jobs import JobRunner, job_running
from gateway.statistics.tables import column_stats, rows_of, table_stats
from metastore.discovery.inspection import InspectionFailed
from metastore.records import (
    CatalogTable,
    Database,
    JobRequest,
    Mode,
    Partition,
    StatisticsJob,
)
from metastore.repositories import statistics
from metastore.repositories.catalog import AlreadyExists
from metastore.repositories.jobs import TablesBusy
from metastore.store import Metastore
from selector.types import hive_name

JOB_POLL_S = 0.1
HIVE_DESCRIPTION = ("col_name", "data_type", "comment")  # drivers of Hive's look columns up by these names
IMPALA_DESCRIPTION = ("name", "type", "comment")
OPTION_HEADINGS = ("key", "value", "level")  # impala-shell wants a third column
IMPALA_OPTION_HEADINGS = ("option", "value", "level")  # ibis looks columns up by these names
NOBODY = "-"  # the owner of what everybody may change who may write
DATABASE_FACTS = pa.schema([("info_name", pa.string()), ("info_value", pa.string())])
NAMES = pa.schema([("name", pa.string())])
NOTHING = pa.schema([])
SUMMARY = pa.schema([("summary", pa.string())])


class CommandRunner:
    """Carries commands out. Thread-safe; each one runs in the thread of its statement."""

    def __init__(
        self,
        metastore: Metastore,
        catalog: CatalogView,
        registration: Registration,
        jobs: JobRunner,
        views: ViewMaker,
        policy: Policy,
    ) -> None:
        self._metastore = metastore
        self._policy = policy
        self._catalog = catalog
        self._registration = registration
        self._jobs = jobs
        self._views = views

    def run(self, command: Command, run: Run) -> pa.Table:
        """Do what a command says and return its rows. Raises CommandFailed, StatementCancelled, DeadlineExceeded."""
        match command:
            case ComputeStats():
                return self._compute(command, run)
            case ComputeIncrementalStats():
                return self._compute_incremental(command, run)
            case DropStats():
                return self._drop(command)
            case DropIncrementalStats():
                return self._drop_incremental(command)
            case SetRows():
                return self._set_rows(command)
            case SetColumnStats():
                return self._set_column(command)
            case Refresh():
                return self._refresh(command, run)
            case CreateView():
                return self._make_view(command, run)
            case DropView():
                self._views.drop(command, run)
                return NOTHING.empty_table()
            case SetOwner():
                return self._set_owner(command, run)
            case ShowDatabases():
                names = sorted(self._catalog.current().databases)
                return rows_of(NAMES, [[name] for name in _matching(names, command.pattern)])
            case DescribeDatabase():
                return self._describe_database(command)
            case CreateDatabase():
                return self._create_database(command, run)
            case ShowTables():
                known = self._catalog.current().relations_for(run.statement.session)
                names = sorted({each.name for each in known if each.database == command.database})
                return rows_of(NAMES, [[name] for name in _matching(names, command.pattern)])
            case ShowColumns():
                columns = self._columns(command.table, run)
                return rows_of(pa.schema([("col_name", pa.string())]), [[column.name] for column in columns])
            case Describe():
                return self._describe(command, run)
            case UseDatabase():
                return _use(command, run.statement.session)
            case SetOption() | ResetOptions() | ShowOptions():
                return _options(command, run.statement.session)
            case ShowTableStats():
                return self._show_table(command)
            case ShowColumnStats():
                return self._show_columns(command)
            case _:
                assert_never(command)

    def _make_view(self, command: CreateView, run: Run) -> pa.Table:
        self._views.make(command, run)
        return NOTHING.empty_table()

    # ------------------------------------------------------------------ computing

    def _compute(self, command: ComputeStats, run: Run) -> pa.Table:
        self._look_again(command.table)
        mode = Mode.FULL if command.share is None else Mode.SAMPLE
        request = JobRequest((command.table,), mode, columns=command.columns, share=command.share or 1.0)
        job = self._finished(request, run)
        return _updated(len(self._table(command.table).partitions) or 1, job)

    def _compute_incremental(self, command: ComputeIncrementalStats, run: Run) -> pa.Table:
        self._look_again(command.table)
        folders: tuple[str, ...] = ()
        if command.conditions:
            folders = tuple(each.path for each in self._meant(command.table, command.conditions))
        job = self._finished(JobRequest((command.table,), Mode.INCREMENTAL, partitions=folders), run)
        parts = self._metastore.statistics.part_marks(command.table)
        return _updated(sum(part.built_at >= job.created_at for part in parts), job)

    def _finished(self, request: JobRequest, run: Run) -> StatisticsJob:
        """Start a job and wait for its end, which comes with the statement's if that is earlier."""
        job = self._jobs.start(request, owner=run.statement.principal.owner)
        while not job.state.ended:
            try:
                run.require()
            except (StatementCancelled, DeadlineExceeded):
                self._jobs.cancel(job.id)
                raise
            time.sleep(JOB_POLL_S)
            job = self._metastore.jobs.get(job.id) or job
        if job.error is not None:
            raise StatisticsFailed(job.error)
        return job

    # ------------------------------------------------------------------ changing

    def _drop(self, command: DropStats) -> pa.Table:
        self._metastore.statistics.drop(command.table, at=_now())
        return _summary("Stats have been dropped.")

    def _drop_incremental(self, command: DropIncrementalStats) -> pa.Table:
        folders = {each.path for each in self._meant(command.table, command.conditions)}
        self._jobs.recover()  # a job that died a moment ago must not stand in the way
        try:
            dropped = self._metastore.statistics.drop_parts(command.table, folders)
        except TablesBusy as busy:
            raise job_running(busy) from busy
        return _summary(f"Incremental stats of {dropped} partition(s) have been dropped.")

    def _set_rows(self, command: SetRows) -> pa.Table:
        self._amend(command.table, rows=command.rows)
        return _summary("Updated table.")

    def _set_column(self, command: SetColumnStats) -> pa.Table:
        self._amend(command.table, columns={command.column: command.values})
        return _summary("Updated 0 partition(s) and 1 column(s).")

    def _amend(
        self, table: str, *, rows: int | None = None, columns: Mapping[str, Mapping[str, float]] | None = None
    ) -> None:
        try:
            self._metastore.statistics.amend(table, at=_now(), rows=rows, columns=columns or {})
        except statistics.NothingToAmend as error:
            raise NothingToAmend(f"{str(error).capitalize()}.") from error

    def _set_owner(self, command: SetOwner, run: Run) -> pa.Table:
        kind = command.kind
        check = self._policy.owner_check(run.statement.principal, Action.SET_OWNER, kind, command.name)
        set_owner = {
            OwnedKind.TABLE: self._metastore.catalog.set_owner,
            OwnedKind.VIEW: self._metastore.views.set_owner,
            OwnedKind.DATABASE: self._metastore.databases.set_owner,
        }[kind]
        if not set_owner(command.name, command.owner, check=check):
            raise UnknownTable(f"The {kind} {command.name} is gone.")
        return NOTHING.empty_table()

    def _create_database(self, command: CreateDatabase, run: Run) -> pa.Table:
        owner = run.statement.principal.owner
        try:
            self._metastore.databases.add(Database(command.database, command.comment, command.properties, owner))
        except AlreadyExists as error:
            if not command.if_not_exists:
                raise DatabaseExists(f"There is a database {command.database} already.") from error
        return NOTHING.empty_table()

    def _refresh(self, command: Refresh, run: Run) -> pa.Table:
        if command.table is not None:
            self._look_again(command.table)
            return _summary("Refreshed 1 table(s).")
        names = list(self._catalog.current().tables)
        unreadable = []
        for name in names:
            run.require()
            try:
                self._look_again(name)
            except SqlError as error:
                unreadable.append(f"{name}: {error}")
        if unreadable:
            raise TableUnreadable("; ".join(unreadable))
        return _summary(f"Refreshed {len(names)} table(s).")

    def _look_again(self, name: str) -> None:
        """Look at a table's files and tell all engines what is there now."""
        location = self._table(name).source.location
        try:
            self._registration.refresh(name)
        except InspectionFailed as error:
            raise TableUnreadable(str(error).replace(location, name)) from error

    # ------------------------------------------------------------------ showing

    def _columns(self, name: str, run: Run) -> tuple[Column, ...]:
        view = self._catalog.current().views_for(run.statement.session).get(name)
        return view.columns if view is not None else self._table(name).source.columns

    def _describe_database(self, command: DescribeDatabase) -> pa.Table:
        database = self._catalog.current().databases.get(command.database)
        if database is None:  # since it was parsed
            raise UnknownDatabase(f"The database {command.database} is gone.")
        told = [
            ("Catalog Name", CATALOG),
            ("Namespace Name", database.name),
            ("Comment", database.comment),
            ("Owner", database.owner or NOBODY),
        ]
        if command.details:
            pairs = sorted(database.properties.items())
            told.append(
                ("Properties", "(" + ", ".join(f"({key},{value})" for key, value in pairs) + ")" if pairs else "")
            )
        return rows_of(DATABASE_FACTS, told)

    def _describe(self, command: Describe, run: Run) -> pa.Table:
        columns = self._columns(command.table, run)
        names = IMPALA_DESCRIPTION if run.statement.dialect == "impala" else HIVE_DESCRIPTION
        schema = pa.schema([(name, pa.string()) for name in names])
        told = hive_name if run.statement.has_hives_types else str
        rows = [[column.name, told(column.data_type), ""] for column in columns]
        return rows_of(schema, rows + (self._details(command.table, run) if command.details else []))

    def _details(self, name: str, run: Run) -> list[list[str]]:
        """Return what DESCRIBE EXTENDED tells behind the columns, as Spark does."""
        view = self._catalog.current().views_for(run.statement.session).get(name)
        owner = view.owner if view is not None else self._table(name).owner
        kind = "VIEW" if view is not None else "TABLE"
        told = (("Table", name), ("Owner", owner or NOBODY), ("Type", kind))
        return [["", "", ""], ["# Detailed Table Information", "", ""], *([*pair, ""] for pair in told)]

    def _show_table(self, command: ShowTableStats) -> pa.Table:
        table = self._table(command.table)
        build = self._metastore.statistics.current(table.name)
        parts = {part.folder: part for part in self._metastore.statistics.part_marks(table.name)}
        return table_stats(table, build, parts)

    def _show_columns(self, command: ShowColumnStats) -> pa.Table:
        table = self._table(command.table)
        return column_stats(table, self._metastore.statistics.current(table.name))

    # ------------------------------------------------------------------ help

    def _table(self, name: str) -> CatalogTable:
        table = self._metastore.catalog.get(name)
        if table is None:  # since it was parsed
            raise UnknownTable(f"The table {name} is gone.")
        return table

    def _meant(self, name: str, conditions: Sequence[Condition]) -> list[Partition]:
        """Return the partitions for which all conditions hold; there is at least one."""
        partitions = self._table(name).partitions
        meant = [each for each in partitions if all(condition.holds(each) for condition in conditions)]
        if not meant:
            raise UnknownPartition("No partition matches.", conditions[0].position)
        return meant


def _use(command: UseDatabase, session: Session | None) -> pa.Table:
    """Change a session's database."""
    if session is not None:
        session.use(command.database)
    elif command.database != DEFAULT_DATABASE:
        raise NoSession("There is no session here that could keep a database; send it with the query.")
    return NOTHING.empty_table()


def _options(command: SetOption | ResetOptions | ShowOptions, session: Session | None) -> pa.Table:
    """Change or show a session's settings."""
    if session is None:
        raise NoSession("There is no session here that could keep settings; send them with the query.")
    match command:
        case SetOption():
            session.set(command.name, command.value)
            return NOTHING.empty_table()
        case ResetOptions():
            session.reset(command.name)
            return NOTHING.empty_table()
        case ShowOptions(name=str() as name):
            settings: Mapping[str, str] = {name: session.get(name) or "<undefined>"}
        case ShowOptions():
            settings = session.settings()
            if command.everything and session.dialect == IMPALA:
                set_here = {name.lower() for name in settings}
                others = {name: value for name, value in options_of_impala().items() if name not in set_here}
                settings = {**settings, **{name: session.get(name) or value for name, value in others.items()}}
    own = {option.name: option for option in OBEYED}
    rows = [[name, value, level_of(name)] for name, value in settings.items()]
    headings = IMPALA_OPTION_HEADINGS if session.dialect == IMPALA else OPTION_HEADINGS
    schema = pa.schema([(heading, pa.string()) for heading in headings])
    if not command.meanings:
        return rows_of(schema, rows)
    meanings = pa.array([own[row[0]].meaning if row[0] in own else "" for row in rows], pa.string())
    return rows_of(schema, rows).append_column("meaning", meanings)


def _matching(names: Sequence[str], pattern: str | None) -> list[str]:
    """Return the names that match one of a pattern's alternatives."""
    if pattern is None:
        return list(names)
    patterns = [_literally(part) for part in pattern.lower().split("|")]
    return [name for name in names if any(fnmatch.fnmatchcase(name, part) for part in patterns)]


def _literally(pattern: str) -> str:
    """Turn Impala's pattern, where only ``*`` is special, into one of fnmatch."""
    return "*".join(re.sub(r"([?\[])", r"[\1]", part) for part in pattern.split("*"))


def _updated(partitions: int, job: StatisticsJob) -> pa.Table:
    columns = sum(table.columns or 0 for table in job.tables)
    return _summary(f"Updated {partitions} partition(s) and {columns} column(s).")


def _summary(text: str) -> pa.Table:
    return rows_of(SUMMARY, [[text]])


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
