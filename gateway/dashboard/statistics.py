"""Texts of the pages about statistics: schedules, jobs, tables and columns."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.dashboard.drawings import plots
from gateway.dashboard.drawings.plots import Plot
from gateway.dashboard.views import Moment, StateBadge
from gateway.http.models.schedules import ScheduleReply
from gateway.presentation.formatting import DASH, ahead, cardinality, counted, exact, memory, share, value
from gateway.statistics.staleness import Drift
from metastore.objects.store import is_remote
from metastore.records import (
    ALL_TABLES,
    CatalogTable,
    Cron,
    JobRequest,
    JobState,
    Mode,
    Schedule,
    Staleness,
    StatisticsJob,
)
from selector.statistics import ColumnStatistics, TableStatistics

COMMON_SHOWN = 20
PARTITIONS_SHOWN = 200
NOTHING_TO_DO = StateBadge("NOTHING TO DO", "✓", "finished")


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    """A schedule with its next run and the result of the last one."""

    schedule: Schedule
    when: str
    fields: ScheduleReply
    next: Moment | None
    last: Moment | None
    result: StateBadge | None
    error: str
    work: str

    @classmethod
    def of(cls, schedule: Schedule, job: StatisticsJob | None, now: dt.datetime) -> ScheduleLine:
        """Show a schedule. job: the newest that it started."""
        zone = zoneinfo.ZoneInfo(schedule.trigger.time_zone if isinstance(schedule.trigger, Cron) else "UTC")
        due = schedule.next_run_at
        return cls(
            schedule,
            when=_when(schedule),
            fields=ScheduleReply.of(schedule),
            next=Moment(ahead(due, now), f"{due.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}", due.isoformat())
            if due
            else None,
            last=Moment.of(schedule.last_run_at, now) if schedule.last_run_at else None,
            result=_result(schedule, job),
            error=_error(schedule),
            work=work_words(schedule),
        )


@dataclass(frozen=True, slots=True)
class ColumnLine:
    """A column in a line."""

    name: str
    type: str
    ndv: str
    nulls: str
    minimum: str
    maximum: str
    average_length: str
    maximum_length: str
    kinds: str
    manual: str

    @classmethod
    def of(cls, column: ColumnStatistics, build: TableStatistics) -> ColumnLine:
        """Show a column."""
        parts = [f"{column.histogram.buckets:,} buckets"] if column.histogram is not None else []
        parts += ["common values"] if column.common is not None else []
        parts += ["key bins"] if column.name in build.keys else []
        return cls(
            name=column.name,
            type=column.data_type,
            ndv=cardinality(column.ndv),
            nulls=cardinality(column.nulls),
            minimum=value(column.minimum, column.data_type),
            maximum=value(column.maximum, column.data_type),
            average_length=DASH if column.average_length is None else f"{column.average_length:,.1f}",
            maximum_length=DASH if column.maximum_length is None else f"{column.maximum_length:,}",
            kinds=", ".join(parts) or DASH,
            manual=", ".join(sorted(column.manual)),
        )


@dataclass(frozen=True, slots=True)
class ColumnPage:
    """Statistics of one column."""

    table: str
    name: str
    facts: tuple[tuple[str, str], ...]
    histogram: Plot | None
    buckets: str
    common: tuple[tuple[str, int], ...]
    """Most common values and their rows."""
    rows: int
    keys: Plot | None
    group: str
    sampled: tuple[str, str] | None
    """Rows in the sample by this key, and the share of keys in it."""

    @classmethod
    def of(cls, build: TableStatistics, column: ColumnStatistics) -> ColumnPage:
        """Show a column."""
        line, keys = ColumnLine.of(column, build), build.keys.get(column.name)
        facts = (
            ("Type", line.type),
            ("Distinct values", line.ndv),
            ("Nulls", f"{line.nulls} ({share(column.nulls / build.rows)})" if build.rows else line.nulls),
            ("Minimum", line.minimum),
            ("Maximum", line.maximum),
            ("Average length", line.average_length),
            ("Largest length", line.maximum_length),
            ("Set by hand", line.manual or DASH),
        )
        return cls(
            table=build.table,
            name=column.name,
            facts=facts,
            histogram=plots.histogram(column),
            buckets=f"{column.histogram.buckets:,}" if column.histogram else "",
            common=tuple(_common(column)) if build.rows else (),
            rows=build.rows,
            keys=plots.key_bins(column.name, keys, column.data_type) if keys else None,
            group=keys.bins.group if keys else "",
            sampled=(cardinality(keys.sample.rows.rows), share(keys.sample.share)) if keys and keys.sample else None,
        )


# ---------------------------------------------------------------------- words


def _when(schedule: Schedule) -> str:
    match schedule.trigger:
        case Cron(expression, time_zone):
            return f"{expression} {time_zone}"
        case Staleness(changed_files, days):
            parts = (f"{share(changed_files)} of files changed",) if changed_files is not None else ()
            return " or ".join((*parts, *((f"{days:g} days old",) if days is not None else ())))
        case _:
            return "after a misestimate"


def _result(schedule: Schedule, job: StatisticsJob | None) -> StateBadge | None:
    if schedule.running:
        return StateBadge.of(JobState.RUNNING)
    if schedule.last_error is not None:
        return StateBadge.of(JobState.FAILED)
    if schedule.last_run_at is None:
        return None
    found_nothing = not schedule.statements and (job is None or job.created_at < schedule.last_run_at)
    return NOTHING_TO_DO if found_nothing else StateBadge.of(JobState.FINISHED)


def _error(schedule: Schedule) -> str:
    if schedule.last_error is None:
        return ""
    times = "once" if schedule.failures == 1 else f"{schedule.failures} times in a row"
    repeats = f", repetition {schedule.retries} is next" if schedule.retries else ""
    return f"Failed {times}{repeats}: {schedule.last_error}"


def work_words(schedule: Schedule) -> str:
    """Return what a schedule does, and of whom it is."""
    if schedule.statements:
        work = "; ".join(schedule.statements)
    else:
        tables = "all tables" if schedule.tables == ALL_TABLES else ", ".join(schedule.tables)
        work = f"{tables}; {mode_words(schedule)}"
    return f"{work}; of {schedule.owner}" if schedule.owner else work


def mode_words(schedule: Schedule | JobRequest) -> str:
    """Return the mode of a schedule of statistics or a job."""
    return f"sample of {share(schedule.share)}" if schedule.mode is Mode.SAMPLE else schedule.mode.value


def version_words(build: TableStatistics | None) -> str:
    """Return version and source of a table's statistics."""
    if build is None:
        return "none"
    sources = {"spark": "computed here", "hive": "from Hive", "manual": "set by hand"}
    return f"{build.version}, {sources.get(build.source, build.source)}"


