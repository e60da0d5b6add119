"""What leaves the metastore: frozen values, never rows."""

from __future__ import annotations

import builtins
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engines.protocol import Actuals, Column, TableSource
from engines.table_names import DEFAULT_DATABASE
from selector.decision import Decision
from selector.forecast.history import NOTHING, Expectation, Ground


class QueryState(StrEnum):
    """Where a query is in its life."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        """True once nothing more will happen to it."""
        return self in (QueryState.FINISHED, QueryState.FAILED, QueryState.CANCELLED)


class JobState(StrEnum):
    """Where a statistics job is in its life."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        """True once nothing more will happen to it."""
        return self in (JobState.FINISHED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition's folder, relative to the table's location. values: column to text, as in the path."""

    path: str
    values: Mapping[str, str]
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Annotations:
    """What people say of a table or a view. comment: of the whole; columns: comments by the columns' names.

    properties: as they were told (TBLPROPERTIES), with no meaning here.
    """

    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)


NOT_ANNOTATED = Annotations()


@dataclass(frozen=True, slots=True)
class Database:
    """A space of names for tables and views. properties: as they were told. owner: None where it is nobody's."""

    name: str
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A query with a name. sql: in its dialect. columns: names and types, as they were when it was made.

    name: the full one; a bare one where it is temporary: a session's own, and in no database.
    database: of bare names in its query. owner: who made it; None where it is nobody's.
    defect: why what is stored of it cannot be used, "" where nothing is wrong.
    """

    name: str
    sql: str
    dialect: str
    columns: tuple[Column, ...]
    temporary: bool = False
    owner: str | None = None
    defect: str = ""
    database: str = DEFAULT_DATABASE
    annotations: Annotations = NOT_ANNOTATED


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A registered table. rows: exact where the files themselves say it (Parquet), else None.

    declared: its columns were told when it was registered, not found in the files. owner: None where it is nobody's.
    """

    source: TableSource
    files: int
    bytes: int
    rows: int | None
    partitions: tuple[Partition, ...]
    registered_at: dt.datetime
    statistics_version: int | None = None
    declared: bool = False
    owner: str | None = None
    annotations: Annotations = NOT_ANNOTATED

    @property
    def name(self) -> str:
        """The table's full name."""
        return self.source.name


@dataclass(frozen=True, slots=True)
class ManagedFolder:
    """A folder that the gateway made for a table of its own. location: absolute, without links."""

    location: str
    query_id: str


@dataclass(frozen=True, slots=True)
class TableCommit:
    """An INSERT under way, by the query that it is.

    location: the table's folder. files: those that it adds, replaced: those that it takes away, as paths below the
    folder; None before all its rows are written.
    """

    query_id: str
    location: str
    files: tuple[str, ...] | None = None
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a statement, both counted from one."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something ended badly, as the client is told."""

    code: str
    message: str
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try on one engine.

    wall_s: from its start to its end; waited_s: of that, for a slot. failure: the error's code. peak_bytes: measured,
    None where the engine cannot tell. expected: of it, by the models alone. lease_bytes: memory that it might take, in
    the end; None of an engine that spills. threads: that worked for it.
    """

    ordinal: int
    engine: str
    state: QueryState
    started_at: dt.datetime
    wall_s: float | None = None
    failure: str | None = None
    message: str | None = None
    rows: int | None = None
    peak_bytes: int | None = None
    actuals: Actuals | None = None
    waited_s: float | None = None
    expected: Expectation = NOTHING
    lease_bytes: int | None = None
    threads: int | None = None

    @property
    def run_s(self) -> float | None:
        """Seconds on the engine, without waiting for it."""
        return None if self.wall_s is None else max(0.0, self.wall_s - (self.waited_s or 0.0))


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """One statement as asked, what was decided, what was tried, how it ended.

    template: the fingerprint of what is left without literals.
    statistics_version: the builds it was decided on, such as ``books@3,transactions@2``. authenticated: its user had
    shown a password, so that nobody else is that user. database: of bare names in it.
    """

    id: str
    sql: str
    dialect: str
    user: str
    requested_engine: str
    state: QueryState
    submitted_at: dt.datetime
    engine: str | None = None
    fingerprint: str | None = None
    template: str | None = None
    statistics_version: str | None = None
    decision: Decision | None = None
    attempts: tuple[Attempt, ...] = ()
    rows: int | None = None
    result_bytes: int | None = None
    error: Failure | None = None
    finished_at: dt.datetime | None = None
    authenticated: bool = False
    database: str = DEFAULT_DATABASE

    @property
    def owner(self) -> str | None:
        """Who it belongs to; None where it is nobody's: a name without a password proves nothing."""
        return self.user if self.authenticated else None


