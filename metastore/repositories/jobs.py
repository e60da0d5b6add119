"""Statistics jobs: one row per run of the statistics processor, one per table of it, and a lock per table."""

from __future__ import annotations

import datetime as dt
import os
import socket
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.orm import Session

from metastore.database.models import JobTableRow, StatisticsJobRow, TableLockRow
from metastore.errors import TablesBusy
from metastore.records import SMALLEST_SHARE, JobRequest, JobState, Mode, StatisticsJob, TableProgress
from metastore.repositories.catalog import wait_for_writers

SILENCE_S = 60.0  # a job on another host without a heartbeat for so long counts as dead; they come every few seconds
_OPEN = (JobState.QUEUED, JobState.RUNNING)


class StatisticsJobs:
    """The log of statistics jobs, written by the job itself as it goes, and the locks of their tables."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, job: StatisticsJob) -> None:
        """Write a job that is about to be started and lock its tables, all or none.

        Raises TablesBusy where an open job, of any process and host, holds one of them.
        """
        tables = job.tables or tuple(TableProgress(table) for table in job.request.tables)
        names = sorted({progress.table.lower() for progress in tables})
        with Session(self._engine) as session, session.begin():
            wait_for_writers(session)
            held = session.execute(
                select(TableLockRow.job_id, TableLockRow.table)
                .where(TableLockRow.table.in_(names))
                .order_by(TableLockRow.table)
            ).all()
            if held:
                holder = held[0].job_id
                raise TablesBusy(holder, tuple(row.table for row in held if row.job_id == holder))
            session.add(
                StatisticsJobRow(
                    id=job.id,
                    mode=job.request.mode,
                    columns=list(job.request.columns),
                    share=job.request.share,
                    partitions=list(job.request.partitions),
                    state=job.state,
                    schedule=job.schedule,
                    host=job.host,
                    process_id=job.process_id,
                    created_at=job.created_at,
                    started_at=job.started_at,
                    heartbeat_at=job.heartbeat_at,
                    owner=job.owner,
                    tables=[JobTableRow(ordinal=n, **_values(progress)) for n, progress in enumerate(tables)],
                )
            )
            session.flush()
            if names and not job.state.ended:
                session.execute(insert(TableLockRow), [{"table": name, "job_id": job.id} for name in names])

    def started(self, job_id: str, *, at: dt.datetime, host: str, process_id: int) -> None:
        """Mark a job as running in a process on a host."""
        started = {"started_at": at, "heartbeat_at": at, "host": host, "process_id": process_id}
        with self._engine.begin() as connection:
            _change(connection, job_id, state=JobState.RUNNING, **started)

    def progressed(self, job_id: str, progress: TableProgress, *, at: dt.datetime) -> None:
        """Store the progress of one of the job's tables, and a heartbeat. Does nothing to a job that has ended."""
        values = _values(progress)
        with self._engine.begin() as connection:
            if not _change(connection, job_id, heartbeat_at=at):
                return
            changed = connection.execute(
                update(JobTableRow)
                .where(JobTableRow.job_id == job_id, JobTableRow.table == values["table"])
                .values(**values)
            )
            if not changed.rowcount:
                raise LookupError(f"table {progress.table} is not part of job {job_id}")

    def heartbeat(self, job_id: str, *, at: dt.datetime) -> bool:
        """Store a heartbeat. Returns False if the job has ended, because it was taken for dead."""
        with self._engine.begin() as connection:
            return _change(connection, job_id, heartbeat_at=at)

    def ended(self, job_id: str, *, at: dt.datetime, error: str | None = None, cancelled: bool = False) -> None:
        """End a job and its open tables, and release its locks. A job that has ended stays as it ended.

        error: None: it succeeded.
        cancelled: a user ended it.
        """
        state = JobState.CANCELLED if cancelled else JobState.FAILED if error else JobState.FINISHED
        with self._engine.begin() as connection:
            # Locks first, as in publishing: in different orders two transactions would wait for each other for ever.
            connection.execute(delete(TableLockRow).where(TableLockRow.job_id == job_id))
            if _change(connection, job_id, state=state, finished_at=at, error=error):
                connection.execute(
                    update(JobTableRow)
                    .where(JobTableRow.job_id == job_id, JobTableRow.state.in_(_OPEN))
                    .values(state=state, error=error)
                )

    def get(self, job_id: str) -> StatisticsJob | None:
        """Return one job, or None."""
        with Session(self._engine) as session:
            row = session.get(StatisticsJobRow, job_id)
            return _record(row) if row else None

    def open_jobs(self) -> tuple[StatisticsJob, ...]:
        """Return the jobs that have not ended, oldest first."""
        wanted = select(StatisticsJobRow).where(StatisticsJobRow.state.in_(_OPEN)).order_by(StatisticsJobRow.created_at)
        with Session(self._engine) as session:
            return tuple(_record(row) for row in session.scalars(wanted))

    def list(self, *, limit: int = 50, table: str | None = None) -> tuple[StatisticsJob, ...]:
        """Return the newest jobs, newest first; table: only those over that table."""
        wanted = select(StatisticsJobRow).order_by(StatisticsJobRow.created_at.desc(), StatisticsJobRow.id).limit(limit)
        if table is not None:
            wanted = wanted.where(StatisticsJobRow.tables.any(JobTableRow.table == table.lower()))
        with Session(self._engine) as session:
            return tuple(_record(row) for row in session.scalars(wanted))

    def dead(
        self, *, host: str, alive: Callable[[int], bool], now: dt.datetime, silence_s: float
    ) -> tuple[StatisticsJob, ...]:
        """Return the open jobs whose process is gone, oldest first.

        A job without a heartbeat for more than ``silence_s`` is dead, too: process ids are used again, and processes of
        other hosts cannot be asked.

        alive: returns True for the id of a living process of this host.
        """
        silence = dt.timedelta(seconds=silence_s)

        def is_dead(job: StatisticsJob) -> bool:
            if job.process_id is not None and job.host == host and not alive(job.process_id):
                return True
            heartbeats = (job.created_at, job.started_at, job.heartbeat_at)
            return now - max(heartbeat for heartbeat in heartbeats if heartbeat is not None) > silence

        return tuple(job for job in self.open_jobs() if is_dead(job))

    def end_dead(self, *, now: dt.datetime, keep: Collection[str] = ()) -> tuple[StatisticsJob, ...]:
        """End the jobs whose process is gone, as seen from this host, and release their tables. keep: ids to skip."""
        dead = self.dead(host=socket.gethostname(), alive=_is_alive, now=now, silence_s=SILENCE_S)
        ended = tuple(job for job in dead if job.id not in keep)
        for job in ended:
            self.ended(job.id, at=now, error="The job's process ended before the job did.")
        return ended


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _change(connection: Connection, job_id: str, **values: object) -> bool:
    """Change an open job. Returns False if it is not open."""
    is_open = StatisticsJobRow.id == job_id, StatisticsJobRow.state.in_(_OPEN)
    return connection.execute(update(StatisticsJobRow).where(*is_open).values(**values)).rowcount > 0


def _values(progress: TableProgress) -> dict[str, Any]:
    return asdict(progress) | {"table": progress.table.lower()}


def _record(row: StatisticsJobRow) -> StatisticsJob:
    return StatisticsJob(
        id=row.id,
        request=JobRequest(
            tables=tuple(table.table for table in row.tables),
            mode=Mode(row.mode),
            columns=tuple(row.columns),
            share=max(row.share, SMALLEST_SHARE),  # jobs of earlier releases had no limit
            partitions=tuple(row.partitions),
        ),
        state=JobState(row.state),
        created_at=row.created_at,
        tables=tuple(_progress(table) for table in row.tables),
        host=row.host,
        process_id=row.process_id,
        heartbeat_at=row.heartbeat_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        schedule=row.schedule,
        error=row.error,
        owner=row.owner,
    )


def _progress(row: JobTableRow) -> TableProgress:
    return TableProgress(
        table=row.table,
        state=JobState(row.state),
        files_done=row.files_done,
        files_all=row.files_all,
        rows=row.rows,
        columns=row.columns,
        seconds=row.seconds,
        version=row.version,
        error=row.error,
    )
