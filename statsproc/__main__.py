"""``python -m statsproc``: make data, take it in, describe it.

Exit codes: 0 all done; 1 something failed (the message says what); 2 wrong arguments; 143 ended by SIGTERM.
"""

from __future__ import annotations

import datetime as dt
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from sqlalchemy.exc import SQLAlchemyError

from engines.spark.embedded.java import JavaNotFound
from metastore.discovery.inspection import InspectionFailed
from metastore.errors import TablesBusy
from metastore.hive.client import HiveFailed, HiveMetastore
from metastore.records import SMALLEST_SHARE, JobRequest, Mode
from metastore.store import Metastore
from sql.tables import DEFAULT_DATABASE
from statsproc.data.bookstore import Bookstore, Distribution, Format, write_table
from statsproc.data.ingest import IngestFailed, parse_columns
from statsproc.data.ingest import ingest as ingest_text
from statsproc.hive.exchange import exchange_all, import_statistics, publish_statistics
from statsproc.job import job
from statsproc.spark.progress import Reporter, reporter, watched
from statsproc.spark.session import LOCAL, SparkFailed, SparkUnavailable, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILED = 1
TERMINATED = 128 + signal.SIGTERM

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Make data, take it in, describe it.",
)

Master = Annotated[str, typer.Option(help="Where an own Spark runs.")]
Remote = Annotated[
    str | None, typer.Option(help="A Spark Connect address, such as sc://host:15002.", envvar="STATSPROC_REMOTE")
]
WorkDir = Annotated[Path | None, typer.Option(help="Spark's own files and its log; a temporary folder by default.")]
Memory = Annotated[str, typer.Option(help="Heap of Spark's driver; with a local master that is all of Spark.")]
Hive = Annotated[str, typer.Option(help="The Hive Metastore, such as thrift://127.0.0.1:9083.")]
Database = Annotated[str, typer.Option(help="Of the tables in Hive.")]
JsonProgress = Annotated[bool, typer.Option("--json-progress", help="One JSON object a line on standard output.")]


class JobNotOpen(Exception):
    """The job whose row should say what to compute is not there, or has ended."""


@dataclass(frozen=True, slots=True)
class _Spark:
    """Options of a Spark session."""

    master: str
    remote: str | None
    work_dir: Path | None
    driver_memory: str

    @contextmanager
    def open(self) -> Iterator[SparkSession]:
        with tempfile.TemporaryDirectory(prefix="statsproc-", ignore_cleanup_errors=True) as temporary:
            with open_session(
                self.work_dir or Path(temporary),
                master=self.master,
                remote=self.remote,
                driver_memory=self.driver_memory,
            ) as spark:
                yield spark


@app.command()
def generate(
    out: Annotated[Path, typer.Option(help="Folder in which each table gets its own.")],
    scale: Annotated[float, typer.Option(help="Share of the paper's rows; 1 is 126M books.", min=1e-9, max=100.0)],
    seed: Annotated[int, typer.Option(help="Another seed gives other values.")] = 42,
    distribution: Annotated[Distribution, typer.Option(help="Of prices and quantities.")] = Distribution.SKEWED,
    format: Annotated[Format, typer.Option(help="text: |-delimited lines.")] = Format.PARQUET,
    master: Master = LOCAL,
    remote: Remote = None,
    work_dir: WorkDir = None,
    driver_memory: Memory = "2g",
    json_progress: JsonProgress = False,
) -> None:
    """Make the paper's bookstore: books, customers, transactions."""
    bookstore = Bookstore(scale, seed, distribution)
    options = _Spark(master, remote, work_dir, driver_memory)
    with closing(reporter(as_json=json_progress)) as report, _spark(options, report) as spark:
        for table, rows in bookstore.rows.items():
            began = time.monotonic()
            with watched(spark, partial(report.progress, table)):
                path = write_table(spark, bookstore, table, out, format)
            seconds = time.monotonic() - began
            report.finished(table, f"{rows:,} rows in {path}, {seconds:.1f} s", rows=rows, location=str(path))
        report.done()


@app.command()
def ingest(
    source: Annotated[Path, typer.Option("--in", help="Folder or file of text.")],
    out: Annotated[Path, typer.Option(help="Folder of the Parquet table; replaced if it is there.")],
    columns: Annotated[str, typer.Option(help='Such as "id bigint, price decimal(10,2)".')],
    delimiter: Annotated[str, typer.Option(help="One character.")] = "|",
    header: Annotated[bool, typer.Option("--header", help="Each file's first line names the columns.")] = False,
    master: Master = LOCAL,
    remote: Remote = None,
    work_dir: WorkDir = None,
    driver_memory: Memory = "2g",
    json_progress: JsonProgress = False,
) -> None:
    """Turn delimited text into Parquet; lines that do not fit are put aside and counted."""
    parsed = parse_columns(columns)
    options = _Spark(master, remote, work_dir, driver_memory)
    with closing(reporter(as_json=json_progress)) as report, _spark(options, report) as spark:
        with watched(spark, partial(report.progress, out.name)):
            result = ingest_text(spark, source, out, parsed, delimiter=delimiter, header=header)
        put_aside = f"{result.rows_quarantined:,} quarantined"
        if result.quarantine:
            put_aside += f" in {result.quarantine}"
        report.finished(
            out.name,
            f"{result.rows_in:,} lines in, {result.rows_out:,} rows out, {put_aside}",
            rows_in=result.rows_in,
            rows_out=result.rows_out,
            rows_quarantined=result.rows_quarantined,
            quarantine=str(result.quarantine) if result.quarantine else None,
        )
        report.done()