def column_lines(build: TableStatistics | None) -> list[ColumnLine]:
    """Show the columns of a table that have statistics."""
    return [ColumnLine.of(column, build) for column in build.columns.values()] if build else []


def drift_words(build: TableStatistics | None, drift: Drift | None) -> str:
    """Return the changes of a table's files since its statistics."""
    if build is None:
        return "no statistics"
    if drift is None:
        return "unknown"
    parts = ((drift.new, "new"), (drift.changed, "changed"), (drift.removed, "removed"))
    words = ", ".join(f"{count:,} {word}" for count, word in parts if count)
    return f"{words} of {counted(drift.files, 'file')}" if words else "up to date"


def table_facts(
    table: CatalogTable, build: TableStatistics | None, drift: Drift | None, now: dt.datetime, copied_bytes: int = 0
) -> tuple[tuple[str, str], ...]:
    """Return the properties of a table and its statistics. copied_bytes: of its files in an object store, here."""
    rows = cardinality(build.rows if build else table.rows)
    built = build.built_at if build else None
    return (
        ("Rows", f"{rows} (set by hand)" if build and "rows" in build.manual else rows),
        ("Size", f"{memory(table.bytes)} in {counted(table.files, 'file')}"),
        *((("On this machine", memory(copied_bytes)),) if is_remote(table.source.location) else ()),
        ("Format", table.source.format),
        ("Owner", table.owner or DASH),
        ("Partitions", f"{len(table.partitions):,}" if table.partitions else DASH),
        ("Statistics", f"version {version_words(build)}" if build else "none"),
        ("Computed", f"{Moment.of(built, now).text} ({exact(built)})" if built else DASH),
        ("Share read", share(build.share) if build else DASH),
        ("Row sample", counted(build.sample.rows, "row") if build and build.sample else DASH),
        ("Since then", drift_words(build, drift)),
    )


def partition_lines(table: CatalogTable) -> list[tuple[str, str, str]]:
    """Return values, files and bytes of a table's partitions, the first ones."""
    return [
        (
            ", ".join(f"{column} = {text}" for column, text in partition.values.items()),
            f"{partition.files:,}",
            memory(partition.bytes),
        )
        for partition in table.partitions[:PARTITIONS_SHOWN]
    ]


def _common(column: ColumnStatistics) -> Iterable[tuple[str, int]]:
    if column.common is not None:
        keys, counts = column.common.values[:COMMON_SHOWN].tolist(), column.common.rows[:COMMON_SHOWN].tolist()
        yield from ((value(key, column.data_type), count) for key, count in zip(keys, counts, strict=True))
