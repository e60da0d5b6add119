"""Engines as JSON."""

from __future__ import annotations

from pydantic import BaseModel


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
