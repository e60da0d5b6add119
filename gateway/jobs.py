"""Statistics jobs, each a process of its own: the gateway starts the same command that an orchestrator would.

A job ends with the gateway that started it, however that ends: its tables keep the statistics in force, and the next
gateway closes its row.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import engines.lifeline
from gateway.statements import new_query_id
from metastore.records import JobState, StatisticsJob
from metastore.store import Metastore

log = logging.getLogger(__name__)

END_GRACE_S = 10.0
METASTORE_VARIABLE = "STATSPROC_METASTORE"  # not on the command line, where everybody could read a password


class JobsBusy(Exception):
    """A table's statistics are being computed already."""


class JobRunner:
    """Starts jobs and sees to it that none stays open when its process is gone."""

    def __init__(
        self,
        metastore: Metastore,
        *,
        metastore_url: str,
        work: Path,
        remote: str | None = None,
        driver_memory_bytes: int = 2 << 30,
    ) -> None:
        self._metastore = metastore
        self._url = metastore_url
        self._work = work
        self._remote = remote
        self._driver_memory_bytes = driver_memory_bytes
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def start(self, tables: tuple[str, ...]) -> StatisticsJob:
        """Start a job over some tables. Raises JobsBusy where one of them is in an open job."""
        with self._lock:
            for job in self._metastore.jobs.open_jobs():
                taken = sorted(set(job.tables) & set(tables))
                if taken:
                    raise JobsBusy(f"Job {job.id} computes the statistics of {', '.join(taken)} already.")
            job = StatisticsJob(
                id=new_query_id(), tables=tables, state=JobState.QUEUED, created_at=dt.datetime.now(dt.UTC)
            )
            self._metastore.jobs.create(job)
            self._work.mkdir(parents=True, exist_ok=True)
            with (self._work / f"{job.id}.log").open("wb") as output:
                process = subprocess.Popen(
                    [*self._command(), "--job-id", job.id, *tables],
                    env={**os.environ, METASTORE_VARIABLE: self._url},
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            self._processes[job.id] = process
        threading.Thread(target=self._watch, args=(job.id, process), name=f"job {job.id}", daemon=True).start()
        return job

    def recover(self) -> None:
        """Close the jobs of an earlier gateway whose process is gone."""
        for job in self._metastore.jobs.open_jobs():
            if job.process_id is None or not _alive(job.process_id):
                self._metastore.jobs.ended(
                    job.id, at=dt.datetime.now(dt.UTC), error="The job's process ended before the job did."
                )

    def stop(self) -> None:
        """End the jobs that this gateway started; their tables keep the statistics in force."""
        with self._lock:
            processes = list(self._processes.values())
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(END_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _command(self) -> list[str]:
        memory = f"{self._driver_memory_bytes >> 20}m"
        where = ["--remote", self._remote] if self._remote else ["--driver-memory", memory]
        statsproc = [sys.executable, "-P", "-m", "statsproc", "stats", "--work-dir", str(self._work), *where]
        return [sys.executable, "-I", engines.lifeline.__file__, "--", *statsproc]

    def _watch(self, job_id: str, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        if process.stdin is not None:
            process.stdin.close()
        with self._lock:
            self._processes.pop(job_id, None)
        job = self._metastore.jobs.get(job_id)
        if job is not None and job.finished_at is None:
            error = f"The job's process ended with status {status} before the job did; its log is {job_id}.log."
            self._metastore.jobs.ended(job_id, at=dt.datetime.now(dt.UTC), error=error)


def _alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
