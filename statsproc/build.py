"""The statistics job: table after table, each published whole, with its row in the metastore kept up to date."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engines.spark.java import JavaNotFound
from metastore.inspection import InspectionFailed, data_files, largest_row_group
from metastore.records import CatalogTable, JobState, StatisticsJob
from metastore.store import Metastore
from selector.statistics import TableStatistics
from statsproc.progress import Reporter, watched
from statsproc.scan import scan
from statsproc.session import SparkFailed, SparkUnavailable
from statsproc.summary import describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTING = "starting Spark"


class BuildFailed(Exception):
    """One table's statistics could not be built; the old ones stay in force."""


class Stopped(BaseException):
    """The process was asked to end. Not an Exception, so that nothing takes it for a failure of its own."""


def build(spark: SparkSession, table: CatalogTable) -> TableStatistics:
    """Read a table once and describe it. The version is given when it is published."""
    source = table.source
    location = Path(source.location)
    if not location.exists():
        raise BuildFailed(f"there is no {location}: register the table where its files are")
    files = data_files(location)
    size = sum(file.bytes for file in files)
    found = scan(spark, source, table_bytes=size)
    types = {column.name: column.data_type for column in source.columns}
    return TableStatistics(
        table=table.name,
        version=0,
        rows=found.rows,
        bytes=size,
        columns={name: describe(summary, name, types[name]) for name, summary in found.columns.items()},
        row_group_rows=largest_row_group(files) if source.format == "parquet" else None,
    )


def run_job(
    metastore: Metastore,
    job_id: str,
    tables: Sequence[str],
    open_spark: Callable[[], AbstractContextManager[SparkSession]],
    reporter: Reporter,
) -> dict[str, str]:
    """Build and publish the statistics of some tables; returns the errors by table.

    A table that fails does not stop the others. The job's row is made if nobody did; it ends in any case,
    unless the process is killed, and every table published by then stays published.
    """
    if metastore.jobs.get(job_id) is None:
        metastore.jobs.create(StatisticsJob(id=job_id, tables=tuple(tables), state=JobState.QUEUED, created_at=_now()))
    metastore.jobs.started(job_id, at=_now(), process_id=os.getpid())
    error: str | None = "the job ended before its time"
    try:
        reporter.progress(STARTING, 0, 0)
        began = time.monotonic()
        with open_spark() as spark:
            reporter.finished(STARTING, _seconds(began))
            errors: dict[str, str] = {}
            for done, table in enumerate(tables, start=1):
                failure = _build_and_publish(spark, metastore, table, reporter)
                if failure is not None:
                    errors[table] = failure
                    reporter.failed(table, failure)
                metastore.jobs.progressed(job_id, tables_done=done)
        error = "; ".join(f"{table}: {reason}" for table, reason in errors.items()) or None
        return errors
    except Stopped:
        error = "the job was stopped"
        raise
    except (JavaNotFound, SparkUnavailable) as failure:
        error = str(failure)
        raise
    finally:
        metastore.jobs.ended(job_id, at=_now(), error=error)


def _build_and_publish(spark: SparkSession, metastore: Metastore, name: str, reporter: Reporter) -> str | None:
    """Do one table; returns its error."""
    began = time.monotonic()
    try:
        table = metastore.catalog.get(name)
        if table is None:
            raise BuildFailed(f"table {name} is not registered")
        with watched(spark, partial(reporter.progress, name)):
            statistics = build(spark, table)
        published = metastore.statistics.publish(statistics, at=_now())
    except (BuildFailed, InspectionFailed, LookupError, OSError, SparkFailed) as failure:
        return str(failure)
    size = f"{published.rows:,} rows, {len(published.columns)} columns"
    reporter.finished(
        name,
        f"{size}, version {published.version}, {_seconds(began)}",
        rows=published.rows,
        bytes=published.bytes,
        columns=len(published.columns),
        version=published.version,
        seconds=round(time.monotonic() - began, 3),
    )
    return None


def _seconds(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
