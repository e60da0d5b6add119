"""What the gateway answers by itself: a parsed command becomes an Arrow table, as Impala would answer it."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from typing import assert_never

import pyarrow as pa

from engines.errors import DeadlineExceeded, StatementCancelled
from engines.table_names import DEFAULT_DATABASE
from gateway.catalog.registration import Registration
from gateway.catalog.snapshot import CatalogView
from gateway.commands.definitions import Definer
from gateway.commands.describing import Describer
from gateway.commands.explaining import Explainer
from gateway.commands.listing import Lister
from gateway.commands.relations import Relations
from gateway.commands.views import ViewMaker
from gateway.errors import (
    DatabaseExists,
    NoSession,
    NothingToAmend,
    SqlError,
    StatisticsFailed,
    TableUnreadable,
    UnknownPartition,
    UnknownTable,
)
from gateway.routing.engines import EngineRegistry
from gateway.security.policy import Action, Policy
from gateway.sql.commands.commands import (
    DESCRIPTIONS,
    LISTINGS,
    Command,
    ComputeIncrementalStats,
    ComputeStats,
    CreateDatabase,
    CreateView,
    DropIncrementalStats,
    DropStats,
    DropView,
    Explain,
    Refresh,
    ResetOptions,
    SetColumnStats,
    SetOption,
    SetOwner,
    SetRows,
    ShowOptions,
    UseDatabase,
)
from gateway.sql.commands.definitions import (
    AddPartitions,
    AnalyzeTables,
    Condition,
    OwnedKind,
    RegisterTable,
    Rename,
    SetComment,
    SetProperties,
    UnsetProperties,
)
from gateway.sql.dialects.names import IMPALA
from gateway.statements.session import Session
from gateway.statements.settings import OBEYED, options_of_impala
from gateway.statements.statement import Run
from gateway.statistics.jobs import JobRunner, job_running
from gateway.statistics.tables import rows_of
from metastore.discovery.inspection import InspectionFailed
from metastore.records import (
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

JOB_POLL_S = 0.1
OPTION_HEADINGS = ("key", "value", "level")  # impala-shell wants a third column
IMPALA_OPTION_HEADINGS = ("option", "value", "level")  # ibis looks columns up by these names
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
        explainer: Explainer,
        engines: EngineRegistry,
        policy: Policy,
        definer: Definer,
    ) -> None:
        self._metastore = metastore
        self._policy = policy
        self._catalog = catalog
        self._registration = registration
        self._jobs = jobs
        self._views = views
        self._explainer = explainer
        self._relations = Relations(metastore, catalog)
        self._lister = Lister(metastore, catalog, self._relations, registration)
        self._describer = Describer(metastore, catalog, self._relations, engines)
        self._definer = definer

    def run(self, command: Command, run: Run) -> pa.Table:
        """Do what a command says and return its rows. Raises CommandFailed, StatementCancelled, DeadlineExceeded."""
        if isinstance(command, LISTINGS):
            return self._lister.answer(command, run)
        if isinstance(command, DESCRIPTIONS):
            return self._describer.answer(command, run)
        match command:
            case Explain():
                return self._explainer.answer(command, run)
            case ComputeStats():
                return self._compute(command, run)
            case ComputeIncrementalStats():
                return self._compute_incremental(command, run)
            case AnalyzeTables():
                return self._analyze(command, run)
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
            case CreateDatabase():
                return self._create_database(command, run)
            case UseDatabase():
                return _use(command, run.statement.session)
            case SetOption() | ResetOptions() | ShowOptions():
                return _options(command, run.statement.session)
            case RegisterTable() | Rename() | SetComment() | SetProperties() | UnsetProperties() | AddPartitions():
                self._definer.run(command, run)
                return NOTHING.empty_table()
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
        return _updated(len(self._relations.table(command.table).partitions) or 1, job)

    def _compute_incremental(self, command: ComputeIncrementalStats, run: Run) -> pa.Table:
        self._look_again(command.table)
        folders: tuple[str, ...] = ()
        if command.conditions:
            folders = tuple(each.path for each in self._meant(command.table, command.conditions))
        job = self._finished(JobRequest((command.table,), Mode.INCREMENTAL, partitions=folders), run)
        parts = self._metastore.statistics.part_marks(command.table)
        return _updated(sum(part.built_at >= job.created_at for part in parts), job)

    def _analyze(self, command: AnalyzeTables, run: Run) -> pa.Table:
        for name in command.tables:
            run.require()
            if command.scan:
                self._compute(ComputeStats(name), run)
            else:
                self._look_again(name)
        return _summary(f"Updated {len(command.tables)} table(s).")

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
        location = self._relations.table(name).source.location
        try:
            self._registration.refresh(name)
        except InspectionFailed as error:
            raise TableUnreadable(str(error).replace(location, name)) from error

    # ------------------------------------------------------------------ help

    def _meant(self, name: str, conditions: Sequence[Condition]) -> list[Partition]:
        """Return the partitions for which all conditions hold; there is at least one."""
        partitions = self._relations.table(name).partitions
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
    rows = [[name, value, session.level_of(name)] for name, value in settings.items()]
    headings = IMPALA_OPTION_HEADINGS if session.dialect == IMPALA else OPTION_HEADINGS
    schema = pa.schema([(heading, pa.string()) for heading in headings])
    if not command.meanings:
        return rows_of(schema, rows)
    meanings = pa.array([own[row[0]].meaning if row[0] in own else "" for row in rows], pa.string())
    return rows_of(schema, rows).append_column("meaning", meanings)


def _updated(partitions: int, job: StatisticsJob) -> pa.Table:
    columns = sum(table.columns or 0 for table in job.tables)
    return _summary(f"Updated {partitions} partition(s) and {columns} column(s).")


def _summary(text: str) -> pa.Table:
    return rows_of(SUMMARY, [[text]])


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
