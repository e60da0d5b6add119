"""Corrections of peaks by an engine's runs: errors of the memory model, from wide circles of statements to narrow ones.

A statement's errors have the median and the deviation of its kind, which the memory model tells and runs move, and the
shape that errors of all kinds have together, in deviations. Into that, runs of its template are mixed, and then its
own. What was known before counts as a few runs, so that little is made of few runs, and wider circles are forgotten as
the narrower ones fill. The quantiles of such a distribution are conformal: those of the errors that were seen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from selector.estimate import UPPER_LEVEL, MemoryEstimate, Uncertainty
from selector.forecast.distribution import SHAPE, ErrorDistribution, Floats, RunError
from selector.forecast.history import PastRun, WorkloadKey, log_ratio
from selector.forecast.recent import RecentRuns

RECENT = 500  # runs of an engine that are looked back on
NEWEST = 200  # that make the shape: more would vary less, but follow too late when errors drift
PER_TEMPLATE = 5  # runs that count, so that no template speaks for all
KIND_WEIGHT = 20.0  # runs of a kind that the memory model's median and deviation count as
SHAPE_WEIGHT = 40.0  # runs of all kinds that the shape without them counts as
NARROWEST = 0.05  # deviation: what seems sure is still off by so much
SAME_GROUND = 0.1  # logarithm of the ratio of expected peaks that new statistics leave the same
KEPT_RUNS = 16  # of a statement, from which its errors are only looked at again once it has a share of runs more
KEPT_SHARE = 1 / 16
MOST_KEPT = 1_024  # statements
EXPECTED = 0.01, 0.99  # probabilities of a smaller peak, between which a run is no surprise


@dataclass(frozen=True, slots=True)
class _Circle:
    """weight: runs that what is known before counts as. bandwidth: by which another run's error may differ."""

    name: str
    weight: float
    bandwidth: float


TEMPLATE = _Circle("this template", 2.0, 0.1)
STATEMENT = _Circle("this statement", 0.05, 0.02)


@dataclass(frozen=True, slots=True)
class PeakErrors:
    """Errors to expect. text: which runs of the statement or its template had a say, in words; "" where none had.

    upper_level: of the quantile that the next error stays below with UPPER_LEVEL: of n errors, that is the
    ceil((n + 1) * UPPER_LEVEL)-th smallest. of_statement: whether it ran itself.
    """

    errors: ErrorDistribution
    text: str
    runs: int
    upper_level: float = UPPER_LEVEL
    of_statement: bool = False


@dataclass(slots=True)
class _Kept:
    """Errors to expect of a statement that ran often. runs_left: for which they hold, if none of these surprises."""

    estimate: tuple[int | None, Uncertainty]
    found: PeakErrors
    runs_left: int

    def holds_after(self, run: PastRun) -> bool:
        """Tell whether they still hold after one run more."""
        self.runs_left -= 1
        least, most = EXPECTED
        return self.runs_left > 0 and not run.ran_out and least <= self.found.errors.below(run.peak_error) <= most


