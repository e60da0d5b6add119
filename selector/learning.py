"""What runs teach about the next estimate: by how much the expected peak is off, and how wide its upper bound must be.

A run's score says where its measured peak lay between the memory model's expected peak (0) and upper bound (1), on a
logarithmic scale; it may lie beyond both. The next upper bound is the model's, moved to the quantile of such scores
that covers the next run with the stated probability, whatever their distribution is (split-conformal prediction). The
scale comes from the model's confidence, so that a doubtful estimate keeps a wider bound than a sure one.
"""

from __future__ import annotations

import math
import statistics as averages
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from selector.estimate import LARGEST_BYTES, Learned, MemoryEstimate

COVERAGE = 0.95
ENOUGH = math.ceil(1 / (1 - COVERAGE)) - 1  # the fewest runs whose largest score is such a quantile
RECENT = 500  # runs of an engine that are looked back on
NEWEST = 200  # of them that set a bound: more would vary less, but follow too late when errors drift
SHRINKAGE = 3.0  # runs without any error that a template's median is mixed with
REPEATED_MISSES = 2  # of a template, before one counts for its other statements
NARROWEST = math.log(1.05)  # what is sure of itself is still off by so much
SMALLEST_BYTES = 1 << 20  # peaks below are all the same: what is held so briefly is seen by chance, or not at all
FURTHEST = 60.0  # logarithm of the largest factor, so that none is infinite
ANY = "any"  # kind of operator
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class WorkloadKey:
    """What ran, and on which ground: misestimates hold for the same statistics and the same limit of the engine only.

    template: the same for statements that differ in their literals only.
    """

    fingerprint: str
    template: str
    statistics_version: str
    limit_bytes: int


