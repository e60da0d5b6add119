"""START HERE: forecasts of statements from all runs of all engines.

``learn`` takes a run that has ended; ``forecast`` returns the memory of a statement on an engine, as a distribution,
and its seconds: the models' own numbers, corrected by the errors that runs have shown.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from selector.estimate import LARGEST_BYTES, UNKNOWN, Learned, MemoryEstimate
from selector.forecast.distribution import ErrorDistribution
from selector.forecast.history import SMALLEST_BYTES, PastRun, WorkloadKey, log_ratio
from selector.forecast.peaks import Peaks
from selector.forecast.seconds import Excess, Seconds, Speed, Work, common_excess

TEMPLATES = 10_000  # of which it is known how often they ran elsewhere
LARGEST_LOG = 60.0  # of a factor, so that none is infinite
ROUNDING = 3  # digits of a byte that arithmetic may be off by
NO_WORK = Work()


@dataclass(frozen=True, slots=True)
class PeakForecast:
    """A peak as a distribution: errors around what the memory model expects, in bytes."""

    model_bytes: int
    errors: ErrorDistribution

    def below(self, limit_bytes: int) -> float:
        """Return the probability of a peak that is not above a limit."""
        return self.errors.below(log_ratio(limit_bytes, self.model_bytes))

    def quantile(self, level: float) -> int:
        """Return the bytes that a peak stays below with a probability."""
        factor = math.exp(min(self.errors.quantile(level), LARGEST_LOG))
        peak_bytes = min(max(SMALLEST_BYTES, self.model_bytes) * factor, LARGEST_BYTES)
        return max(1, math.ceil(round(peak_bytes, ROUNDING)))


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected memory and seconds of a statement on one engine.

    estimate: of its memory, as runs corrected it. peak: the same as a distribution, None where nothing is known.
    model_s: seconds that its work alone says; seconds: as runs corrected them. miss_s: seconds until it runs out of
    memory, if it does; filling_s: the part of that which grows with the limit, until it is the expected peak.
    elsewhere: how often its template ran on other engines since it last ran here.
    """

    estimate: MemoryEstimate
    peak: PeakForecast | None
    model_s: float
    seconds: float
    miss_s: float
    elsewhere: int = 0
    filling_s: float = 0.0

    def miss_s_with(self, limit_bytes: int, now_bytes: int) -> float:
        """Return the seconds until a statement runs out of another limit than the one that there is now."""
        expected = max(1, self.estimate.peak_bytes or 1)
        more = min(1.0, limit_bytes / expected) - min(1.0, now_bytes / expected)
        return max(0.0, self.miss_s + self.filling_s * more)


class Experience:
    """Runs on all engines. Not thread-safe."""

    def __init__(self, engines: Mapping[str, Speed], runs: Iterable[PastRun] = ()) -> None:
        self._peaks = {engine: Peaks() for engine in engines}
        self._seconds = {engine: Seconds(speed) for engine, speed in engines.items()}
        self._elsewhere: OrderedDict[str, dict[str, int]] = OrderedDict()
        for run in runs:
            self.learn(run)

    def learn(self, run: PastRun) -> None:
        """Learn from a run that has ended. One on an engine that is no longer there is forgotten."""
        if run.engine not in self._peaks:
            return
        self._peaks[run.engine].add(run)
        self._seconds[run.engine].add(run, self._excess_elsewhere(run.engine, run.subject))
        for engine, seconds in self._seconds.items():
            seconds.pair(run.subject.template, self._excess_elsewhere(engine, run.subject))
        counts = self._elsewhere.setdefault(run.subject.template, {})
        self._elsewhere.move_to_end(run.subject.template)
        for engine in self._peaks:
            counts[engine] = 0 if engine == run.engine else counts.get(engine, 0) + 1
        if len(self._elsewhere) > TEMPLATES:
            self._elsewhere.popitem(last=False)

    def forget_misses(self, fingerprint: str) -> None:
        """Forget that a statement ran out of memory, wherever it did."""
        for peaks in self._peaks.values():
            peaks.forget_misses(fingerprint)

    def forecast(
        self,
        engine: str,
        subject: WorkloadKey,
        work: Work = NO_WORK,
        estimate: MemoryEstimate = UNKNOWN,
        limit_bytes: int | None = None,
    ) -> Forecast:
        """Return what to expect. work: in a fast engine's plan. estimate: by the memory model; unknown stays so.

        limit_bytes: that the engine gives one statement; None where it spills.
        """
        timing = self._seconds[engine]
        model_s = work.seconds(timing.speed)
        seconds = timing.expected_s(model_s, subject, self._excess_elsewhere(engine, subject))
        elsewhere = self._elsewhere.get(subject.template, {}).get(engine, 0)
        if estimate.peak_bytes is None:
            return Forecast(estimate, None, model_s, seconds, timing.until_miss(seconds), elsewhere)
        errors = self._peaks[engine].errors(estimate, subject)
        peak = PeakForecast(estimate.peak_bytes, errors.errors)
        expected = peak.quantile(0.5)
        upper = max(expected, peak.quantile(errors.upper_level))
        share = 1.0 if limit_bytes is None else min(1.0, limit_bytes / expected)
        filling_s = timing.until_miss(seconds) - timing.until_miss(seconds, 0.0)
        rest = model_s, seconds, timing.until_miss(seconds, share), elsewhere, filling_s
        learned = None
        if errors.runs:
            model = estimate.peak_bytes, estimate.upper_bytes
            learned = Learned(errors.text, errors.runs, *model, of_statement=errors.of_statement)
        return Forecast(replace(estimate, peak_bytes=expected, upper_bytes=upper, learned=learned), peak, *rest)

    def _excess_elsewhere(self, engine: str, subject: WorkloadKey) -> Excess:
        """Return by how much runs on other engines took longer than their work says."""
        others = [
            seconds.excess(subject, self._common(name)) for name, seconds in self._seconds.items() if name != engine
        ]
        return Excess.mean_of(others, self._common(engine))

    def _common(self, engine: str) -> float:
        return common_excess([seconds.told for name, seconds in self._seconds.items() if name != engine])
