"""Engines as JSON."""

from __future__ import annotations

import datetime as dt

from pydantic import BaseModel

from gateway.http.models.common import RecordModel
from gateway.routing.admission.usage import History, Of, merged


class EngineModel(RecordModel):
    """An engine as it is now. drained: it takes no new statements, until somebody resumes it."""

    name: str
    kind: str
    alive: bool
    drained: bool
    detail: str
    limit_bytes: int | None
    ledger: dict[str, int | None]


class PoolModel(RecordModel):
    """A pool as it is now, over all engines. A limit of null: no limit."""

    name: str
    weight: float
    slots: int | None
    slots_held: int
    memory_bytes: int | None
    bytes_held: int
    queue: int | None
    queue_s: float | None
    waiting: int
    when_full: str


class PoolList(BaseModel):
    """All pools; ``default`` has all statements that are in no other one."""

    pools: list[PoolModel]


class LeaseModel(RecordModel):
    """A lease of a query. memory_bytes: null where the engine's memory is not counted."""

    query_id: str
    engine: str
    pool: str
    memory_bytes: int | None
    threads: int | None
    since: dt.datetime


class LeaseList(BaseModel):
    """All leases, the oldest first."""

    leases: list[LeaseModel]


class LevelModel(RecordModel):
    """Leased slots and bytes, and waiting statements."""

    slots: float
    bytes: float
    waiting: float


class IntervalModel(RecordModel):
    """An interval of time. seconds: its length. most: highest values; mean: averages over time."""

    start: dt.datetime
    seconds: float
    most: LevelModel
    mean: LevelModel


class UsageModel(BaseModel):
    """The last hour of an engine or a pool, oldest first. of: engine or pool. A limit of null: no limit."""

    of: str
    name: str
    slots: int | None
    capacity_bytes: int | None
    intervals: list[IntervalModel]

    @classmethod
    def showing_history(
        cls, of: Of, name: str, slots: int | None, capacity_bytes: int | None, history: History, step_s: float
    ) -> UsageModel:
        """Show a history in intervals of step_s."""
        intervals = [
            IntervalModel.showing(interval, start=history.begun + dt.timedelta(seconds=interval.start_s))
            for interval in merged(history.intervals, step_s)
        ]
        return cls(of=of.value, name=name, slots=slots, capacity_bytes=capacity_bytes, intervals=intervals)


class UsageReply(BaseModel):
    """Leases and waiting statements of the last hour."""

    usage: list[UsageModel]


class CacheReply(RecordModel):
    """Cached results, counted since the start.

    hits: queries that were answered from the cache. misses: queries that could have been, and ran.
    hit_rate: 0..1; null: no such query yet. evicted: results that were removed to make room for others. outdated:
    results that were removed because something had changed.
    """

    entries: int
    bytes: int
    limit_bytes: int
    hits: int
    misses: int
    hit_rate: float | None
    evicted: int
    outdated: int


class LivingReply(BaseModel):
    """The process lives."""

    status: str


class ReadyReply(BaseModel):
    """Readiness to run statements. engines: ``ok``, or the reason why it is not available."""

    status: str
    engines: dict[str, str]


class EngineList(BaseModel):
    """All engines, in the order in which they were configured."""

    engines: list[EngineModel]
