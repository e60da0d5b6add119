"""Stands in for ``python -m statsproc stats``: a process that reads no rows, but keeps all promises about a job.

SECONDS names what in the environment says how long each table takes. A table whose folder is gone fails, and the
job with it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import engines.machine.lifeline
from engines.files.listing import InspectionFailed, data_files
from metastore.records import JobState, StatisticsPart, TableProgress
from metastore.store import Metastore
from selector.statistics import TableStatistics

# Of ``JobRunner``. -P: this folder has a package sql, too.
COMMAND = [sys.executable, "-I", engines.machine.lifeline.__file__, "--", sys.executable, "-P", __file__]
SECONDS = "PYTHON_JOB_SECONDS"  # of the names that a child process gets


def compute(store: Metastore, table: str, job_id: str) -> TableProgress:
    """Publish a build over the files that are there."""
    progress = TableProgress(table, JobState.RUNNING)
    known = store.catalog.get(table)
    assert known is not None
    root = Path(known.source.location)
    try:
        files = data_files(root) if root.exists() else ()
    except InspectionFailed:
        files = ()
    if not files:
        return replace(progress, state=JobState.FAILED, error=f"{root} holds no data files")
    store.jobs.progressed(job_id, replace(progress, files_all=len(files)), at=now())
    time.sleep(float(os.environ[SECONDS]))
    part = StatisticsPart("", tuple(file.mark(root) for file in files), 10, 100, 1.0, now(), b"-")
    build = TableStatistics(table, 0, 10, 100, files=len(files))
    published = store.statistics.publish(build, at=now(), parts=[part], job_id=job_id)
    return replace(
        progress,
        state=JobState.FINISHED,
        files_done=len(files),
        files_all=len(files),
        rows=build.rows,
        columns=0,
        seconds=0.0,
        version=published.version,
    )


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job-id", required=True)
    told = parser.parse_args()
    with Metastore(os.environ["STATSPROC_METASTORE"]) as store:
        job = store.jobs.get(told.job_id)
        assert job is not None
        store.jobs.started(told.job_id, at=now(), host=socket.gethostname(), process_id=os.getpid())
        errors = []
        for table in job.request.tables:
            progress = compute(store, table, told.job_id)
            store.jobs.progressed(told.job_id, progress, at=now())
            errors += [f"{table}: {progress.error}"] if progress.error else []
        store.jobs.ended(told.job_id, at=now(), error="; ".join(errors) or None)


if __name__ == "__main__":
    main()
