"""The overview: what runs and waits now, what engines did of late, and what the gateway is worth."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request

from gateway.dashboard.listing import WINDOWS
from gateway.dashboard.views import Moment, shortened
from gateway.presentation.formatting import DASH, duration, share
from gateway.presentation.savings import Savings
from gateway.presentation.waits import Wait, waits_for
from metastore.query_log.workload import EngineShare, SavingsLine, Workload
from metastore.records import QueryRecord, QueryState

DEFAULT_WINDOW = "hour"
KEPT_S: Mapping[str, float] = {"hour": 2.0, "day": 30.0, "week": 120.0}
"""Seconds for which the sums of a window are shown again: those of many queries take a while."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of a window. bounds: peaks within their upper bound, and above it."""

    engines: Sequence[EngineShare]
    savings: Sequence[SavingsLine]
    bounds: tuple[int, int]


class RecentSums:
    """Sums of the windows, kept for a short time. Thread-safe."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Sums]] = {}

    def of(self, window: str) -> Sums:
        """Return the sums of a window that ends about now."""
        with self._lock:  # one at a time computes, and the others have it, too
            kept = self._kept.get(window)
            if kept is not None and time.monotonic() - kept[0] < KEPT_S[window]:
                return kept[1]
            since = dt.datetime.now(dt.UTC) - WINDOWS[window]
            work = self._workload
            sums = Sums(work.engines(since), work.savings(since), work.bounds(since))
            self._kept[window] = time.monotonic(), sums
            return sums


def install(app: FastAPI, workload: Workload) -> None:
    """Give an application the sums of its overview."""
    app.state.recent_sums = RecentSums(workload)


def sums_of(request: Request, window: str) -> Sums:
    """Return the sums of a window."""
    recent = request.app.state.recent_sums
    assert isinstance(recent, RecentSums)
    return recent.of(window)


@dataclass(frozen=True, slots=True)
class OpenQuery:
    """A query that runs or waits. wait: in words; "": it runs."""

    id: str
    user: str
    sql: str
    state: QueryState
    engine: str
    submitted: Moment
    so_far: str
    place: str
    wait: str

    @classmethod
    def of(cls, record: QueryRecord, now: dt.datetime, wait: Wait | None) -> OpenQuery:
        """Show a query."""
        place = "" if wait is None or wait.place is None else str(wait.place)
        return cls(
            id=record.id,
            user=record.user,
            sql=shortened(record.sql),
            state=record.state,
            engine=record.engine or DASH,
            submitted=Moment.of(record.submitted_at, now),
            so_far=duration((now - record.submitted_at).total_seconds()),
            place=place,
            wait=f"It {waits_for(wait)}." if wait is not None else "",
        )


@dataclass(frozen=True, slots=True)
class ShareLine:
    """Queries of one engine in a window. engine: "": none was tried."""

    engine: str
    queries: int
    part: str
    finished: int
    failed_over: int
    ran_out: int
    p50: str
    p95: str


def parts(sums: Sums, prices: Mapping[str, float]) -> dict[str, Any]:
    """Return the parts of the page about a window. prices: of an hour of an engine, by name."""
    count = sum(one.queries for one in sums.engines)
    within, above = sums.bounds
    return {
        "shares": [
            ShareLine(
                engine=one.engine or "",
                queries=one.queries,
                part=share(one.queries / count),
                finished=one.finished,
                failed_over=one.failed_over,
                ran_out=one.ran_out,
                p50=duration(one.p50_s, absent=DASH),
                p95=duration(one.p95_s, absent=DASH),
            )
            for one in sums.engines
        ],
        "count": count,
        "savings": Savings.of(sums.savings[0], prices) if sums.savings else None,
        "within": share(within / (within + above)) if within + above else None,
        "above": above,
    }
