"""Versioned statistics. A build is published whole, under a new version, or not at all."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Engine, bindparam, delete, func, insert, select, update
from sqlalchemy.orm import Session, defer

from metastore.database import encoding
from metastore.database.models import (
    ColumnStatisticsRow,
    JobTableRow,
    KeyStatisticsRow,
    StatisticsBuildRow,
    StatisticsPartRow,
    TableLockRow,
    TableRow,
)
from metastore.errors import LockLost, NothingToAmend, TableChanged, TablesBusy
from metastore.records import CatalogTable, StatisticsPart
from metastore.repositories.catalog import advance_version, is_registered, wait_for_writers
from selector.statistics import ColumnStatistics, TableStatistics
from sql.tables import Column

KEPT_BUILDS = 5  # of one table, with the active one
MANUAL_FIELDS = {"ndv": float, "nulls": int, "average_length": float, "maximum_length": int}


class UnknownTable(LookupError):
    """The table is not registered."""


class UnknownColumn(LookupError):
    """The table has no such column."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A build that was read before; it never changes."""

    table_id: int
    version: int
    built_at: dt.datetime
    statistics: TableStatistics


class StatisticsStore:
    """Builds of table statistics; the newest published one is active, and is read from the database once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._read: dict[str, _Read] = {}

    def publish(
        self,
        build: TableStatistics,
        *,
        at: dt.datetime,
        parts: Sequence[StatisticsPart] | None = None,
        job_id: str | None = None,
        of: CatalogTable | None = None,
    ) -> TableStatistics:
        """Activate a build, in one transaction. Returns it with its version.

        parts: all of the table's mergeable summaries. One with the folder and time of a stored one needs no summary.
        job_id: of the job that computed it, which must still hold the table.
        of: the table whose files were read.

        Raises UnknownTable, TableChanged if ``of`` is not registered any more, and LockLost.
        """
        with Session(self._engine) as session, session.begin():
            advance_version(session)  # first: builds that end at once wait for each other
            table = _table(session, build.table)
            if of is not None and not is_registered(of, table):
                raise TableChanged(table.name)
            if job_id is not None:
                _check_lock(session, table.name, job_id)
            published = _publish(session, table, build, at)
            _replace_parts(session, table.id, parts or ())
            if job_id is not None:
                session.execute(
                    update(JobTableRow)
                    .where(JobTableRow.job_id == job_id, JobTableRow.table == table.name)
                    .values(version=published.version)
                )
            return published

    def amend(
        self,
        table: str,
        *,
        at: dt.datetime,
        rows: int | None = None,
        columns: Mapping[str, Mapping[str, float]] | None = None,
    ) -> TableStatistics:
        """Set values by hand, on top of the active build; the next build replaces them.

        Raises NothingToAmend without a build if neither ``rows`` nor the files give the rows, and for a column without
        statistics if its ``ndv`` is not given.

        at: time of the statistics if there is no build yet; else they stay as old as the build.
        columns: values by field (``ndv``, ``nulls``, ``average_length``, ``maximum_length``), by column name.
        """
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = _table(session, table)
            build = self._active(session, [row.name]).get(row.name) or _empty(row, rows)
            if rows is not None:
                _check_amount("rows", rows)
                build = replace(build, rows=rows, manual=build.manual | {"rows"})
            columns_by_name = {c.name.lower(): Column(c.name, c.data_type) for c in row.columns}
            amended = dict(build.columns)
            for name, values in (columns or {}).items():
                if name.lower() not in columns_by_name:
                    raise UnknownColumn(f"table {row.name} has no column {name}")
                column = columns_by_name[name.lower()]
                amended[column.name] = _amended(amended.get(column.name), column, values)
            return _publish(session, row, replace(build, columns=amended), build.built_at or at)

    def drop(self, table: str, *, at: dt.datetime) -> bool:
        """Delete the active build and the parts. Returns False if there are none. Versions go on counting."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = _table(session, table)
            stored = session.scalar(
                select(func.count()).select_from(StatisticsPartRow).where(StatisticsPartRow.table_id == row.id)
            )
            has_statistics = row.statistics_version is not None or bool(stored)
            row.statistics_version = None
            _replace_parts(session, row.id, ())
            return has_statistics

    def drop_parts(self, table: str, folders: Collection[str]) -> int:
        """Delete the mergeable summaries of some folders; the active build stays. Returns their number.

        Raises TablesBusy while a job holds the table: it merges these summaries, and would write them again.
        """
        with Session(self._engine) as session, session.begin():
            wait_for_writers(session)
            row = _table(session, table)
            holder = session.scalar(select(TableLockRow.job_id).where(TableLockRow.table == row.name))
            if holder is not None:
                raise TablesBusy(holder, (row.name,))
            stored = session.scalars(select(StatisticsPartRow.folder).where(StatisticsPartRow.table_id == row.id))
            gone = sorted(set(stored) & set(folders))
            _delete_parts(session, row.id, gone)
            return len(gone)

    def current(self, table: str) -> TableStatistics | None:
        """Return the active build; None: there is none."""
        return self.current_of([table]).get(table.lower())

    def current_of(self, tables: Iterable[str]) -> dict[str, TableStatistics]:
        """Return the active builds of several tables, by name; tables without one are left out.

        Columns that are joined with each other share one Bins object while their counts are of the same version.
        """
        with Session(self._engine) as session:
            return self._active(session, [table.lower() for table in tables])

    def parts(self, table: str) -> tuple[StatisticsPart, ...]:
        """Return the table's mergeable summaries, by folder."""
        return self._parts(table, with_summary=True)

    def part_marks(self, table: str) -> tuple[StatisticsPart, ...]:
        """Return the table's parts by folder, without their summaries: ``summary`` is empty."""
        return self._parts(table, with_summary=False)

    def _parts(self, table: str, *, with_summary: bool) -> tuple[StatisticsPart, ...]:
        wanted = (
            select(StatisticsPartRow)
            .join(TableRow, TableRow.id == StatisticsPartRow.table_id)
            .where(TableRow.name == table.lower())
            .order_by(StatisticsPartRow.folder)
        )
        if not with_summary:
            wanted = wanted.options(defer(StatisticsPartRow.summary))
        with Session(self._engine) as session:
            return tuple(
                StatisticsPart(
                    folder=row.folder,
                    files=encoding.marks_of(row.marks),
                    rows=row.rows,
                    bytes=row.bytes,
                    share=row.share,
                    built_at=row.built_at,
                    summary=row.summary if with_summary else b"",
                )
                for row in session.scalars(wanted)
            )

    def _active(self, session: Session, names: Sequence[str]) -> dict[str, TableStatistics]:
        builds = session.execute(
            select(TableRow.name, TableRow.id, StatisticsBuildRow.version, StatisticsBuildRow.built_at)
            .join(StatisticsBuildRow, StatisticsBuildRow.table_id == TableRow.id)
            .where(TableRow.name.in_(names), StatisticsBuildRow.version == TableRow.statistics_version)
        ).all()
        shared = encoding.shared_bins(
            key.bins for read in list(self._read.values()) for key in read.statistics.keys.values()
        )
        active: dict[str, TableStatistics] = {}
        for name, table_id, version, built_at in builds:
            read = self._read.get(name)
            if read is None or (read.table_id, read.version, read.built_at) != (table_id, version, built_at):
                statistics = _load(session, name, table_id, version, shared)
                if statistics is None:
                    continue
                read = self._read[name] = _Read(table_id, version, built_at, statistics)
            active[name] = read.statistics
        for name in set(names) - set(active):
            self._read.pop(name, None)
        return active


