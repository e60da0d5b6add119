"""Statistics of one table: its scan, the merge of its parts, the published statistics and the stored summaries."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engines.files.listing import DataFile
from metastore.records import CatalogTable, JobRequest, Mode, StatisticsPart
from selector.statistics import ColumnStatistics, TableStatistics
from sql.tables import TableSource
from statsproc.job.reading import (
    BYTES_A_ROW,
    BuildFailed,
    Reading,
    columns_of,
    files_of,
    read,
    wanted_of,
)
from statsproc.read.files import FileUnusable
from statsproc.read.partitions import of_all_partitions, with_partition
from statsproc.read.scan import HELPERS, TableScan
from statsproc.read.scan_scope import Pieces, ScanScope, changed, everything, pieces
from statsproc.sketches.column_summary import ColumnSummary, describe, is_summarised
from statsproc.sketches.join_keys import Cut, describe_key
from statsproc.sketches.sample import row_sample
from statsproc.sketches.table_summary import (
    TableSummary,
    UnreadableSummary,
    compact_table,
    decode,
    encode,
    merge_tables,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_ADDITIONS = 16  # to a partition's summary, before the partition is read anew
MANY_PARTS = 100  # partitions; of more than that each keeps less, so that all of them together stay small
FEWER = 4


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """Statistics that can be published, and the summaries from which the next ones can go on."""

    statistics: TableStatistics
    parts: tuple[StatisticsPart, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class PreviousBuild:
    """Last build, which an incremental build continues. summaries: readable summaries, by partition."""

    statistics: TableStatistics | None = None
    parts: tuple[StatisticsPart, ...] = ()
    summaries: Mapping[str, TableSummary] | None = None

    @classmethod
    def of(
        cls, source: TableSource, statistics: TableStatistics | None, parts: Sequence[StatisticsPart]
    ) -> PreviousBuild:
        """Decode the stored summaries, except those of another format, of other columns, or added to too often."""
        wanted = list(columns_of(source).items())
        summaries = {}
        with ThreadPoolExecutor(HELPERS) as helpers:
            for part, summary in zip(parts, helpers.map(_decoded, parts), strict=True):
                if summary is not None and list(summary.types.items()) == wanted and summary.additions < MOST_ADDITIONS:
                    summaries[part.folder] = summary
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
class BuildPlan:
    """Plan for building one table's statistics. reading: files to read. stored: stored summaries to merge with."""

    table: CatalogTable
    request: JobRequest
    cut: Cut
    previous: PreviousBuild
    reading: Reading
    stored: Mapping[str, TableSummary]

    @property
    def scan(self) -> TableScan | None:
        """As ``Reading.scan``; None where what is new is little, and is put to what is stored while it is read."""
        return None if self.request.mode is Mode.INCREMENTAL else self.reading.scan


def plan_build(table: CatalogTable, request: JobRequest, *, cut: Cut, previous: PreviousBuild) -> BuildPlan:
    """Plan the reading for a request. Raises BuildFailed."""
    source = table.source
    files = files_of(source)
    columns = columns_of(source, request.columns)
    root = Path(source.folder)
    if request.mode is Mode.INCREMENTAL:
        _check_partitions(source, request.partitions, files, previous.parts)
        scope = changed(files, root, previous.parts, only=request.partitions)
    else:
        scope = everything(files)
    stored = {folder: summary for folder, summary in (previous.summaries or {}).items() if folder in scope.reused}
    try:
        selected = pieces(scope, source, columns, share=request.share if request.mode is Mode.SAMPLE else 1.0)
    except FileUnusable as failure:
        raise BuildFailed(str(failure)) from failure
    rows = selected.rows if selected.rows is not None else sum(file.bytes for file in files) // BYTES_A_ROW
    wanted = wanted_of(columns, cut, rows * selected.share)
    shares = [summary.sample.share for summary in stored.values()]
    key_shares = [key.chosen.share for summary in stored.values() for key in summary.keys.values()]
    wanted = replace(
        wanted,
        sample_share=min([wanted.sample_share, *shares]),
        key_share=min([wanted.key_share, *key_shares]) if selected.share >= 1.0 else 0.0,
    )
    return BuildPlan(table, request, cut, previous, Reading(source, files, columns, scope, selected, wanted), stored)


