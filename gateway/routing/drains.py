"""Drained engines: statements on them finish, new ones go elsewhere until somebody resumes them.

A drain is on record in the metastore, so that it outlives a restart and holds on all gateways.
"""

from __future__ import annotations

import datetime as dt

from gateway.routing.engines import EngineRegistry
from metastore.repositories.drained_engines import Drained, DrainedEngines


class Drains:
    """Drains of the engines of one gateway. Thread-safe."""

    def __init__(self, drained: DrainedEngines, engines: EngineRegistry) -> None:
        self._drained = drained
        self._engines = engines

    def drain(self, engine: str, *, by: str) -> None:
        """Keep new statements off an engine. Raises UnknownEngine."""
        self._engines.require(engine)
        self._drained.add(Drained(engine, by, dt.datetime.now(dt.UTC)))
        self.refresh()

    def resume(self, engine: str) -> None:
        """Let statements use an engine again. Raises UnknownEngine."""
        self._engines.require(engine)
        self._drained.remove(engine)
        self.refresh()

    def refresh(self) -> None:
        """Apply the drains on record, those of other gateways too. Raises SQLAlchemyError."""
        on_record = {drained.engine: drained for drained in self._drained.list()}
        for entry in self._engines.values():
            drained = on_record.get(entry.name)
            entry.breaker.drain(_why(drained) if drained is not None else None)


def _why(drained: Drained) -> str:
    return f"{drained.by} drains it since {drained.since:%Y-%m-%d %H:%M} UTC"
