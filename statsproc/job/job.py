"""The statistics job: table after table, each published whole, with its row in the metastore kept up to date."""

from __future__ import annotations

import datetime as dt
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from engines.spark.embedded.java import JavaNotFound
from metastore.discovery.inspection import InspectionFailed, listed
from metastore.errors import LockLost
from metastore.lake.resolution import pin
from metastore.records import CatalogTable, Inspection, JobRequest, JobState, Mode, StatisticsJob, TableProgress
from metastore.store import Metastore
from selector.join_keys import Bins, ColumnRef, key_groups
from sql.errors import TableUnreadable, UnknownTable
from statsproc.job.build import BuildPlan, PreviousBuild, build, plan_build
from statsproc.job.objects import ObjectTables
from statsproc.job.reading import (
    BuildFailed,
    Reading,
    Together,
    columns_of,
    files_of,
    key_columns,
    look_for_keys,
    read,
    read_together,
)
from statsproc.read.files import without_root
from statsproc.read.scan import TableScan
from statsproc.sketches.join_keys import Cut, cut_keys
from statsproc.sketches.table_summary import TableSummary, merge_tables
from statsproc.spark.progress import Reporter, watched
from statsproc.spark.session import SparkFailed, SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTING = "starting Spark"
KEYS = "looking for keys"
HEARTBEAT_S = 5.0
TELL_EVERY_S = 0.5  # the metastore, at most
TOGETHER_BYTES = 64 << 20  # of files that one job of Spark reads for several tables,
TOGETHER_COLUMNS = 256  # and their columns: summaries of so many are held at once


class Stopped(BaseException):
    """The process was asked to end. Not an Exception, so that nothing takes it for a failure of its own."""


# of one table, after which the job goes on with the next
_TABLE_FAILURES = (
    BuildFailed,
    InspectionFailed,
    LockLost,
    LookupError,
    OSError,
    SparkFailed,
    SQLAlchemyError,
    ValueError,  # Arrow's too: content that nobody foresaw
)


@dataclass(slots=True)
class _Joins:
    """Join keys of the job. columns: key columns by table. bins: bins by key group. looks: key summaries by table."""

    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    bins: dict[str, Bins] = field(default_factory=dict)
    looks: dict[str, TableSummary] = field(default_factory=dict)


def _as_registered(table: CatalogTable) -> CatalogTable:
    """Return a table as the catalog has it, without its snapshot."""
    return replace(table, source=replace(table.source, snapshot=None))


def run_job(
    metastore: Metastore,
    job_id: str,
    request: JobRequest,
    open_spark: Callable[[], AbstractContextManager[SparkSession]],
    reporter: Reporter,
) -> dict[str, str]:
    """Build and publish the statistics of some tables; returns the errors by table.

    A table that fails does not stop the others. The job's row is made if nobody did; it ends in any case,
    unless the process is killed, and every table published by then stays published.
    Raises TablesBusy where another job holds one of the tables.
    """
    metastore.jobs.end_dead(now=_now(), keep=(job_id,))  # a killed job holds its tables until somebody looks
    if metastore.jobs.get(job_id) is None:
        metastore.jobs.create(StatisticsJob(id=job_id, request=request, state=JobState.QUEUED, created_at=_now()))
    metastore.jobs.started(job_id, at=_now(), host=socket.gethostname(), process_id=os.getpid())
    error: str | None = "the job ended before its time"
    try:
        with _heartbeat(metastore, job_id):
            reporter.progress(STARTING, 0, 0)
            began = time.monotonic()
            objects = ObjectTables()  # before Spark starts, whose processes need no keys
            with TemporaryDirectory(prefix="fusion-snapshots-") as snapshots, open_spark() as spark:
                reporter.finished(STARTING, _seconds(began))
                errors = _Job(spark, metastore, job_id, request, reporter, Path(snapshots), objects).run()
        error = "; ".join(f"{table}: {reason}" for table, reason in errors.items()) or None
        return errors
    except Stopped:
        error = "the job was stopped"
        raise
    except (JavaNotFound, SparkFailed, SparkUnavailable) as failure:
        error = str(failure)
        raise
    finally:
        metastore.jobs.ended(job_id, at=_now(), error=error)


