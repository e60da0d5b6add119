"""Expected seconds of a statement on an engine: from the work in its plan, corrected by the times of runs.

The work is counted on the fast engine's plan, whichever engine runs it: what is scanned, joined, grouped and sorted is
the same everywhere, only how long that takes is not. So runs on one engine tell of the others: a machine is slow for
all of them, and a statement that took longer than its work says mostly does so elsewhere, too. Without that, an engine
that has not run a statement would look fast as soon as the others were seen to be slower than thought.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from selector.estimate import MemoryEstimate
from selector.forecast.history import PastRun, WorkloadKey
from selector.forecast.recent import RecentRuns

Key = TypeVar("Key")

RECENT = 500  # runs of an engine that are looked back on
ENGINE_WEIGHT, TEMPLATE_WEIGHT, STATEMENT_WEIGHT = 5.0, 1.0, 0.25  # runs that what is known without them counts as
PAIRS_WEIGHT = 2.0  # the same of templates that ran elsewhere, too
SHARED = 0.8  # of one engine's excess, that others have, too: until runs on both say otherwise
SHARED_WEIGHT = 2.5  # squares of an excess that this counts as
MISS_WEIGHT = 1.0
RECENT_MISSES = 20
MOST_TOLD = 2.0  # logarithm of a factor, of what one statement's error says about others
SHUFFLING = ("join", "aggregate", "sort", "window", "top")


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed of an engine that has run nothing yet.

    start_s: of a statement that reads next to nothing.
    operator_s: for each operator that needs its rows together.
    rows_per_s: throughput of one operator.
    miss_s: until a statement runs out of memory; None: as long as the statement takes.
    """

    start_s: float = 0.05
    operator_s: float = 0.03
    rows_per_s: float = 50e6
    miss_s: float | None = None


USUAL_FAST = Speed()
USUAL_DEPENDABLE = Speed(start_s=0.4, operator_s=0.2, rows_per_s=9e6)


@dataclass(frozen=True, slots=True)
class Work:
    """Work in a plan. shuffles: operators that need their rows together. rows: sum over all operators."""

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


@dataclass(frozen=True, slots=True)
class Excess:
    """By how much runs took longer than their work says, in logarithms: of an engine, or the mean of several.

    engine: of all runs, 0 where there are none. template, statement: what is added to that in the narrower circles,
    None where nothing ran there.
    """

    engine: float = 0.0
    template: float | None = None
    statement: float | None = None

    @property
    def narrow(self) -> float:
        """Sum of the template's and the statement's parts."""
        return (self.template or 0.0) + (self.statement or 0.0)

    @classmethod
    def mean_of(cls, several: Sequence[Excess], engine: float) -> Self:
        """Return the mean of several engines', in each circle of those that know it. engine: of all their runs.

        All circles together tell another engine of no more than MOST_TOLD.
        """
        template, statement = (
            _mean([excess.template for excess in several]),
            _mean([excess.statement for excess in several]),
        )
        if template is not None:
            template = _bounded(engine + template) - engine
        if statement is not None:
            wider = engine + (template or 0.0)
            statement = _bounded(wider + statement) - wider
        return cls(engine, template, statement)


NO_EXCESS = Excess()


class _Sum:
    """A weighted mean, told of one run after the other. total, weight: of what is known before them."""

    def __init__(self, total: float, weight: float) -> None:
        self._total, self._weight = total, weight

    @property
    def mean(self) -> float:
        return self._total / self._weight

    def add(self, total: float, weight: float) -> None:
        if self._weight >= RECENT:  # what is old counts less and less
            self._total, self._weight = self._total / 2, self._weight / 2
        self._total += total
        self._weight += weight


