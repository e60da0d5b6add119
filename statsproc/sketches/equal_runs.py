"""Runs of equal values in sorted arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.intp]


def run_starts(ordered: NDArray[Any]) -> Integers:
    """Return where each different value of a sorted array begins."""
    if not ordered.size:
        return np.empty(0, dtype=np.intp)
    changed = ordered[1:] != ordered[:-1]
    if ordered.dtype.kind == "f" and np.isnan(ordered[-1]):
        changed[np.searchsorted(ordered, np.nan) :] = False  # NaN lies behind all others, and is one value
    return np.concatenate((np.zeros(1, dtype=np.intp), np.flatnonzero(changed) + 1))


def runs(ordered: NDArray[Any]) -> tuple[Integers, Integers]:
    """Return where the run of each different value begins, and where it ends."""
    starts = run_starts(ordered)
    return starts, np.append(starts[1:], ordered.size)[: starts.size]