@dataclass(frozen=True, slots=True)
class Misestimate:
    """One misestimate: this fingerprint did not fit into that engine under these statistics and this limit.

    estimated_bytes: the peak that was expected; model_bytes: by the memory model alone, before anything was learned.
    """

    fingerprint: str
    engine: str
    statistics_version: str
    limit_bytes: int
    query_id: str
    sql: str
    estimated_bytes: int | None
    peak_bytes: int | None
    recorded_at: dt.datetime
    model_bytes: int | None = None

    def stands_on(self, ground: Ground) -> bool:
        """Tell whether the statement would miss again."""
        return self.ground.misses_on(ground)

    @property
    def ground(self) -> Ground:
        """What it ran on."""
        return Ground(self.engine, self.limit_bytes, self.statistics_version, self.model_bytes)


class Mode(StrEnum):
    """How much of a table a statistics job reads."""

    FULL = "full"
    INCREMENTAL = "incremental"  # files that are new or changed since the last build
    SAMPLE = "sample"  # a share of the row groups or files


SMALLEST_SHARE = 1e-6  # of a table, that a sample reads


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a statistics job is asked for.

    columns: of a single table, empty for all. share: of a sample, SMALLEST_SHARE..1. partitions: folders, relative to
    the table's location, to which an incremental job is confined; empty for all.
    """

    tables: tuple[str, ...]
    mode: Mode = Mode.FULL
    columns: tuple[str, ...] = ()
    share: float = 1.0
    partitions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not SMALLEST_SHARE <= self.share <= 1.0:
            raise ValueError(f"a sample's share lies in {SMALLEST_SHARE:f}..1, not {self.share}")
        if (self.columns or self.partitions) and len(self.tables) != 1:
            raise ValueError("columns and partitions belong to a single table")


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How one table of a job goes. error: why it failed; version: of the statistics that it published."""

    table: str
    state: JobState = JobState.QUEUED
    files_done: int = 0
    files_all: int = 0
    rows: int | None = None
    columns: int | None = None
    seconds: float | None = None
    version: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StatisticsJob:
    """One run of the statistics processor over some tables, one after the other.

    host, process_id: where it runs. heartbeat_at: when it last told that it is alive. schedule: name of the schedule
    that started it, if one did. owner: who asked for it; None where it is nobody's.
    """

    id: str
    request: JobRequest
    state: JobState
    created_at: dt.datetime
    tables: tuple[TableProgress, ...] = ()
    host: str | None = None
    process_id: int | None = None
    heartbeat_at: dt.datetime | None = None
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    schedule: str | None = None
    error: str | None = None
    owner: str | None = None

    @property
    def tables_done(self) -> int:
        """How many tables have ended, well or not."""
        return sum(table.state.ended for table in self.tables)


@dataclass(frozen=True, slots=True)
class FileMark:
    """What tells whether a file is still the one that was read. path: relative to the table's location."""

    path: str
    bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class StatisticsPart:
    """The mergeable summary of one partition, or of a whole table without partitions (folder "").

    summary: the statistics processor's own encoding. share: of the partition that was read, 0..1.
    """

    folder: str
    files: tuple[FileMark, ...]
    rows: int
    bytes: int
    share: float
    built_at: dt.datetime
    summary: builtins.bytes


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a look at a folder told: its table, its files and its partitions.

    declared: the columns were told, not found in the files; they stay when the files are looked at again.
    """

    source: TableSource
    files: int
    bytes: int
    rows: int | None
    partitions: tuple[Partition, ...] = field(default=())
    declared: bool = False


@dataclass(frozen=True, slots=True)
class Cron:
    """By the clock. expression: five fields, or six with seconds first; time_zone: its IANA name."""

    expression: str
    time_zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Staleness:
    """Once statistics have aged. changed_files: share of the files, 0..1; days: since the build; None: no limit."""

    changed_files: float | None = None
    days: float | None = None


@dataclass(frozen=True, slots=True)
class AfterMisestimate:
    """Once a statement ran out of the memory that its estimate allowed it: the tables of that statement."""


Trigger = Cron | Staleness | AfterMisestimate

ALL_TABLES = ("*",)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When, and how, the statistics of some tables are computed anew.

    tables: their names; ALL_TABLES for all that are registered when it runs. share: of a sample, 0..1.
    next_run_at: None while it is paused or waits for an event. awaited: tables of misestimates since its last run.
    last_run_at: when it last began. running: it has not yet been told how that run ended.
    last_job_id: of the newest job; a run that found nothing to do has none. last_error: why the last run failed.
    failures: runs that failed in a row. retries: how often the run that failed was repeated. owner: who made it.
    """

    name: str
    tables: tuple[str, ...]
    trigger: Trigger
    created_at: dt.datetime
    mode: Mode = Mode.FULL
    share: float = 1.0
    paused: bool = False
    next_run_at: dt.datetime | None = None
    awaited: tuple[str, ...] = ()
    last_run_at: dt.datetime | None = None
    running: bool = False
    last_job_id: str | None = None
    last_error: str | None = None
    failures: int = 0
    retries: int = 0
    owner: str | None = None
