"""One table's statistics: what is read, how its parts are put together, what is published and what is kept."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engines.protocol import TableSource
from metastore.discovery.inspection import DataFile, data_files
from metastore.records import CatalogTable, JobRequest, Mode, StatisticsPart
from selector.join_keys import SEPARATOR, ColumnRef
from selector.statistics import ColumnStatistics, TableStatistics
from statsproc.read.files import FileUnusable
from statsproc.read.partitions import of_all_partitions, with_partition
from statsproc.read.plain_text import NotPlain
from statsproc.read.scan import (
    HELPERS,
    LITTLE_BYTES,
    TableScan,
    WorkerDied,
    scan_here,
    scan_splits,
    scan_tables,
    scan_through_spark,
)
from statsproc.read.scan_scope import Pieces, ScanScope, changed, everything, pieces, whole_files
from statsproc.read.task import Wanted
from statsproc.sketches.column_summary import ColumnSummary, describe, is_summarised
from statsproc.sketches.join_keys import Cut, describe_key, rows_of_keys
from statsproc.sketches.sample import row_sample, rows_wanted
from statsproc.sketches.table_summary import (
    TableSummary,
    UnreadableSummary,
    compact_table,
    decode,
    encode,
    merge_tables,
)
from statsproc.spark.session import SparkFailed, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES_A_ROW = 50  # of formats that do not count their rows; decides about shares only
MORE_ROWS = 1.2  # than are wanted are drawn: chance may leave fewer
CUT_ROWS = 1 << 20  # are enough to find out how keys are spread
MOST_ADDITIONS = 16  # to a partition's summary, before the partition is read anew
MANY_PARTS = 100  # partitions; of more than that each keeps less, so that all of them together stay small
FEWER = 4


class BuildFailed(Exception):
    """One table's statistics could not be built; the old ones stay in force."""


