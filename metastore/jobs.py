"""Statistics jobs: one row per run of the statistics processor."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Engine, select, update
from sqlalchemy.orm import Session

from metastore.models import StatisticsJobRow
from metastore.records import JobState, StatisticsJob

_OPEN = (JobState.QUEUED, JobState.RUNNING)


class StatisticsJobs:
    """The log of statistics jobs, written by the job itself as it goes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, job: StatisticsJob) -> None:
        """Write a job that is about to be started."""
        with Session(self._engine) as session, session.begin():
            session.add(
                StatisticsJobRow(
                    id=job.id,
                    tables=list(job.tables),
                    state=job.state,
                    tables_done=job.tables_done,
                    process_id=job.process_id,
                    created_at=job.created_at,
                    started_at=job.started_at,
                )
            )

    def started(self, job_id: str, *, at: dt.datetime, process_id: int) -> None:
        """Mark a job as running in a process."""
        self._change(job_id, state=JobState.RUNNING, started_at=at, process_id=process_id)

    def progressed(self, job_id: str, *, tables_done: int) -> None:
        """Keep how many tables are done."""
        self._change(job_id, tables_done=tables_done)

    def ended(self, job_id: str, *, at: dt.datetime, error: str | None = None) -> None:
        """End a job, well or with an error; a job that has ended stays as it ended."""
        self._change(job_id, state=JobState.FAILED if error else JobState.FINISHED, finished_at=at, error=error)

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

    def _change(self, job_id: str, **values: object) -> None:
        with Session(self._engine) as session, session.begin():
            session.execute(
                update(StatisticsJobRow)
                .where(StatisticsJobRow.id == job_id, StatisticsJobRow.state.in_(_OPEN))
                .values(**values)
            )


def _record(row: StatisticsJobRow) -> StatisticsJob:
    return StatisticsJob(
        id=row.id,
        tables=tuple(row.tables),
        state=JobState(row.state),
        created_at=row.created_at,
        tables_done=row.tables_done,
        process_id=row.process_id,
        started_at=row.started_at,
        finished_at=row.finished_at,
        error=row.error,
    )
