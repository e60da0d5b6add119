"""Statistics of small tables in memory, built by the job's own summaries without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from selector.statistics import TableStatistics
from statsproc.read.files import TableChunk
from statsproc.read.task import Wanted, summarise_chunks
from statsproc.sketches.column_summary import describe, is_text
from statsproc.sketches.join_keys import Cut, cut_keys, cut_values, describe_key
from statsproc.sketches.sample import row_sample


def described(
    table: pa.Table, types: Mapping[str, str], *, keys: Sequence[str] = (), sample_share: float = 0.0
) -> TableStatistics:
    """Return a table's statistics. keys: columns that are joined; of numbers. sample_share: of rows in the sample."""
    rows = table.num_rows
    chunk = TableChunk("data", "", table)
    first = dict(summarise_chunks([chunk], Wanted(types, tuple(keys))))[""]
    bins = {key: cut_keys([first.keys[key]], key) for key in keys}
    buckets = {
        name: cut_values(column.distribution, text=is_text(types[name]), ndv=column.distinct.count)
        for name, column in first.columns.items()
        if name not in bins
    }
    cut = Cut(
        {name: found for name, found in bins.items() if found is not None},
        {name: found for name, found in buckets.items() if found is not None} if keys else {},
    )
    whole = dict(summarise_chunks([chunk], Wanted(types, tuple(keys), cut, sample_share)))[""]
    return TableStatistics(
        table="data",
        version=1,
        rows=rows,
        bytes=rows * 50,
        columns={name: describe(whole.columns[name], name, kind) for name, kind in types.items()},
        sample=row_sample(whole.sample) if sample_share else None,
        keys={name: describe_key(summary, name, cut, rows=rows) for name, summary in whole.keys.items()},
    )
