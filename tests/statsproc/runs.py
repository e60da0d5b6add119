"""Statistics jobs as the command runs them, in a Spark that is open already."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from metastore.discovery.inspection import inspect
from metastore.records import JobRequest, JobState, Mode, StatisticsJob
from metastore.store import Metastore
from selector.statistics import TableStatistics
from sql.tables import Column
from statsproc.job.job import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


class Recorder:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def progress(self, what: str, done: int, total: int) -> None:
        assert 0 <= done <= total

    def finished(self, what: str, summary: str, **facts: object) -> None:
        self.events.append(("finished", what))

    def failed(self, what: str, error: str) -> None:
        self.events.append(("failed", what))

    def done(self, **facts: object) -> None: ...

    def close(self) -> None: ...


class Runs:
    """Tables in one folder, and jobs over them."""

    def __init__(self, spark: SparkSession, store: Metastore, folder: Path) -> None:
        self.spark = spark
        self.store = store
        self.folder = folder
        self.errors: dict[str, str] = {}
        self.recorder = Recorder()

    def register(
        self,
        name: str,
        *,
        columns: Sequence[Column] | None = None,
        options: Mapping[str, str] | None = None,
        format: str | None = None,
    ) -> None:
        """Put the folder of that name into the catalog."""
        found = inspect(name, self.folder / name, columns=columns, options=options, format=format)
        self.store.catalog.put(found, at=NOON)

    def write(self, name: str, table: pa.Table, file: str = "a.parquet", *, row_group_size: int | None = None) -> Path:
        """Write a Parquet file of a table."""
        path = self.folder / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=row_group_size)
        return path

    def run(self, *tables: str, mode: Mode = Mode.FULL, **request: object) -> StatisticsJob:
        """Run a job to its end; ``errors`` holds those of its tables."""
        wanted = JobRequest(tables, mode, **request)  # type: ignore[arg-type]
        job_id = uuid.uuid4().hex
        self.recorder = Recorder()
        self.errors = run_job(self.store, job_id, wanted, lambda: nullcontext(self.spark), self.recorder)
        job = self.store.jobs.get(job_id)
        assert job is not None
        return job

    def statistics(self, name: str, mode: Mode = Mode.FULL, **request: object) -> TableStatistics:
        """Run a job over a table that must go well, and return what is in force then."""
        job = self.run(name, mode=mode, **request)
        assert self.errors == {}, self.errors
        assert job.state is JobState.FINISHED
        return self.current(name)

    def current(self, name: str) -> TableStatistics:
        """Return the statistics in force."""
        found = self.store.statistics.current(name)
        assert found is not None
        return found

    def incremental(self, name: str, **request: object) -> TableStatistics:
        """Bring a table's statistics up to date."""
        return self.statistics(name, Mode.INCREMENTAL, **request)
