"""START HERE: what happens to queries is written for many of them at once, in one transaction (group commit).

What happens to a short query, from its submission to its end, is a row of each table that is inserted once. Whoever has
to know that something is durable writes it with all that others wait for in that moment. What nobody waits for is left,
for most of it is of queries that end soon; a thread writes it once it has waited for a while.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError

from metastore.database.kept_connection import KeptConnection
from metastore.database.retry import FIRST_WAIT_S, LONGEST_WAIT_S, RETRY_S
from metastore.query_log.changes import QueryChanges, write
from metastore.records import Attempt, Failure, QueryRecord, QueryState
from selector.decision import Decision

log = logging.getLogger(__name__)

SHORTEST_S = 0.05  # between two looks at what nobody waits for
LINGER_S = 0.2  # that a change is held back which nobody waits for: most statements have ended by then

Step = Callable[[QueryChanges], None]


@dataclass(slots=True, eq=False)
class _Written:
    """What becomes of one query in one transaction, and who hears of it.

    since_s: when its first change came. is_wanted: somebody waits for it. until_s: it is tried again till then.
    told: complete once all of it is durable, with whether the query was ended by it.
    """

    query_id: str
    since_s: float
    is_new: bool = False
    is_wanted: bool = False
    steps: list[Step] = field(default_factory=list)
    told: Future[bool] = field(default_factory=Future)
    until_s: float | None = None

    def changes(self) -> QueryChanges:
        changes = QueryChanges(self.query_id)
        for step in self.steps:
            step(changes)
        return changes


class QueryWriter:
    """Thread-safe. retry_s: how long changes are tried again while the database does not answer.

    A query that is new is not tried again: nobody was told of it, and its client may ask again.
    """

    def __init__(self, engine: Engine, *, retry_s: float = RETRY_S) -> None:
        self._connection = KeptConnection(engine)
        self.retry_s = retry_s
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._next: dict[str, _Written] = {}  # in the order in which they came
        self._again: list[_Written] = []  # what did not succeed; as it was tried, for nobody knows whether it is there
        self._again_s = FIRST_WAIT_S
        self._thread: threading.Thread | None = None
        self._closed = False

    def open(self, record: QueryRecord, *, gateway: str | None = None) -> Future[bool]:
        """Insert a query that was just submitted. gateway: that runs it."""
        return self._add(record.id, lambda changes: changes.open(record, gateway), is_new=True)

    def decided(
        self,
        query_id: str,
        *,
        fingerprint: str,
        template: str,
        statistics_version: str,
        decision: Decision,
        first: Attempt,
    ) -> Future[bool]:
        """Keep where a query goes and why, and that its first attempt starts now."""

        def step(changes: QueryChanges) -> None:
            changes.decide(fingerprint, template, statistics_version, decision)
            changes.start(first)

        return self._add(query_id, step)

    def answered(
        self,
        query_id: str,
        *,
        fingerprint: str,
        template: str,
        statistics_version: str,
        decision: Decision,
        at: dt.datetime,
        rows: int,
        result_bytes: int,
    ) -> Future[bool]:
        """End a query with the result of an earlier one, without an attempt; the future tells what ``close`` tells."""

        def step(changes: QueryChanges) -> None:
            changes.decide(fingerprint, template, statistics_version, decision)
            changes.answer(decision.engine, at, rows, result_bytes)

        return self._add(query_id, step)

    def attempt_started(self, query_id: str, attempt: Attempt) -> Future[bool]:
        """Insert an attempt that is about to begin; the query runs from now on."""
        return self._add(query_id, lambda changes: changes.start(attempt))

    def attempt_ended(self, query_id: str, attempt: Attempt) -> Future[bool]:
        """Close an attempt with what it took."""
        return self._add(query_id, lambda changes: changes.end_attempt(attempt))

    def close(
        self,
        query_id: str,
        state: QueryState,
        *,
        at: dt.datetime,
        attempt: Attempt | None = None,
        rows: int | None = None,
        result_bytes: int | None = None,
        error: Failure | None = None,
    ) -> Future[bool]:
        """End a query, with its last attempt. The future tells whether it was still open: if not, it stays as it is."""
        return self._add(query_id, lambda changes: changes.end(state, at, attempt, rows, result_bytes, error))

    def wait(self, written: Future[bool]) -> bool:
        """Wait until something is durable. Raises SQLAlchemyError where it could not be written."""
        if not written.done():
            self._want(written)
            with self._writing:
                if not written.done():
                    self._flush(time.monotonic() - LINGER_S)
        return written.result()

    def stop(self) -> None:
        """Write what is left, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        with self._writing:
            self._connection.close()

    def _want(self, future: Future[bool]) -> None:
        with self._changed:
            for each in self._next.values():
                if each.told is future:
                    each.is_wanted = True
                    return

    def _add(self, query_id: str, step: Step, *, is_new: bool = False) -> Future[bool]:
        with self._changed:
            written = self._next.get(query_id)
            if written is None:
                written = self._next[query_id] = _Written(query_id, time.monotonic(), is_new)
                if len(self._next) == 1:
                    self._changed.notify_all()
            written.steps.append(step)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="query-log", daemon=True)
                self._thread.start()
            return written.told

    def _run(self) -> None:
        """Write what nobody waits for, and again what did not succeed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next or self._again or self._closed)
                if not (self._next or self._again):
                    return
                oldest_s = min((each.since_s for each in self._next.values()), default=math.inf)
                wait_s = self._again_s if self._again else oldest_s + LINGER_S - time.monotonic()
            if not self._closed:
                time.sleep(max(SHORTEST_S, wait_s))  # not woken by what comes: that would cost as much as to write it
            with self._writing:
                self._flush(math.inf if self._closed else time.monotonic() - LINGER_S)

    # ------------------------------------------------------------------ by one thread at a time, from here on

    def _flush(self, before_s: float) -> None:
        """Write what was tried before, what somebody waits for, and what came before a moment of the monotonic clock.

        Nothing more once the database does not answer.
        """
        with self._changed:
            taken = [each for each in self._next.values() if each.is_wanted or each.since_s <= before_s]
            for each in taken:
                del self._next[each.query_id]
        again, self._again = self._again, []
        lost: OperationalError | InterfaceError | None = None
        for some in (again, taken):
            if some:
                lost = lost or self._write(some)
                if lost is not None:
                    self._keep(some, lost)
        self._again_s = FIRST_WAIT_S if lost is None else min(2 * self._again_s, LONGEST_WAIT_S)

    def _write(self, some: Sequence[_Written]) -> OperationalError | InterfaceError | None:
        """Write in one transaction, and tell who waits; returns what a database that does not answer says instead."""
        try:
            with self._connection.use() as connection, connection.begin():
                ended = write(connection, [each.changes() for each in some])
        except (OperationalError, InterfaceError) as error:
            return error
        except Exception as error:
            if len(some) == 1:
                some[0].told.set_exception(error)
                return None
            lost: OperationalError | InterfaceError | None = None
            for each in some:  # one of them cannot be written as it is
                lost = lost or self._write([each])
                if lost is not None:
                    self._keep([each], lost)
            return None
        for each, has_ended in zip(some, ended, strict=True):
            each.told.set_result(has_ended)
        return None

    def _keep(self, some: Sequence[_Written], error: OperationalError | InterfaceError) -> None:
        """Have what is not new tried again for a while; all else has failed."""
        log.warning("the metastore does not answer, trying again: %s", error.orig)
        now_s = time.monotonic()
        for each in some:
            each.until_s = now_s + self.retry_s if each.until_s is None else each.until_s
            if each.is_new or now_s >= each.until_s:
                each.told.set_exception(error)
            else:
                with self._changed:
                    self._again.append(each)
                    self._changed.notify_all()
