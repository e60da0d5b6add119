"""Values of the metastore: frozen records, never rows of the database. It is long because it is one list of all."""

from __future__ import annotations

import builtins
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engines.files.listing import FileMark
from engines.protocol import Actuals
from selector.decision import Decision
from selector.forecast.history import NOTHING, Expectation, Ground
from sql.errors import Failure
from sql.tables import DEFAULT_DATABASE, NOT_ANNOTATED, Annotations, TableSource


class _RunState(StrEnum):
    @property
    def ended(self) -> bool:
        """True for a final state."""
        return self in ("FINISHED", "FAILED", "CANCELLED")


class QueryState(_RunState):
    """State of a query or of an attempt."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class JobState(_RunState):
    """State of a statistics job or of one of its tables."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition's folder.

    path: relative to the table's location.
    values: text by column, as in the path.
    """

    path: str
    values: Mapping[str, str]
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Database:
    """A space of names for tables and views.

    properties: of DBPROPERTIES, with no meaning here.
    owner: None: no owner.
    identifiers: of a namespace of an Iceberg catalog, as of a table (``sql/tables.py``).
    """

    name: str
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    owner: str | None = None
    identifiers: tuple[str, ...] = ()

    def identifiers_of(self, new_table: str) -> tuple[str, ...]:
        """Return the identifiers of a new table. new_table: its name within the database."""
        return tuple(f"{namespace}.{new_table}" for namespace in self.identifiers)


@dataclass(frozen=True, slots=True)
class AddedCatalog:
    """An Iceberg catalog that a command has added; those of the settings are not on record.

    credential_env: variable of the gateway with its secret; "": none.
    credential_file: file of the folder ``catalog.iceberg_secrets`` with its secret; "": none.
    properties: of pyiceberg, without secrets.
    owner: its creator; None: no owner.
    """

    name: str
    type: str
    uri: str
    warehouse: str = ""
    credential_env: str = ""
    credential_file: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A registered table.

    rows: exact if the files count them (Parquet, ORC); None: unknown.
    declared: its columns were given at registration, not read from the files.
    owner: None: no owner.
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
    """A folder that the gateway created for a table. location: absolute, without links."""

    location: str
    query_id: str


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A running INSERT.

    location: the table's folder.
    files: paths below the folder that it adds; None before all its rows are written.
    replaced: paths below the folder that it removes.
    """

    query_id: str
    location: str
    files: tuple[str, ...] | None = None
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try on one engine.

    wall_s: from its start to its end.
    failure: the error's code.
    peak_bytes: measured; None: the engine cannot tell.
    waited_s: part of wall_s in which it waited for columns of an object store, and for a slot.
    expected: by the models alone.
    lease_bytes: memory granted in the end; None for an engine that spills.
    threads: granted.
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
class Alone:
    """Time of a query if the dependable engine had run it alone. measured: it ran there; else a forecast."""

    engine: str
    seconds: float
    measured: bool


