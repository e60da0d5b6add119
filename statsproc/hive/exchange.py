"""Statistics in from a Hive Metastore, and out to it.

In: for each column what Spark's ANALYZE stored if it did, else Hive's own (which Impala writes too), else what Hive
makes of its partitions'. Out: both forms, so that the planners of Hive, Impala and Spark profit. What goes out never
claims to be exact (COLUMN_STATS_ACCURATE): Hive answers ``count(*)`` and ``max`` from statistics that do, and nobody
here learns of a file that is added tomorrow.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metastore.hive.client import HiveFailed, HiveMetastore, HiveTable
from metastore.records import CatalogTable, StatisticsPart
from metastore.store import Metastore
from selector.statistics import ColumnStatistics, TableStatistics
from sql.tables import Column, full_name
from statsproc.hive import spark_properties
from statsproc.hive.column_statistics import Unreadable, from_hive, kind_of, to_hive
from statsproc.hive.spark_properties import count_of
from statsproc.spark.progress import Reporter

HIVE = "hive"  # the source of statistics that came in

_ACCURATE = "COLUMN_STATS_ACCURATE"


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Result of the exchange for one table.

    rows, columns, partitions: counts of what was exchanged.
    version: version of the statistics; None: nothing was imported.
    notes: parts that were left out.
    skipped: reason why nothing was done; None: it was done.
    """

    rows: int = 0
    columns: int = 0
    partitions: int = 0
    version: int | None = None
    notes: tuple[str, ...] = ()
    skipped: str | None = None


def import_statistics(
    metastore: Metastore, hive: HiveMetastore, name: str, *, database: str, force: bool, at: dt.datetime
) -> Exchanged:
    """Import a table's statistics from a Hive Metastore. Statistics computed here stay, unless ``force``."""
    table, hive_table = _both(metastore, hive, name, database)
    current = metastore.statistics.current(table.name)
    if current is not None and current.source != HIVE and not force:
        return Exchanged(
            version=current.version, skipped=f"statistics of our own are in force (version {current.version})"
        )
    published = metastore.statistics.publish(_read(hive, hive_table, table), at=at, of=table)
    return Exchanged(published.rows, len(published.columns), version=published.version, notes=published.notes)


def publish_statistics(metastore: Metastore, hive: HiveMetastore, name: str, *, database: str) -> Exchanged:
    """Write a table's active statistics into a Hive Metastore."""
    table, hive_table = _both(metastore, hive, name, database)
    statistics = metastore.statistics.current(table.name)
    if statistics is None:
        raise HiveFailed(f"{table.name} has no statistics: compute them first")
    if statistics.source == HIVE:
        return Exchanged(skipped="the statistics in force came from Hive")
    if hive_table.parameters.get("transactional", "").lower() == "true":
        raise HiveFailed(
            f"Hive's {hive_table.full_name} is transactional: it takes statistics from Hive's own writers only"
        )
    objects, notes = _column_objects(hive, hive_table, statistics)
    if objects:
        hive.put_column_statistics(hive_table, objects)
    hive.change_properties(hive_table, lambda now: _properties(now, hive_table, statistics))
    changed, missed = _partitions(hive, hive_table, table, metastore.statistics.part_marks(table.name))
    hive.put_partitions(hive_table, changed)
    return Exchanged(statistics.rows, len(statistics.columns), len(changed), statistics.version, (*notes, *missed))


def exchange_all(tables: Sequence[str], one: Callable[[str], Exchanged], report: Reporter) -> dict[str, str]:
    """Exchange tables one after the other and report each; return the errors by table."""
    errors: dict[str, str] = {}
    for table in tables:
        try:
            done = one(table)
        except (HiveFailed, LookupError) as failure:
            errors[table] = str(failure)
            report.failed(table, str(failure))
            continue
        size = f"{done.rows:,} rows, {done.columns} columns"
        if done.partitions:
            size += f", {done.partitions} partitions"
        report.finished(
            table,
            f"left alone: {done.skipped}" if done.skipped else "; ".join((size, *done.notes)),
            rows=done.rows,
            columns=done.columns,
            partitions=done.partitions,
            version=done.version,
            notes=list(done.notes),
            kept=done.skipped,
        )
    return errors


def _both(metastore: Metastore, hive: HiveMetastore, name: str, database: str) -> tuple[CatalogTable, HiveTable]:
    """Look a table up on both sides; they must hold the same columns."""
    table = metastore.catalog.get(full_name(database, name)) or metastore.catalog.get(name)
    if table is None:
        raise HiveFailed(f"table {full_name(database, name)} is not registered")
    hive_table = hive.table(database, name)
    types = {column.name.lower(): column.data_type for column in table.source.columns}
    hive_types = {column.name.lower(): column.data_type for column in hive_table.columns}
    differences = [f"{column} only here" for column in types if column not in hive_types]
    differences += [f"{column} only in Hive" for column in hive_types if column not in types]
    differences += [
        f"{column} is {types[column]} here and {hive_types[column]} in Hive"
        for column in types
        if column in hive_types and column not in hive_table.partition_columns
        if kind_of(types[column]) != kind_of(hive_types[column])
    ]
    if differences:
        raise HiveFailed(f"the columns differ from those of Hive's {hive_table.full_name}: {', '.join(differences)}")
    return table, hive_table


