"""Retention of results and of the query history: by age, by count and by bytes, the oldest goes first."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections import Counter

from sqlalchemy.exc import SQLAlchemyError

from gateway.errors import ResultError
from gateway.execution.spooling.results import Spool
from gateway.settings import HistorySettings, ResultSettings
from metastore.store import Metastore

log = logging.getLogger(__name__)

RESULTS_EVERY_S = 10.0
HISTORY_EVERY_S = 3_600.0
PAUSE_S = 0.05  # between two batches, for others to write


class Retention:
    """Keeps house in a thread of its own. Started once."""

    def __init__(
        self,
        spool: Spool,
        metastore: Metastore,
        *,
        results: ResultSettings,
        history: HistorySettings,
        stopping: threading.Event,
    ) -> None:
        self._spool = spool
        self._metastore = metastore
        self._history = metastore.history
        self._results = results
        self._history_settings = history
        self._stopping = stopping

    def start(self) -> None:
        """Start the periodic deletion."""
        threading.Thread(target=self._sweep_periodically, name="retention", daemon=True).start()

    def _sweep_periodically(self) -> None:
        history_at_s = time.monotonic()
        while not self._stopping.wait(RESULTS_EVERY_S):
            try:
                deleted = self.sweep_results()
                if deleted:
                    log.info("deleted %d results", deleted)
                if time.monotonic() >= history_at_s:
                    history_at_s = time.monotonic() + HISTORY_EVERY_S
                    deleted = self.sweep_history()
                    if deleted:
                        log.info("deleted %d rows of history", deleted)
                self._spool.checkpoint()
                self._metastore.checkpoint()
            except (SQLAlchemyError, OSError, ResultError):
                log.exception("old results and history could not be deleted; it is tried again")

    def sweep_results(self) -> int:
        """Delete results that are too old, too many, or too large together, also of one user; returns how many."""
        deleted = self._spool.expire(self._results.keep_s)
        files = self._spool.sizes()  # the newest first
        total_bytes = sum(size for _, size in files)
        if (
            len(files) <= self._results.count
            and total_bytes <= self._results.total
            and total_bytes <= self._results.per_user
        ):
            return deleted
        owners = self._history.owners([query_id for query_id, _ in files])
        kept_bytes, of_user = 0, Counter[str]()
        for count, (query_id, size) in enumerate(files):
            user = owners.get(query_id, "")
            fits = kept_bytes + size <= self._results.total and of_user[user] + size <= self._results.per_user
            if fits and count < self._results.count:
                kept_bytes += size
                of_user[user] += size
            else:
                self._spool.delete(query_id)
                deleted += 1
        return deleted

    def sweep_history(self) -> int:
        """Delete history that is too old, too many, or too large; return the number of rows."""
        deleted = 0
        horizon = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=self._history_settings.keep_s)
        while not self._stopping.is_set() and (dropped := self._history.drop_older(horizon)):
            deleted += dropped
            self._stopping.wait(PAUSE_S)
        size = self._history.size()
        excess, excess_bytes = size.queries - self._history_settings.queries, size.bytes - self._history_settings.bytes
        while excess > 0 and not self._stopping.is_set() and (dropped := self._history.drop_oldest(excess)):
            excess -= dropped
            deleted += dropped
            self._stopping.wait(PAUSE_S)
        if deleted:
            excess_bytes = self._history.size().bytes - self._history_settings.bytes
        while excess_bytes > 0 and not self._stopping.is_set():
            dropped = self._history.drop_oldest_bytes(excess_bytes)
            if not dropped:
                break
            excess_bytes -= dropped
            deleted += 1
            self._stopping.wait(PAUSE_S)
        return deleted
