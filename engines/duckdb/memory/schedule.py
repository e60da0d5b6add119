"""Bytes over time of pipelines that share a few threads, as DuckDB runs them.

A pipeline that waits for no other one is put into a queue, once for every thread that can work on it. All threads but
one take the first of the queue and work until the pipeline is done; the one that hands out the result gives each of
those that are left a short turn, so that pipelines that do not wait for each other fill memory together (DuckDB's
``Executor::ExecuteTask`` and ``TaskScheduler::ExecuteForever``). The peak is just before the end of a pipeline, or just
after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from selector.cardinality.tree import EstimatedNode

CHUNK_ROWS = 2_048  # that go through a pipeline at once
GATHERED_ROWS = 64  # of a chunk: fewer are put together until they fill one (CachingPhysicalOperator)
TURN_ROWS = 50 * CHUNK_ROWS  # that the thread that hands out the result reads before it takes the next task
MOST_TURNS = 300  # that are looked at; with more rows, turns are longer
ENDING = 1.0 - 1e-9  # of a pipeline's work: all of it, but nothing is gone yet
FEW_REPEATS = 1.05  # rows per group, up to which every row is one


@dataclass(slots=True, eq=False)
class SinkState:
    """State of one operator that pipelines write rows into, until the last pipeline that reads it is done.

    part: the operator.
    filling_bytes: bytes with all rows in it, before it is finished.
    floor_bytes: bytes from its first rows on.
    task_bytes: further bytes for each task that writes.
    held_bytes: bytes once it is finished.
    drained_bytes: part of ``held_bytes`` that is freed as it is read.
    lasting_bytes: part of ``held_bytes`` that stays until the statement ends.
    repeats: rows written for each row that it holds.
    writers: pipelines that write into it, with the rows of each.
    readers: pipelines that read it.
    beside: other states that have to be filled before it is finished.
    """

    part: EstimatedNode
    filling_bytes: float = 0.0
    floor_bytes: float = 0.0
    task_bytes: float = 0.0
    held_bytes: float = 0.0
    drained_bytes: float = 0.0
    lasting_bytes: float = 0.0
    repeats: float = 1.0
    writers: dict[Pipeline, float] = field(default_factory=dict)
    readers: set[Pipeline] = field(default_factory=set)
    beside: list[SinkState] = field(default_factory=list)

    @property
    def builders(self) -> int:
        """Number of tasks that write into it, each into pages of its own."""
        return max(1, sum(pipeline.tasks for pipeline, rows in self.writers.items() if rows > 0.0))

    def bytes_at(self, progress: Mapping[Pipeline, float], begun: Mapping[Pipeline, int]) -> float:
        """Return its bytes. progress: share of the work that is done, by pipeline that may run.

        begun: number of begun tasks, by pipeline that is not done.
        """
        share = total = 0.0
        tasks = running = 0
        done = bool(self.writers)
        for writer, rows in self.writers.items():
            part = progress.get(writer)
            total += rows
            done = done and part == 1.0
            if part is not None and writer.has_written(part, rows):
                at_work = begun.get(writer, 0)
                tasks += at_work or writer.tasks
                running += at_work
                share += rows * part
        if not tasks:
            return 0.0
        if not done:
            share = share / total if total else 0.0
            if self.repeats > FEW_REPEATS:
                share = math.expm1(-share * self.repeats) / math.expm1(-self.repeats)
            filled = max(min(1.0, tasks / self.builders) * self.floor_bytes, share * self.filling_bytes)
            return filled + running * self.task_bytes
        if any(progress.get(writer) != 1.0 for other in self.beside for writer in other.writers):
            return self.filling_bytes
        read = min((progress.get(reader, 0.0) for reader in self.readers), default=0.0)
        return self.lasting_bytes if read == 1.0 else self.held_bytes - read * self.drained_bytes


@dataclass(slots=True, eq=False)
class Pipeline:
    """Pipeline: rows flow from a source into sinks without being stored in between.

    work: amount of work, in any unit.
    read_rows: rows of its source.
    tasks: threads that can work on it.
    read_bytes: bytes that each thread has read and not yet passed on.
    scan_bytes: further bytes of each thread while it works.
    scan: scan that it reads from; None: another source.
    sinks: states that it writes into.
    reads: states that must stay until it is done.
    needs: states that must be complete before it begins.
    waits: pipelines that must be done before it begins.
    """

    work: float = 0.0
    read_rows: float = 0.0
    tasks: int = 1
    read_bytes: float = 0.0
    scan_bytes: float = 0.0
    scan: EstimatedNode | None = None
    sinks: list[SinkState] = field(default_factory=list)
    reads: list[SinkState] = field(default_factory=list)
    needs: set[SinkState] = field(default_factory=set)
    waits: set[Pipeline] = field(default_factory=set)

    def has_written(self, progress: float, rows: float) -> bool:
        """Tell whether any of its rows have reached the sink: a few are collected first."""
        if rows <= 0.0:
            return False
        gathers = rows * CHUNK_ROWS < GATHERED_ROWS * self.read_rows
        return progress >= ENDING or not gathers or progress * rows >= self.tasks * CHUNK_ROWS

    def before(self) -> Iterator[Pipeline]:
        """Yield the pipelines that have to be done before it begins."""
        yield from self.waits
        for state in self.needs:
            yield from state.writers


@dataclass(frozen=True, slots=True)
class Moment:
    """Memory at one moment. largest: operator that holds most of it; None: no operator holds any."""

    bytes: float
    largest: EstimatedNode | None


def peak(pipelines: Sequence[Pipeline], threads: int) -> Moment:
    """Return the moment with most bytes while these pipelines run. Earlier ones come first where several may start."""
    return _Run(pipelines, threads).peak()


class _Run:
    """Pipelines on their way. A task is a pipeline and whether it has begun; the last thread takes turns."""

    def __init__(self, pipelines: Sequence[Pipeline], threads: int) -> None:
        self._remaining_work = {one: max(1.0, one.work) for one in pipelines}
        self._turn_rows = max(TURN_ROWS, sum(one.read_rows for one in pipelines) / MOST_TURNS)
        self._waits_for = {one: set(one.before()) for one in pipelines}
        self._before: dict[Pipeline, list[Pipeline]] = {}  # those that wait for it
        for one, others in self._waits_for.items():
            for other in others:
                self._before.setdefault(other, []).append(one)
        self._order = {one: place for place, one in enumerate(pipelines)}
        self._queue: list[tuple[Pipeline, bool]] = []
        self._busy: list[Pipeline] = []
        self._others = threads - 1
        self._turn: tuple[Pipeline, float] | None = None
        self._progress: dict[Pipeline, float] = {}
        self._begun: dict[Pipeline, int] = {}
        self._held: dict[SinkState, None] = {}
        self._start([one for one in pipelines if not self._waits_for[one]])

    def peak(self) -> Moment:
        worst = Moment(0.0, None)
        while self._take():
            ended = self._advance()
            if not ended:
                continue
            for one in ended:
                self._progress[one] = ENDING
            before = self._now()
            for one in ended:
                self._end(one)
            worst = max(worst, before, self._now(), key=lambda moment: moment.bytes)
            ready = {after for one in ended for after in self._before.get(one, ()) if not self._waits_for[after]}
            self._start(sorted(ready, key=self._order.__getitem__))
        return worst

    def _start(self, pipelines: Sequence[Pipeline]) -> None:
        for one in pipelines:
            self._progress[one], self._begun[one] = 0.0, 0
            self._queue += [(one, False)] * max(1, one.tasks)
            self._held |= dict.fromkeys(one.sinks)

    def _end(self, one: Pipeline) -> None:
        self._progress[one] = 1.0
        del self._begun[one]
        self._busy = [other for other in self._busy if other is not one]
        self._queue = [task for task in self._queue if task[0] is not one]
        if self._turn is not None and self._turn[0] is one:
            self._turn = None
        for after in self._before.get(one, ()):
            self._waits_for[after].discard(one)
        for state in one.reads:
            if not state.lasting_bytes and all(self._progress.get(reader) == 1.0 for reader in state.readers):
                self._held.pop(state, None)

    def _take(self) -> bool:
        """Let every thread take a task that is there; tells whether any has one."""
        while self._queue and len(self._busy) < self._others:
            self._busy.append(self._first())
        if self._turn is None and self._queue:
            one = self._first()
            share = min(1.0, self._turn_rows / max(1.0, one.read_rows))
            self._turn = one, max(1.0, one.work) * share
        return bool(self._busy) or self._turn is not None

    def _first(self) -> Pipeline:
        one, has_begun = self._queue.pop(0)
        self._begun[one] += not has_begun
        return one

    def _advance(self) -> list[Pipeline]:
        """Work until a pipeline or a turn ends; returns the pipelines that do."""
        rates: dict[Pipeline, float] = {}
        for one in self._busy:
            rates[one] = rates.get(one, 0.0) + 1.0
        if self._turn is not None:
            rates[self._turn[0]] = rates.get(self._turn[0], 0.0) + 1.0
        step = min(self._remaining_work[one] / rate for one, rate in rates.items())
        if self._turn is not None:
            step = min(step, self._turn[1])
        ended = []
        for one, rate in rates.items():
            work_left = self._remaining_work[one] - step * rate
            self._remaining_work[one] = work_left
            self._progress[one] = 1.0 - max(0.0, work_left) / max(1.0, one.work)
            if work_left <= (1.0 - ENDING) * one.work:
                ended.append(one)
        if self._turn is not None:
            one, turn_left = self._turn[0], self._turn[1] - step
            self._turn = (one, turn_left) if turn_left > 0.0 or one in ended else None
            if self._turn is None:
                self._queue.append((one, True))
        return ended

    def _now(self) -> Moment:
        total, most, largest = 0.0, 0.0, None
        for one in self._held:
            held = one.bytes_at(self._progress, self._begun)
            total += held
            if held > most:
                most, largest = held, one.part
        at_work = [*self._busy, *(() if self._turn is None else (self._turn[0],))]
        for pipeline, begun in self._begun.items():
            held = begun * pipeline.read_bytes + at_work.count(pipeline) * pipeline.scan_bytes
            total += held
            if held > most:
                most, largest = held, pipeline.scan
        return Moment(total, largest)
