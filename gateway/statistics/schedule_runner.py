"""Clock of schedules: one thread waits for due schedules, a few more run them. The runs: scheduled_runs.py.

The metastore says what is due, and gives each due run to one of the gateways that ask for it.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from sqlalchemy.exc import SQLAlchemyError

from gateway.statistics.cron import next_due
from metastore.repositories.schedules import Schedules

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 30.0  # what another gateway wrote is seen no later
TAKE_OVER_EVERY_S = 30.0


class ScheduleRunner:
    """Claims schedules that are due and runs them. Thread-safe; starts once, stops once.

    places: largest number of runs at once.
    check_every: interval at which schedules on staleness are checked.
    stopped: event that is set when it is to stop.
    """

    def __init__(self, schedules: Schedules, *, places: int, check_every: dt.timedelta) -> None:
        self.stopped = threading.Event()
        self._schedules = schedules
        self._check_every = check_every
        self._free = threading.Semaphore(places)
        self._pool = ThreadPoolExecutor(places, thread_name_prefix="scheduled run")
        self._changed = threading.Event()
        self._loop: threading.Thread | None = None

    def start(self, run: Callable[[str, dt.datetime], None], *, take_over: Callable[[], None]) -> None:
        """Run what is due, also what was missed.

        run: called with a schedule's name and what its run is known by, in a thread of its own. take_over: called now
        and then, to see to runs of gateways that went away.
        """
        self._loop = threading.Thread(target=self._keep_time, args=(run, take_over), name="schedules", daemon=True)
        self._loop.start()

    def wake(self) -> None:
        """Check at once for due schedules: something changed."""
        self._changed.set()

    def stop(self) -> None:
        """Start no more runs, and wait for the current ones, which see ``stopped``."""
        self.stopped.set()
        self._changed.set()
        if self._loop is not None:
            self._loop.join()
        self._pool.shutdown()

    def _keep_time(self, run: Callable[[str, dt.datetime], None], take_over: Callable[[], None]) -> None:
        take_over_at_s = time.monotonic() + TAKE_OVER_EVERY_S
        while not self.stopped.is_set():
            self._changed.clear()  # before looking: what changes meanwhile is looked at again
            wait_s = LOOK_AGAIN_S
            try:
                if time.monotonic() >= take_over_at_s:
                    take_over_at_s = time.monotonic() + TAKE_OVER_EVERY_S
                    take_over()
                due_at = self._run_due(run)
                if due_at is not None:
                    wait_s = min(wait_s, (due_at - dt.datetime.now(dt.UTC)).total_seconds())
            except (SQLAlchemyError, OSError) as error:
                log.warning("schedules wait: %s", error)
            self._changed.wait(max(0.0, min(wait_s, take_over_at_s - time.monotonic())))

    def _run_due(self, run: Callable[[str, dt.datetime], None]) -> dt.datetime | None:
        """Claim and run what is due; returns when more will be. What finds no free place stays due until there is one.

        Whose time came while it runs is left out: its next time is the one after now.
        """
        now = dt.datetime.now(dt.UTC)
        for schedule in self._schedules.due(now):
            due_at = schedule.next_run_at
            assert due_at is not None
            following = next_due(schedule.trigger, previous=due_at, now=now, check_every=self._check_every)
            if schedule.running:
                self._schedules.leave_out(schedule.name, due_at=due_at, next_run_at=following)
            elif self._free.acquire(blocking=False):
                claimed = False
                try:
                    claimed = not self.stopped.is_set() and self._schedules.claim(
                        schedule.name, due_at=due_at, next_run_at=following, at=now
                    )
                finally:
                    if not claimed:
                        self._free.release()
                if claimed:
                    self._pool.submit(run, schedule.name, now).add_done_callback(self._ended)
        return self._schedules.next_due_at(after=now)

    def _ended(self, run: Future[None]) -> None:
        error = run.exception()
        if error is not None:
            log.error("a scheduled run ended with an error", exc_info=error)
        self._free.release()
        self.wake()  # what is due may have waited for this place
