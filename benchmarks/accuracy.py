"""How far estimates are from the truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def percentage_errors(estimates: Sequence[float], truths: Sequence[float]) -> NDArray[np.float64]:
    """Return |estimate - truth| / truth in percent; no truth may be 0."""
    if len(estimates) != len(truths) or not truths:
        raise ValueError(f"{len(estimates)} estimates of {len(truths)} truths cannot be compared")
    truth = np.asarray(truths, dtype=np.float64)
    if np.any(truth == 0.0):
        raise ValueError("a percentage error needs a truth that is not 0")
    return np.abs(np.asarray(estimates, dtype=np.float64) - truth) / np.abs(truth) * 100.0


def mape(estimates: Sequence[float], truths: Sequence[float]) -> float:
    """Return the mean absolute percentage error, in percent."""
    return float(percentage_errors(estimates, truths).mean())


def q_errors(estimates: Sequence[float], truths: Sequence[float]) -> NDArray[np.float64]:
    """Return max(estimate / truth, truth / estimate) of each; fewer rows than one count as one."""
    if len(estimates) != len(truths) or not truths:
        raise ValueError(f"{len(estimates)} estimates of {len(truths)} truths cannot be compared")
    estimate = np.maximum(np.asarray(estimates, dtype=np.float64), 1.0)
    truth = np.maximum(np.asarray(truths, dtype=np.float64), 1.0)
    return np.maximum(estimate / truth, truth / estimate)
