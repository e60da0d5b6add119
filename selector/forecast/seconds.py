"""How long a statement takes on an engine: from the work in its plan, corrected by what runs took.

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
from enum import Enum
from typing import Self, TypeVar

from selector.estimate import MemoryEstimate
from selector.forecast.history import PastRun, WorkloadKey
from selector.forecast.improvement import LogNormal
from selector.forecast.recent import RecentRuns

Key = TypeVar("Key")

RECENT = 500  # runs of an engine that are looked back on
ENGINE_WEIGHT, TEMPLATE_WEIGHT, STATEMENT_WEIGHT = 5.0, 1.0, 0.25  # runs that what is known without them counts as
PAIRS_WEIGHT = 2.0  # the same of templates that ran elsewhere, too
SHARED = 0.8  # of one engine's excess, that others have, too: until runs on both say otherwise
SHARED_WEIGHT = 2.5  # squares of an excess that this counts as
DEVIATION_WEIGHT = 10.0  # runs that the deviations below count as
ENGINE_DEVIATION = 0.4  # of the logarithm of an engine's speed, against the others', before it has run anything
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


class Circle(Enum):
    """The narrowest circle in which an engine has run something. value: deviation of what it takes, in logarithms.

    Of the seconds on it against those on engines that did run the statement, until runs say otherwise.
    """

    NONE = 0.5
    TEMPLATE = 0.3
    STATEMENT = 0.1


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
        """What the narrower circles add to the engine's."""
        return (self.template or 0.0) + (self.statement or 0.0)

    @classmethod
    def mean_of(cls, several: Sequence[Excess], engine: float) -> Self:
        """Return the mean of several engines', in each circle of those that know it. engine: of all their runs.

        All circles together tell another engine of no more than MOST_TOLD.
        """
        template, statement = _mean([each.template for each in several]), _mean([each.statement for each in several])
        if template is not None:
            template = _bounded(engine + template) - engine
        if statement is not None:
            known = engine + (template or 0.0)
            statement = _bounded(known + statement) - known
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
        self._squares = {circle: _Sum(DEVIATION_WEIGHT * circle.value**2, DEVIATION_WEIGHT) for circle in Circle}
        self._shared = _Sum(SHARED_WEIGHT * SHARED, SHARED_WEIGHT)  # products with elsewhere's excess, its squares
        self._pairs: dict[str, float] = {}  # errors of templates that ran elsewhere, too, less those there
        self._of_pairs: list[float] = []  # the same, the smallest first

    def add(self, run: PastRun, elsewhere: Excess = NO_EXCESS) -> None:
        """Learn from a run; the oldest is forgotten."""
        if run.seconds is None or run.broken_off:
            return
        if run.ran_out:
            self._misses.append(run.seconds)
        elif run.expected.seconds is not None:
            self._compare(run, elsewhere)
            before = self._recent.newest(run.subject.fingerprint)
            self._note(run, before, self._recent.add(run))

    def _compare(self, run: PastRun, elsewhere: Excess) -> None:
        """Keep how far a run was from what was expected of it, and how far it went along with other engines' runs."""
        circle = self._circle(run.subject)
        if circle is Circle.NONE:
            if elsewhere.template is None:
                return  # what no engine has run says nothing about one against another
            there = elsewhere.narrow
            here = run.seconds_error - self._engine_shift(elsewhere.engine)
            self._shared.add(_bounded(there) * _bounded(here), _bounded(there) ** 2)
        apart = _bounded(run.seconds_error - self._shift(run.subject, elsewhere))
        self._squares[circle].add(apart * apart, 1.0)

    def _note(self, run: PastRun, before: PastRun | None, forgotten: PastRun | None) -> None:
        """Keep errors in order, so that a median is found at once. before: the newest of the statement until now."""
        gone = {id(each): each for each in (before, forgotten) if each is not None}
        for each in gone.values():
            if each is before or self._recent.newest(each.subject.fingerprint) is None:
                del self._errors[bisect_left(self._errors, _bounded(each.seconds_error))]
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
        """How many statements ran here, and the median of their errors."""
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

    def expected(self, model_s: float, subject: WorkloadKey, elsewhere: Excess = NO_EXCESS) -> LogNormal:
        """Return how long a statement will take. model_s: what its work alone says.

        The deviation is of the seconds here against those of another engine that has run the statement.
        """
        shift = self._shift(subject, elsewhere)
        return LogNormal(model_s * math.exp(shift), math.sqrt(self._squares[self._circle(subject)].mean))

    def engine_deviation(self, subject: WorkloadKey) -> float:
        """Return the deviation of the logarithm of the engine's speed, of which a run of a statement would tell more.

        It is 0 of one whose template has run here: that has told.
        """
        if subject.template in self._of_template:
            return 0.0
        seen = len(self._of_pairs) / PAIRS_WEIGHT + len(self._errors) / ENGINE_WEIGHT
        return ENGINE_DEVIATION / math.sqrt(1.0 + seen)

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

    def _circle(self, subject: WorkloadKey) -> Circle:
        if subject in self._of_statement:
            return Circle.STATEMENT
        return Circle.TEMPLATE if subject.template in self._of_template else Circle.NONE

    def until_miss(self, expected_s: float, share: float = 1.0) -> float:
        """Return how long it takes on average until a statement runs out of memory.

        expected_s: if it did not. share: of its peak that it may take: memory fills as the statement goes on.
        """
        unseen_s = expected_s * share if self.speed.miss_s is None else self.speed.miss_s
        return (MISS_WEIGHT * unseen_s + sum(self._misses)) / (MISS_WEIGHT + len(self._misses))


def common_excess(told: Sequence[tuple[int, float]]) -> float:
    """Return by how much runs of several engines took longer than their work says. told: how many, and their median."""
    return sum(count * median for count, median in told) / (ENGINE_WEIGHT + sum(count for count, _ in told))


def _bounded(error: float) -> float:
    return max(-MOST_TOLD, min(error, MOST_TOLD))


def _mean(known: Sequence[float | None]) -> float | None:
    told = [each for each in known if each is not None]
    return sum(told) / len(told) if told else None


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
