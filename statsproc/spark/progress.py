"""Progress of a job: polled from Spark, printed as bars or lines for people and as JSON lines for programs."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from statsproc.spark.session import SparkFailed, context_of, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.2


class Reporter(Protocol):
    """Receiver of a job's progress. what: name of a step, such as a table's."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Tell how many tasks of a step are done; a total of 0 is not known yet."""

    def finished(self, what: str, summary: str, **facts: object) -> None:
        """Tell that a step is done: a sentence for people, facts for programs."""

    def failed(self, what: str, error: str) -> None:
        """Tell that a step failed."""

    def done(self, **facts: object) -> None:
        """Tell that the job is over."""

    def close(self) -> None:
        """Leave the terminal as it was, however the job ended."""


class LineReporter:
    """One line per finished step."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def progress(self, what: str, done: int, total: int) -> None:
        """Stay silent."""

    def finished(self, what: str, summary: str, **facts: object) -> None:
        """Print the sentence."""
        print(f"{what}: {summary}", file=self._stream, flush=True)

    def failed(self, what: str, error: str) -> None:
        """Print the error."""
        print(f"{what}: failed: {error}", file=self._stream, flush=True)

    def done(self, **facts: object) -> None:
        """Stay silent: every step had its line."""

    def close(self) -> None:
        """Nothing was opened."""


class JsonReporter:
    """One JSON object a line, as they happen."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def progress(self, what: str, done: int, total: int) -> None:
        """Write a ``progress`` event."""
        self._write(event="progress", what=what, done=done, all=total)

    def finished(self, what: str, summary: str, **facts: object) -> None:
        """Write a ``finished`` event."""
        self._write(event="finished", what=what, **facts)

    def failed(self, what: str, error: str) -> None:
        """Write a ``failed`` event."""
        self._write(event="failed", what=what, error=error)

    def done(self, **facts: object) -> None:
        """Write the last event, ``done``."""
        self._write(event="done", **facts)

    def close(self) -> None:
        """Nothing was opened."""

    def _write(self, **event: object) -> None:
        print(json.dumps(event), file=self._stream, flush=True)


class BarReporter:
    """A bar per running step, a line per finished one."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._running: dict[str, TaskID] = {}

    def progress(self, what: str, done: int, total: int) -> None:
        """Draw the step's bar."""
        self._bars.start()
        if what not in self._running:
            self._running[what] = self._bars.add_task(what, total=None)
        self._bars.update(self._running[what], completed=done, total=total or None)

    def finished(self, what: str, summary: str, **facts: object) -> None:
        """Replace the bar by a line."""
        self._end(what, f"{what}: {summary}")

    def failed(self, what: str, error: str) -> None:
        """Replace the bar by the error."""
        self._end(what, f"{what}: failed: {error}")

    def done(self, **facts: object) -> None:
        """Stay silent: every step had its line."""

    def close(self) -> None:
        """Take the bars away."""
        self._bars.stop()

    def _end(self, what: str, line: str) -> None:
        if what in self._running:
            self._bars.remove_task(self._running.pop(what))
            self._bars.refresh()
        self._bars.console.print(line, highlight=False, markup=False)


def reporter(*, as_json: bool) -> Reporter:
    """Return what suits: JSON on standard output if asked for, else bars or lines on standard error."""
    if as_json:
        return JsonReporter(sys.stdout)
    if sys.stderr.isatty():
        return BarReporter(Console(stderr=True))
    return LineReporter(sys.stderr)


@contextmanager
def watched(spark: SparkSession, on_progress: Callable[[int, int], None]) -> Iterator[None]:
    """Report the done and known tasks of all jobs that the session runs meanwhile. on_progress: called with both."""
    on_progress(0, 0)
    context = context_of(spark)
    if context is None:
        with _watched_remotely(spark, on_progress):
            yield
        return
    with spark_errors():
        tracker = context.statusTracker()
    ended = threading.Event()
    thread = threading.Thread(target=_poll, args=(tracker, on_progress, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _poll(tracker: Any, on_progress: Callable[[int, int], None], ended: threading.Event) -> None:
    stages: dict[int, tuple[int, int]] = {}
    last = (0, 0)
    while not ended.wait(POLL_S):
        with suppress(SparkFailed), spark_errors():  # the job itself will hear of it
            now = _tasks(tracker, stages)
            if now != last:
                on_progress(*now)
                last = now


def _tasks(tracker: Any, stages: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Bring the stages seen so far up to date; returns tasks done and tasks known."""
    active = tuple(tracker.getActiveStageIds())
    for stage in stages:
        if stage not in active:
            stages[stage] = (stages[stage][1], stages[stage][1])
    for stage in active:
        info = tracker.getStageInfo(stage)
        if info is not None:
            stages[stage] = (info.numCompletedTasks, info.numTasks)
    return sum(done for done, _ in stages.values()), sum(total for _, total in stages.values())


@contextmanager
def _watched_remotely(spark: SparkSession, on_progress: Callable[[int, int], None]) -> Iterator[None]:
    def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        known_stages = tuple(stages or ())
        on_progress(sum(s.num_completed_tasks for s in known_stages), sum(s.num_tasks for s in known_stages))

    spark.registerProgressHandler(handle)
    try:
        yield
    finally:
        spark.removeProgressHandler(handle)
