"""Engines as JSON."""

from __future__ import annotations

import datetime as dt

from pydantic import BaseModel

from gateway.http.models.common import RecordModel
from gateway.routing.admission.usage import History, Of, merged


class EngineModel(BaseModel):
    """An engine as it is now."""

    name: str
    kind: str
    alive: bool
    detail: str
    limit_bytes: int | None
    ledger: dict[str, int | None]


class PoolModel(BaseModel):
    """A pool as it is now, over all engines. Limits that are null are none."""

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
    """All pools; ``default`` has the statements that are in no other."""

    pools: list[PoolModel]


class LeaseModel(RecordModel):
    """A lease that a query holds now. memory_bytes: null where the engine's memory is not counted."""

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
    """What is held, and how many statements wait."""

    slots: float
    bytes: float
    waiting: float


class IntervalModel(BaseModel):
    """A stretch of time. seconds: that it lasted. most: the highest of each; mean: over time."""

    start: dt.datetime
    seconds: float
    most: LevelModel
    mean: LevelModel


class UsageModel(BaseModel):
    """An engine's, or a pool's, last hour, oldest first. of: engine or pool. Limits that are null are none."""

    of: str
    name: str
    slots: int | None
    capacity_bytes: int | None
    intervals: list[IntervalModel]

    @classmethod
    def of_one(
        cls, of: Of, name: str, slots: int | None, capacity_bytes: int | None, told: History, step_s: float
    ) -> UsageModel:
        """Show an engine's or a pool's history in steps of some seconds."""
        return cls(
            of=of.value,
            name=name,
            slots=slots,
            capacity_bytes=capacity_bytes,
            intervals=[
                IntervalModel(
                    start=told.begun + dt.timedelta(seconds=each.start_s),
                    seconds=each.seconds,
                    most=LevelModel.showing(each.most),
                    mean=LevelModel.showing(each.mean),
                )
                for each in merged(told.intervals, step_s)
            ],
        )


class UsageReply(BaseModel):
    """What was leased and who waited over the last hour."""

    usage: list[UsageModel]


class CacheReply(RecordModel):
    """Cached results. hits, misses: queries that were answered, or might have been and ran, since the start.

    hit_rate: 0..1, null where none asked. evicted: results that went for others' sake; outdated: that went because
    something had changed.
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
    """Whether statements can run. engines: ``ok``, or why one is not available."""

    status: str
    engines: dict[str, str]


class EngineList(BaseModel):
    """All engines, in the order in which they were configured."""

    engines: list[EngineModel]