def build(
    spark: SparkSession,
    planned: BuildPlan,
    summaries: Mapping[str, TableSummary] | None = None,
    *,
    now: dt.datetime,
) -> Built:
    """Compute a table's statistics. summaries: of the files to read, by partition; None: they are read.

    Raises BuildFailed, SparkFailed.
    """
    table, request, cut, previous = planned.table, planned.request, planned.cut, planned.previous
    reading, stored = planned.reading, planned.stored
    source, files, columns, scope = reading.source, reading.files, reading.columns, reading.scope
    root = Path(source.folder)
    values = {file.folder: file.values for file in files}
    with ThreadPoolExecutor(1) as aside:  # what stays is put together while what is new is read
        unchanged = {folder: summary for folder, summary in stored.items() if folder not in scope.to_read}
        rest = aside.submit(_together, source, unchanged, values)
        if summaries is None:
            summaries = read(spark, reading, here=request.mode is Mode.INCREMENTAL)
        staying = rest.result()
    folders = sorted({*scope.to_read, *scope.reused})
    nothing = TableSummary(columns=dict.fromkeys(columns, ColumnSummary()), cut=cut.identity, types=columns)
    parts = {folder: _added(stored.get(folder), summaries.get(folder)) or nothing for folder in scope.to_read}
    new = _together(source, parts, values)
    whole = merge_tables([part for part in (staying, new) if part is not None] or [with_partition(nothing, source, {})])
    if request.mode is Mode.SAMPLE:
        whole = replace(whole, columns={**whole.columns, **of_all_partitions(whole, source, files)})
    share = reading.pieces.share * _known_share(files, scope)
    statistics = _described(table, whole, cut, files, reading.pieces, request, previous.statistics, share=share)
    if request.mode is Mode.SAMPLE or request.columns:
        return Built(statistics, None)
    stored_parts = {folder: part for folder, part in scope.reused.items() if folder not in scope.to_read}
    fewer = FEWER if len(folders) > MANY_PARTS else 1
    for folder in scope.to_read:
        marks = tuple(file.mark(root) for file in files if file.folder == folder)
        stored_parts[folder] = StatisticsPart(
            folder=folder,
            files=marks,
            rows=parts[folder].rows,
            bytes=sum(mark.bytes for mark in marks),
            share=1.0,
            built_at=now,
            summary=encode(compact_table(parts[folder], fewer=fewer)),
        )
    return Built(statistics, tuple(stored_parts[folder] for folder in folders))


def _decoded(part: StatisticsPart) -> TableSummary | None:
    try:
        return decode(part.summary)
    except UnreadableSummary:
        return None


def _together(
    source: TableSource, parts: Mapping[str, TableSummary], values: Mapping[str, Mapping[str, str]]
) -> TableSummary | None:
    """Merge partitions, in order; None: there are none."""
    in_order = [with_partition(part, source, values[folder]) for folder, part in sorted(parts.items())]
    return merge_tables(in_order) if in_order else None


def _added(stored: TableSummary | None, new: TableSummary | None) -> TableSummary | None:
    """Add the summary of new files to a partition's."""
    if stored is None or new is None:
        return stored or new
    return replace(merge_tables([stored, new]), additions=stored.additions + 1)


def _check_partitions(
    source: TableSource, requested: Sequence[str], files: Sequence[DataFile], parts: Sequence[StatisticsPart]
) -> None:
    folders = {file.folder for file in files} | {part.folder for part in parts}
    for folder in requested:
        if folder not in folders:
            raise BuildFailed(f"{source.name} has no partition {folder}")


def _known_share(files: Sequence[DataFile], scope: ScanScope) -> float:
    """Return the share of the table, by bytes, that lies in partitions which are read or were once."""
    known_bytes = sum(file.bytes for file in files if file.folder in scope.to_read or file.folder in scope.reused)
    return known_bytes / sum(file.bytes for file in files) if known_bytes else 1.0


def statistics_of(
    name: str,
    whole: TableSummary,
    cut: Cut,
    types: Mapping[str, str],
    *,
    share: float = 1.0,
    by_key: bool | None = None,
) -> TableStatistics:
    """Return what a whole table's summary tells; of its files nothing is known here.

    cut: under which its keys were counted. types: of the columns. share: of the table that was read; counts are scaled
    up from it. by_key: whether to keep rows that were chosen by their key; None where the table's sample is a part.
    """
    sample = row_sample(whole.sample, read=share)
    part = (sample is not None and sample.share < 1.0) if by_key is None else by_key
    return TableStatistics(
        table=name,
        version=0,
        rows=round(whole.rows / share),
        bytes=0,
        columns={
            column: describe(whole.columns[column], column, data_type, share=share)
            for column, data_type in types.items()
            if column in whole.columns
        },
        share=share,
        sample=sample,
        keys={
            key: describe_key(summary, key, cut, share=share, sampled=part)
            for key, summary in whole.keys.items()
            if summary.rows.size
        },
    )


def _described(
    table: CatalogTable,
    whole: TableSummary,
    cut: Cut,
    files: Sequence[DataFile],
    selected: Pieces,
    request: JobRequest,
    previous: TableStatistics | None,
    *,
    share: float,
) -> TableStatistics:
    source = table.source
    types = {column.name: column.data_type for column in source.columns}
    computed = statistics_of(table.name, whole, cut, types, share=share)
    columns: dict[str, ColumnStatistics] = {}
    for name in types:
        if name in computed.columns:
            columns[name] = computed.columns[name]
        elif request.columns and previous is not None and name in previous.columns:
            columns[name] = previous.columns[name]
    groups = [rows for shape in selected.shapes for rows, _ in shape.groups]
    if request.mode is Mode.INCREMENTAL and previous is not None and previous.row_group_rows is not None:
        groups.append(previous.row_group_rows)
    statistics = replace(
        computed,
        bytes=sum(file.bytes for file in files),
        files=len(files),
        columns=columns,
        row_group_rows=max(groups) if (source.format == "parquet" or source.is_lake) and groups else None,
        notes=_notes(source, cut, computed.keys, share),
    )
    if request.columns and previous is not None:
        statistics = replace(statistics, sample=previous.sample, keys=previous.keys)
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
