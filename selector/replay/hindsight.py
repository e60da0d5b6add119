"""Outcome of a statement on an engine under another limit, as far as the whole history tells.

What was measured counts first: of the statement itself, then of others with the same fingerprint. A peak fits if it is
not above the limit; a run that ran out of memory tells of limits up to its own, one that ended of limits from its own.
What nobody measured is expected, by the forecasts that all runs together make.
"""

from __future__ import annotations

import statistics as averages
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from selector.decision import Candidate
from selector.estimate import UNKNOWN
from selector.forecast.experience import Experience, Forecast
from selector.replay.recorded import History, RecordedAttempt, RecordedStatement

UNKNOWN_FITS = 0.5  # probability, where nothing is known of a peak at all


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected outcome of a statement on an engine.

    ends, misses: probabilities of finishing there, and of running out of memory.
    seconds: if it finishes. lost_s: if it does not.
    peak_bytes: if it finishes; None: unknown.
    is_measured: known from a run, not from a forecast.
    """

    ends: float
    misses: float
    seconds: float
    lost_s: float
    peak_bytes: int | None = None
    is_measured: bool = True

    @property
    def busy_s(self) -> float:
        """Seconds that the engine works for it."""
        return self.ends * self.seconds + (1.0 - self.ends) * self.lost_s


class Hindsight:
    """All runs of a history together."""

    def __init__(self, history: History) -> None:
        self._experience = Experience(history.speeds, history.warm)
        self._attempts: dict[tuple[str, str], list[RecordedAttempt]] = defaultdict(list)
        ended = sorted(
            (
                (attempt, recorded)
                for recorded in history.statements
                for attempt in recorded.attempts
                if attempt.teaches
            ),
            key=lambda pair: pair[0].ended_s,
        )
        for attempt, statement in ended:
            self._experience.learn(attempt.run(statement.subject, attempt.expected))
            self._attempts[statement.subject.fingerprint, attempt.engine].append(attempt)

    def expected(self, statement: RecordedStatement, candidate: Candidate) -> Expected:
        """Return how a statement would go on an engine. candidate: the engine, with the limit that it would have."""
        engine, limit_bytes = candidate.engine, candidate.limit_bytes
        own = [attempt for attempt in statement.attempts if attempt.engine == engine]
        if own and not any(attempt.teaches for attempt in own):  # lost, or it could not: nothing says otherwise
            return Expected(0.0, 0.0, 0.0, sum(attempt.run_s or 0.0 for attempt in own))
        measured = [attempt for attempt in own if attempt.teaches]
        alike = measured or self._attempts.get((statement.subject.fingerprint, engine), [])
        forecast = self._forecast(statement, engine, limit_bytes)
        fits = 1.0 if limit_bytes is None else _fits(alike, limit_bytes, forecast)
        ended = [attempt for attempt in alike if attempt.finished]
        peaks = [attempt.peak_bytes for attempt in ended if attempt.peak_bytes is not None]
        peak_bytes = round(averages.median(peaks)) if peaks else forecast.estimate.peak_bytes
        return Expected(
            ends=fits,
            misses=1.0 - fits,
            seconds=_median([attempt.run_s for attempt in ended], forecast.seconds),
            lost_s=_median([attempt.run_s for attempt in alike if attempt.ran_out], forecast.miss_s),
            peak_bytes=peak_bytes if peak_bytes is None or limit_bytes is None else min(peak_bytes, limit_bytes),
            is_measured=fits == 0.0 or (fits == 1.0 and bool(ended)),
        )

    def _forecast(self, statement: RecordedStatement, engine: str, limit_bytes: int | None) -> Forecast:
        estimate = statement.estimates.get(engine, UNKNOWN)
        return self._experience.forecast(engine, statement.subject, statement.work, estimate, limit_bytes)


def _fits(alike: Sequence[RecordedAttempt], limit_bytes: int, forecast: Forecast) -> float:
    """Return the probability that a peak is not above a limit."""
    fitted: list[bool] = []
    above = max((attempt.expected.limit_bytes or 0 for attempt in alike if attempt.ran_out), default=0)
    below: int | None = None
    for attempt in alike:
        limit = attempt.expected.limit_bytes
        if attempt.ran_out:
            fitted += [False] if limit is not None and limit_bytes <= limit else []
        elif attempt.peak_bytes is not None:
            fitted.append(attempt.peak_bytes <= limit_bytes)
        elif limit is not None:
            fitted += [True] if limit_bytes >= limit else []
            below = min(limit, below or limit)
    if fitted:
        return sum(fitted) / len(fitted)
    if forecast.peak is None:
        return UNKNOWN_FITS
    least = forecast.peak.below(above) if above else 0.0
    most = forecast.peak.below(below) if below is not None else 1.0
    here = forecast.peak.below(limit_bytes)
    return min(1.0, max(0.0, (here - least) / (most - least))) if most > least else UNKNOWN_FITS


def _median(seconds: Sequence[float | None], otherwise: float) -> float:
    measured = [value for value in seconds if value is not None]
    return averages.median(measured) if measured else otherwise
