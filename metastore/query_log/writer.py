"""START HERE: the log of queries, written for many of them in one transaction (group commit).

The rows of a short query are inserted once, in their last state. A caller that waits for a change to be durable writes
it together with all changes that others wait for. The other changes wait for LINGER_S, since most of their queries end
soon; then a thread writes them.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError

from metastore.database.kept_connection import KeptConnection
from metastore.database.retry import FIRST_WAIT_S, LONGEST_WAIT_S, RETRY_S
from metastore.members.fence import EPOCH, Fenced
from metastore.query_log.changes import QueryChanges, write
from metastore.records import Attempt, QueryRecord, QueryState, QuerySummary
from selector.decision import Decision
from sql.errors import Failure

log = logging.getLogger(__name__)

SHORTEST_S = 0.05  # between two writes of the thread
LINGER_S = 0.2  # a change that nobody waits for is held back so long: most statements have ended by then

Step = Callable[[QueryChanges], None]


@dataclass(slots=True, eq=False)
class _Pending:
    """Changes of one query that are written in one transaction."""

    query_id: str
    since_s: float
    """Time of the first change, on the monotonic clock."""
    gateway: str | None
    """Member that makes the changes (``metastore/members``), and none but it may write."""
    is_new: bool = False
    is_awaited: bool = False
    """A caller waits for it."""
    steps: list[Step] = field(default_factory=list)
    durable: Future[bool] = field(default_factory=Future)
    """Complete once all is durable: True if this ended the query."""
    until_s: float | None = None
    """End of the retries; None before the first failure."""

    def changes(self) -> QueryChanges:
        changes = QueryChanges(self.query_id)
        for step in self.steps:
            step(changes)
        return changes


class QueryWriter:
    """Writer of the query log. Thread-safe.

    A new query is not tried again: nobody knows its id yet, and its client may send it again.

    gateway: returns the id of this gateway; changes from before it got a new one are not written.
    retry_s: changes are tried again so long while the database does not answer.
    """

    def __init__(
        self, engine: Engine, gateway: Callable[[], str | None] = lambda: None, *, retry_s: float = RETRY_S
    ) -> None:
        self._connection = KeptConnection(engine)
        self._gateway = gateway
        self.retry_s = retry_s
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._next: dict[str, _Pending] = {}  # by query id, in order of arrival
        self._again: list[_Pending] = []  # failed writes, unchanged: the database may have them already
        self._again_s = FIRST_WAIT_S
        self._disowned: set[str] = set()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def open(self, record: QueryRecord, request: Callable[[], Any | None] = lambda: None) -> Future[bool]:
        """Insert a query that was just submitted, as this gateway's. request: see ``QueryChanges.open``."""
        gateway = self._gateway()
        return self._add(
            record.id, lambda changes: changes.open(record, gateway, request), is_new=True, gateway=gateway
        )

    def keep_from_others(self, query_id: str) -> Future[bool]:
        """See ``QueryChanges.keep_from_others``."""
        return self._add(query_id, lambda changes: changes.keep_from_others())

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
        """Store the decision about a query, and the start of its first attempt."""

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
        summary: QuerySummary,
    ) -> Future[bool]:
        """End a query with the result of an earlier one, without an attempt. Returns the future of ``close``."""

        def step(changes: QueryChanges) -> None:
            changes.decide(fingerprint, template, statistics_version, decision)
            changes.answer(decision.engine, at, rows, result_bytes, summary)

        return self._add(query_id, step)

    def attempt_started(self, query_id: str, attempt: Attempt) -> Future[bool]:
        """Insert an attempt that is about to begin; the query runs from now on."""
        return self._add(query_id, lambda changes: changes.start(attempt))

    def attempt_ended(self, query_id: str, attempt: Attempt) -> Future[bool]:
        """Close an attempt with its measurements."""
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
        summary: QuerySummary | None = None,
    ) -> Future[bool]:
        """End a query, with its last attempt. The future is True if it was still open; if not, it stays as it is."""
        return self._add(query_id, lambda changes: changes.end(state, at, attempt, rows, result_bytes, error, summary))

    def wait(self, written: Future[bool]) -> bool:
        """Wait until a change is durable. Raises SQLAlchemyError if it could not be written."""
        if not written.done():
            self._set_awaited(written)
            with self._writing:
                if not written.done():
                    self._flush(time.monotonic() - LINGER_S)
        return written.result()

    def disown(self, query_ids: Iterable[str]) -> None:
        """Write nothing more of queries that another gateway owns now: their steps fail with Fenced."""
        with self._changed:
            self._disowned.update(query_ids)

    def own(self, query_ids: Iterable[str]) -> None:
        """Write again of queries that are this gateway's once more."""
        with self._changed:
            self._disowned.difference_update(query_ids)

    def stop(self) -> None:
        """Write the remaining changes, and end."""
        with self._changed:
            self._closing.set()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        with self._writing:
            self._connection.close()

    def _set_awaited(self, durable: Future[bool]) -> None:
        with self._changed:
            for pending in self._next.values():
                if pending.durable is durable:
                    pending.is_awaited = True
                    return

    def _add(self, query_id: str, step: Step, *, is_new: bool = False, gateway: str | None = None) -> Future[bool]:
        with self._changed:
            if query_id in self._disowned:
                refused: Future[bool] = Future()
                refused.set_exception(Fenced())
                return refused
            pending = self._next.get(query_id)
            if pending is None:
                pending = self._next[query_id] = _Pending(
                    query_id, time.monotonic(), gateway or self._gateway(), is_new
                )
                if len(self._next) == 1:
                    self._changed.notify_all()
            pending.steps.append(step)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="query-log", daemon=True)
                self._thread.start()
            return pending.durable

    def _run(self) -> None:
        """Write changes that nobody waits for, and failed ones again."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next or self._again or self._closing.is_set())
                if not (self._next or self._again):
                    return
                oldest_s = min((pending.since_s for pending in self._next.values()), default=math.inf)
                wait_s = self._again_s if self._again else oldest_s + LINGER_S - time.monotonic()
            # No wake-up by new changes: it would cost as much as to write them.
            is_closing = self._closing.wait(max(SHORTEST_S, wait_s))
            with self._writing:
                self._flush(math.inf if is_closing else time.monotonic() - LINGER_S)

    # ------------------------------------------------------------------ by one thread at a time, from here on

    def _flush(self, before_s: float) -> None:
        """Write failed changes again, awaited ones, and those since before a time of the monotonic clock.

        Stops once the database does not answer.
        """
        with self._changed:
            due = [pending for pending in self._next.values() if pending.is_awaited or pending.since_s <= before_s]
            for pending in due:
                del self._next[pending.query_id]
        again, self._again = self._again, []
        again, due = self._owned(again), self._owned(due)
        lost: OperationalError | InterfaceError | None = None
        for batch in (again, due):
            if batch:
                lost = lost or self._write(batch)
                if lost is not None:
                    self._retry_later(batch, lost)
        self._again_s = FIRST_WAIT_S if lost is None else min(2 * self._again_s, LONGEST_WAIT_S)

    def _owned(self, batch: Sequence[_Pending]) -> list[_Pending]:
        """Return those changes that may be written, and fail those from before this gateway got a new id."""
        gateway = self._gateway()
        for pending in batch:
            if pending.gateway != gateway:
                pending.durable.set_exception(Fenced())
        return [pending for pending in batch if pending.gateway == gateway]

    def _write(self, batch: Sequence[_Pending]) -> OperationalError | InterfaceError | None:
        """Write in one transaction, and complete the futures. Returns the error of a database that does not answer."""
        epoch = EPOCH.set(None)  # the changes are of many queries, all of which are this gateway's now
        try:
            with self._connection.use() as connection, connection.begin():
                ended = write(connection, [pending.changes() for pending in batch])
        except (OperationalError, InterfaceError) as error:
            return error
        except Exception as error:
            if len(batch) == 1:
                batch[0].durable.set_exception(error)
                return None
            lost: OperationalError | InterfaceError | None = None
            for pending in batch:  # one of them cannot be written as it is
                lost = lost or self._write([pending])
                if lost is not None:
                    self._retry_later([pending], lost)
            return None
        finally:
            EPOCH.reset(epoch)
        for pending, has_ended in zip(batch, ended, strict=True):
            pending.durable.set_result(has_ended)
        return None

    def _retry_later(self, batch: Sequence[_Pending], error: OperationalError | InterfaceError) -> None:
        """Schedule another try of changes that are not new and not too old; fail the others."""
        log.warning("the metastore does not answer, trying again: %s", error.orig)
        now_s = time.monotonic()
        for pending in batch:
            pending.until_s = now_s + self.retry_s if pending.until_s is None else pending.until_s
            if pending.is_new or now_s >= pending.until_s:
                pending.durable.set_exception(error)
            else:
                with self._changed:
                    self._again.append(pending)
                    self._changed.notify_all()
