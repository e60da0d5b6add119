"""How long a statement takes on an engine: from the work in its plan, corrected by what runs took.

The work is counted on the fast engine's plan, whichever engine runs it: what is scanned, joined, grouped and sorted is
the same everywhere, only how long that takes is not.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from selector.estimate import MemoryEstimate
from selector.forecast.history import PastRun, WorkloadKey
from selector.forecast.recent import RecentRuns

Key = TypeVar("Key")

RECENT = 500  # runs of an engine that are looked back on
ENGINE_WEIGHT, TEMPLATE_WEIGHT, STATEMENT_WEIGHT = 5.0, 1.0, 0.25  # runs that what is known without them counts as
MISS_WEIGHT = 1.0
RECENT_MISSES = 20
MOST_TOLD = 2.0  # logarithm of a factor, of what one statement's error says about others
SHUFFLING = ("join", "aggregate", "sort", "window", "top")


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast an engine is, before it has run anything.

    start_s: of a statement that reads next to nothing. operator_s: for each operator that needs its rows together.
    rows_per_s: that pass through one operator. miss_s: until a statement runs out of memory; None: as long as it takes.
    """

    start_s: float = 0.05
    operator_s: float = 0.03
    rows_per_s: float = 50e6
    miss_s: float | None = None


USUAL_FAST = Speed()
USUAL_DEPENDABLE = Speed(start_s=0.4, operator_s=0.2, rows_per_s=9e6)


@dataclass(frozen=True, slots=True)
class Work:
    """What a plan does. shuffles: operators that need their rows together. rows: that pass through operators."""

    shuffles: int = 0
    rows: float = 0.0

    @classmethod
    def of(cls, estimate: MemoryEstimate) -> Work:
        """Count the work of a plan."""
        rows = sum(part.rows or 0.0 for part in estimate.operators)
        shuffles = sum(any(word in part.operator for word in SHUFFLING) for part in estimate.operators)
        return cls(shuffles, rows)

    def seconds(self, speed: Speed) -> float:
        """Return how long it takes."""
        return speed.start_s + speed.operator_s * self.shuffles + self.rows / speed.rows_per_s


class Seconds:
    """Runs of one engine that tell how long statements take there. Not thread-safe."""

    def __init__(self, speed: Speed) -> None:
        self.speed = speed
        self._recent = RecentRuns(RECENT)
        self._of_template: dict[str, list[float]] = {}  # errors, the smallest first
        self._of_statement: dict[WorkloadKey, list[float]] = {}
        self._misses: deque[float] = deque(maxlen=RECENT_MISSES)
        self._shift: float | None = None

    def add(self, run: PastRun) -> None:
        """Learn from a run; the oldest is forgotten."""
        if run.seconds is None or run.broken_off:
            return
        if run.ran_out:
            self._misses.append(run.seconds)
        elif run.expected.seconds is not None:
            self._note(run, self._recent.add(run))
            self._shift = None

    def _note(self, run: PastRun, forgotten: PastRun | None) -> None:
        """Keep errors in order, so that a median is found at once."""
        if forgotten is not None:
            _drop(self._of_template, forgotten.subject.template, forgotten.seconds_error)
            _drop(self._of_statement, forgotten.subject, forgotten.seconds_error)
        insort(self._of_template.setdefault(run.subject.template, []), run.seconds_error)
        insort(self._of_statement.setdefault(run.subject, []), run.seconds_error)

    def expected(self, model_s: float, subject: WorkloadKey) -> float:
        """Return how long a statement will take. model_s: what its work alone says."""
        if self._shift is None:
            newest = self._recent.newest_of_each()
            told = [max(-MOST_TOLD, min(run.seconds_error, MOST_TOLD)) for run in newest]
            self._shift = _moved(0.0, sorted(told), ENGINE_WEIGHT)
        shift = _moved(self._shift, self._of_template.get(subject.template, ()), TEMPLATE_WEIGHT)
        return model_s * math.exp(_moved(shift, self._of_statement.get(subject, ()), STATEMENT_WEIGHT))

    def until_miss(self, expected_s: float, share: float = 1.0) -> float:
        """Return how long it takes on average until a statement runs out of memory.

        expected_s: if it did not. share: of its peak that it may take: memory fills as the statement goes on.
        """
        unseen_s = expected_s * share if self.speed.miss_s is None else self.speed.miss_s
        return (MISS_WEIGHT * unseen_s + sum(self._misses)) / (MISS_WEIGHT + len(self._misses))


def _moved(shift: float, errors: Sequence[float], weight: float) -> float:
    """Move a shift towards the median of errors, the smallest first."""
    if not errors:
        return shift
    share = len(errors) / (len(errors) + weight)
    middle = len(errors) // 2
    median = errors[middle] if len(errors) % 2 else (errors[middle - 1] + errors[middle]) / 2
    return shift + share * (median - shift)


def _drop(errors: dict[Key, list[float]], key: Key, error: float) -> None:
    of_key = errors[key]
    del of_key[bisect_left(of_key, error)]
    if not of_key:
        del errors[key]