@dataclass(frozen=True, slots=True)
class QuerySummary:
    """An ended query in the numbers that lists and sums of many queries need.

    pool: whose limits it ran under.
    reason: code of the decision's first reason; without a decision, of the error; None: a command that succeeded.
    seconds: from submission to the end.
    attempts: on all engines together. ran_out: one of them ran out of memory.
    expected_bytes, peak_bytes: of the first attempt of which both are known; None: of none.
    within_bound: that peak is not above the estimate's upper bound; None: unknown.
    alone: None: unknown, or no engine was needed.
    """

    pool: str
    reason: str | None
    seconds: float
    attempts: int = 0
    ran_out: bool = False
    expected_bytes: int | None = None
    peak_bytes: int | None = None
    within_bound: bool | None = None
    alone: Alone | None = None


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """One statement as sent, with its decision, its attempts and its end.

    summary: None while it is open, and of queries that an earlier release recorded.

    template: the fingerprint without literals.
    statistics_version: the builds of the decision, such as ``books@3,transactions@2``.
    authenticated: its user was logged in, so that nobody else is that user.
    database: of bare names in the statement.
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
    summary: QuerySummary | None = None

    @property
    def owner(self) -> str | None:
        """Owner of the query; None: no owner, as a user name without a login proves nothing."""
        return self.user if self.authenticated else None


@dataclass(frozen=True, slots=True)
class ParityCase:
    """Query whose answers on two engines differ. Until it is released, its template stays off the engine.

    engine, other: that answered, and that was asked again.
    difference: first difference, in words.
    rows, other_rows: texts of the first rows that the other answer has not.
    snapshots: ids of the snapshots that both read, by names of tables.
    version: of the gateway and of both engines, or of their drivers.
    """

    query_id: str
    template: str
    sql: str
    dialect: str
    user: str
    authenticated: bool
    engine: str
    other: str
    difference: str
    rows: tuple[str, ...]
    other_rows: tuple[str, ...]
    snapshots: Mapping[str, str]
    version: str
    found_at: dt.datetime
    released_at: dt.datetime | None = None
    released_by: str | None = None

    @property
    def owner(self) -> str | None:
        """Owner of the query; None: no owner."""
        return self.user if self.authenticated else None


@dataclass(frozen=True, slots=True)
class Misestimate:
    """A statement that ran out of memory although its estimate was below the limit.

    estimated_bytes: expected peak.
    model_bytes: expected peak by the memory model alone, without learned corrections.
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
        """Return True if the statement is expected to run out of memory again."""
        return self.ground.misses_on(ground)

    @property
    def ground(self) -> Ground:
        """Engine, limit and statistics under which it ran."""
        return Ground(self.engine, self.limit_bytes, self.statistics_version, self.model_bytes)


class Mode(StrEnum):
    """Share of a table that a statistics job reads."""

    FULL = "full"
    INCREMENTAL = "incremental"  # files that are new or changed since the last build
    SAMPLE = "sample"  # a share of the row groups or files


SMALLEST_SHARE = 1e-6  # of a sample


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Order for a statistics job.

    columns: of a single table; empty: all.
    share: of a sample, SMALLEST_SHARE..1.
    partitions: folders relative to the table's location, to which an incremental job is confined; empty: all.
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
    """Progress of one table of a job. version: of the published statistics."""

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

    host, process_id: of its process.
    heartbeat_at: its last sign of life.
    schedule: name of the schedule that started it; None: a user did.
    owner: user who started it; None: no owner.
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
        """Number of tables that have ended, successfully or not."""
        return sum(table.state.ended for table in self.tables)


@dataclass(frozen=True, slots=True, eq=False)
class StatisticsPart:
    """The mergeable summary of one partition, or of a whole table without partitions (folder "").

    share: part of the partition that was read, 0..1.
    summary: in the statistics processor's own encoding.
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
    """Result of the inspection of a folder: its table, its files and its partitions.

    declared: the columns were given, not read from the files; another inspection leaves them.
    """

    source: TableSource
    files: int
    bytes: int
    rows: int | None
    partitions: tuple[Partition, ...] = field(default=())
    declared: bool = False


@dataclass(frozen=True, slots=True)
class Cron:
    """A trigger by the clock.

    expression: five fields, or six with seconds first.
    time_zone: IANA name.
    """

    expression: str
    time_zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Staleness:
    """A trigger by the age of statistics.

    changed_files: share of the files, 0..1; None: no limit.
    days: since the build; None: no limit.
    """

    changed_files: float | None = None
    days: float | None = None


@dataclass(frozen=True, slots=True)
class AfterMisestimate:
    """A trigger by misestimates: the tables of a statement that ran out of memory."""


Trigger = Cron | Staleness | AfterMisestimate

ALL_TABLES = ("*",)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule by which statistics of some tables are computed again, or statements run.

    tables: names of tables; ALL_TABLES: all that are registered when it runs; empty: it runs statements.
    share: of a sample, 0..1.
    next_run_at: None while it is paused or waits for an event.
    awaited: tables of misestimates since its last run.
    last_run_at: start of the last run.
    running: the end of the last run is not recorded yet.
    last_job_id: of the newest job; a run without work has none.
    last_error: of the last run, if it failed.
    failures: runs that failed in a row.
    retries: repetitions of the run that failed.
    owner: its creator.
    statements: what it runs instead, one after the other, as its owner.
    last_query_id: of the newest statement.
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
    statements: tuple[str, ...] = ()
    last_query_id: str | None = None
