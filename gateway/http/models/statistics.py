"""Statistics jobs and workloads as JSON."""

from __future__ import annotations

import datetime as dt

from pydantic import BaseModel, Field

from gateway.http.models.common import Database, ErrorModel, PathText, RecordModel, RequestModel, SqlText, Word, Words
from gateway.http.models.tables import KeyModel
from metastore.records import SMALLEST_SHARE, Mode, StatisticsJob
from sql.bounds import MOST_COLUMNS, MOST_PARTITIONS, MOST_STATEMENTS
from sql.tables import DEFAULT_DATABASE


class StatisticsJobRequest(RequestModel):
    """Statistics to compute. columns and partitions are for a single table, share for a sample."""

    tables: Words = Field(min_length=1)
    mode: Mode = Field(Mode.FULL, strict=False, description="full, incremental (what is new or changed) or sample.")
    share: float | None = Field(None, ge=SMALLEST_SHARE, le=1.0, description="Share of each table in a sample.")
    columns: list[Word] = Field(
        default_factory=list, max_length=MOST_COLUMNS, fail_fast=True, description="Empty: all."
    )
    partitions: list[PathText] = Field(
        default_factory=list,
        max_length=MOST_PARTITIONS,
        fail_fast=True,
        description="Folders, such as year=2024 or year=2024/month=1.",
    )


class WorkloadRequest(RequestModel):
    """Usual statements, whose join keys are to be registered; nothing runs."""

    statements: list[SqlText] = Field(min_length=1, max_length=MOST_STATEMENTS, fail_fast=True)
    dialect: Word = Field("spark", description="Dialect of the texts.")
    database: Database = Field(DEFAULT_DATABASE, description="Database of names without one.")


class RefusedStatement(BaseModel):
    """A statement of a workload that cannot be read. number: its place, counted from one."""

    number: int
    error: ErrorModel


class WorkloadReply(BaseModel):
    """Join keys of a workload. new: number of pairs that were not registered before."""

    new: int
    keys: list[KeyModel]
    refused: list[RefusedStatement]


class TableProgressModel(RecordModel):
    """Progress of one table of a job. version: of the published statistics."""

    table: str
    state: str
    files_done: int
    files_all: int
    rows: int | None
    columns: int | None
    seconds: float | None
    version: int | None
    error: str | None


class StatisticsJobReply(RecordModel):
    """A statistics job. schedule: the one that started it."""

    id: str
    tables: list[str]
    mode: str
    share: float
    columns: list[str]
    partitions: list[str]
    state: str
    tables_done: int
    progress: list[TableProgressModel]
    created_at: dt.datetime
    started_at: dt.datetime | None
    heartbeat_at: dt.datetime | None
    finished_at: dt.datetime | None
    schedule: str | None
    owner: str | None
    error: str | None

    @classmethod
    def of(cls, job: StatisticsJob) -> StatisticsJobReply:
        """Show a job."""
        return cls.showing(job.request, job, progress=job.tables)


class StatisticsJobList(BaseModel):
    """Jobs, newest first."""

    jobs: list[StatisticsJobReply]
