"""Statistics of tables in memory, made as the job makes those of files, without Spark and without a metastore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from selector.join_keys import Bins
from selector.statistics import TableStatistics
from statsproc.job.build import statistics_of
from statsproc.job.reading import BYTES_A_ROW, wanted_of
from statsproc.read.files import Chunk
from statsproc.read.task import Wanted, summarise_chunks
from statsproc.sketches.join_keys import Cut, KeySummary, cut_keys
from statsproc.sketches.table_summary import TableSummary


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Table in memory.

    types: types of the columns, in Spark's short form.
    keys: joined columns with their key groups, as from ``key_columns``.
    sample_share: chance of a row to be in the sample; None: as the job chooses.
    key_share: chance of a key that its rows are chosen; None: as the job chooses.
    """

    chunks: Sequence[Chunk]
    types: Mapping[str, str]
    keys: Mapping[str, str] = field(default_factory=dict)
    sample_share: float | None = None
    key_share: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """Statistics of tables. statistics: by table; bins: by key group."""

    statistics: Mapping[str, TableStatistics]
    bins: Mapping[str, Bins]


def describe_rows(
    tables: Mapping[str, Rows], *, bins: Mapping[str, Bins] | None = None, sampled: float = 1.0
) -> Described:
    """Describe tables as one job over all of them does: it looks for keys, cuts them, and reads all once more.

    bins: of key groups that were cut before; then nobody looks. sampled: times this share of the rows that the job
    would take for its samples.
    """
    if bins is None:
        bins = _cuts(tables)
    statistics = {}
    for name, rows in tables.items():
        cut = Cut({key: bins[group] for key, group in rows.keys.items() if group in bins})
        wanted = wanted_of(rows.types, cut, sum(chunk.rows for chunk in rows.chunks))
        chance = wanted.sample_share * sampled if rows.sample_share is None else rows.sample_share
        by_key = wanted.key_share * sampled if rows.key_share is None else rows.key_share
        whole = _summary(rows, replace(wanted, sample_share=chance, key_share=by_key))
        described = statistics_of(name, whole, cut, rows.types, by_key=True if rows.key_share is not None else None)
        statistics[name] = replace(described, version=1, bytes=described.rows * BYTES_A_ROW)
    return Described(statistics, bins)


def _cuts(tables: Mapping[str, Rows]) -> dict[str, Bins]:
    """Look for keys, and cut each group."""
    members: dict[str, list[KeySummary]] = {}
    for rows in tables.values():
        look = _summary(rows, Wanted(rows.types, tuple(rows.keys)))
        for key, group in rows.keys.items():
            members.setdefault(group, []).append(look.keys[key])
    cuts = {group: cut_keys(summaries, group) for group, summaries in members.items()}
    return {group: replace(cut, version=1) for group, cut in cuts.items() if cut is not None}


def _summary(rows: Rows, wanted: Wanted) -> TableSummary:
    ((_, summary),) = summarise_chunks(rows.chunks, wanted)
    return summary