class Peaks:
    """Runs of one engine that tell of its memory. Not thread-safe. shape: of errors before there are any.

    One run more changes next to nothing of what a statement that ran often is expected to take: its errors are looked
    at again once it has ``KEPT_SHARE`` of runs more, or took what was not expected.
    """

    def __init__(self, runs: Iterable[PastRun] = (), *, shape: Sequence[float] = SHAPE) -> None:
        self._usual = ErrorDistribution.of_shape(shape)
        self._recent = RecentRuns(RECENT)
        self._shape: ErrorDistribution | None = None
        self._kinds: dict[Uncertainty, Uncertainty] = {}
        self._counted: list[PastRun] = []
        self._kept: dict[WorkloadKey, _Kept] = {}
        for run in runs:
            self.add(run)

    def __len__(self) -> int:
        return len(self._recent)

    def __iter__(self) -> Iterator[PastRun]:
        return iter(self._recent)

    def add(self, run: PastRun) -> None:
        """Learn from a run; the oldest is forgotten."""
        if run.teaches_memory:
            self._recent.add(run)
            self._changed()
            remembered = self._kept.get(run.subject)
            if remembered is not None and not remembered.holds_after(run):
                del self._kept[run.subject]

    def forget_misses(self, fingerprint: str) -> None:
        """Forget a statement's runs that ran out of memory."""
        other_runs = [run for run in self._recent if not (run.ran_out and run.subject.fingerprint == fingerprint)]
        self._recent = RecentRuns(RECENT, other_runs)
        self._changed()
        self._kept.clear()

    def _changed(self) -> None:
        self._shape, self._counted = None, []
        self._kinds.clear()

    def errors(self, estimate: MemoryEstimate, subject: WorkloadKey) -> PeakErrors:
        """Return the errors to expect of an estimate, logarithms of the peak over the expected one."""
        remembered, of_model = self._kept.get(subject), (estimate.peak_bytes, estimate.uncertainty)
        if remembered is not None and remembered.estimate == of_model:
            return remembered.found
        errors = self._errors(estimate, subject)
        if errors.of_statement and errors.runs >= KEPT_RUNS:
            self._kept.pop(subject, None)
            self._kept[subject] = _Kept(of_model, errors, int(KEPT_SHARE * errors.runs))
            if len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return errors

    def _errors(self, estimate: MemoryEstimate, subject: WorkloadKey) -> PeakErrors:
        kind = self._kind(estimate.uncertainty)
        own = _on_same_ground(self._recent.of_statement(subject), estimate)
        siblings = self._recent.newest_of_template(subject.template)
        errors = self._all().scaled(kind.bias, kind.deviation, kind.deviation_below)
        errors = _mixed(errors, siblings, TEMPLATE)
        errors = _mixed(errors, own[-NEWEST:], STATEMENT)
        circle, runs = (STATEMENT, len(own)) if own else (TEMPLATE, len(siblings))
        text = f"Learned from {runs} run{'s' if runs > 1 else ''} of {circle.name}." if runs else ""
        counted = SHAPE_WEIGHT + min(len(self._diverse), NEWEST)
        return PeakErrors(errors, text, runs, UPPER_LEVEL * (1.0 + 1.0 / counted), bool(own))

    def _all(self) -> ErrorDistribution:
        """Return the errors of all kinds, in deviations of their kind."""
        if self._shape is None:
            runs = []
            for run in self._diverse[:NEWEST]:
                kind = self._kind(run.expected.uncertainty)
                runs.append(RunError(kind.in_deviations(run.peak_error), run.ran_out))
            self._shape = self._usual.with_runs(runs, weight=SHAPE_WEIGHT, bandwidth=0.0)
        return self._shape

    def _kind(self, model: Uncertainty) -> Uncertainty:
        """Return a kind's median and deviations as its runs move them."""
        if model not in self._kinds:
            alike = (run for run in self._diverse if run.expected.uncertainty.kind == model.kind)
            own = [run.peak_error for run in alike]
            if not own:
                return self._kinds.setdefault(model, model)
            errors = np.array(own[:NEWEST])
            bias = blended(model.bias, float(np.median(errors)), errors.size)
            above, below = deviations(errors)
            both = (above, model.deviation), (below, model.deviation_below or model.deviation)
            moved = (math.exp(blended(math.log(was), math.log(learned), errors.size)) for learned, was in both)
            self._kinds[model] = Uncertainty(model.kind, bias, *moved)
        return self._kinds[model]

    @property
    def _diverse(self) -> Sequence[PastRun]:
        """Runs of which no template speaks for all, newest first."""
        if not self._counted:
            self._counted = _diverse(self._recent.newest_of_each())
        return self._counted


def deviations(errors: Floats) -> tuple[float, float]:
    """Return the deviations of errors above and below their median, as a normal distribution has them."""
    apart = errors - np.median(errors)
    above, below = apart[apart >= 0], -apart[apart <= 0]
    return max(NARROWEST, 1.48 * float(np.median(above))), max(NARROWEST, 1.48 * float(np.median(below)))


def blended(prior: float, measured: float, runs: int, weight: float = KIND_WEIGHT) -> float:
    """Return what is known, moved by what runs showed. weight: runs that the former counts as."""
    return (weight * prior + runs * measured) / (weight + runs)


def _mixed(errors: ErrorDistribution, runs: Sequence[PastRun], circle: _Circle) -> ErrorDistribution:
    return errors.with_runs([run.as_seen for run in runs], weight=circle.weight, bandwidth=circle.bandwidth)


def _on_same_ground(runs: Iterable[PastRun], estimate: MemoryEstimate) -> list[PastRun]:
    """Return the runs of a statement for which the memory model said the same as now."""
    is_same: dict[int | None, bool] = {}
    for expected_bytes in {run.expected.peak_bytes for run in runs}:
        apart = log_ratio(expected_bytes or 0, estimate.peak_bytes or 0)
        is_same[expected_bytes] = abs(apart) <= SAME_GROUND
    return [run for run in runs if is_same[run.expected.peak_bytes]]


def _diverse(newest: Iterable[PastRun]) -> list[PastRun]:
    """Return the newest run of each statement, and of each template only so many that it does not speak for all."""
    seen: Counter[str] = Counter()
    distinct_runs = []
    for one in newest:
        seen[one.subject.template] += 1
        if seen[one.subject.template] <= PER_TEMPLATE:
            distinct_runs.append(one)
    return distinct_runs
