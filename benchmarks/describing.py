"""The ways to describe a table that are compared: ours, Spark's own, the paper's; and the floors.

Each is called in a Spark process (``spark_process``). A table comes as its ``TableSource``.
"""

from __future__ import annotations

import datetime as dt
import io
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from benchmarks.claim import RunFailed
from benchmarks.spark_process import Workplace
from engines.files.listing import data_files
from metastore.discovery.inspection import inspect
from metastore.records import JobRequest, Mode
from selector.statistics import ColumnStatistics, Histogram, TableStatistics, as_number
from sql.tables import Column, TableSource
from statsproc.job.job import run_job
from statsproc.spark.progress import LineReporter
from statsproc.spark.session import spark_errors

BINS = 254
TEXTS = ("string", "binary")


def register(workplace: Workplace, source: TableSource) -> None:
    """Make a table known to computed here."""
    found = inspect(source.name, source.location, format=source.format, options=source.options, columns=source.columns)
    workplace.store.catalog.put(found, at=dt.datetime.now(dt.UTC))


def declare(workplace: Workplace, source: TableSource) -> None:
    """Make a table known to Spark's catalog, where it lies, and ask for histograms."""
    spark = workplace.spark
    with spark_errors():
        spark.conf.set("spark.sql.statistics.histogram.enabled", "true")
        spark.conf.set("spark.sql.statistics.histogram.numBins", str(BINS))
        schema = StructType.fromDDL(", ".join(f"{column.name} {column.data_type}" for column in source.columns))
        spark.catalog.createTable(
            source.name, path=source.location, source=source.format, schema=schema, **source.options
        )


def ours(workplace: Workplace, name: str, mode: Mode = Mode.FULL) -> None:
    """Do what ``python -m statsproc stats`` does for a table once Spark is there, from its job's row to publishing."""
    _run(workplace, JobRequest((name,), mode))


def ours_together(workplace: Workplace, names: Sequence[str]) -> None:
    """Do the same for several tables in one job."""
    _run(workplace, JobRequest(tuple(names)))


def _run(workplace: Workplace, request: JobRequest) -> None:
    reporter = LineReporter(io.StringIO())
    errors = run_job(workplace.store, uuid.uuid4().hex, request, lambda: nullcontext(workplace.spark), reporter)
    for name, error in errors.items():
        raise RunFailed(f"statistics of {name}: {error}")


def in_force(workplace: Workplace, name: str) -> TableStatistics:
    """Return the statistics that computed here has put in force."""
    statistics = workplace.store.statistics.current(name)
    assert statistics is not None
    return statistics


def analyze(workplace: Workplace, name: str) -> None:
    """Have Spark describe a registered table, with histograms."""
    with spark_errors():
        workplace.spark.sql(f"ANALYZE TABLE {name} COMPUTE STATISTICS FOR ALL COLUMNS")


def analyzed(workplace: Workplace, source: TableSource) -> TableStatistics:
    """Read what ANALYZE has stored, as far as Spark tells: its histograms come without shares."""
    spark = workplace.spark
    with spark_errors():
        told = dict(spark.sql(f"DESCRIBE EXTENDED {source.name}").select("col_name", "data_type").collect())
        size, rows = (int(words) for words in told["Statistics"].replace(" rows", "").split(" bytes, "))
        columns = {column.name: _analyzed_column(spark, source.name, column) for column in source.columns}
    return TableStatistics(source.name, version=0, rows=rows, bytes=size, columns=columns)


def _analyzed_column(spark: SparkSession, table: str, column: Column) -> ColumnStatistics:
    told = dict(spark.sql(f"DESCRIBE EXTENDED {table} {column.name}").collect())
    bounds = [
        [float(part.split(": ")[1]) for part in words.split(", ")[:2]]
        for name, words in told.items()
        if name.startswith("bin_")
    ]
    return ColumnStatistics(
        column.name,
        column.data_type,
        nulls=int(told["num_nulls"]),
        ndv=float(told["distinct_count"]),
        minimum=as_number(told["min"], column.data_type),
        maximum=as_number(told["max"], column.data_type),
        average_length=float(told["avg_col_len"]),
        maximum_length=int(told["max_col_len"]),
        histogram=Histogram(np.array([bounds[0][0], *(high for _, high in bounds)])) if bounds else None,
    )


def job_per_column(workplace: Workplace, source: TableSource) -> dict[str, list[float]]:
    """Describe a table as the paper does: a job per numeric column, in which the reducers see its values in order.

    Returns the end points. Dates count as numbers. The rows are known before, from the catalog.
    """
    table = workplace.store.catalog.get(source.name)
    assert table is not None
    assert table.rows is not None
    with spark_errors():
        rows = workplace.spark.table(source.name)
        return {
            column.name: _end_points(rows, column.name, table.rows)
            for column in source.columns
            if column.data_type not in TEXTS
        }


def _end_points(rows: DataFrame, column: str, count: int) -> list[float]:
    """Return a column's smallest value, every n-th in order, and its largest."""
    step = max(1, count // BINS)
    position = f.monotonically_increasing_id().bitwiseAND((1 << 33) - 1)  # in its part, which is sorted
    parts = (
        rows.select(f.col(column).alias("value"))
        .where("value IS NOT NULL")
        .repartitionByRange(rows.sparkSession.sparkContext.defaultParallelism, "value")
        .sortWithinPartitions("value")
        .select("value", position.alias("position"), f.spark_partition_id().alias("part"))
        .groupBy("part")
        .agg(
            f.min("value").alias("low"),
            f.collect_list(f.when(f.col("position") % step == step - 1, f.col("value"))).alias("steps"),
            f.max("value").alias("high"),
        )
        .orderBy("part")
        .collect()
    )
    if not parts:
        return []
    return [parts[0]["low"], *(value for part in parts for value in part["steps"]), parts[-1]["high"]]


def noop_scan(workplace: Workplace, source: TableSource) -> None:
    """Have Spark read all columns and do nothing with them: what no way through its reader can beat."""
    with spark_errors():
        workplace.spark.table(source.name).write.format("noop").mode("overwrite").save()


def arrow_decode(workplace: Workplace, source: TableSource) -> int:
    """Decode all columns with pyarrow, on all processors, and do nothing with them; returns the rows."""
    rows = 0
    for file in data_files(Path(source.location)):
        content = pq.ParquetFile(file.path)
        for group in range(content.num_row_groups):
            rows += content.read_row_group(group).num_rows
    return rows