@dataclass(frozen=True)
class Observation:
    """One run. expected_bytes, upper_bytes: of the memory model alone, before anything was learned.

    measured_bytes: its peak; None where it ran out of memory, so that the peak is above the limit.
    holder: kind of the operator that was expected to hold most.
    """

    subject: WorkloadKey
    holder: str
    expected_bytes: int
    upper_bytes: int
    measured_bytes: int | None

    @property
    def is_censored(self) -> bool:
        """Whether only a lower bound of the peak is known."""
        return self.measured_bytes is None

    @property
    def least_bytes(self) -> int:
        """The peak, or the least that it can have been."""
        return self.subject.limit_bytes + 1 if self.measured_bytes is None else max(1, self.measured_bytes)

    @cached_property
    def log_ratio(self) -> float:
        """Logarithm of the peak over the expected one."""
        return _log_ratio(self.least_bytes, self.expected_bytes)

    @cached_property
    def score(self) -> float:
        """Where the peak lay: 0 at the expected one, 1 at the upper bound."""
        return self.log_ratio / _width(self.expected_bytes, self.upper_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Runs that have something in common with the next one. name: what, in words."""

    runs: Sequence[Observation]
    name: str


class Residuals:
    """The recent runs of one engine. Not thread-safe."""

    def __init__(self, observations: Iterable[Observation] = ()) -> None:
        self._recent: deque[Observation] = deque(observations, maxlen=RECENT)
        self._repeats: float | None = None
        self._of_kind: dict[tuple[int, str], list[Observation]] = {}

    def __len__(self) -> int:
        return len(self._recent)

    def __iter__(self) -> Iterator[Observation]:
        return iter(self._recent)

    def add(self, observation: Observation) -> None:
        """Learn from a run; the oldest is forgotten."""
        self._recent.append(observation)
        self._repeats = None
        self._of_kind.clear()

    def correct(self, estimate: MemoryEstimate, subject: WorkloadKey) -> MemoryEstimate:
        """Return the estimate as runs correct it; unknown stays unknown, and without runs nothing changes.

        A statement that was measured on the same ground is expected to take what it took. Any other is moved by the
        median error of its template, which few runs move only a little, and bounded by the scores of its template, of
        the kind of operator that holds most, or of the engine: the first of them with enough runs.
        """
        if estimate.peak_bytes is None or estimate.upper_bytes is None:
            return estimate
        own = [one for one in self._recent if _is_same_statement(one.subject, subject)]
        missed = max((one.subject.limit_bytes for one in own if one.is_censored), default=0)
        measured = [one for one in own if not one.is_censored and one.subject.limit_bytes == subject.limit_bytes]
        if measured:
            expected, upper = self._measured(estimate, measured)
            learned = _learned(estimate, [_Level(measured, "this statement")])
            return _with(replace(estimate, confidence=1.0), max(expected, missed), upper, learned)
        holder = holder_of(estimate)
        template = [one for one in self._recent if _is_same_template(one.subject, subject)]
        levels = (
            _Level(_once(template)[:NEWEST], "this template"),
            _Level(self._held_by(holder, subject.limit_bytes), f"statements whose memory a {holder} holds"),
            _Level(self._held_by(ANY, subject.limit_bytes), "statements of all kinds"),
        )
        bound, level = _bound(levels)
        used = [one for one in dict.fromkeys((levels[0], level)) if one.runs]
        if not used and not missed:
            return estimate
        seen = max(SMALLEST_BYTES, estimate.peak_bytes)
        expected = seen * math.exp(min(_shift(levels), FURTHEST))
        upper = seen * math.exp(min(bound * _width(estimate.peak_bytes, estimate.upper_bytes), FURTHEST))
        learned = _learned(estimate, used or [_Level(own, "this statement")])
        return _with(estimate, max(expected, missed), upper, learned)

    def _held_by(self, holder: str, limit_bytes: int) -> Sequence[Observation]:
        """Return runs that an operator of this kind held the memory of, of many templates, newest first."""
        key = (limit_bytes, holder)
        if key not in self._of_kind:
            here = (one for one in self._recent if one.subject.limit_bytes == limit_bytes)
            self._of_kind[key] = _diverse(one for one in here if holder in (ANY, one.holder))[:NEWEST]
        return self._of_kind[key]

    def _measured(self, estimate: MemoryEstimate, runs: Sequence[Observation]) -> tuple[float, float]:
        """Return what a statement took before, and what it may take if it runs again."""
        expected = averages.median(one.least_bytes for one in runs)
        if self._repeats is None:
            found = _quantile(_repeats(self._recent))
            self._repeats = math.nan if found is None else max(NARROWEST, found)
        seen = max(SMALLEST_BYTES, expected)
        if not math.isnan(self._repeats):
            return expected, seen * math.exp(min(self._repeats, FURTHEST))
        assert estimate.peak_bytes is not None
        assert estimate.upper_bytes is not None
        usual = estimate.upper_bytes / max(1, estimate.peak_bytes) * estimate.confidence  # without the doubt in it
        return expected, seen * max(1.0, usual)


def holder_of(estimate: MemoryEstimate) -> str:
    """Return the kind of the operator that is expected to hold most at the peak; any, where the model does not tell."""
    return estimate.operators[estimate.driver].operator.partition(" of ")[0] if estimate.driver is not None else ANY


def observe(estimate: MemoryEstimate, subject: WorkloadKey, *, measured_bytes: int | None) -> Observation | None:
    """Return what a run taught about the memory model's own estimate; None where there was no estimate."""
    model = estimate.learned or estimate
    if model.peak_bytes is None or model.upper_bytes is None:
        return None
    return Observation(subject, holder_of(estimate), model.peak_bytes, model.upper_bytes, measured_bytes)


def _width(expected_bytes: int, upper_bytes: int) -> float:
    return max(NARROWEST, _log_ratio(upper_bytes, expected_bytes))


def _log_ratio(some_bytes: float, other_bytes: float) -> float:
    return math.log(max(SMALLEST_BYTES, some_bytes) / max(SMALLEST_BYTES, other_bytes))


def _is_same_statement(one: WorkloadKey, other: WorkloadKey) -> bool:
    return one.fingerprint == other.fingerprint and one.statistics_version == other.statistics_version


def _is_same_template(one: WorkloadKey, other: WorkloadKey) -> bool:
    return (one.template, one.statistics_version, one.limit_bytes) == (
        other.template,
        other.statistics_version,
        other.limit_bytes,
    )


def _once(runs: Iterable[Observation]) -> list[Observation]:
    """Return the newest run of each statement, newest first: one that is repeated says nothing about another."""
    newest: dict[str, Observation] = {}
    for one in reversed(list(runs)):
        newest.setdefault(one.subject.fingerprint, one)
    return list(newest.values())


def _diverse(runs: Iterable[Observation]) -> list[Observation]:
    """Return the newest run of each statement, and of each template only so many that it does not speak for all."""
    seen: Counter[str] = Counter()
    kept = []
    for one in _once(runs):
        seen[one.subject.template] += 1
        if seen[one.subject.template] <= ENOUGH:
            kept.append(one)
    return kept


def _shift(levels: Sequence[_Level]) -> float:
    """Return the logarithm of what an expected peak is multiplied by: medians, the more special the later."""
    template, *wider = levels
    shift = 0.0
    for level in [*reversed([one for one in wider if len(one.runs) >= ENOUGH]), template]:
        if level.runs:
            weight = len(level.runs) / (len(level.runs) + SHRINKAGE)
            shift += weight * (averages.median(one.log_ratio for one in level.runs) - shift)
    return shift


def _bound(levels: Sequence[_Level]) -> tuple[float, _Level]:
    """Return the score that the next run stays below, and the level that said so.

    A template with too few runs can only raise it, to the largest score that it has shown. While nothing has enough
    runs, the model's own upper bound holds.
    """
    template = levels[0]
    misses = sum(one.is_censored for one in template.runs)
    seen = [one.score for one in template.runs if not one.is_censored or misses >= REPEATED_MISSES]
    least = -math.inf
    for level in levels:
        if len(level.runs) < ENOUGH:
            continue
        found = _quantile([(one.score, one.is_censored) for one in level.runs])
        if found is not None:
            return max(found, least, *(seen if len(template.runs) < ENOUGH else ())), level
        least = max(least, *(one.score for one in level.runs))  # too many ran out of memory to tell how much they need
    return max(1.0, least, *seen), template


def _quantile(scores: Sequence[tuple[float, bool]]) -> float | None:
    """Return the score that the next one stays below with the stated probability; None where that takes more runs.

    scores: with whether the true one is only known to be above it. Such a one's probability goes to those that are
    larger (Kaplan-Meier); with none of them, this is the ceil((n + 1) * COVERAGE)-th smallest.
    """
    above = 1.0
    left = len(scores) + 1  # the next run itself is among those that may be larger
    for score, is_censored in sorted(scores):
        if not is_censored:
            above *= 1 - 1 / left
            if above <= 1 - COVERAGE + _ROUNDING:
                return score
        left -= 1
    return None


def _repeats(runs: Iterable[Observation]) -> list[tuple[float, bool]]:
    """Return how each repeated run differed from what its statement took before, as scores."""
    before: dict[WorkloadKey, list[int]] = {}
    scores = []
    for one in runs:
        earlier = before.setdefault(one.subject, [])
        if earlier:
            scores.append((_log_ratio(one.least_bytes, averages.median(earlier)), one.is_censored))
        if not one.is_censored:
            earlier.append(one.least_bytes)
    return scores


def _learned(estimate: MemoryEstimate, levels: Sequence[_Level]) -> Learned:
    """Say which runs had a say. levels: the one that the expected peak comes from, and that of the upper bound."""
    parts = [f"{len(level.runs)} run{'s' if len(level.runs) > 1 else ''} of {level.name}" for level in levels]
    text = f"Learned from {', and the upper bound from '.join(parts)}."
    return Learned(text, len(levels[0].runs), estimate.peak_bytes, estimate.upper_bytes)


def _with(estimate: MemoryEstimate, expected: float, upper: float, learned: Learned) -> MemoryEstimate:
    peak_bytes = max(1, round(min(expected, LARGEST_BYTES)))
    upper_bytes = max(peak_bytes, math.ceil(min(upper, LARGEST_BYTES)))
    return replace(estimate, peak_bytes=peak_bytes, upper_bytes=upper_bytes, learned=learned)
