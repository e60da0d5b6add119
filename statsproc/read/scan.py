"""The Spark jobs that read a table: every task takes its share of the files and sends back a summary per partition.

Parquet and ORC are read by the tasks themselves: a row that crosses from the JVM to Python costs more than all that is
done with it here. Other formats come through Spark's own reader.
"""

from __future__ import annotations

import heapq
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from engines.spark_sql.reading import literal_path
from sql.tables import TableSource
from statsproc.read.files import Chunk, FileUnusable, Piece, TableChunk
from statsproc.read.freed_memory import keep_freed_memory
from statsproc.read.plain_text import NotPlain
from statsproc.read.task import Wanted, summarise_chunks
from statsproc.sketches.table_summary import TableSummary, compact_table, decode, encode, merge_tables
from statsproc.spark.session import SparkFailed, context_of, is_local, parallelism, spark_errors, without_pandas_warning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 65_536  # what one Arrow batch carries from the JVM
BUFFER_ROWS = 262_144  # what is summarised at once of it
BUFFER_BYTES = 128 << 20
TASKS_PER_CORE = 4  # so that a bar moves, and no core waits long for the last task
TASK_BYTES = 64 << 20  # a core has several tasks only if they are as large: Spark itself needs some time for each
SMALLEST_TASK_BYTES = 8 << 20
LITTLE_BYTES = 32 << 20  # are read faster than a job of Spark starts
MERGED_ON_DRIVER = 64  # summaries; more are put together by tasks first
HELPERS = 2  # threads, of what this process reads
FOLDERS_AT_ONCE = 50  # partitions that one job reads through Spark

# Travels with the job, so that a cluster's workers need numpy and pyarrow only.
_MODULES = (
    "engines.files.orc_tail",
    "selector.hashing",
    "selector.join_keys",
    "selector.key_line",
    "selector.row_sample",
    "selector.statistics",
    "statsproc.sketches",
    "statsproc.read",
)
# What a task tells: of a table's partition its summary, or an error, and whether that is of a file that is plain text.
State = tuple[str, str, str | None, bool, bytes | None]
_STATE = pa.schema(
    [
        ("table", pa.string()),
        ("folder", pa.string()),
        ("error", pa.string()),
        ("plain", pa.bool_()),
        ("summary", pa.binary()),
    ]
)


class WorkerDied(SparkFailed):
    """A process that ran a task died: out of memory, or a library crashed on its input."""


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """Files of one partition that Spark is to read."""

    folder: str
    paths: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class TableScan:
    """Scan of a table by Spark tasks, and the summaries to make."""

    splits: Sequence[Piece]
    wanted: Wanted


# Of a table: a summary per partition, or what is wrong with its files.
Scanned = dict[str, TableSummary] | FileUnusable | NotPlain


def scan_splits(spark: SparkSession, splits: Sequence[Piece], wanted: Wanted) -> dict[str, TableSummary]:
    """Read pieces of files that tasks read themselves; returns a summary per partition.

    Raises FileUnusable, NotPlain, WorkerDied, SparkFailed.
    """
    scanned = scan_tables(spark, {_ONLY: TableScan(splits, wanted)})[_ONLY]
    if isinstance(scanned, Exception):
        raise scanned
    return scanned


