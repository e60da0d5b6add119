"""Reading of tables: alone or together, by Spark's tasks, by Spark's reader or in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engines.files.listing import DataFile, data_files
from engines.files.manifest import read_manifest
from selector.join_keys import SEPARATOR, ColumnRef
from sql.tables import TableSource
from statsproc.read.files import FileUnusable
from statsproc.read.lake import files_of_snapshot
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
    """Reading of one table.

    columns: columns in its files, with their types.
    pieces: files to read.
    wanted: summaries to make.
    """

    source: TableSource
    files: tuple[DataFile, ...]
    columns: Mapping[str, str]
    scope: ScanScope
    pieces: Pieces
    wanted: Wanted

    @property
    def scan(self) -> TableScan | None:
        """Scan that tasks run by themselves; None: Spark's reader is needed. Such tables can be read together."""
        return TableScan(self.pieces.splits, self.wanted) if self.pieces.splits else None


def files_of(source: TableSource) -> tuple[DataFile, ...]:
    """Return a table's files that hold rows. Raises BuildFailed where there is no such place, InspectionFailed."""
    if source.snapshot is not None:
        try:
            return files_of_snapshot(read_manifest(source.snapshot.manifest))
        except OSError as failure:
            raise BuildFailed(f"a file of its snapshot {source.snapshot.id} is gone: compute again") from failure
    location = Path(source.location)
    if not location.exists():
        raise BuildFailed(f"there is no {location.name} any more: register the table where its files are")
    if location.resolve() != location:
        raise BuildFailed(f"{location.name} was exchanged for a link: register the table again where its files are")
    return tuple(file for file in data_files(location) if file.bytes)


def columns_of(source: TableSource, only: Sequence[str] = ()) -> dict[str, str]:
    """Return the columns in the files that get statistics, with their types. Raises BuildFailed for unknown ones."""
    names = {column.name.lower() for column in source.columns}
    for name in only:
        if name.lower() not in names:
            raise BuildFailed(f"{source.name} has no column {name}: it has {', '.join(sorted(names))}")
    wanted = {name.lower() for name in only}
    return {
        column.name: column.data_type
        for column in source.columns
        if column.name not in source.partition_columns
        and is_summarised(column.data_type)
        and (not wanted or column.name.lower() in wanted)
    }


def key_columns(table: str, columns: Mapping[str, str], group_of: Mapping[ColumnRef, str]) -> dict[str, str]:
    """Return a table's keys with the groups they are in; the columns of one key have commas between.

    columns: of the table's files. group_of: by key.
    """
    named = {column.lower(): column for column in columns}
    keys: dict[str, str] = {}
    for key, group in group_of.items():
        parts = (key.column,) if key.column in named else key.columns
        if key.table == table and all(part in named for part in parts):
            keys[SEPARATOR.join(named[part] for part in parts)] = group
    return keys


def look_for_keys(source: TableSource, keys: Sequence[str]) -> Reading:
    """Plan the reading of a table's keys, of limited rows, to learn their distribution.

    Raises BuildFailed.
    """
    files = files_of(source)
    parts = {part for key in keys for part in ((key,) if key in columns_of(source) else key.split(SEPARATOR))}
    columns = {name: data_type for name, data_type in columns_of(source).items() if name in parts}
    try:
        selected = pieces(everything(files), source, columns)
        rows = selected.rows if selected.rows is not None else sum(file.bytes for file in files) // BYTES_A_ROW
        if rows > CUT_ROWS:
            selected = pieces(everything(files), source, columns, share=CUT_ROWS / rows)
    except FileUnusable as failure:
        raise BuildFailed(str(failure)) from failure
    return Reading(source, files, columns, everything(files), selected, Wanted(columns, tuple(keys)))


def read(spark: SparkSession, reading: Reading, *, here: bool = False) -> dict[str, TableSummary]:
    """Read one table; returns a summary per partition. here: in this process, if it is little.

    Raises BuildFailed, SparkFailed.
    """
    try:
        if here and _is_little(spark, reading.source, reading.pieces):
            return scan_here(reading.pieces.splits, reading.wanted)
        return _read(spark, reading.source, reading.pieces, reading.wanted)
    except FileUnusable as failure:
        raise BuildFailed(str(failure)) from failure


def read_together(spark: SparkSession, scans: Mapping[str, TableScan]) -> dict[str, Together]:
    """Read several tables at once."""
    try:
        scanned = scan_tables(spark, scans)
    except SparkFailed:
        return dict.fromkeys(scans)
    results: dict[str, Together] = {}
    for name, result in scanned.items():
        match result:
            case FileUnusable():
                results[name] = BuildFailed(str(result))
            case NotPlain():
                results[name] = None
            case _:
                results[name] = result
    return results


def _is_little(spark: SparkSession, source: TableSource, selected: Pieces) -> bool:
    """Return whether this process reads the new files itself; ORC's reader may not survive a broken one."""
    few = sum(split.bytes for split in selected.splits) <= LITTLE_BYTES
    return few and not selected.folders and (source.format == "parquet" or source.is_lake) and is_local(spark)


def _read(spark: SparkSession, source: TableSource, selected: Pieces, wanted: Wanted) -> dict[str, TableSummary]:
    if not selected.splits:
        return scan_through_spark(spark, source, selected.folders, wanted) if selected.folders else {}
    try:
        return scan_splits(spark, selected.splits, wanted)
    except NotPlain:  # quotes, escapes, values of another form: what they mean is Spark's to say
        return scan_through_spark(spark, source, selected.folders, wanted)
    except WorkerDied:
        if source.format == "orc":  # Arrow's reader does not survive every broken file; Spark's fails and names it
            scan_through_spark(spark, source, whole_files(selected.splits), wanted)
        raise


def wanted_of(columns: Mapping[str, str], cut: Cut, rows: float) -> Wanted:
    """Return the summaries to make of so many rows. columns: name to type."""
    share = MORE_ROWS / max(1.0, rows)
    sampled, by_key = share * rows_wanted(len(columns)), share * rows_of_keys(len(columns), cut.bins.values())
    return Wanted(columns, tuple(cut.bins), cut, min(1.0, sampled), min(1.0, by_key))
