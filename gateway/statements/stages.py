"""Times of a statement by stage: wall clock and processor.

Every run carries a ``StageClock``; what it measured is added to the gateway's ``StageTimes`` once the run has ended,
and is told by ``/v1/metrics`` and as OpenTelemetry's spans (``spans.py``). It takes a few microseconds, so that it is
always there.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum

BOUNDS_S = (*(1e-5 * 2.0**step for step in range(24)), math.inf)
"""Upper ends of the buckets in which times are counted."""


class Stage(StrEnum):
    """Stages in their order."""

    START = "start"
    """Until a thread of its own has it, and its turn to compute."""
    READ = "read"
    """It is parsed and checked, or known, and its user may run it."""
    CACHE = "cache"
    """Whether an earlier result answers it."""
    DECIDE = "decide"
    """Where it goes."""
    ADMIT = "admit"
    """Until it holds its lease."""
    RUN = "run"
    """The engine's own work, and the way of the rows to the gateway and into its spool."""
    RECORD = "record"
    """Until its end is on record."""
    WAKE = "wake"
    """Until the event loop goes on with it (over HTTP)."""
    REPLY = "reply"
    """Its reply is made (over HTTP)."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """Time of a stage of one statement, or of a part of it. cpu_s: processor seconds of its thread."""

    wall_s: float
    cpu_s: float

    def plus(self, other: StageTime) -> StageTime:
        """Return both together."""
        return StageTime(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)


@dataclass(frozen=True, slots=True)
class StagePart:
    """A stretch of a stage, which may come again. begun_s: by ``time.perf_counter``."""

    stage: Stage
    begun_s: float
    time: StageTime


class StageClock:
    """Stages of one run, one after the other. One thread at a time; what another one says is left to who goes on.

    parts: in their order, since they were last counted.
    """

    __slots__ = ("_cpu_s", "_thread", "_wall_s", "parts")

    def __init__(self) -> None:
        self.parts: list[StagePart] = []
        self.move()

    @property
    def times(self) -> dict[Stage, StageTime]:
        """Each stage, with all its parts together."""
        times: dict[Stage, StageTime] = {}
        for part in self.parts:
            before = times.get(part.stage)
            times[part.stage] = part.time if before is None else before.plus(part.time)
        return times

    def move(self) -> None:
        """Move the clock to the calling thread, within the same stage."""
        self._wall_s, self._cpu_s, self._thread = time.perf_counter(), time.thread_time(), threading.get_ident()

    def end(self, stage: Stage) -> None:
        """End a stage; the next one begins. Nothing happens in a thread that the run does not live in."""
        if threading.get_ident() != self._thread:
            return
        wall_s, cpu_s = time.perf_counter(), time.thread_time()
        self.parts.append(StagePart(stage, self._wall_s, StageTime(wall_s - self._wall_s, cpu_s - self._cpu_s)))
        self._wall_s, self._cpu_s = wall_s, cpu_s

    def hand_over(self, stage: Stage) -> None:
        """End a stage that waited for the calling thread, in which the run continues."""
        begun_s = self._wall_s
        self.move()
        self.parts.append(StagePart(stage, begun_s, StageTime(self._wall_s - begun_s, 0.0)))


@dataclass(slots=True)
class StageSum:
    """Sum of one stage over all statements. up_to: histogram; counts up to each of BOUNDS_S, above the bound before."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    up_to: list[int] = field(default_factory=lambda: [0] * len(BOUNDS_S))

    def add(self, took: StageTime) -> None:
        """Count one statement."""
        self.wall_s += took.wall_s
        self.cpu_s += took.cpu_s
        self.up_to[bisect_left(BOUNDS_S, took.wall_s)] += 1


class StageTimes:
    """Stages of all statements since the start. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums = {stage: StageSum() for stage in Stage}

    def add(self, clock: StageClock) -> None:
        """Count what a run has measured since this was last called for it."""
        with self._lock:
            for stage, took in clock.times.items():
                self._sums[stage].add(took)
        clock.parts.clear()

    def sums(self) -> dict[Stage, StageSum]:
        """Return each stage, in order."""
        with self._lock:
            return {
                stage: StageSum(stage_sum.wall_s, stage_sum.cpu_s, list(stage_sum.up_to))
                for stage, stage_sum in self._sums.items()
            }