def _load(session: Session, name: str, table_id: int, version: int, shared: encoding.Shared) -> TableStatistics | None:
    """Read one build; None: its table was removed meanwhile."""
    columns = session.scalars(
        select(ColumnStatisticsRow)
        .where(ColumnStatisticsRow.table_id == table_id, ColumnStatisticsRow.version == version)
        .order_by(ColumnStatisticsRow.ordinal)
    ).all()
    keys = session.scalars(
        select(KeyStatisticsRow)
        .where(KeyStatisticsRow.table_id == table_id, KeyStatisticsRow.version == version)
        .order_by(KeyStatisticsRow.column)
    ).all()
    # Last: rows of a build are written and deleted together, so if this one is there, the others were complete.
    build = session.get(StatisticsBuildRow, (table_id, version))
    if build is None:
        return None
    return TableStatistics(
        table=name,
        version=version,
        rows=build.rows,
        bytes=build.bytes,
        columns={column.name: _column(column) for column in columns},
        row_group_rows=build.row_group_rows,
        built_at=build.built_at,
        source=build.source,
        files=build.files,
        share=build.share,
        notes=tuple(build.notes),
        manual=frozenset(build.manual),
        sample=encoding.sample_of(build.sample) if build.sample is not None else None,
        keys={key.column: encoding.key_of(key.counts, shared=shared) for key in keys},
    )


def _table(session: Session, name: str) -> TableRow:
    row = session.scalar(select(TableRow).where(TableRow.name == name.lower()).with_for_update())
    if row is None:
        raise UnknownTable(f"table {name} is not registered")
    return row


def _check_lock(session: Session, table: str, job_id: str) -> None:
    holder = session.scalar(select(TableLockRow.job_id).where(TableLockRow.table == table).with_for_update())
    if holder != job_id:
        raise LockLost(f"job {job_id} does not hold table {table} any more: it was ended while it ran")


