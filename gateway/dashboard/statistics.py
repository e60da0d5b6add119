"""What the pages about statistics show, prepared: schedules, jobs, tables and columns."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gateway.dashboard import plots
from gateway.dashboard.plots import Plot
from gateway.dashboard.views import Moment, StateBadge
from gateway.presentation.formatting import DASH, ahead, cardinality, counted, duration, exact, memory, share, value
from gateway.statistics.staleness import Drift
from metastore.records import (
    ALL_TABLES,
    CatalogTable,
    Cron,
    JobState,
    Mode,
    Schedule,
    Staleness,
    StatisticsJob,
    TableProgress,
)
from selector.statistics import ColumnStatistics, TableStatistics

COMMON_SHOWN = 20
SYMBOLS: Mapping[JobState, str] = {
    JobState.QUEUED: "…",
    JobState.RUNNING: "▶",
    JobState.FINISHED: "✓",
    JobState.FAILED: "✗",
}
PAUSED = StateBadge("PAUSED", "■", "cancelled")
NOTHING_TO_DO = StateBadge("NOTHING TO DO", "✓", "finished")


def badge(state: JobState) -> StateBadge:
    """Show the state of a job or of one of its tables."""
    return StateBadge(state.value, SYMBOLS[state], state.value.lower())


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    """A schedule: when it runs, when it does so next, and what became of the last time. owner: empty for nobody's."""

    name: str
    tables: str
    owner: str
    when: str
    mode: str
    next: Moment | None
    waits: str
    last: Moment | None
    result: StateBadge | None
    error: str

    @classmethod
    def of(cls, schedule: Schedule, job: StatisticsJob | None, now: dt.datetime) -> ScheduleLine:
        """Show a schedule. job: the newest that it started."""
        zone = zoneinfo.ZoneInfo(schedule.trigger.time_zone if isinstance(schedule.trigger, Cron) else "UTC")
        due = schedule.next_run_at
        return cls(
            name=schedule.name,
            tables="all tables" if schedule.tables == ALL_TABLES else ", ".join(schedule.tables),
            owner=schedule.owner or "",
            when=_when(schedule),
            mode=f"sample of {share(schedule.share)}" if schedule.mode is Mode.SAMPLE else schedule.mode.value,
            next=Moment(ahead(due, now), f"{due.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}", due.isoformat())
            if due
            else None,
            waits="paused" if schedule.paused else "waits for a misestimate",
            last=Moment.of(schedule.last_run_at, now) if schedule.last_run_at else None,
            result=_result(schedule, job),
            error=_error(schedule),
        )


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """One table of a job. done: of all files, None before they are counted."""

    table: str
    state: StateBadge
    done: int
    all: int | None
    files: str
    rows: str
    took: str
    error: str

    @classmethod
    def of(cls, progress: TableProgress) -> ProgressLine:
        """Show how far a table is."""
        return cls(
            table=progress.table,
            state=badge(progress.state),
            done=progress.files_done,
            all=progress.files_all or None,
            files=f"{progress.files_done:,} of {counted(progress.files_all, 'file')}" if progress.files_all else "",
            rows=cardinality(progress.rows, absent=""),
            took=duration(progress.seconds, absent=""),
            error=progress.error or "",
        )


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job with its tables. error: only what its tables do not say themselves."""

    id: str
    state: StateBadge
    live: bool
    mode: str
    started_by: str
    created: Moment
    took: str
    tables: tuple[ProgressLine, ...]
    error: str

    @classmethod
    def of(cls, job: StatisticsJob, now: dt.datetime) -> JobLine:
        """Show a job."""
        request = job.request
        told = [progress.error for progress in job.tables if progress.error]
        return cls(
            id=job.id,
            state=badge(job.state),
            live=not job.state.ended,
            mode=f"sample of {share(request.share)}" if request.mode is Mode.SAMPLE else request.mode.value,
            started_by=f"schedule {job.schedule}" if job.schedule else "a person or program",
            created=Moment.of(job.created_at, now),
            took=duration(((job.finished_at or now) - job.created_at).total_seconds()),
            tables=tuple(ProgressLine.of(progress) for progress in job.tables),
            error=job.error if job.error and not any(error in job.error for error in told) else "",
        )


@dataclass(frozen=True, slots=True)
class TableLine:
    """A registered table and how good its statistics are."""

    name: str
    rows: str
    bytes: str
    computed: Moment | None
    version: str
    read: str
    drift: str
    stale: bool

    @classmethod
    def of(cls, table: CatalogTable, build: TableStatistics | None, drift: Drift | None, now: dt.datetime) -> TableLine:
        """Show a table. drift: how far its files have moved on."""
        return cls(
            name=table.name,
            rows=cardinality(build.rows if build else table.rows),
            bytes=memory(table.bytes),
            computed=Moment.of(build.built_at, now) if build and build.built_at else None,
            version=f"{build.version}, {_source(build)}" if build else "none",
            read=share(build.share) if build else DASH,
            drift=_drift(build, drift),
            stale=drift is not None and drift.share > 0.0,
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
    known: str
    manual: str

    @classmethod
    def of(cls, column: ColumnStatistics, build: TableStatistics) -> ColumnLine:
        """Show a column."""
        known = (
            (column.histogram is not None, f"{column.histogram.buckets if column.histogram else 0:,} buckets"),
            (column.common is not None, "common values"),
            (column.name in build.keys, "key bins"),
        )
        return cls(
            name=column.name,
            type=column.data_type,
            ndv=cardinality(column.ndv),
            nulls=cardinality(column.nulls),
            minimum=value(column.minimum, column.data_type),
            maximum=value(column.maximum, column.data_type),
            average_length=DASH if column.average_length is None else f"{column.average_length:,.1f}",
            maximum_length=DASH if column.maximum_length is None else f"{column.maximum_length:,}",
            known=", ".join(text for there, text in known if there) or DASH,
            manual=", ".join(sorted(column.manual)),
        )


@dataclass(frozen=True, slots=True)
class TablePage:
    """A table, its facts and its columns. unknown: columns without statistics."""

    name: str
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    columns: tuple[ColumnLine, ...]
    unknown: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, table: CatalogTable, build: TableStatistics | None, drift: Drift | None, now: dt.datetime) -> TablePage:
        """Show a table."""
        known = build.columns if build else {}
        return cls(
            name=table.name,
            facts=_facts(table, build, drift, now),
            notes=build.notes if build else (),
            columns=tuple(ColumnLine.of(column, build) for column in known.values()) if build else (),
            unknown=tuple((c.name, c.data_type) for c in table.source.columns if c.name not in known),
        )


@dataclass(frozen=True, slots=True)
class CommonLine:
    """One of the most common values. width: of its bar, in percent."""

    value: str
    rows: str
    share: str
    width: str


@dataclass(frozen=True, slots=True)
class ColumnPage:
    """Everything about one column. sampled: rows that were chosen by it as a key, and the share of keys."""

    table: str
    name: str
    facts: tuple[tuple[str, str], ...]
    histogram: Plot | None
    buckets: str
    common: tuple[CommonLine, ...]
    keys: Plot | None
    group: str
    sampled: tuple[str, str] | None

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
            common=tuple(_common(column, build.rows)),
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
        return badge(JobState.RUNNING)
    if schedule.last_error is not None:
        return badge(JobState.FAILED)
    if schedule.last_run_at is None:
        return None
    found_nothing = job is None or job.created_at < schedule.last_run_at
    return NOTHING_TO_DO if found_nothing else badge(JobState.FINISHED)


def _error(schedule: Schedule) -> str:
    if schedule.last_error is None:
        return ""
    times = "once" if schedule.failures == 1 else f"{schedule.failures} times in a row"
    repeats = f", repetition {schedule.retries} is next" if schedule.retries else ""
    return f"Failed {times}{repeats}: {schedule.last_error}"


def _source(build: TableStatistics) -> str:
    return {"spark": "computed here", "hive": "from Hive", "manual": "set by hand"}.get(build.source, build.source)


def _drift(build: TableStatistics | None, drift: Drift | None) -> str:
    if build is None:
        return "no statistics"
    if drift is None:
        return "unknown"
    parts = ((drift.new, "new"), (drift.changed, "changed"), (drift.removed, "removed"))
    words = ", ".join(f"{count:,} {word}" for count, word in parts if count)
    return f"{words} of {counted(drift.files, 'file')}" if words else "as its files"


def _facts(
    table: CatalogTable, build: TableStatistics | None, drift: Drift | None, now: dt.datetime
) -> tuple[tuple[str, str], ...]:
    line = TableLine.of(table, build, drift, now)
    rows = f"{line.rows} (set by hand)" if build and "rows" in build.manual else line.rows
    built = build.built_at if build else None
    sample = counted(build.sample.rows, "row") if build and build.sample else DASH
    return (
        ("Rows", rows),
        ("Size", f"{line.bytes} in {counted(table.files, 'file')}"),
        ("Format", table.source.format),
        ("Owner", table.owner or DASH),
        ("Partitions", f"{len(table.partitions):,}" if table.partitions else DASH),
        ("Statistics", f"version {line.version}" if build else "none"),
        ("Computed", f"{Moment.of(built, now).text} ({exact(built)})" if built else DASH),
        ("Share read", line.read),
        ("Row sample", sample),
        ("Since then", line.drift),
    )


def _common(column: ColumnStatistics, rows: int) -> Iterable[CommonLine]:
    if column.common is None or not rows:
        return
    counts = column.common.rows[:COMMON_SHOWN].tolist()
    for key, count in zip(column.common.values[:COMMON_SHOWN].tolist(), counts, strict=True):
        part = count / rows
        yield CommonLine(
            value(key, column.data_type), cardinality(count), share(part), f"{100.0 * count / counts[0]:.2f}%"
        )
