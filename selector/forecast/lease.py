"""Size of a memory lease: the memory that a statement is likely to need, not the engine's whole limit."""

from __future__ import annotations

import math

from selector.estimate import MemoryEstimate

LEAST_BYTES = 64 << 20  # of a lease: below that it is no estimate that is tested, but what the engine itself takes
STEP_BYTES = 16 << 20
STABLE = 1.06  # times its peak, from which a statement no longer passes and fails by chance
GROUPING = 1.32  # times its peak, that one may need which groups or sorts: the most that was seen of DuckDB
_GROUPING_WORDS = ("aggregate", "distinct", "sort", "window", "top")


def lease_bytes(estimate: MemoryEstimate, limit_bytes: int, *, missed_bytes: int | None = None) -> int:
    """Return the bytes to lease: the upper bound of the peak and what an engine needs beside it, in whole steps.

    It is the whole limit where nothing is known. missed_bytes: with which the statement ran out of memory before, so
    that no more than these are no lease.
    """
    if estimate.upper_bytes is None:
        return limit_bytes
    needed = max(LEAST_BYTES, STEP_BYTES * math.ceil(_margin(estimate) * estimate.upper_bytes / STEP_BYTES))
    if missed_bytes is not None and needed <= missed_bytes:
        return limit_bytes
    return min(needed, limit_bytes)


def _margin(estimate: MemoryEstimate) -> float:
    holding = (part.operator for part in estimate.operators if part.held_bytes)
    groups = any(word in operator for operator in holding for word in _GROUPING_WORDS)
    return GROUPING if groups else STABLE
