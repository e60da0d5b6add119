"""Statistics jobs and workloads as JSON."""

from __future__ import annotations

import datetime as dt

from pydantic import BaseModel, Field

from engines.table_names import DEFAULT_DATABASE
from gateway.http.models.common import DATABASE_NAME, ErrorModel, RecordModel, RequestModel
from gateway.http.models.tables import KeyModel
from metastore.records import (
    SMALLEST_SHARE,
    Mode,
    StatisticsJob,
)


class StatisticsJobRequest(RequestModel):
    """Statistics to compute. columns and partitions belong to a single table, share to a sample."""

    tables: list[str] = Field(min_length=1)
    mode: Mode = Field(Mode.FULL, strict=False, description="full, incremental (what is new or changed) or sample.")
    share: float | None = Field(
        None, ge=SMALLEST_SHARE, le=1.0, description="Of a sample: how much of each table is read."
    )
    columns: list[str] = Field(default_factory=list, description="None for all.")
    partitions: list[str] = Field(default_factory=list, description="Folders, such as year=2024 or year=2024/month=1.")


class WorkloadRequest(RequestModel):
    """Statements that are usual here; only their joins are looked at, nothing runs."""

    statements: list[str] = Field(min_length=1, max_length=10_000)
    dialect: str = Field("spark", description="Dialect of the texts.")
    database: str = Field(DEFAULT_DATABASE, pattern=DATABASE_NAME, description="Of names without one before them.")


class RefusedStatement(BaseModel):
    """A statement of a workload that could not be read. number: its place in the workload, counted from one."""

    number: int
    error: ErrorModel


class WorkloadReply(BaseModel):
    """What a workload taught. new: pairs that were not known before."""

    new: int
    keys: list[KeyModel]
    refused: list[RefusedStatement]


class TableProgressModel(RecordModel):
    """How one table of a job goes. version: of the statistics that it published."""

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
