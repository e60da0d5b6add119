"""Partition columns: they are in no file, each holds one value in all rows of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from engines.arrow_types import arrow_type
from engines.files.listing import DataFile
from metastore.discovery.inspection import DEFAULT_PARTITION
from selector.types import parse
from sql.tables import TableSource
from statsproc.sketches.column_summary import ColumnSummary, constant, is_summarised, merge
from statsproc.sketches.sample import Draw, take_rows
from statsproc.sketches.table_summary import TableSummary


def with_partition(part: TableSummary, source: TableSource, values: Mapping[str, str]) -> TableSummary:
    """Add the columns that the folder's name holds. values: column to text, as in the path."""
    columns, sampled = dict(part.columns), dict(part.sample.columns)
    types = {column.name: column.data_type for column in source.columns}
    keys = dict(part.keys)
    every_row = Draw(np.zeros(part.sample.tickets.size, dtype=np.int64), part.sample.tickets, part.sample.share)
    for name in source.partition_columns:
        if not is_summarised(types[name]):
            continue
        value = _value(values.get(name), types[name])
        columns[name] = constant(value, part.rows, types[name])
        sampled[name] = every_row.of(pa.array([value.as_py()], type=value.type), types[name])
        for key, summary in keys.items():
            rows = np.zeros(summary.chosen.line.size, dtype=np.int64)
            held = take_rows(pa.array([value.as_py()], type=value.type), rows, types[name])
            chosen = replace(summary.chosen, columns={**summary.chosen.columns, name: held})
            keys[key] = replace(summary, chosen=chosen) if summary.chosen.columns else summary
    return replace(part, columns=columns, keys=keys, sample=replace(part.sample, columns=sampled))


def of_all_partitions(part: TableSummary, source: TableSource, files: Sequence[DataFile]) -> dict[str, ColumnSummary]:
    """Summarise the partition columns over all folders, of which a sample read a few.

    The sample's rows are spread over the folders by their bytes.
    """
    size = max(1, sum(file.bytes for file in files))
    types = {column.name: column.data_type for column in source.columns}
    rows: dict[tuple[str, ...], float] = {}
    for file in files:
        key = tuple(file.values.get(name, DEFAULT_PARTITION) for name in source.partition_columns)
        rows[key] = rows.get(key, 0.0) + part.rows * file.bytes / size
    return {
        name: merge([constant(_value(key[at], types[name]), max(1, round(n)), types[name]) for key, n in rows.items()])
        for at, name in enumerate(source.partition_columns)
        if is_summarised(types[name]) and rows
    }


def _value(text: str | None, data_type: str) -> pa.Scalar:
    """Read a folder's value; what does not fit the type is NULL, as Hive reads it."""
    in_utc = data_type == "timestamp"  # without saying so
    arrow = pa.timestamp("us") if in_utc else arrow_type(parse(data_type))
    if text is None or text == DEFAULT_PARTITION:
        return pa.scalar(None, type=arrow)
    try:
        return pa.array([text]).cast(arrow)[0]
    except pa.ArrowInvalid:
        return pa.scalar(None, type=arrow)
