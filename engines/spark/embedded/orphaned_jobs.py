"""Ends jobs that outlive their statement.

Spark ends a statement by interrupting its thread, which then cancels the jobs with the statement's tag. Adaptive
execution submits stages from another thread: a stage that comes just after that cancel has no owner and uses the cores
until it is done, which may take hours. No call of Spark Connect can end it, but Spark's web UI can.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import httpx

from engines.spark.embedded.web_ui import WebUi, tag_of

_log = logging.getLogger(__name__)

_WATCH_FOR_S = 30.0
"""Spark may list files and wait for subqueries before it submits a stage."""

_LOOK_EVERY_S = 1.0


class OrphanedJobs:
    """Kills jobs that Spark still submits for ended statements. Thread-safe; waits in its own thread."""

    def __init__(self, web_ui: Callable[[], WebUi | None]) -> None:
        self._web_ui = web_ui
        self._lock = threading.Lock()
        self._watched: dict[str, float] = {}  # until when; while there are any, the thread runs

    def watch(self, tag: str) -> None:
        """Kill the jobs of the statement with this tag for as long as they may still come."""
        with self._lock:
            runs = bool(self._watched)
            self._watched[tag] = time.monotonic() + _WATCH_FOR_S
        if not runs:
            threading.Thread(target=self._watch, name="spark-orphaned-jobs", daemon=True).start()

    def _watch(self) -> None:
        while tags := self._tags():
            try:
                self._kill(tags)
            except (httpx.HTTPError, ValueError, KeyError) as error:
                _log.debug("Spark's web UI does not answer, or not as it should: %s", error)
            time.sleep(_LOOK_EVERY_S)

    def _tags(self) -> set[str]:
        """Return the tags that are still watched; empty: the thread ends."""
        now_s = time.monotonic()
        with self._lock:
            self._watched = {tag: until_s for tag, until_s in self._watched.items() if until_s > now_s}
            return set(self._watched)

    def _kill(self, tags: set[str]) -> None:
        web_ui = self._web_ui()
        if web_ui is None:
            return
        for job in web_ui.running_jobs():
            if any(tag_of(tag) in tags for tag in job.tags):
                web_ui.kill(job)
                _log.warning("Killed job %d of Spark, which was submitted after its statement had ended", job.id)