class Seconds:
    """Runs of one engine that tell how long statements take there. Not thread-safe.

    elsewhere: of a statement, by what other engines' runs exceeded what its work says there.
    """

    def __init__(self, speed: Speed) -> None:
        self.speed = speed
        self._recent = RecentRuns(RECENT)
        self._of_template: dict[str, list[float]] = {}  # errors, the smallest first
        self._of_statement: dict[WorkloadKey, list[float]] = {}
        self._misses: deque[float] = deque(maxlen=RECENT_MISSES)
        self._errors: list[float] = []  # the newest of each statement, the smallest first
        self._shared = _Sum(SHARED_WEIGHT * SHARED, SHARED_WEIGHT)  # products with elsewhere's excess, its squares
        self._pairs: dict[str, float] = {}  # errors of templates that ran elsewhere, too, less those there
        self._of_pairs: list[float] = []  # the same, the smallest first

    def add(self, run: PastRun, elsewhere: Excess = NO_EXCESS) -> None:
        """Learn from a run; the oldest is forgotten."""
        if run.seconds is None:
            return
        if run.ran_out:
            self._misses.append(run.seconds)
        elif run.expected.seconds is not None:
            self._compare(run, elsewhere)
            before = self._recent.newest(run.subject.fingerprint)
            self._note(run, before, self._recent.add(run))

    def _compare(self, run: PastRun, elsewhere: Excess) -> None:
        """Keep how far a template's first run here went along with other engines' runs of it."""
        if run.subject.template in self._of_template or elsewhere.template is None:
            return
        narrow_elsewhere = _bounded(elsewhere.narrow)
        here = _bounded(run.seconds_error - self._engine_shift(elsewhere.engine))
        self._shared.add(narrow_elsewhere * here, narrow_elsewhere**2)

    def _note(self, run: PastRun, before: PastRun | None, forgotten: PastRun | None) -> None:
        """Keep errors in order, so that a median is found at once. before: the newest of the statement until now."""
        gone = {id(past_run): past_run for past_run in (before, forgotten) if past_run is not None}
        for past_run in gone.values():
            if past_run is before or self._recent.newest(past_run.subject.fingerprint) is None:
                del self._errors[bisect_left(self._errors, _bounded(past_run.seconds_error))]
        insort(self._errors, _bounded(run.seconds_error))
        if forgotten is not None:
            _drop(self._of_template, forgotten.subject.template, forgotten.seconds_error)
            _drop(self._of_statement, forgotten.subject, forgotten.seconds_error)
            if forgotten.subject.template not in self._of_template:
                self._unpair(forgotten.subject.template)
        insort(self._of_template.setdefault(run.subject.template, []), run.seconds_error)
        insort(self._of_statement.setdefault(run.subject, []), run.seconds_error)

    def pair(self, template: str, elsewhere: Excess) -> None:
        """Hold a template's runs against those on other engines: one has ended, here or there.

        It counts once, or those that go well on an engine would speak for it most: they are sent there.
        """
        if template not in self._of_template or elsewhere.template is None:
            return
        self._unpair(template)
        error = _bounded(_moved(0.0, self._of_template[template], 0.0) - elsewhere.narrow)
        self._pairs[template] = error
        insort(self._of_pairs, error)

    def _unpair(self, template: str) -> None:
        error = self._pairs.pop(template, None)
        if error is not None:
            del self._of_pairs[bisect_left(self._of_pairs, error)]

    @property
    def told(self) -> tuple[int, float]:
        """Tell how many statements ran here, and the median of their errors."""
        return len(self._errors), _moved(0.0, self._errors, 0.0)

    def excess(self, subject: WorkloadKey, engine: float) -> Excess:
        """Return by how much this engine's own runs took longer than their work says. engine: those on the others."""
        if subject.template not in self._of_template:
            return NO_EXCESS
        level = self._engine_shift(engine)
        template = _moved(level, self._of_template[subject.template], TEMPLATE_WEIGHT)
        if subject not in self._of_statement:
            return Excess(template=template - level)
        statement = _moved(template, self._of_statement[subject], STATEMENT_WEIGHT)
        return Excess(template=template - level, statement=statement - template)

    def expected_s(self, model_s: float, subject: WorkloadKey, elsewhere: Excess = NO_EXCESS) -> float:
        """Return how long a statement will take. model_s: what its work alone says."""
        return model_s * math.exp(self._shift(subject, elsewhere))

    def _shift(self, subject: WorkloadKey, elsewhere: Excess) -> float:
        """Return the logarithm of the seconds to expect over what the work alone says."""
        share = self._share
        shift = self._engine_shift(elsewhere.engine) + share * (elsewhere.template or 0.0)
        shift = _moved(shift, self._of_template.get(subject.template, ()), TEMPLATE_WEIGHT)
        shift += share * (elsewhere.statement or 0.0)
        return _moved(shift, self._of_statement.get(subject, ()), STATEMENT_WEIGHT)

    def _engine_shift(self, elsewhere: float) -> float:
        """Return the same of all statements: until runs say otherwise, the others' is this engine's, too.

        Statements that ran here alone may be of another kind than those that ran elsewhere; pairs are compared alike.
        """
        return _moved(_moved(elsewhere, self._errors, ENGINE_WEIGHT), self._of_pairs, PAIRS_WEIGHT)

    @property
    def _share(self) -> float:
        """The share of an excess elsewhere that there is here, too: least squares, towards SHARED."""
        return max(0.0, min(1.0, self._shared.mean))

    def until_miss(self, expected_s: float, share: float = 1.0) -> float:
        """Return how long it takes on average until a statement runs out of memory.

        expected_s: if it did not. share: of its peak that it may take: memory fills as the statement goes on.
        """
        unseen_s = expected_s * share if self.speed.miss_s is None else self.speed.miss_s
        return (MISS_WEIGHT * unseen_s + sum(self._misses)) / (MISS_WEIGHT + len(self._misses))


def common_excess(medians: Sequence[tuple[int, float]]) -> float:
    """Return the mean excess of several engines. medians: number of runs and median error of each."""
    return sum(count * median for count, median in medians) / (ENGINE_WEIGHT + sum(count for count, _ in medians))


def _bounded(error: float) -> float:
    return max(-MOST_TOLD, min(error, MOST_TOLD))


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


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