@app.command()
def stats(
    metastore: Annotated[str, typer.Option(help="URL of the metastore's database.", envvar="STATSPROC_METASTORE")],
    tables: Annotated[
        list[str] | None, typer.Argument(help="Names of registered tables; none for what the row of --job-id asks for.")
    ] = None,
    job_id: Annotated[str | None, typer.Option(help="The job's row; made of TABLES if it is not there.")] = None,
    mode: Annotated[Mode, typer.Option(help="incremental: what is new or changed. sample: a share.")] = Mode.FULL,
    share: Annotated[float, typer.Option(help="Of a sample, 0..1.", min=SMALLEST_SHARE, max=1.0)] = 1.0,
    columns: Annotated[str, typer.Option(help="Of a single table, with commas; all by default.")] = "",
    partition: Annotated[
        list[str] | None, typer.Option(help="Folder such as year=2024/month=1, of an incremental job.")
    ] = None,
    master: Master = LOCAL,
    remote: Remote = None,
    work_dir: WorkDir = None,
    driver_memory: Memory = "2g",
    json_progress: JsonProgress = False,
) -> None:
    """Build the tables' statistics and put them in force."""
    spark = _Spark(master, remote, work_dir, driver_memory)
    try:
        wanted = JobRequest(
            tables=tuple(name.lower() for name in tables or ()),
            mode=mode,
            share=share,
            columns=tuple(name.strip() for name in columns.split(",") if name.strip()),
            partitions=tuple(partition or ()),
        )
    except ValueError as failure:
        raise typer.BadParameter(str(failure)) from failure
    if not wanted.tables and (job_id is None or wanted != JobRequest(())):
        raise typer.BadParameter("give TABLES, or --job-id alone, of a job whose row says what it computes")
    with closing(reporter(as_json=json_progress)) as report, Metastore(metastore) as store:
        request = wanted if job_id is None or wanted.tables else _request_of(store, job_id)
        errors = job.run_job(store, job_id or uuid.uuid4().hex, request, spark.open, report)
        report.done(failed=errors)
    if errors:
        raise typer.Exit(FAILED)


def _request_of(store: Metastore, job_id: str) -> JobRequest:
    """Return what an open job was made for. Raises JobNotOpen."""
    recorded_job = store.jobs.get(job_id)
    if recorded_job is None:
        raise JobNotOpen(f"there is no job {job_id}: give the tables to make one")
    if recorded_job.state.ended:
        raise JobNotOpen(f"job {job_id} has ended already: {recorded_job.error or 'all of its tables are done'}")
    return recorded_job.request


@app.command()
def hive_import(
    tables: Annotated[list[str], typer.Argument(help="Names of registered tables.")],
    hive: Hive,
    metastore: Annotated[str, typer.Option(help="URL of the metastore's database.", envvar="STATSPROC_METASTORE")],
    database: Database = DEFAULT_DATABASE,
    force: Annotated[bool, typer.Option("--force", help="Replace statistics of our own.")] = False,
    json_progress: JsonProgress = False,
) -> None:
    """Put in force what a Hive Metastore knows of the tables, where no statistics of our own are."""
    with (
        closing(reporter(as_json=json_progress)) as report,
        Metastore(metastore) as store,
        HiveMetastore(hive) as hive_client,
    ):
        now = dt.datetime.now(dt.UTC)
        errors = exchange_all(
            tables,
            lambda name: import_statistics(store, hive_client, name, database=database, force=force, at=now),
            report,
        )
        report.done(failed=errors)
    if errors:
        raise typer.Exit(FAILED)


@app.command()
def hive_publish(
    tables: Annotated[list[str], typer.Argument(help="Names of registered tables.")],
    hive: Hive,
    metastore: Annotated[str, typer.Option(help="URL of the metastore's database.", envvar="STATSPROC_METASTORE")],
    database: Database = DEFAULT_DATABASE,
    json_progress: JsonProgress = False,
) -> None:
    """Write the tables' statistics into a Hive Metastore, for the planners of Hive, Impala and Spark."""
    with (
        closing(reporter(as_json=json_progress)) as report,
        Metastore(metastore) as store,
        HiveMetastore(hive) as hive_client,
    ):
        errors = exchange_all(
            tables, lambda name: publish_statistics(store, hive_client, name, database=database), report
        )
        report.done(failed=errors)
    if errors:
        raise typer.Exit(FAILED)


@contextmanager
def _spark(options: _Spark, report: Reporter) -> Iterator[SparkSession]:
    began = time.monotonic()
    report.progress(job.STARTING, 0, 0)
    with options.open() as spark:
        report.finished(job.STARTING, f"{time.monotonic() - began:.1f} s")
        yield spark


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: the rest is clearing up
    raise job.Stopped


def main() -> None:
    """Run the command line: errors in one line, without stack traces."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    except job.Stopped:
        print("stopped", file=sys.stderr)
        sys.exit(TERMINATED)
    except (
        HiveFailed,
        IngestFailed,
        InspectionFailed,
        JavaNotFound,
        JobNotOpen,
        OSError,
        SparkFailed,
        SparkUnavailable,
        SQLAlchemyError,
        TablesBusy,
    ) as failure:
        print(f"error: {str(failure).splitlines()[0]}", file=sys.stderr)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
