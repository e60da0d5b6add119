"""Computation of statistics, by jobs whose end the statement waits for.

COMPUTE STATS t [(c, ...)] [TABLESAMPLE SYSTEM(p) [REPEATABLE(n)]]
COMPUTE INCREMENTAL STATS t [PARTITION (p = 1, ...)]
ANALYZE TABLE t [PARTITION (p = 1)] COMPUTE STATISTICS [NOSCAN | FOR COLUMNS c, ... | FOR ALL COLUMNS]
ANALYZE TABLES [IN d] COMPUTE STATISTICS [NOSCAN]
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from sqlglot.tokenizer_core import TokenType

from engines.errors import DeadlineExceeded, StatementCancelled
from gateway.commands.command import RunnableCommand, StatisticsCommand, TableCommand, summary
from gateway.commands.grammar.conditions import Condition, partition_conditions
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.commands.statistics.refreshing import Refresh
from gateway.errors import StatisticsFailed
from gateway.security.policy import Action
from metastore.records import SMALLEST_SHARE, JobRequest, Mode, StatisticsJob
from sql.errors import NotAllowed, ValueOutOfRange
from sql.tables import TableSource, database_of

JOB_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ComputeStats(StatisticsCommand, TableCommand):
    """Compute statistics of a table. columns: none for all. share: of a sample, 0..1; None for everything."""

    table: str
    columns: tuple[str, ...] = ()
    share: float | None = None

    actions = (Action.COMPUTE_STATISTICS,)

    def run(self, services: CommandServices) -> pa.Table:
        """Look at the files again, and have a job compute."""
        services.refresh(self.table)
        mode = Mode.FULL if self.share is None else Mode.SAMPLE
        request = JobRequest((self.table,), mode, columns=self.columns, share=self.share or 1.0)
        job = _finished_job(request, services)
        return _updated(len(services.table(self.table).partitions) or 1, job)


@dataclass(frozen=True, slots=True)
class ComputeIncrementalStats(StatisticsCommand, TableCommand):
    """Compute only what is new or changed. conditions: all of them hold for the partitions that are meant."""

    table: str
    conditions: tuple[Condition, ...] = ()

    actions = (Action.COMPUTE_STATISTICS,)

    def run(self, services: CommandServices) -> pa.Table:
        """Look at the files again, and have a job compute."""
        services.refresh(self.table)
        meant = services.partitions(self.table, self.conditions) if self.conditions else ()
        folders = tuple(partition.path for partition in meant)
        job = _finished_job(JobRequest((self.table,), Mode.INCREMENTAL, partitions=folders), services)
        parts = services.metastore.statistics.part_marks(self.table)
        return _updated(sum(part.built_at >= job.created_at for part in parts), job)


@dataclass(frozen=True, slots=True)
class AnalyzeTables(StatisticsCommand):
    """Compute statistics of several tables, one after the other. scan: False looks at their files alone."""

    tables: tuple[str, ...]
    scan: bool = True

    actions = (Action.COMPUTE_STATISTICS,)

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield the tables."""
        yield from self.tables

    def run(self, services: CommandServices) -> pa.Table:
        """Have a job per table compute."""
        for name in self.tables:
            services.run.require()
            if self.scan:
                ComputeStats(name).run(services)
            else:
                services.refresh(name)
        return summary(f"Updated {len(self.tables)} table(s).")


def _finished_job(request: JobRequest, services: CommandServices) -> StatisticsJob:
    """Start a job and wait for its end, which comes with the statement's if that is earlier."""
    job = services.jobs.start(request, owner=services.principal.owner)
    while not job.state.ended:
        try:
            services.run.require()
        except (StatementCancelled, DeadlineExceeded):
            services.jobs.cancel(job.id)
            raise
        time.sleep(JOB_POLL_S)
        job = services.metastore.jobs.get(job.id) or job
    if job.error is not None:
        raise StatisticsFailed(job.error)
    return job


def _updated(partitions: int, job: StatisticsJob) -> pa.Table:
    columns = sum(table.columns or 0 for table in job.tables)
    return summary(f"Updated {partitions} partition(s) and {columns} column(s).")


# ---------------------------------------------------------------------- grammar


def parse(reader: Reader) -> RunnableCommand:
    """Read a statement that begins with COMPUTE or ANALYZE."""
    return _analyze(reader) if reader.accept("ANALYZE") else _compute(reader)


def _compute(reader: Reader) -> ComputeStats | ComputeIncrementalStats:
    reader.expect("COMPUTE")
    incremental = reader.accept("INCREMENTAL")
    reader.expect("STATS")
    table = reader.table()
    if incremental:
        return ComputeIncrementalStats(table.name, partition_conditions(reader, table) if reader.more() else ())
    columns = _listed_columns(reader, table) if reader.accept_open() else ()
    return ComputeStats(table.name, columns, _sample(reader) if reader.more() else None)


def _listed_columns(reader: Reader, table: TableSource) -> tuple[str, ...]:
    """Read the rest of a list of columns; an empty one is allowed, as in Impala, and means all."""
    if reader.accept_sign(TokenType.R_PAREN):
        return ()
    return tuple(dict.fromkeys(reader.rest_of_list(partial(reader.column, table))))


def _sample(reader: Reader) -> float:
    reader.expect("TABLESAMPLE", "SYSTEM")
    reader.expect_open()
    token = reader.peek()
    percent = reader.number()
    if not SMALLEST_SHARE <= percent / 100 <= 1:
        raise ValueOutOfRange(
            f"A sample is at least {100 * SMALLEST_SHARE:g} and at most 100 percent.", reader.position(token)
        )
    reader.expect_close()
    if reader.accept("REPEATABLE"):  # every sample is: which row groups are read follows from the files
        reader.expect_open()
        reader.number()
        reader.expect_close()
    return percent / 100


def _analyze(reader: Reader) -> RunnableCommand:
    if reader.accept("TABLES"):
        database = reader.database_or_current()
        scan = _expect_compute(reader)
        access = reader.context.access
        tables = (
            table
            for table in reader.catalog.values()
            if database_of(table.name) == database
            and (access is None or access.restriction(table.name, table.columns) is None)
        )
        return AnalyzeTables(tuple(sorted(table.name for table in tables if not table.defect)), scan)
    reader.expect("TABLE")
    token = reader.peek()
    name, parts = reader.visible_name()
    if name in reader.views:
        raise NotAllowed(f"{name} is a view; statistics are of tables.", reader.position(token))
    table = reader.resolve_table(name, parts, token)
    conditions: tuple[Condition, ...] = ()
    if reader.next_word == "PARTITION":
        conditions = partition_conditions(reader, table, values_needed=False)
    if not _expect_compute(reader):
        return Refresh(table.name)
    columns: tuple[str, ...] = ()
    if reader.accept("FOR"):
        if reader.accept("ALL"):
            reader.expect("COLUMNS")
        else:
            reader.expect("COLUMNS")
            names = reader.listed(partial(reader.column, table)) if reader.more() else ()
            columns = tuple(dict.fromkeys(names))
    return ComputeIncrementalStats(table.name, conditions) if conditions else ComputeStats(table.name, columns)


def _expect_compute(reader: Reader) -> bool:
    """Read COMPUTE STATISTICS; tell whether rows are to be read."""
    reader.expect("COMPUTE")
    if not reader.accept("STATISTICS"):
        reader.expect("STATS")
    return not reader.accept("NOSCAN")