def scan_tables(spark: SparkSession, tables: Mapping[str, TableScan]) -> dict[str, Scanned]:
    """Read several tables in one job of Spark: what it costs by itself, small tables have to pay once.

    Raises WorkerDied, SparkFailed; then no table was read.
    """
    pieces = [(name, piece) for name, scan in tables.items() for piece in scan.splits]
    if not pieces:
        return {name: {} for name in tables}
    tasks = shared_out(pieces, parallelism(spark))
    reader = _SplitReader(tasks, {name: scan.wanted for name, scan in tables.items()})
    _take_along(spark)
    with _reading():
        context = context_of(spark)
        if context is None:
            task = _InArrow(lambda batches: reader(n for batch in batches for n in batch.column(0).to_pylist()))
            states = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(task, _state_type())
            return _of_tables(tables, _collected(states, len(tasks)))
        rdd = context.parallelize(range(len(tasks)), len(tasks)).mapPartitions(reader)
        if len(tasks) > MERGED_ON_DRIVER:
            rdd = rdd.keyBy(_place_of).partitionBy(MERGED_ON_DRIVER // 2).values().mapPartitions(_merged_again)
        return _of_tables(tables, _merged(rdd.collect()))


def scan_here(splits: Sequence[Piece], wanted: Wanted) -> dict[str, TableSummary]:
    """Read splits in this process, if a job of Spark would cost more; returns a summary per partition.

    Raises FileUnusable.
    """
    keep_freed_memory()
    parts: dict[str, list[TableSummary]] = {}
    with ThreadPoolExecutor(HELPERS) as helpers:
        for folder, summary in summarise_chunks((split.chunk() for split in splits), wanted, helpers):
            parts.setdefault(folder, []).append(summary)
    return {folder: merge_tables(summaries) for folder, summaries in parts.items()}


def scan_through_spark(
    spark: SparkSession, source: TableSource, folders: Sequence[FolderFiles], wanted: Wanted
) -> dict[str, TableSummary]:
    """Read files with Spark's reader; returns a summary per partition. Raises FileUnusable, SparkFailed."""
    summaries: dict[str, TableSummary] = {}
    _take_along(spark)
    size = sum(folder.bytes for folder in folders)
    part_bytes = min(max(size // (TASKS_PER_CORE * parallelism(spark)), SMALLEST_TASK_BYTES), 128 << 20)
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(part_bytes))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
    for start in range(0, len(folders), FOLDERS_AT_ONCE):
        batch = folders[start : start + FOLDERS_AT_ONCE]
        with _reading():
            rows = _union(_rows(spark, source, wanted, folder, at) for at, folder in enumerate(batch))
            names = [folder.folder for folder in batch]
            states = rows.mapInArrow(_InArrow(_BatchReader(names, wanted)), _state_type())
            scanned = _collected(states, MERGED_ON_DRIVER).get(_ONLY, {})
            if isinstance(scanned, Exception):
                raise scanned
            summaries |= scanned
    return summaries


def _rows(spark: SparkSession, source: TableSource, wanted: Wanted, folder: FolderFiles, at: int) -> DataFrame:
    from pyspark.sql import functions

    partitions = set(source.partition_columns)
    by_position = source.format == "csv"
    read_columns = [c for c in source.columns if c.name not in partitions and (by_position or c.name in wanted.columns)]
    reader = spark.read.format(source.format).options(**source.options).option("recursiveFileLookup", "true")
    if read_columns:
        reader = reader.schema(", ".join(f"{quoted(column.name)} {column.data_type}" for column in read_columns))
    rows = reader.load(list(map(literal_path, folder.paths)))
    places = (functions.col(quoted(name)).alias(f"c{i}") for i, name in enumerate(wanted.columns))  # no dots in these
    return rows.select(*places, functions.lit(at).alias(_FOLDER))


_FOLDER = "__folder"
_ONLY = ""  # table of a job that reads one
_READING = re.compile(r"while reading file (?:file:/+)?(\S.*?)\.?\s+SQLSTATE")


@contextmanager
def _reading() -> Iterator[None]:
    """Turn whatever Spark raises into FileUnusable where its reader names the file, else into SparkFailed."""
    try:
        with spark_errors(), without_pandas_warning():
            yield
    except SparkFailed as failure:
        cause = str(failure.__cause__)
        match = _READING.search(cause)
        if match is not None:
            raise FileUnusable(f"/{match[1]} cannot be read: {failure}") from failure
        if "exited unexpectedly" in cause:
            raise WorkerDied("a worker died while it read the files: it may have run out of memory") from failure
        raise


def _union(frames: Iterable[DataFrame]) -> DataFrame:
    whole: DataFrame | None = None
    for frame in frames:
        whole = frame if whole is None else whole.unionAll(frame)
    assert whole is not None
    return whole


class _SplitReader:
    """A task that reads files itself; which one it is, Spark tells by its number."""

    def __init__(self, tasks: Sequence[Sequence[tuple[str, Piece]]], wanted: Mapping[str, Wanted]) -> None:
        self._tasks = tuple(tasks)
        self._wanted = dict(wanted)

    def __call__(self, numbers: Iterable[int]) -> Iterator[State]:
        for number in numbers:
            for table, members in groupby(sorted(self._tasks[number], key=_order), key=lambda one: one[0]):
                yield from _states(table, (piece.chunk() for _, piece in members), self._wanted[table])


class _BatchReader:
    """A task that takes rows from Spark."""

    def __init__(self, folders: Sequence[str], wanted: Wanted) -> None:
        self._folders = tuple(folders)
        self._wanted = wanted

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[State]:
        yield from _states(_ONLY, self._chunks(batches), self._wanted)

    def _chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        for number, table in enumerate(_buffered(batches)):
            folder = self._folders[table.column(_FOLDER)[0].as_py()]
            yield TableChunk(
                f"{folder}/{task} {number}", folder, table.rename_columns([*self._wanted.columns, _FOLDER])
            )


class _InArrow:
    """A task that tells its states as rows of a DataFrame, where there is nothing but DataFrames."""

    def __init__(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[State]]) -> None:
        self._task = task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for state in self._task(batches):
            yield pa.RecordBatch.from_pylist([dict(zip(_STATE.names, state, strict=True))], schema=_STATE)


def _state_type() -> Any:
    """Return the type of a task's rows; as text it would cost a call to the JVM."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(_STATE)


def _states(table: str, chunks: Iterable[Chunk], wanted: Wanted) -> Iterator[State]:
    keep_freed_memory()
    try:
        for folder, summary in summarise_chunks(chunks, wanted):
            yield table, folder, None, True, encode(compact_table(summary))
    except FileUnusable as failure:
        yield table, "", str(failure), True, None
    except NotPlain as failure:
        yield table, "", str(failure), False, None


def _order(piece: tuple[str, Piece]) -> tuple[str, str, str, tuple[int, ...]]:
    table, split = piece
    return table, split.folder, split.path, split.groups


def _place_of(state: State) -> tuple[str, str]:
    return state[:2]


def _buffered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= BUFFER_ROWS or size >= BUFFER_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held)


def _collected(states: DataFrame, expected: int) -> dict[str, Scanned]:
    if expected > MERGED_ON_DRIVER:
        merger = _InArrow(lambda batches: _merged_again(_rows_of(batches)))
        states = states.repartition(MERGED_ON_DRIVER // 2, "table", "folder").mapInArrow(merger, _state_type())
    return _merged(_rows_of(states.toArrow().to_batches()))


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[State]:
    for batch in batches:
        for row in batch.to_pylist():
            yield row["table"], row["folder"], row["error"], row["plain"], row["summary"]


def _merged_again(states: Iterable[State]) -> Iterator[State]:
    """Merge summaries in a task, if there are too many for the driver."""
    for table, scanned in _merged(states).items():
        if isinstance(scanned, Exception):
            yield table, "", str(scanned), isinstance(scanned, FileUnusable), None
        else:
            for folder, summary in scanned.items():
                yield table, folder, None, True, encode(compact_table(summary))


def _merged(states: Iterable[State]) -> dict[str, Scanned]:
    """Merge summaries by table and partition; of a table with errors, return the first one."""
    parts: dict[str, dict[str, list[TableSummary]]] = {}
    errors: dict[str, list[tuple[str, bool]]] = {}
    for table, folder, error, plain, summary in states:
        if error is not None:
            errors.setdefault(table, []).append((error, plain))
        elif summary is not None:
            parts.setdefault(table, {}).setdefault(folder, []).append(decode(summary))
    merged: dict[str, Scanned] = {
        table: {folder: merge_tables(members) for folder, members in folders.items()}
        for table, folders in parts.items()
        if table not in errors
    }
    for table, messages in errors.items():
        error, plain = min(messages)
        merged[table] = FileUnusable(error) if plain else NotPlain(error)
    return merged


def _of_tables(tables: Iterable[str], scanned: Mapping[str, Scanned]) -> dict[str, Scanned]:
    return {table: scanned.get(table, {}) for table in tables}


def shared_out(pieces: Sequence[tuple[str, Piece]], cores: int) -> list[list[tuple[str, Piece]]]:
    """Give pieces of tables to tasks, as many for each core, the largest first, each to the task with least so far."""
    size = sum(split.bytes for _, split in pieces)
    per_core = min(TASKS_PER_CORE, max(1, size // (cores * TASK_BYTES)))
    count = max(1, min(cores * per_core, len(pieces), size // SMALLEST_TASK_BYTES))
    heap: list[tuple[int, int]] = [(0, task) for task in range(count)]
    tasks: list[list[tuple[str, Piece]]] = [[] for _ in range(count)]
    for piece in sorted(pieces, key=lambda piece: (-piece[1].bytes, *_order(piece))):
        load, task = heapq.heappop(heap)
        tasks[task].append(piece)
        heapq.heappush(heap, (load + piece[1].bytes, task))
    return tasks


def quoted(name: str) -> str:
    """Write a column's name for Spark."""
    return "`" + name.replace("`", "``") + "`"


def _take_along(spark: SparkSession) -> None:
    """Have the job's code pickled by value, unless the workers are at home where it is installed."""
    from pyspark import cloudpickle

    change: Callable[[Any], None] = (
        cloudpickle.unregister_pickle_by_value if is_local(spark) else cloudpickle.register_pickle_by_value
    )
    registered = cloudpickle.list_registry_pickle_by_value()
    for name in _MODULES:
        if (name in registered) == is_local(spark):
            change(importlib.import_module(name))