def _read(hive: HiveMetastore, hive_table: HiveTable, table: CatalogTable) -> TableStatistics:
    partitions = hive.partitions(hive_table)
    hive_types = {column.name.lower(): column.data_type for column in hive_table.columns}
    wanted = [column for column in table.source.columns if kind_of(column.data_type) != "nested"]
    same = [column for column in wanted if kind_of(column.data_type) == kind_of(hive_types[column.name.lower()])]
    spark = spark_properties.read_statistics(hive_table.parameters, same)
    notes = list(spark.notes)
    columns = dict(spark.columns)
    rest = [column for column in same if column.name not in columns and column.name.lower() in hive_table.stored]
    own, unread = _own_columns(hive, hive_table, rest, partitioned=bool(partitions))
    columns |= own
    notes += unread
    without = [column.name for column in wanted if column.name not in columns]
    hive_rows = spark.rows if spark.rows is not None else _rows(hive_table, partitions)
    rows = hive_rows if hive_rows is not None else table.rows
    if rows is None or (hive_rows is None and not columns):
        raise HiveFailed(f"Hive's {hive_table.full_name} has no statistics: run ANALYZE TABLE there")
    size = next((n for n in (spark.bytes, count_of(hive_table.parameters, "totalSize")) if n is not None), table.bytes)
    if size != table.bytes:
        notes.append(f"Hive knows {size:,} bytes of files, and there are {table.bytes:,}")
    if without:
        notes.append(f"Hive has no statistics of {', '.join(without)}")
    said_by = [("Spark's ANALYZE", len(spark.columns)), ("Hive's column statistics", len(own))]
    sources = " and ".join(f"{who} ({count} columns)" for who, count in said_by if count) or "row count only"
    return TableStatistics(
        table=table.name,
        version=0,
        rows=rows,
        bytes=size,
        columns={column.name: columns[column.name] for column in wanted if column.name in columns},
        source=HIVE,
        files=table.files,
        notes=(f"from Hive's {hive_table.full_name}: {sources}", *notes),
    )


def _own_columns(
    hive: HiveMetastore, hive_table: HiveTable, columns: Sequence[Column], *, partitioned: bool
) -> tuple[dict[str, ColumnStatistics], list[str]]:
    by_name = {column.name.lower(): column for column in columns}
    objects = hive.column_statistics(hive_table, list(by_name)) if by_name else []
    missing = [name for name in by_name if name not in {hive_object.colName for hive_object in objects}]
    missing = [name for name in missing if name not in hive_table.partition_columns]
    if missing and partitioned:
        objects += hive.merged_column_statistics(hive_table, missing)
    read: dict[str, ColumnStatistics] = {}
    notes = []
    for hive_object in objects:
        column = by_name[hive_object.colName]
        try:
            read[column.name] = from_hive(hive_object, column)
        except Unreadable as failure:
            notes.append(f"{column.name}: {failure}")
    return read, notes


def _rows(hive_table: HiveTable, partitions: Sequence[Any]) -> int | None:
    """Return Hive's row count; where it counts partitions only, their sum, if all are known."""
    rows = count_of(hive_table.parameters, "numRows")
    if rows is not None or not partitions:
        return rows
    counts = [count_of(partition.parameters or {}, "numRows") for partition in partitions]
    counted = [count for count in counts if count is not None]
    return sum(counted) if len(counted) == len(counts) else None


def _column_objects(
    hive: HiveMetastore, hive_table: HiveTable, statistics: TableStatistics
) -> tuple[list[Any], list[str]]:
    objects, notes = [], []
    for column in statistics.columns.values():
        hive_type = hive_table.stored.get(column.name.lower())
        if hive_type is None or column.name.lower() in hive_table.partition_columns:
            continue  # Hive keeps none of partition columns, nor of what only Spark can read
        try:
            objects.append(to_hive(hive.types, column, hive_type, statistics.rows))
        except Unreadable as failure:
            notes.append(f"{column.name}: {failure}")
    return objects, notes


def _properties(now: Mapping[str, str], hive_table: HiveTable, statistics: TableStatistics) -> dict[str, str]:
    """Return a table's properties as they are now, with ours in them."""
    written = spark_properties.write_statistics(now, statistics, hive_table.columns)
    written |= _basic(statistics.rows, statistics.bytes, statistics.files)
    return {key: value for key, value in written.items() if key != _ACCURATE}


def _basic(rows: int, size: int, files: int) -> dict[str, str]:
    counts = {"numRows": rows, "totalSize": size, **({"numFiles": files} if files else {})}
    return {**{key: str(value) for key, value in counts.items()}, "STATS_GENERATED": "TASK"}


def _partitions(
    hive: HiveMetastore, hive_table: HiveTable, table: CatalogTable, marks: Sequence[StatisticsPart]
) -> tuple[list[Any], list[str]]:
    """Return Hive's partitions with our counts in them, and what could not be counted."""
    values = {partition.path: partition.values for partition in table.partitions}
    counted = {
        tuple(_named(values[mark.folder], name) for name in hive_table.partition_columns): mark
        for mark in marks
        if mark.folder in values and mark.share == 1.0
    }
    changed = []
    partitions = hive.partitions(hive_table)
    for partition in partitions:
        mark = counted.get(tuple(partition.values))
        if mark is not None:
            own = {
                **(partition.parameters or {}),
                **_basic(mark.rows, mark.bytes, len(mark.files)),
                spark_properties.ROWS: str(mark.rows),
                spark_properties.BYTES: str(mark.bytes),
            }
            partition.parameters = {key: value for key, value in own.items() if key != _ACCURATE}
            changed.append(partition)
    uncounted = len(partitions) - len(changed)
    return changed, [f"{uncounted} of {len(partitions)} partitions have no row count of ours"] if uncounted else []


def _named(values: Any, name: str) -> str | None:
    return next((value for column, value in values.items() if column.lower() == name), None)
