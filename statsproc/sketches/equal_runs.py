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


def runs_of(values: NDArray[Any]) -> tuple[NDArray[Any], Integers, Integers]:
    """Return the different values in order, and where the run of each begins and ends once all are sorted.

    Only those are sorted that need it: whole numbers between close bounds are counted, and many a column, such as a
    number that goes up with each row, is in order as it is stored.
    """
    if values.dtype.kind in "iu" and values.size:
        low, high = int(values.min()), int(values.max())
        if high - low < values.size:
            above = values - values.dtype.type(low) if values.dtype.itemsize == 8 else values.astype(np.int64) - low
            held = np.bincount(above.astype(np.int64, copy=False))
            present = np.flatnonzero(held)
            ends = np.cumsum(held[present])
            return values.dtype.type(low) + present.astype(values.dtype), ends - held[present], ends
    ordered = values if (values[1:] >= values[:-1]).all() else np.sort(values)
    starts, ends = runs(ordered)
    return ordered[starts], starts, ends
