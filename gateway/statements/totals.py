"""Counters of ended queries since the start, for the metrics."""

from __future__ import annotations

import itertools
import math
import threading
from bisect import bisect_left
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field

from metastore.records import QueryRecord, QuerySummary

SECONDS = (*(0.001 * 2.0**step for step in range(22)), math.inf)
"""Upper ends of the buckets of seconds: one millisecond to about half an hour."""
RATIOS = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0, math.inf)
"""Upper ends of the buckets of measured through expected peaks."""
NO_ENGINE = ""
"""In the place of an engine's name where none ran the query."""


@dataclass(slots=True)
class Histogram:
    """Counts by size. up_to: counts up to each of the bounds, above the bound before."""

    bounds: tuple[float, ...]
    total: float = 0.0
    up_to: list[int] = field(default_factory=list)

    def add(self, size: float) -> None:
        """Count one."""
        if not self.up_to:
            self.up_to = [0] * len(self.bounds)
        self.total += size
        self.up_to[bisect_left(self.bounds, size)] += 1


@dataclass(slots=True)
class QuerySums:
    """Counters of ended queries.

    ended: by engine, state and reason. seconds: by engine, of queries that finished.
    failures: of attempts, by engine and error code. failovers: by the engines that failed and that took over.
    ratios: measured through expected peaks, by engine. bounds: peaks within and above their upper bound, by engine.
    spent_s: by engine. alone_s: on the dependable engine alone, by "measured" and "forecast".
    """

    ended: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    seconds: dict[str, Histogram] = field(default_factory=dict)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    failovers: Counter[tuple[str, str]] = field(default_factory=Counter)
    ratios: dict[str, Histogram] = field(default_factory=dict)
    bounds: Counter[tuple[str, bool]] = field(default_factory=Counter)
    spent_s: dict[str, float] = field(default_factory=dict)
    alone_s: dict[str, float] = field(default_factory=dict)


class QueryTotals:
    """Counters of ended queries. Thread-safe."""

    def __init__(self) -> None:
        self._sums = QuerySums()
        self._lock = threading.Lock()

    def add(self, ended: QueryRecord, summary: QuerySummary) -> None:
        """Count one query."""
        engine, attempts, sums = ended.engine or NO_ENGINE, ended.attempts, self._sums
        with self._lock:
            sums.ended[engine, ended.state.value, summary.reason or ""] += 1
            sums.seconds.setdefault(engine, Histogram(SECONDS)).add(summary.seconds)
            for attempt in attempts:
                sums.spent_s[attempt.engine] = sums.spent_s.get(attempt.engine, 0.0) + (attempt.run_s or 0.0)
                if attempt.failure is not None:
                    sums.failures[attempt.engine, attempt.failure] += 1
            for failed, next_one in itertools.pairwise(attempts):
                sums.failovers[failed.engine, next_one.engine] += 1
            estimated = attempts[0].engine if attempts else engine
            if summary.expected_bytes and summary.peak_bytes is not None:
                ratio = summary.peak_bytes / summary.expected_bytes
                sums.ratios.setdefault(estimated, Histogram(RATIOS)).add(ratio)
            if summary.within_bound is not None:
                sums.bounds[estimated, summary.within_bound] += 1
            if summary.alone is not None:
                basis = "measured" if summary.alone.measured else "forecast"
                sums.alone_s[basis] = sums.alone_s.get(basis, 0.0) + summary.alone.seconds

    def sums(self) -> QuerySums:
        """Return a copy of the counters."""
        with self._lock:
            return deepcopy(self._sums)
