"""Scheduled statements: one after the other, as the schedule's owner, each at most once.

A gateway may end while it runs them. What the last one has done then is not known here, so that none is sent again.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from gateway.security.principals import ANONYMOUS, Principal, Role
from gateway.statements.session import Session
from gateway.statements.settings import LONGEST_TAG, TAGS
from gateway.statements.statement import Run, Statement
from metastore.records import Schedule
from metastore.repositories.schedules import Schedules
from sql.errors import FusionError

POLL_S = 0.1
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a schedule's statements. run_at: by which the run is known. error: None: all succeeded."""

    run_at: dt.datetime
    error: str | None = None


class ScheduledStatements:
    """Runs of schedules that have statements. Thread-safe.

    submit: starts a statement, and returns once it is on record.
    present: returns a user with the rights of now, by name, whether it was proved, and address.
    deadline_s: of each statement.
    stopped: event after which nothing is sent or waited for.
    """

    def __init__(
        self,
        schedules: Schedules,
        *,
        submit: Callable[[Statement], Run],
        present: Callable[[str, bool, str], Principal],
        deadline_s: float,
        stopped: threading.Event,
    ) -> None:
        self._schedules = schedules
        self._submit = submit
        self._present = present
        self._deadline_s = deadline_s
        self._stopped = stopped

    def run(self, schedule: Schedule, run_at: dt.datetime) -> Ended | None:
        """Run all of a schedule's statements, the first that fails the last. May raise SQLAlchemyError.

        Returns None where this is no longer a matter of this gateway: it stops, or others took the run over.
        """
        for sql in schedule.statements:
            if self._stopped.is_set():
                return None
            try:
                statement = self._statement(schedule, sql)
            except FusionError as error:  # the owner may not log in any more
                return Ended(run_at, f"{error.code}: {error}")
            at = statement.submitted_at
            if not self._schedules.began(schedule.name, query_id=statement.id, run_at=run_at, at=at):
                return None
            run_at = at
            try:
                run = self._submit(statement)
            except FusionError as error:
                return Ended(run_at, f"{error.code}: {error}")
            while not run.done.done():
                if self._stopped.wait(POLL_S):
                    return None
            failure = run.done.result().error
            if failure is not None:
                return Ended(run_at, f"Query {run.id}: {failure.code}: {failure.message}")
        return Ended(run_at)

    def _statement(self, schedule: Schedule, sql: str) -> Statement:
        session = Session(self._owner(schedule), deadline_s=self._deadline_s)
        tag = f"schedule:{schedule.name}"[:LONGEST_TAG]
        return session.statement(sql, overlay={TAGS.name: tag}, with_values=True)

    def _owner(self, schedule: Schedule) -> Principal:
        """Return who a schedule's statements run as. Raises AuthenticationFailed, SQLAlchemyError."""
        if schedule.owner is not None:
            return self._present(schedule.owner, True, "")
        user = self._present(ANONYMOUS, False, LOOPBACK)  # its maker may have come from elsewhere, with fewer rights
        return user if Role.WRITER.includes(user.role) else replace(user, role=Role.WRITER)
