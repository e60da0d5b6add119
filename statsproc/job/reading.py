"""What is read of a table, and how: alone or with others, by Spark's tasks, by Spark's reader or by this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engines.files.listing import DataFile, data_files
from selector.join_keys import SEPARATOR, ColumnRef
from sql.tables import TableSource
from statsproc.read.files import FileUnusable
from statsproc.read.plain_text import NotPlain
from statsproc.read.scan import (
    LITTLE_BYTES,
    TableScan,
    WorkerDied,
    scan_here,
    scan_splits,
    scan_tables,
    scan_through_spark,
)
from statsproc.read.scan_scope import Pieces, ScanScope, everything, pieces, whole_files
from statsproc.read.task import Wanted
from statsproc.sketches.column_summary import is_summarised
from statsproc.sketches.join_keys import Cut, rows_of_keys
from statsproc.sketches.sample import rows_wanted
from statsproc.sketches.table_summary import TableSummary
from statsproc.spark.session import SparkFailed, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES_A_ROW = 50  # of formats that do not count their rows; decides about shares only
MORE_ROWS = 1.2  # than are wanted are drawn: chance may leave fewer
CUT_ROWS = 1 << 20  # are enough to find out how keys are spread


class BuildFailed(Exception):
    """One table's statistics could not be built; the old ones stay in force."""


# Of a table that was read with others: its summaries by partition, or what is wrong with it. None where it has to be
# read by itself: what its files mean is Spark's to say, or reading all of them failed, for which one may be to blame.
Together = Mapping[str, TableSummary] | BuildFailed | None


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What is to be read, of one table. columns: in its files, with their types."""

    source: TableSource
    files: tuple[DataFile, ...]
    columns: Mapping[str, str]
    scope: ScanScope
    found: Pieces
    wanted: Wanted

    @property
    def scan(self) -> TableScan | None:
        """What tasks read by themselves, if they do: such tables can be read together."""
        return TableScan(self.found.splits, self.wanted) if self.found.splits else None


def files_of(source: TableSource) -> tuple[DataFile, ...]:
    """Return a table's files that hold rows. Raises BuildFailed where there is no such place, InspectionFailed."""
    location = Path(source.location)
    if not location.exists():
        raise BuildFailed(f"there is no {location.name} any more: register the table where its files are")
    if location.resolve() != location:
        raise BuildFailed(f"{location.name} was exchanged for a link: register the table again where its files are")
    return tuple(file for file in data_files(location) if file.bytes)


def columns_of(source: TableSource, only: Sequence[str] = ()) -> dict[str, str]:
    """Return the columns in the files that get statistics, with their types. Raises BuildFailed for unknown ones."""
    known = {column.name.lower() for column in source.columns}
    for name in only:
        if name.lower() not in known:
            raise BuildFailed(f"{source.name} has no column {name}: it has {', '.join(sorted(known))}")
    asked = {name.lower() for name in only}
    return {
        column.name: column.data_type
        for column in source.columns
        if column.name not in source.partition_columns
        and is_summarised(column.data_type)
        and (not asked or column.name.lower() in asked)
    }


def key_columns(table: str, columns: Mapping[str, str], group_of: Mapping[ColumnRef, str]) -> dict[str, str]:
    """Return a table's keys with the groups they are in; the columns of one key have commas between.

    columns: of the table's files. group_of: by key.
    """
    named = {column.lower(): column for column in columns}
    found: dict[str, str] = {}
    for key, group in group_of.items():
        parts = (key.column,) if key.column in named else key.columns
        if key.table == table and all(part in named for part in parts):
            found[SEPARATOR.join(named[part] for part in parts)] = group
    return found


def look_for_keys(source: TableSource, keys: Sequence[str]) -> Reading:
    """Find out what has to be read to tell how a table's keys are spread: so many rows, and no other column.

    Raises BuildFailed.
    """
    files = files_of(source)
    parts = {part for key in keys for part in ((key,) if key in columns_of(source) else key.split(SEPARATOR))}
    columns = {name: data_type for name, data_type in columns_of(source).items() if name in parts}
    try:
        found = pieces(everything(files), source, columns)
        rows = found.rows if found.rows is not None else sum(file.bytes for file in files) // BYTES_A_ROW
        if rows > CUT_ROWS:
            found = pieces(everything(files), source, columns, share=CUT_ROWS / rows)
    except FileUnusable as failure:
        raise BuildFailed(str(failure)) from failure
    return Reading(source, files, columns, everything(files), found, Wanted(columns, tuple(keys)))


def read(spark: SparkSession, reading: Reading, *, here: bool = False) -> dict[str, TableSummary]:
    """Read one table; returns a summary per partition. here: in this process, if it is little.

    Raises BuildFailed, SparkFailed.
    """
    try:
        if here and _is_little(spark, reading.source, reading.found):
            return scan_here(reading.found.splits, reading.wanted)
        return _read(spark, reading.source, reading.found, reading.wanted)
    except FileUnusable as failure:
        raise BuildFailed(str(failure)) from failure


def read_together(spark: SparkSession, scans: Mapping[str, TableScan]) -> dict[str, Together]:
    """Read several tables at once."""
    try:
        scanned = scan_tables(spark, scans)
    except SparkFailed:
        return dict.fromkeys(scans)
    found: dict[str, Together] = {}
    for name, result in scanned.items():
        match result:
            case FileUnusable():
                found[name] = BuildFailed(str(result))
            case NotPlain():
                found[name] = None
            case _:
                found[name] = result
    return found


def _is_little(spark: SparkSession, source: TableSource, found: Pieces) -> bool:
    """Return whether this process reads the new files itself; ORC's reader may not survive a broken one."""
    few = sum(split.bytes for split in found.splits) <= LITTLE_BYTES
    return few and not found.folders and source.format == "parquet" and is_local(spark)


def _read(spark: SparkSession, source: TableSource, found: Pieces, wanted: Wanted) -> dict[str, TableSummary]:
    if not found.splits:
        return scan_through_spark(spark, source, found.folders, wanted) if found.folders else {}
    try:
        return scan_splits(spark, found.splits, wanted)
    except NotPlain:  # quotes, escapes, values of another form: what they mean is Spark's to say
        return scan_through_spark(spark, source, found.folders, wanted)
    except WorkerDied:
        if source.format == "orc":  # Arrow's reader does not survive every broken file; Spark's fails and names it
            scan_through_spark(spark, source, whole_files(found.splits), wanted)
        raise


def wanted_of(columns: Mapping[str, str], cut: Cut, rows: float) -> Wanted:
    """Return what is to be found out of so many rows. columns: with their types."""
    each = MORE_ROWS / max(1.0, rows)
    sampled, by_key = each * rows_wanted(len(columns)), each * rows_of_keys(len(columns), cut.bins.values())
    return Wanted(columns, tuple(cut.bins), cut, min(1.0, sampled), min(1.0, by_key))