def _publish(session: Session, table: TableRow, build: TableStatistics, at: dt.datetime) -> TableStatistics:
    newest = session.scalar(select(func.max(StatisticsBuildRow.version)).where(StatisticsBuildRow.table_id == table.id))
    published = replace(build, table=table.name, version=(newest or 0) + 1, built_at=at)
    session.add(
        StatisticsBuildRow(
            table_id=table.id,
            version=published.version,
            rows=published.rows,
            bytes=published.bytes,
            files=published.files,
            row_group_rows=published.row_group_rows,
            share=published.share,
            notes=list(published.notes),
            manual=sorted(published.manual),
            sample=encoding.sample_blob(published.sample) if published.sample is not None else None,
            built_at=at,
            source=published.source,
        )
    )
    place = {"table_id": table.id, "version": published.version}
    columns = [place | _values(n, column) for n, column in enumerate(published.columns.values())]
    if columns:
        session.execute(insert(ColumnStatisticsRow), columns)
    keys = [place | {"column": name, "counts": encoding.key_blob(key)} for name, key in published.keys.items()]
    if keys:
        session.execute(insert(KeyStatisticsRow), keys)
    for row in (StatisticsBuildRow, ColumnStatisticsRow, KeyStatisticsRow):
        session.execute(
            delete(row).where(row.table_id == table.id, row.version <= published.version - KEPT_BUILDS),
            execution_options={"synchronize_session": False},
        )
    table.statistics_version = published.version
    return published


def _replace_parts(session: Session, table_id: int, parts: Sequence[StatisticsPart]) -> None:
    """Replace the table's parts; unchanged ones are not written."""
    stored = {
        row.folder: row.built_at
        for row in session.execute(
            select(StatisticsPartRow.folder, StatisticsPartRow.built_at).where(StatisticsPartRow.table_id == table_id)
        )
    }
    unchanged = {part.folder for part in parts if stored.get(part.folder) == part.built_at}
    _delete_parts(session, table_id, [folder for folder in stored if folder not in unchanged])
    new = [part for part in parts if part.folder not in unchanged]
    for part in new:
        if not part.summary:
            raise ValueError(f"part {part.folder!r} is new and comes without a summary")
    if new:
        session.execute(
            insert(StatisticsPartRow),
            [
                {
                    "table_id": table_id,
                    "folder": part.folder,
                    "marks": encoding.marks_blob(part.files),
                    "rows": part.rows,
                    "bytes": part.bytes,
                    "share": part.share,
                    "built_at": part.built_at,
                    "summary": part.summary,
                }
                for part in new
            ],
        )


def _delete_parts(session: Session, table_id: int, folders: Sequence[str]) -> None:
    if folders:
        at_folder = [StatisticsPartRow.table_id == table_id, StatisticsPartRow.folder == bindparam("gone")]
        gone = [{"gone": folder} for folder in folders]
        session.connection().execute(delete(StatisticsPartRow).where(*at_folder), gone)


def _empty(table: TableRow, rows: int | None) -> TableStatistics:
    rows = rows if rows is not None else table.rows
    if rows is None:
        raise NothingToAmend(f"table {table.name} has no statistics and its files do not count rows: set its rows too")
    return TableStatistics(
        table=table.name, version=0, rows=rows, bytes=table.bytes, source="manual", files=table.files
    )


def _amended(before: ColumnStatistics | None, column: Column, values: Mapping[str, float]) -> ColumnStatistics:
    for field, value in values.items():
        if field not in MANUAL_FIELDS:
            raise ValueError(f"{field} of a column cannot be set; {', '.join(MANUAL_FIELDS)} can")
        _check_amount(f"{field} of {column.name}", value)
    if before is None:
        if "ndv" not in values:
            raise NothingToAmend(f"column {column.name} has no statistics: set its number of distinct values too")
        before = ColumnStatistics(column.name, column.data_type, nulls=0, ndv=0.0)
    changes: dict[str, Any] = {field: MANUAL_FIELDS[field](value) for field, value in values.items()}
    return replace(before, **changes, manual=before.manual | frozenset(values))


def _check_amount(what: str, value: float) -> None:
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{what} must be a number from 0 on, not {value}")


def _values(ordinal: int, column: ColumnStatistics) -> dict[str, Any]:
    return {
        "ordinal": ordinal,
        "name": column.name,
        "data_type": column.data_type,
        "nulls": column.nulls,
        "ndv": column.ndv,
        "minimum": column.minimum,
        "maximum": column.maximum,
        "average_length": column.average_length,
        "maximum_length": column.maximum_length,
        "histogram": encoding.histogram_blob(column.histogram) if column.histogram is not None else None,
        "common": encoding.common_blob(column.common) if column.common is not None else None,
        "manual": sorted(column.manual),
    }


def _column(row: ColumnStatisticsRow) -> ColumnStatistics:
    return ColumnStatistics(
        name=row.name,
        data_type=row.data_type,
        nulls=row.nulls,
        ndv=row.ndv,
        minimum=_bound(row.minimum),
        maximum=_bound(row.maximum),
        average_length=row.average_length,
        maximum_length=row.maximum_length,
        histogram=encoding.histogram_of(row.histogram) if row.histogram is not None else None,
        common=encoding.common_of(row.common) if row.common is not None else None,
        manual=frozenset(row.manual),
    )


def _bound(stored: float | str | None) -> float | str | None:
    return float(stored) if isinstance(stored, int) else stored  # SQLite makes 1 of 1.0
