"""Statistics of small tables in memory, built by the job's own summaries without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from selector.statistics import TableStatistics
from statsproc.job.in_memory import Rows, describe_rows
from statsproc.read.files import TableChunk


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
    rows = Rows([chunk], types, {key: key for key in keys}, sample_share=sample_share, key_share=key_share)
    return describe_rows({"data": rows}).statistics["data"]