# Of a table that was read with others: its summaries by partition, or what is wrong with it. None where it has to be
# read by itself: what its files mean is Spark's to say, or reading all of them failed, for which one may be to blame.
Together = Mapping[str, TableSummary] | BuildFailed | None


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """Statistics that can be published, and the summaries from which the next ones can go on."""

    statistics: TableStatistics
    parts: tuple[StatisticsPart, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """The last build, on which an incremental one goes on. summaries: by partition, those that can be read."""

    statistics: TableStatistics | None = None
    parts: tuple[StatisticsPart, ...] = ()
    summaries: Mapping[str, TableSummary] | None = None

    @classmethod
    def of(cls, source: TableSource, statistics: TableStatistics | None, parts: Sequence[StatisticsPart]) -> Before:
        """Take what is stored but summaries of another format, of other columns, or too often added to."""
        wanted = list(columns_of(source).items())
        summaries = {}
        with ThreadPoolExecutor(HELPERS) as helpers:
            for part, found in zip(parts, helpers.map(_decoded, parts), strict=True):
                if found is not None and list(found.types.items()) == wanted and found.additions < MOST_ADDITIONS:
                    summaries[part.folder] = found
        return cls(statistics, tuple(part for part in parts if part.folder in summaries), summaries)

    @property
    def cut(self) -> Cut | None:
        """The cut that the summaries were counted under; None where they do not agree on one that is still known."""
        identities = {summary.cut for summary in (self.summaries or {}).values()}
        if self.statistics is None or len(identities) != 1:
            return None
        identity = identities.pop()
        if not identity:
            return None
        cut = Cut({name: key.bins for name, key in self.statistics.keys.items()})
        return cut if cut.identity == identity else None


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


@dataclass(frozen=True, slots=True, eq=False)
class BuildPlan:
    """How one table is built. reading: what is read anew. stored: summaries that are gone on from."""

    table: CatalogTable
    request: JobRequest
    cut: Cut
    before: Before
    reading: Reading
    stored: Mapping[str, TableSummary]

    @property
    def scan(self) -> TableScan | None:
        """As ``Reading.scan``; None where what is new is little, and is put to what is stored while it is read."""
        return None if self.request.mode is Mode.INCREMENTAL else self.reading.scan


def plan_build(table: CatalogTable, request: JobRequest, *, cut: Cut, before: Before) -> BuildPlan:
    """Find out what has to be read for what a request asks for. Raises BuildFailed."""
    source = table.source
    files = files_of(source)
    columns = columns_of(source, request.columns)
    root = Path(source.location)
    if request.mode is Mode.INCREMENTAL:
        _check_partitions(source, request.partitions, files, before.parts)
        scope = changed(files, root, before.parts, only=request.partitions)
    else:
        scope = everything(files)
    stored = {folder: summary for folder, summary in (before.summaries or {}).items() if folder in scope.kept}
    try:
        found = pieces(scope, source, columns, share=request.share if request.mode is Mode.SAMPLE else 1.0)
    except FileUnusable as failure:
        raise BuildFailed(str(failure)) from failure
    rows = found.rows if found.rows is not None else sum(file.bytes for file in files) // BYTES_A_ROW
    wanted = wanted_of(columns, cut, rows * found.share)
    shares = [summary.sample.share for summary in stored.values()]
    key_shares = [key.chosen.share for summary in stored.values() for key in summary.keys.values()]
    wanted = replace(
        wanted,
        sample_share=min([wanted.sample_share, *shares]),
        key_share=min([wanted.key_share, *key_shares]) if found.share >= 1.0 else 0.0,
    )
    return BuildPlan(table, request, cut, before, Reading(source, files, columns, scope, found, wanted), stored)


def wanted_of(columns: Mapping[str, str], cut: Cut, rows: float) -> Wanted:
    """Return what is to be found out of so many rows. columns: with their types."""
    each = MORE_ROWS / max(1.0, rows)
    sampled, by_key = each * rows_wanted(len(columns)), each * rows_of_keys(len(columns), cut.bins.values())
    return Wanted(columns, tuple(cut.bins), cut, min(1.0, sampled), min(1.0, by_key))


def build(
    spark: SparkSession,
    planned: BuildPlan,
    anew: Mapping[str, TableSummary] | None = None,
    *,
    now: dt.datetime,
) -> Built:
    """Describe a table. anew: what reading it gave, by partition, where that is done; else it is read.

    Raises BuildFailed, SparkFailed.
    """
    table, request, cut, before = planned.table, planned.request, planned.cut, planned.before
    reading, stored = planned.reading, planned.stored
    source, files, columns, scope = reading.source, reading.files, reading.columns, reading.scope
    root = Path(source.location)
    values = {file.folder: file.values for file in files}
    with ThreadPoolExecutor(1) as aside:  # what stays is put together while what is new is read
        stay = {folder: summary for folder, summary in stored.items() if folder not in scope.anew}
        rest = aside.submit(_together, source, stay, values)
        if anew is None:
            anew = read(spark, reading, here=request.mode is Mode.INCREMENTAL)
        staying = rest.result()
    folders = sorted({*scope.anew, *scope.kept})
    nothing = TableSummary(columns=dict.fromkeys(columns, ColumnSummary()), cut=cut.identity, types=columns)
    parts = {folder: _added(stored.get(folder), anew.get(folder)) or nothing for folder in scope.anew}
    new = _together(source, parts, values)
    whole = merge_tables([part for part in (staying, new) if part is not None] or [with_partition(nothing, source, {})])
    if request.mode is Mode.SAMPLE:
        whole = replace(whole, columns={**whole.columns, **of_all_partitions(whole, source, files)})
    share = reading.found.share * _known(files, scope)
    statistics = _described(table, whole, cut, files, reading.found, request, before.statistics, share=share)
    if request.mode is Mode.SAMPLE or request.columns:
        return Built(statistics, None)
    kept = {folder: part for folder, part in scope.kept.items() if folder not in scope.anew}
    fewer = FEWER if len(folders) > MANY_PARTS else 1
    for folder in scope.anew:
        marks = tuple(file.mark(root) for file in files if file.folder == folder)
        kept[folder] = StatisticsPart(
            folder=folder,
            files=marks,
            rows=parts[folder].rows,
            bytes=sum(mark.bytes for mark in marks),
            share=1.0,
            built_at=now,
            summary=encode(compact_table(parts[folder], fewer=fewer)),
        )
    return Built(statistics, tuple(kept[folder] for folder in folders))


def _decoded(part: StatisticsPart) -> TableSummary | None:
    try:
        return decode(part.summary)
    except UnreadableSummary:
        return None


def _together(
    source: TableSource, parts: Mapping[str, TableSummary], values: Mapping[str, Mapping[str, str]]
) -> TableSummary | None:
    """Put partitions together, in order; None where there are none."""
    in_order = [with_partition(part, source, values[folder]) for folder, part in sorted(parts.items())]
    return merge_tables(in_order) if in_order else None


def _added(stored: TableSummary | None, new: TableSummary | None) -> TableSummary | None:
    """Add new files to what is known of a partition."""
    if stored is None or new is None:
        return stored or new
    return replace(merge_tables([stored, new]), additions=stored.additions + 1)


def files_of(source: TableSource) -> tuple[DataFile, ...]:
    """Return a table's files. Raises BuildFailed where there is no such place."""
    location = Path(source.location)
    if not location.exists():
        raise BuildFailed(f"there is no {location.name} any more: register the table where its files are")
    if location.resolve() != location:
        raise BuildFailed(f"{location.name} was exchanged for a link: register the table again where its files are")
    return data_files(location)


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


def _check_partitions(
    source: TableSource, asked: Sequence[str], files: Sequence[DataFile], parts: Sequence[StatisticsPart]
) -> None:
    known = {file.folder for file in files} | {part.folder for part in parts}
    for folder in asked:
        if folder not in known:
            raise BuildFailed(f"{source.name} has no partition {folder}")


def _known(files: Sequence[DataFile], scope: ScanScope) -> float:
    """Return the share of the table, by bytes, that lies in partitions which are read or were once."""
    known = sum(file.bytes for file in files if file.folder in scope.anew or file.folder in scope.kept)
    return known / sum(file.bytes for file in files) if known else 1.0


def _described(
    table: CatalogTable,
    whole: TableSummary,
    cut: Cut,
    files: Sequence[DataFile],
    found: Pieces,
    request: JobRequest,
    before: TableStatistics | None,
    *,
    share: float,
) -> TableStatistics:
    source = table.source
    types = {column.name: column.data_type for column in source.columns}
    columns: dict[str, ColumnStatistics] = {}
    for name, data_type in types.items():
        if name in whole.columns:
            columns[name] = describe(whole.columns[name], name, data_type, share=share)
        elif request.columns and before is not None and name in before.columns:
            columns[name] = before.columns[name]
    sample = row_sample(whole.sample, read=share)
    part = sample is not None and sample.share < 1.0
    keys = {
        name: describe_key(summary, name, cut, share=share, sampled=part)
        for name, summary in whole.keys.items()
        if summary.rows.size
    }
    groups = [rows for shape in found.shapes for rows, _ in shape.groups]
    if request.mode is Mode.INCREMENTAL and before is not None and before.row_group_rows is not None:
        groups.append(before.row_group_rows)
    statistics = TableStatistics(
        table=table.name,
        version=0,
        rows=round(whole.rows / share),
        bytes=sum(file.bytes for file in files),
        files=len(files),
        columns=columns,
        row_group_rows=max(groups) if source.format == "parquet" and groups else None,
        share=share,
        notes=_notes(source, cut, keys, share),
        sample=sample,
        keys=keys,
    )
    if request.columns and before is not None:
        statistics = replace(statistics, sample=before.sample, keys=before.keys)
    return statistics


def _notes(source: TableSource, cut: Cut, keys: Mapping[str, object], share: float) -> tuple[str, ...]:
    notes = [
        f"{column.name} has no statistics: {column.data_type.split('<')[0]} columns are not summarised"
        for column in source.columns
        if not is_summarised(column.data_type)
    ]
    if share < 1.0:
        notes.append(f"{share:.1%} of the table was read; counts are scaled up from it")
    missing = sorted(set(cut.bins) - set(keys))
    if missing:
        notes.append(f"key statistics of {', '.join(missing)} need a full computation")
    return tuple(notes)
