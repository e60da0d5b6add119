"""What finding out how long something takes is worth: expected improvement, of seconds whose logarithm is normal."""

from __future__ import annotations

import math
from dataclasses import dataclass

SMALLEST_DEVIATION = 1e-6


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Seconds by their median and the deviation of their logarithm."""

    median_s: float
    deviation: float = 0.0

    @property
    def mean_s(self) -> float:
        """The seconds to expect on average."""
        return self.median_s * math.exp(self.deviation**2 / 2)

    @property
    def above_median_s(self) -> float:
        """By how much the mean is above the median."""
        return self.mean_s - self.median_s

    def chance_below(self, other: LogNormal) -> float:
        """Return the probability of fewer seconds than another, of which nothing of this one says anything."""
        deviation = max(SMALLEST_DEVIATION, math.hypot(self.deviation, other.deviation))
        return _normal(math.log(other.median_s / self.median_s) / deviation)

    def improvement_s(self, best_s: float) -> float:
        """Return E[max(0, best - seconds)]: what is saved on average by who knows them, over who takes the best."""
        if best_s <= 0.0:
            return 0.0
        deviation = max(SMALLEST_DEVIATION, self.deviation)
        place = math.log(best_s / self.median_s) / deviation
        return max(0.0, best_s * _normal(place) - self.mean_s * _normal(place - deviation))

    def excess_s(self, best_s: float) -> float:
        """Return E[max(0, seconds - best)]: what is saved on average by who knows them, over who takes these."""
        return max(0.0, self.mean_s - best_s + self.improvement_s(best_s))


def information_s(candidate: LogNormal, best: LogNormal) -> float:
    """Return the seconds that a run of a candidate is worth each time after it, beyond what one of the best teaches.

    The knowledge gradient: who knows the candidate's seconds takes the smaller of them and the best's mean, and who
    knows the best's the smaller of those and the candidate's.
    """
    return candidate.improvement_s(best.mean_s) - best.excess_s(candidate.mean_s)


def _normal(deviations: float) -> float:
    return math.erfc(-deviations / math.sqrt(2.0)) / 2.0
