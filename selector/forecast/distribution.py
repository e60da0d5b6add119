"""A predictive distribution of how far a measurement lies from what was expected, on a logarithmic scale.

Made of points with weights: those of the memory models where nothing was run yet, and errors of runs, which are mixed
into them. A run that ran out of memory says only that its error is larger than some; its weight goes to the larger
errors of the distribution that it is mixed into, in proportion (the self-consistent estimator of censored data).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SHAPE_LEVELS = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98)
SHAPE = (-3.1, -2.3, -1.55, -0.6, 0.0, 0.66, 1.5, 2.3, 2.9)  # heavier tails than a normal distribution has
TAIL = 5e-3  # probability of each of the points that are FURTHEST
FURTHEST = 8.0  # deviations
SURPRISING = 0.05  # probability of a larger error below which one that is known to be larger may be any up to BEYOND
POINTS = 65  # odd, so that one of them is the median
BEYOND = math.log(2.0)  # up to which an error lies that is larger than all that are known
_FIFTHS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
_SMEARED = np.array([-1.28, -0.52, 0.0, 0.52, 1.28])  # of a normal distribution, in fifths


@dataclass(frozen=True, slots=True)
class RunError:
    """One run's logarithm of measured over expected; where it is_censored, of the least that it can have been."""

    error: float
    is_censored: bool = False


@dataclass(frozen=True, eq=False)
class ErrorDistribution:
    """Errors with their weights, which sum to one, in ascending order of the errors."""

    errors: Floats
    weights: Floats

    @classmethod
    def of_shape(cls, shape: Sequence[float] = SHAPE) -> Self:
        """Return errors in deviations from their median, by their quantiles at SHAPE_LEVELS."""
        wanted = (np.arange(POINTS) + 0.5) / POINTS
        errors = np.interp(wanted, SHAPE_LEVELS, shape)
        far = np.array([-FURTHEST, FURTHEST])
        order = np.argsort(np.append(errors, far))
        weights = np.append(np.full(POINTS, (1 - 2 * TAIL) / POINTS), [TAIL, TAIL])
        return cls(np.append(errors, far)[order], weights[order])

    def scaled(self, bias: float, deviation: float, deviation_below: float | None = None) -> Self:
        """Return errors of other median and deviations, above it and below."""
        factors = np.where(self.errors >= 0, deviation, deviation_below or deviation)
        return type(self)(bias + factors * self.errors, self.weights)

    def with_runs(self, runs: Sequence[RunError], *, weight: float, bandwidth: float) -> Self:
        """Mix runs into it. weight: how many runs it counts as itself. bandwidth: by which another run may differ."""
        if not runs:
            return self
        whole = weight + len(runs)
        own = self.weights * (weight / whole)
        censored = np.sort(np.array([one.error for one in runs if one.is_censored]))
        errors, weights = self.errors, own
        if censored.size:
            first = np.searchsorted(errors, censored, side="right")
            tails = np.append(np.cumsum(self.weights[::-1])[::-1], 0.0)[first]
            is_covered = tails > SURPRISING
            shares = np.zeros(errors.size + 1)
            np.add.at(shares, first[is_covered], 1.0 / (whole * tails[is_covered]))
            weights = own + self.weights * np.cumsum(shares)[:-1]
            lost = (censored[~is_covered][:, None] + BEYOND * _FIFTHS[None, :]).ravel()
            errors = np.concatenate([errors, lost])
            weights = np.concatenate([weights, np.full(lost.size, 1.0 / (whole * _FIFTHS.size))])
        seen = np.array([one.error for one in runs if not one.is_censored])
        smeared = (seen[:, None] + bandwidth * _SMEARED[None, :]).ravel()
        errors = np.concatenate([errors, smeared])
        weights = np.concatenate([weights, np.full(smeared.size, 1.0 / (whole * _SMEARED.size))])
        order = np.argsort(errors, kind="stable")
        return type(self)(errors[order], weights[order])

    def score(self, error: float) -> float:
        """Return the continuous ranked probability score of an error that came: 0 is perfect, in the errors' unit."""
        below = np.cumsum(self.weights)[:-1]
        widths = np.diff(self.errors)
        inside = np.clip(error - self.errors[:-1], 0.0, widths)  # of each step, the part below the error
        outside = max(0.0, self.errors[0] - error) + max(0.0, error - self.errors[-1])
        return float(np.sum(below**2 * inside + (1.0 - below) ** 2 * (widths - inside)) + outside)

    def below(self, error: float) -> float:
        """Return the probability of an error that is not larger."""
        errors, middles = self._lists
        after = bisect_right(errors, error)
        if after == 0:
            return 0.0
        if after == len(errors):
            return 1.0 if error > errors[-1] else middles[-1]
        slope = (middles[after] - middles[after - 1]) / (errors[after] - errors[after - 1])
        return slope * (error - errors[after - 1]) + middles[after - 1]

    def quantile(self, level: float) -> float:
        """Return the error that is exceeded with the probability 1 - level."""
        return float(np.interp(level, self._middles, self.errors))

    @cached_property
    def _middles(self) -> Floats:
        """Return the probability of errors below each, half of its own weight included."""
        return np.cumsum(self.weights) - self.weights / 2

    @cached_property
    def _lists(self) -> tuple[list[float], list[float]]:
        """Return errors and their probabilities as Python has them: one is looked up ten times as fast."""
        return self.errors.tolist(), self._middles.tolist()
