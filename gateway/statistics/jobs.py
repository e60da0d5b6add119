"""Statistics jobs, each a process of its own: the gateway starts the same command that an orchestrator would.

A job ends with the gateway that started it, however that ends: its tables keep the statistics in force, and the next
gateway closes its row.
"""

from __future__ import annotations

import datetime as dt
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

import engines.machine.lifeline
from engines.machine.environment import child_environment
from engines.machine.private_files import UMASK, open_private, private_folder
from gateway.errors import JobRunning
from gateway.security.policy import Action, Owned, Policy
from gateway.security.principals import IN_PROCESS, Principal
from gateway.statements.statement import new_query_id
from metastore.errors import TablesBusy
from metastore.objects.access import NO_OBJECTS, VARIABLE, ObjectAccess
from metastore.records import JobRequest, JobState, StatisticsJob
from metastore.store import Metastore

log = logging.getLogger(__name__)

END_GRACE_S = 10.0
CANCELLED = "The job was cancelled."
METASTORE_VARIABLE = "STATSPROC_METASTORE"  # not on the command line, where everybody could read a password
SPARK_VARIABLE = "SPARK_REMOTE"  # or a token


class JobRunner:
    """Starts jobs and sees to it that none stays open when its process is gone.

    environment: names of the gateway's variables that a job gets beside those that it needs to run.
    objects: returns the access to object stores and catalogs.
    """

    def __init__(
        self,
        metastore: Metastore,
        *,
        metastore_url: str,
        work: Path,
        remote: str | None = None,
        driver_memory_bytes: int = 2 << 30,
        policy: Policy | None = None,
        environment: Collection[str] = (),
        objects: Callable[[], ObjectAccess] = lambda: NO_OBJECTS,
    ) -> None:
        self._policy = policy or Policy()
        self._metastore = metastore
        self._url = metastore_url
        self._work = work
        self._remote = remote
        self._driver_memory_bytes = driver_memory_bytes
        self._environment = environment
        self._objects = objects
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._closed = threading.Condition(self._lock)  # a job whose process ended

    def start(self, request: JobRequest, *, schedule: str | None = None, owner: str | None = None) -> StatisticsJob:
        """Start a job and return it as it is written; one whose process cannot be started has failed.

        Raises JobRunning where an open job holds one of the tables.
        """
        job = StatisticsJob(
            id=new_query_id(),
            request=request,
            state=JobState.QUEUED,
            created_at=_now(),
            schedule=schedule,
            owner=owner,
        )
        self.recover()  # a job that died a moment ago must not stand in the way
        try:
            self._metastore.jobs.create(job)
        except TablesBusy as busy:
            raise _job_running(busy) from busy
        try:
            process = self._launch(job.id)
        except OSError as error:
            log.error("job %s: could not be started", job.id, exc_info=error)
            self._metastore.jobs.ended(job.id, at=_now(), error=f"The job could not be started: {error.strerror}.")
        else:
            threading.Thread(target=self._watch, args=(job.id, process), name=f"job {job.id}", daemon=True).start()
            log.info("job %s: %s statistics of %s", job.id, request.mode, ", ".join(request.tables))
        return self._metastore.jobs.get(job.id) or job

    def drop_parts(self, table: str, folders: Collection[str]) -> int:
        """Drop the summaries of some partitions, and return how many there were.

        Raises JobRunning where an open job merges them.
        """
        self.recover()
        try:
            return self._metastore.statistics.drop_parts(table, folders)
        except TablesBusy as busy:
            raise _job_running(busy) from busy

    def cancel(self, job_id: str, *, by: Principal = IN_PROCESS) -> bool:
        """End a job, whoever started it; returns whether it was open. Raises AccessDenied.

        Its tables are free at once: a job that has lost them cannot publish any more, however long its end takes. The
        process of another gateway's hears of it with its next heartbeat.
        """
        job = self._metastore.jobs.get(job_id)
        if job is None:
            return False
        self._policy.require(by, Action.CANCEL_JOB, Owned("job", job.id, job.owner))
        if job.state.ended:
            return False
        self._metastore.jobs.ended(job_id, at=_now(), error=CANCELLED, cancelled=True)
        with self._lock:
            process = self._processes.get(job_id)
        if process is not None:
            process.terminate()
        return True

    def log_file(self, job_id: str) -> Path:
        """Return where a job's output lies, whether it is there or not."""
        return self._work / f"{job_id}.log"

    def recover(self) -> None:
        """Close the jobs whose process is gone: an earlier gateway's, or an orchestrator's."""
        with self._lock:
            ours = set(self._processes)  # those are closed by their watch, with their exit status
        for job in self._metastore.jobs.end_dead(now=_now(), keep=ours):
            log.warning("job %s: its process is gone", job.id)

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
        with self._closed:
            self._closed.wait_for(lambda: not self._processes, END_GRACE_S)  # while their rows can be written

    def _launch(self, job_id: str) -> subprocess.Popen[bytes]:
        """Start a job's process. What it is asked for is in its row: a command line is too short for partitions."""
        private_folder(self._work)
        remote = {SPARK_VARIABLE: self._remote} if self._remote else {}
        access = self._objects()
        objects = {VARIABLE: access.to_text()} if access != NO_OBJECTS else {}
        with self._lock, open_private(self.log_file(job_id)) as output:
            process = subprocess.Popen(
                [*self._command(), "--job-id", job_id],
                env={**child_environment(self._environment), METASTORE_VARIABLE: self._url, **remote, **objects},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                umask=UMASK,
            )
            self._processes[job_id] = process
        return process

    def _command(self) -> list[str]:
        memory = f"{self._driver_memory_bytes >> 20}m"
        where = [] if self._remote else ["--driver-memory", memory]
        statsproc = [sys.executable, "-P", "-m", "statsproc", "stats", "--work-dir", str(self._work), *where]
        return [sys.executable, "-I", engines.machine.lifeline.__file__, "--", *statsproc]

    def _watch(self, job_id: str, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        if process.stdin is not None:
            process.stdin.close()
        try:
            job = self._metastore.jobs.get(job_id)
            if job is not None and not job.state.ended:
                error = f"The job's process ended with status {status} before the job did; its log is {job_id}.log."
                self._metastore.jobs.ended(job_id, at=_now(), error=error)
        except SQLAlchemyError as error:
            log.warning("job %s: its end cannot be written now, and is written later: %s", job_id, error)
        finally:
            with self._closed:
                self._processes.pop(job_id, None)
                self._closed.notify_all()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _job_running(busy: TablesBusy) -> JobRunning:
    """Say which job holds which tables."""
    return JobRunning(f"Job {busy.job_id} computes the statistics of {', '.join(busy.tables)} already.")
