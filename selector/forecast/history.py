"""Runs as they teach: what was expected of one on an engine, and what it took."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from selector.estimate import USUAL_UNCERTAINTY, Uncertainty
from selector.forecast.distribution import RunError

SMALLEST_BYTES = 1 << 20  # peaks below are all the same: what is held so briefly is seen by chance, or not at all
SHORTEST_S = 1e-3
SMALLER = 0.9  # share of an expected peak, below which new statistics say something else


@dataclass(frozen=True, slots=True)
class WorkloadKey:
    """Identity of a statement. template: the same for statements that differ in their literals only."""

    fingerprint: str
    template: str


@dataclass(frozen=True, slots=True)
class Expectation:
    """Peak and seconds of a statement on an engine by the models alone, before corrections by runs.

    peak_bytes, seconds: None where nothing is known. limit_bytes: of the engine, for one statement; None of one that
    spills instead of failing.
    """

    peak_bytes: int | None = None
    uncertainty: Uncertainty = USUAL_UNCERTAINTY
    limit_bytes: int | None = None
    seconds: float | None = None


NOTHING = Expectation()


@dataclass(frozen=True)
class PastRun:
    """One run on one engine. measured_bytes: its peak, None where the engine cannot tell. seconds: without waiting.

    ran_out: of memory, so that only the least is known that its peak can have been.
    """

    engine: str
    subject: WorkloadKey
    expected: Expectation
    ran_out: bool
    measured_bytes: int | None
    seconds: float | None

    @property
    def teaches_memory(self) -> bool:
        """Tell whether it says anything about an expected peak."""
        is_bounded = self.measured_bytes is not None or (self.ran_out and self.expected.limit_bytes is not None)
        return self.expected.peak_bytes is not None and is_bounded

    @cached_property
    def peak_error(self) -> float:
        """Logarithm of the peak, or of the least that it can have been, over the expected one."""
        least = (self.expected.limit_bytes or 0) + 1 if self.ran_out else self.measured_bytes or 0
        return log_ratio(least, self.expected.peak_bytes or 0)

    @cached_property
    def as_seen(self) -> RunError:
        """Its peak as a distribution of errors takes it in."""
        return RunError(self.peak_error, self.ran_out)

    @cached_property
    def seconds_error(self) -> float:
        """Logarithm of the seconds that it took over the expected ones."""
        return math.log(max(SHORTEST_S, self.seconds or 0.0) / max(SHORTEST_S, self.expected.seconds or 0.0))


@dataclass(frozen=True, slots=True)
class Ground:
    """Engine, limit and statistics of a run to come. model_bytes: its peak by the memory model; None: unknown."""

    engine: str
    limit_bytes: int | None
    statistics_version: str
    model_bytes: int | None

    def misses_on(self, other: Ground) -> bool:
        """Tell whether the statement, which ran out of memory on this ground, would do so on another one, too.

        A larger limit is other ground, and so are new statistics by which the memory model expects a smaller peak than
        it did: a new build that changes nothing of what the estimate rests on is no reason to try again.
        """
        if self.limit_bytes is None or self.engine != other.engine:
            return False
        if other.limit_bytes is None or other.limit_bytes > self.limit_bytes:
            return False
        if self.statistics_version == other.statistics_version:
            return True
        if self.model_bytes is None or other.model_bytes is None:
            return False
        return other.model_bytes > SMALLER * self.model_bytes


def log_ratio(some_bytes: float, other_bytes: float) -> float:
    """Return the logarithm of a ratio of peaks."""
    return math.log(max(SMALLEST_BYTES, some_bytes) / max(SMALLEST_BYTES, other_bytes))
