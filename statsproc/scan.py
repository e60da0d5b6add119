"""One Spark job per table: every task reads its part as Arrow batches and sends back a summary per column."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from engines.protocol import Column, TableSource
from statsproc.histogram import Distribution
from statsproc.session import parallelism, spark_errors, without_pandas_warning
from statsproc.summary import ColumnSummary, compact, is_summarised, merge, merge_all, summarise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 65_536  # what one Arrow batch carries from the JVM
BUFFER_ROWS = 262_144  # what is sorted at once
BUFFER_BYTES = 128 << 20
SMALLEST_PART_BYTES = 8 << 20
LARGEST_PART_BYTES = 128 << 20
PARTS_PER_CORE = 4  # so that a bar moves, and no core waits long for the last part

# Travels with the job, so that a cluster's workers need numpy and pyarrow only.
_MODULES = ("selector.statistics", "statsproc.distinct", "statsproc.histogram", "statsproc.summary", __name__)

_NUMBERS = pa.list_(pa.float64())
STATE = pa.schema(
    [
        pa.field("ordinal", pa.int32()),
        pa.field("rows", pa.int64()),
        pa.field("nulls", pa.int64()),
        pa.field("not_numbers", pa.int64()),
        pa.field("below_all", pa.int64()),
        pa.field("above_all", pa.int64()),
        pa.field("values", _NUMBERS),
        pa.field("below", _NUMBERS),
        pa.field("up_to", _NUMBERS),
        pa.field("hashes", pa.list_(pa.int64())),
        pa.field("text_bytes", pa.int64()),
        pa.field("longest_bytes", pa.int64()),
        pa.field("minimum", pa.binary()),
        pa.field("maximum", pa.binary()),
    ]
)
STATE_DDL = (
    "ordinal INT, rows BIGINT, nulls BIGINT, not_numbers BIGINT, below_all BIGINT, above_all BIGINT, "
    "values ARRAY<DOUBLE>, below ARRAY<DOUBLE>, up_to ARRAY<DOUBLE>, hashes ARRAY<BIGINT>, "
    "text_bytes BIGINT, longest_bytes BIGINT, minimum BINARY, maximum BINARY"
)


@dataclass(frozen=True, slots=True)
class Scan:
    """A whole table as it was read. columns: by name, in the table's order, without nested ones."""

    rows: int
    columns: Mapping[str, ColumnSummary]


def scan(spark: SparkSession, source: TableSource, *, table_bytes: int) -> Scan:
    """Read a table once. table_bytes: size of its files, which decides into how many parts it is cut."""
    columns = [column for column in source.columns if is_summarised(column.data_type)]
    part_bytes = table_bytes // (PARTS_PER_CORE * parallelism(spark))
    part_bytes = min(max(part_bytes, SMALLEST_PART_BYTES), LARGEST_PART_BYTES)
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(part_bytes))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
    _take_along()
    with spark_errors(), without_pandas_warning():
        rows = read(spark, source)
        if not columns:
            return Scan(rows.count(), {})
        states = (
            rows.select(*(_quoted(column.name) for column in columns))
            .mapInArrow(_Summariser(tuple(column.data_type for column in columns)), STATE_DDL)
            .toArrow()
        )
    summaries = _by_column(states, columns)
    return Scan(next(iter(summaries.values())).rows, summaries)


def read(spark: SparkSession, source: TableSource) -> DataFrame:
    """Open a table with the columns of the catalog."""
    by_position = source.format == "csv"
    wanted = [column for column in source.columns if by_position or is_summarised(column.data_type)]
    reader = spark.read.format(source.format).options(**source.options)
    if wanted:
        reader = reader.schema(", ".join(f"{_quoted(column.name)} {column.data_type}" for column in wanted))
    return reader.load(source.location)


class _Summariser:
    """The task: batches in, one row per column out."""

    def __init__(self, data_types: Sequence[str]) -> None:
        self._data_types = tuple(data_types)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        states = [ColumnSummary() for _ in self._data_types]
        for buffer in _buffered(batches):
            states = [
                merge(state, summarise(buffer.column(ordinal), data_type))
                for ordinal, (state, data_type) in enumerate(zip(states, self._data_types, strict=True))
            ]
        yield encode([compact(state) for state in states])


def _buffered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= BUFFER_ROWS or size >= BUFFER_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def encode(summaries: Sequence[ColumnSummary]) -> pa.RecordBatch:
    """Write a table's summaries as rows, one per column."""
    rows = [
        {
            "ordinal": ordinal,
            "rows": part.rows,
            "nulls": part.nulls,
            "not_numbers": part.not_numbers,
            "below_all": part.below_all,
            "above_all": part.above_all,
            "values": part.distribution.values,
            "below": part.distribution.below,
            "up_to": part.distribution.up_to,
            "hashes": part.hashes.view(np.int64),
            "text_bytes": part.text_bytes,
            "longest_bytes": part.longest_bytes,
            "minimum": part.minimum,
            "maximum": part.maximum,
        }
        for ordinal, part in enumerate(summaries)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=STATE)


def decode(states: pa.Table | pa.RecordBatch) -> Iterator[tuple[int, ColumnSummary]]:
    """Read rows back: a column's ordinal and its summary, once per part of the table."""
    for row in range(states.num_rows):
        cells = {name: states.column(name)[row] for name in STATE.names}
        arrays = {
            name: cells[name].values.to_numpy(zero_copy_only=False) for name in ("values", "below", "up_to", "hashes")
        }
        yield (
            cells["ordinal"].as_py(),
            ColumnSummary(
                rows=cells["rows"].as_py(),
                nulls=cells["nulls"].as_py(),
                not_numbers=cells["not_numbers"].as_py(),
                below_all=cells["below_all"].as_py(),
                above_all=cells["above_all"].as_py(),
                distribution=Distribution(arrays["values"], arrays["below"], arrays["up_to"]),
                hashes=arrays["hashes"].view(np.uint64),
                text_bytes=cells["text_bytes"].as_py(),
                longest_bytes=cells["longest_bytes"].as_py(),
                minimum=cells["minimum"].as_py(),
                maximum=cells["maximum"].as_py(),
            ),
        )


def _by_column(states: pa.Table, columns: Sequence[Column]) -> dict[str, ColumnSummary]:
    parts: list[list[ColumnSummary]] = [[] for _ in columns]
    for ordinal, part in decode(states):
        parts[ordinal].append(part)
    return {column.name: merge_all(found) for column, found in zip(columns, parts, strict=True)}


def _take_along() -> None:
    """Have the job's code pickled by value."""
    from pyspark import cloudpickle

    for name in _MODULES:
        cloudpickle.register_pickle_by_value(importlib.import_module(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