class _Job:
    def __init__(
        self,
        spark: SparkSession,
        metastore: Metastore,
        job_id: str,
        request: JobRequest,
        reporter: Reporter,
        snapshots: Path,
        objects: ObjectTables,
    ) -> None:
        self._spark = spark
        self._metastore = metastore
        self._job_id = job_id
        self._request = request
        self._reporter = reporter
        self._errors: dict[str, str] = {}
        self._tables: dict[str, CatalogTable] = {}
        self._previous_builds: dict[str, PreviousBuild] = {}
        self._snapshots = snapshots  # folder for manifests of lake tables
        self._objects = objects

    def run(self) -> dict[str, str]:
        with self._objects:
            return self._run()

    def _run(self) -> dict[str, str]:
        joins = self._joins()
        for batch in self._batches(name for name in self._request.tables if name not in self._errors):
            self._build(batch, joins)
        return {name: self._errors[name] for name in self._request.tables if name in self._errors}

    def _batches(self, names: Iterable[str]) -> Iterator[list[str]]:
        """Put small tables together, as many as one job of Spark reads; large ones stay alone."""
        batch: list[str] = []
        size = columns = 0
        for name in names:
            table = self._tables[name]
            more = len(table.source.columns)
            if table.bytes > TOGETHER_BYTES:
                yield [name]
                continue
            if batch and (size + table.bytes > TOGETHER_BYTES or columns + more > TOGETHER_COLUMNS):
                yield batch
                batch, size, columns = [], 0, 0
            batch.append(name)
            size, columns = size + table.bytes, columns + more
        if batch:
            yield batch

    def _failed(self, name: str, failure: BaseException) -> None:
        """Record that a table failed; the job goes on with the others."""
        self._errors[name] = self._reason(name, failure)
        self._record(TableProgress(name, JobState.FAILED, error=self._errors[name]))
        self._reporter.failed(name, self._errors[name])

    # ------------------------------------------------------------------ keys

    def _joins(self) -> _Joins:
        """Find the tables' key columns, and cut the key groups that have no bins or can all be counted anew."""
        joins = _Joins(bins=self._metastore.keys.bins())
        groups = key_groups(self._metastore.keys.pairs())
        group_of = {member: group for group, members in groups.items() for member in members}
        readings: dict[str, Reading] = {}
        for name in self._request.tables:
            try:
                table = self._table(name)
                joins.columns[name] = key_columns(name, columns_of(table.source), group_of)
                if joins.columns[name] and not self._request.columns and self._previous_build(table).cut is None:
                    readings[name] = look_for_keys(table.source, tuple(joins.columns[name]))
            except _TABLE_FAILURES as failure:
                self._failed(name, failure)
        for batch in self._batches(readings):
            joins.looks |= self._look({name: readings[name] for name in batch})
        for group, members in groups.items():
            here = [
                look.keys[column]
                for name, look in joins.looks.items()
                for column, its_group in joins.columns[name].items()
                if its_group == group and column in look.keys  # a table without rows has none
            ]
            if here and (group not in joins.bins or self._all_here(members)):
                bins = cut_keys(here, group)
                if bins is not None:
                    joins.bins[group] = self._metastore.keys.put_bins(bins)
        return joins

    def _look(self, readings: Mapping[str, Reading]) -> dict[str, TableSummary]:
        """Read the keys of some tables."""
        summaries: dict[str, TableSummary] = {}
        on_progress = partial(self._reporter.progress, KEYS)
        together = self._read_together({name: reading.scan for name, reading in readings.items()}, on_progress)
        for name, reading in readings.items():
            try:
                parts = together.get(name)
                if isinstance(parts, BuildFailed):
                    raise parts
                if parts is None:
                    with watched(self._spark, on_progress):
                        parts = read(self._spark, reading)
                summaries[name] = merge_tables(list(parts.values()))
            except _TABLE_FAILURES as failure:
                self._failed(name, failure)
        return summaries

    def _read_together(
        self, scans: Mapping[str, TableScan | None], on_progress: Callable[[int, int], None]
    ) -> dict[str, Together]:
        """Read tables at once where there are several; one by itself is read where it is needed."""
        several = {name: scan for name, scan in scans.items() if scan is not None}
        if len(several) < 2:
            return {}
        with watched(self._spark, on_progress):
            return read_together(self._spark, several)

    def _all_here(self, members: tuple[ColumnRef, ...]) -> bool:
        registered = {table.name for table in self._metastore.catalog.list()}
        return {member.table for member in members} & registered <= set(self._request.tables)

    def _previous_build(self, table: CatalogTable) -> PreviousBuild:
        if self._request.mode is not Mode.INCREMENTAL:
            return PreviousBuild(self._metastore.statistics.current(table.name) if self._request.columns else None)
        if table.name not in self._previous_builds:
            statistics, parts = self._metastore.statistics.current(table.name), self._metastore.statistics.parts
            self._previous_builds[table.name] = PreviousBuild.of(table.source, statistics, parts(table.name))
        return self._previous_builds[table.name]

    def _cut(self, table: CatalogTable, joins: _Joins, previous: PreviousBuild) -> Cut:
        look = joins.looks.get(table.name)
        if self._request.columns:
            return Cut()  # the keys stay as they are
        if look is None:
            return previous.cut or Cut()
        groups = joins.columns[table.name].items()
        return Cut({column: joins.bins[group] for column, group in groups if group in joins.bins})

    # ------------------------------------------------------------------ tables

    def _build(self, names: Sequence[str], joins: _Joins) -> None:
        """Do some tables: what can be read together is, and each is published by itself."""
        began = time.monotonic()
        planned: dict[str, BuildPlan] = {}
        for name in names:
            try:
                table = self._table(name)
                previous = self._previous_build(table)
                self._record(TableProgress(name, JobState.RUNNING, 0, table.files))
                planned[name] = plan_build(
                    table, self._request, cut=self._cut(table, joins, previous), previous=previous
                )
            except _TABLE_FAILURES as failure:
                self._failed(name, failure)
        together = self._read_together({name: one.scan for name, one in planned.items()}, self._report_all(planned))
        for name, one in planned.items():
            try:
                self._publish(one, together.pop(name, None), began)
            except _TABLE_FAILURES as failure:
                self._failed(name, failure)

    def _publish(self, planned: BuildPlan, summaries: Together, began: float) -> None:
        """Build one table, publish it and report it. summaries: those that were read together with other tables."""
        name, table = planned.table.name, planned.table
        if isinstance(summaries, BuildFailed):
            raise summaries
        report = self._reporter_of(TableProgress(name, JobState.RUNNING, 0, table.files))
        with watched(self._spark, report) if summaries is None else nullcontext():
            built = build(self._spark, planned, summaries, now=_now())
        parts = built.parts if built.parts is not None else self._metastore.statistics.part_marks(name)
        published = self._metastore.statistics.publish(
            built.statistics, at=_now(), parts=parts, job_id=self._job_id, of=_as_registered(table)
        )
        done = TableProgress(
            name,
            JobState.FINISHED,
            published.files,
            published.files,
            rows=published.rows,
            columns=len(published.columns),
            seconds=round(time.monotonic() - began, 3),
            version=published.version,
        )
        self._record(done)
        size = f"{published.rows:,} rows, {len(published.columns)} columns"
        self._reporter.finished(
            name,
            f"{size}, version {published.version}, {_seconds(began)}",
            rows=published.rows,
            bytes=published.bytes,
            columns=len(published.columns),
            version=published.version,
            seconds=done.seconds,
        )

    def _table(self, name: str) -> CatalogTable:
        """Return a table as its files are now: what was added since it was registered counts."""
        if name not in self._tables:
            began = _now()
            table = self._metastore.catalog.get(name)
            if table is None:
                raise BuildFailed(f"table {name} is not registered")
            if table.source.defect:
                raise BuildFailed(f"table {name} cannot be used: {table.source.defect}")
            if table.source.is_lake:
                self._tables[name] = self._pinned(table, began)
                return self._tables[name]
            files = files_of(table.source)
            if files and (len(files), sum(file.bytes for file in files)) != (table.files, table.bytes):
                table = self._metastore.catalog.put(listed(table), at=began, instead_of=table)
            self._tables[name] = table
        return self._tables[name]

    def _pinned(self, table: CatalogTable, began: dt.datetime) -> CatalogTable:
        """Return a lake table with its newest snapshot, registered with the columns of that. Raises BuildFailed."""
        source = table.source
        try:
            state = pin(source, None, self._snapshots, self._objects.access)
        except (TableUnreadable, UnknownTable) as failure:
            raise BuildFailed(failure.message) from failure
        newest = replace(source, columns=state.columns, partition_columns=state.partition_columns)
        inspection = Inspection(newest, state.snapshot.files, state.snapshot.bytes, state.snapshot.rows)
        table = self._metastore.catalog.put(inspection, at=began, instead_of=table)
        pinned = replace(table, source=replace(table.source, snapshot=state.snapshot))
        self._objects.fetch(pinned.source, state.store)
        return pinned

    def _reason(self, name: str, failure: BaseException) -> str:
        """Return the error of a table for clients, without the paths of this machine."""
        table = self._metastore.catalog.get(name)
        return str(failure) if table is None else without_root(str(failure), Path(table.source.folder))

    def _report_all(self, names: Iterable[str]) -> Callable[[int, int], None]:
        """Return a callback that converts tasks shared by several tables into files of each."""
        reporters = [
            self._reporter_of(TableProgress(name, JobState.RUNNING, 0, self._tables[name].files)) for name in names
        ]

        def report(tasks: int, all_tasks: int) -> None:
            for one in reporters:
                one(tasks, all_tasks)

        return report

    def _reporter_of(self, progress: TableProgress) -> Callable[[int, int], None]:
        """Return a callback that converts tasks into files; the last file is done only when the table is."""
        recorded_at = time.monotonic()  # that it runs

        def report(tasks: int, all_tasks: int) -> None:
            nonlocal recorded_at
            files = progress.files_all * tasks // all_tasks if all_tasks else 0
            self._reporter.progress(progress.table, files, progress.files_all)
            if time.monotonic() - recorded_at >= TELL_EVERY_S:
                recorded_at = time.monotonic()
                self._record(replace(progress, files_done=files))

        return report

    def _record(self, progress: TableProgress) -> None:
        self._metastore.jobs.progressed(self._job_id, progress, at=_now())


@contextmanager
def _heartbeat(metastore: Metastore, job_id: str) -> Iterator[None]:
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(HEARTBEAT_S):
            with suppress(SQLAlchemyError):  # away for a moment: the next beat counts as well
                if not metastore.jobs.heartbeat(job_id, at=_now()) and not ended.is_set():
                    os.kill(os.getpid(), signal.SIGTERM)  # somebody has cancelled it, at whichever gateway
                    return

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _seconds(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
