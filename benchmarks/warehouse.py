"""Tables for the claim about statistics: TPC-H's, and the bookstore's in other formats and cut into partitions.

Everything is made once and kept; a folder of tables appears whole or not at all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.claim import RunFailed, step
from benchmarks.spark_process import Workplace
from engines.files.listing import data_files
from metastore.discovery.inspection import inspect
from sql.tables import TableSource
from statsproc.data.parquet_output import ROW_GROUP_ROWS, published
from statsproc.spark.session import spark_errors

TPCH_FILES_PER_FACTOR = 6
PARTITION_COLUMN = "period"
TEXT_OPTIONS = {"delimiter": "|", "header": "false"}


def tpch(data: Path, table: str, factor: float) -> TableSource:
    """Return a table of TPC-H at a scale factor, made by tpchgen-cli where it is not there yet."""
    folder = data.absolute() / f"tpch-{factor:g}" / table
    if not folder.exists():
        step(f"making {table} of TPC-H at scale factor {factor:g} in {folder.parent}")
        with published(folder.parent) as draft:
            _tpchgen(draft, table, factor)
    return inspect(table, folder).source


def _tpchgen(folder: Path, table: str, factor: float) -> None:
    command = [str(Path(sys.executable).with_name("tpchgen-cli")), "parquet", "--tables", table]
    command += ["--scale-factor", repr(factor), "--parts", str(max(1, round(TPCH_FILES_PER_FACTOR * factor)))]
    try:
        ended = subprocess.run([*command, "--output-dir", str(folder)], stdout=subprocess.DEVNULL, check=False)
    except FileNotFoundError as failure:
        raise RunFailed("there is no tpchgen-cli: run make install") from failure
    if ended.returncode != 0:
        raise RunFailed(f"tpchgen-cli ended with status {ended.returncode}")


def converted(workplace: Workplace, source: TableSource, format: str, share: int, target: Path) -> TableSource:
    """Return a table in another format, written by Spark where it is not there yet.

    share: take the rows whose id is a multiple of it; 1 takes all.
    """
    options = TEXT_OPTIONS if format == "csv" else {}
    if not target.exists():
        with published(target) as draft, spark_errors():
            rows = workplace.spark.read.parquet(source.location).where(f"id % {share} = 0")
            rows.write.format(format).options(**options).save(str(draft))
    return inspect(target.name, target, format=format, options=options, columns=source.columns).source


def cut(workplace: Workplace, source: TableSource, partition: str, target: Path) -> Path:
    """Return the folder of a table in Hive-style partitions, written by Spark where it is not there yet.

    partition: the number of a row's partition, in SQL.
    """
    if not target.exists():
        with published(target) as draft, spark_errors():
            rows = workplace.spark.read.parquet(source.location).selectExpr("*", f"{partition} AS {PARTITION_COLUMN}")
            writer = rows.repartition(PARTITION_COLUMN).write.partitionBy(PARTITION_COLUMN)
            writer.option("parquet.block.row.count.limit", ROW_GROUP_ROWS).parquet(str(draft))
    return target


def sliver(source: TableSource, rows: int, target: Path) -> TableSource:
    """Write a Parquet table's first rows to a folder, as a table of its name."""
    target.mkdir()
    first = data_files(Path(source.location))[0]
    pq.write_table(pq.ParquetFile(first.path).read_row_group(0).slice(0, rows), target / "part-0.parquet")
    return inspect(target.name, target).source


def link(folder: Path, target: Path) -> None:
    """Put a partition's files into a table without copying them."""
    target.mkdir(parents=True)
    for file in data_files(folder):
        os.link(file.path, target / file.path.name)
