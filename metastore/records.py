"""What leaves the metastore: frozen values, never rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engines.protocol import Actuals, TableSource
from selector.decide import Decision


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
class CatalogTable:
    """A registered table. rows: exact where the files themselves say it (Parquet), else None."""

    source: TableSource
    files: int
    bytes: int
    rows: int | None
    partitions: tuple[Partition, ...]
    registered_at: dt.datetime
    statistics_version: int | None = None

    @property
    def name(self) -> str:
        """The table's name."""
        return self.source.name


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
    """One try on one engine. failure: the error's code; peak_bytes: measured, None where the engine cannot tell."""

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


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """One statement as asked, what was decided, what was tried, how it ended.

    statistics_version: the builds it was decided on, such as ``books@3,transactions@2``.
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
    statistics_version: str | None = None
    decision: Decision | None = None
    attempts: tuple[Attempt, ...] = ()
    rows: int | None = None
    result_bytes: int | None = None
    error: Failure | None = None
    finished_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Misestimate:
    """One lesson: this fingerprint did not fit into that engine under these statistics and this limit."""

    fingerprint: str
    engine: str
    statistics_version: str
    limit_bytes: int
    query_id: str
    sql: str
    estimated_bytes: int | None
    peak_bytes: int | None
    recorded_at: dt.datetime


class Mode(StrEnum):
    """How much of a table a statistics job reads."""

    FULL = "full"
    INCREMENTAL = "incremental"  # files that are new or changed since the last build
    SAMPLE = "sample"  # a share of the row groups or files


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a statistics job is asked for.

    columns: of a single table, empty for all. share: of a sample, 0..1. partitions: folders, relative to the
    table's location, to which an incremental job is confined; empty for all.
    """

    tables: tuple[str, ...]
    mode: Mode = Mode.FULL
    columns: tuple[str, ...] = ()
    share: float = 1.0
    partitions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise ValueError(f"a sample's share lies in 0..1, not {self.share}")
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
    that started it, if one did.
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
    summary: bytes


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a look at a folder told: its table, its files and its partitions."""

    source: TableSource
    files: int
    bytes: int
    rows: int | None
    partitions: tuple[Partition, ...] = field(default=())
