"""Versioned statistics. A build is published whole, under a new version, or not at all."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from metastore.catalog import advance_version
from metastore.models import ColumnStatisticsRow, StatisticsBuildRow, TableRow
from selector.statistics import ColumnStatistics, Histogram, TableStatistics


class UnknownTable(LookupError):
    """The table is not registered."""


class StatisticsStore:
    """Builds of table statistics; the newest published one is in force."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def publish(self, build: TableStatistics, *, at: dt.datetime) -> TableStatistics:
        """Put a build in force, in one transaction; returns it with the version it was given."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)  # first: the write lock makes builds that end at once wait for each other
            table = _table(session, build.table)
            newest = session.scalar(
                select(func.max(StatisticsBuildRow.version)).where(StatisticsBuildRow.table_id == table.id)
            )
            published = replace(build, table=table.name, version=(newest or 0) + 1, built_at=at)
            session.add(
                StatisticsBuildRow(
                    table_id=table.id,
                    version=published.version,
                    rows=published.rows,
                    bytes=published.bytes,
                    row_group_rows=published.row_group_rows,
                    built_at=at,
                    source=published.source,
                )
            )
            session.add_all(
                _column_row(table.id, published.version, ordinal, column)
                for ordinal, column in enumerate(published.columns.values())
            )
            table.statistics_version = published.version
            return published

    def current(self, table: str) -> TableStatistics | None:
        """Return the build in force, or None where there is none."""
        return self.current_of([table]).get(table.lower())

    def current_of(self, tables: Iterable[str]) -> dict[str, TableStatistics]:
        """Return the builds in force of several tables, by name; tables without one are left out."""
        names = [table.lower() for table in tables]
        found: dict[str, TableStatistics] = {}
        with Session(self._engine) as session:
            builds = session.execute(
                select(TableRow.name, StatisticsBuildRow)
                .join(StatisticsBuildRow, StatisticsBuildRow.table_id == TableRow.id)
                .where(TableRow.name.in_(names), StatisticsBuildRow.version == TableRow.statistics_version)
            ).all()
            for name, build in builds:
                columns = session.scalars(
                    select(ColumnStatisticsRow)
                    .where(
                        ColumnStatisticsRow.table_id == build.table_id,
                        ColumnStatisticsRow.version == build.version,
                    )
                    .order_by(ColumnStatisticsRow.ordinal)
                )
                found[name] = TableStatistics(
                    table=name,
                    version=build.version,
                    rows=build.rows,
                    bytes=build.bytes,
                    columns={column.name: _column(column) for column in columns},
                    row_group_rows=build.row_group_rows,
                    built_at=build.built_at,
                    source=build.source,
                )
        return found


def _table(session: Session, name: str) -> TableRow:
    row = session.scalar(select(TableRow).where(TableRow.name == name.lower()).with_for_update())
    if row is None:
        raise UnknownTable(f"table {name} is not registered")
    return row


def _column_row(table_id: int, version: int, ordinal: int, column: ColumnStatistics) -> ColumnStatisticsRow:
    return ColumnStatisticsRow(
        table_id=table_id,
        version=version,
        ordinal=ordinal,
        name=column.name,
        data_type=column.data_type,
        nulls=column.nulls,
        ndv=column.ndv,
        minimum=column.minimum,
        maximum=column.maximum,
        average_length=column.average_length,
        maximum_length=column.maximum_length,
        histogram=_histogram_json(column.histogram),
    )


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
        histogram=_histogram(row.histogram),
    )


def _bound(stored: float | str | None) -> float | str | None:
    return float(stored) if isinstance(stored, int) else stored  # SQLite makes 1 of 1.0


def _histogram_json(histogram: Histogram | None) -> dict[str, list[float]] | None:
    if histogram is None:
        return None
    parts = {"endpoints": histogram.endpoints, "below": histogram.below, "up_to": histogram.up_to}
    return {name: values.tolist() for name, values in parts.items() if values is not None}


def _histogram(stored: Any) -> Histogram | None:
    if stored is None:
        return None
    return Histogram(**{name: np.asarray(values, dtype=np.float64) for name, values in stored.items()})
