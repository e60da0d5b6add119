"""Statistics of small tables in memory, built by the job's own summaries without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from selector.statistics import TableStatistics
from statsproc.read.files import TableChunk
from statsproc.read.task import Wanted, summarise_chunks
from statsproc.sketches.column_summary import describe
from statsproc.sketches.join_keys import Cut, cut_keys, describe_key
from statsproc.sketches.sample import row_sample


def described(
    table: pa.Table,
    types: Mapping[str, str],
    *,
    keys: Sequence[str] = (),
    sample_share: float = 0.0,
    key_share: float = 0.0,
) -> TableStatistics:
    """Return a table's statistics.

    keys: columns that are joined, those of one key with commas between. sample_share: chance of a row to be in the
    sample. key_share: chance of a key that its rows are chosen.
    """
    chunk = TableChunk("data", "", table)
    first = dict(summarise_chunks([chunk], Wanted(types, tuple(keys))))[""]
    bins = {key: cut_keys([first.keys[key]], key) for key in keys}
    cut = Cut({name: found for name, found in bins.items() if found is not None})
    whole = dict(summarise_chunks([chunk], Wanted(types, tuple(keys), cut, sample_share, key_share)))[""]
    return TableStatistics(
        table="data",
        version=1,
        rows=table.num_rows,
        bytes=table.num_rows * 50,
        columns={name: describe(whole.columns[name], name, kind) for name, kind in types.items()},
        sample=row_sample(whole.sample) if sample_share else None,
        keys={name: describe_key(whole.keys[name], name, cut) for name in cut.bins},
    )
