"""A gateway in this process over real engines, asked as the coordinator is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from engines.protocol import Engine, EngineKind
from gateway.catalog.new_table import NewTable
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.security.principals import IN_PROCESS
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.settings import load
from gateway.statements.statement import Statement
from metastore.records import QueryRecord, QueryState

LIMIT = 256 << 20
"""Bytes of the fast engine."""


class House:
    """A gateway and the questions that tests ask it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def ended(self, sql: str, **fields: Any) -> QueryRecord:
        return self.gateway.coordinator.submit(Statement(sql=sql, **fields)).done.result(timeout=120)

    def done(self, sql: str, **fields: Any) -> list[dict[str, Any]]:
        record = self.ended(sql, **fields)
        assert record.state is QueryState.FINISHED, record.error
        page = self.gateway.spool.page(record.id, max_rows=1_000)
        rows: list[dict[str, Any]] = pa.Table.from_batches(page.batches, page.schema).to_pylist()
        return rows

    def failed(self, sql: str, **fields: Any) -> str:
        record = self.ended(sql, **fields)
        assert record.state is QueryState.FAILED
        assert record.error is not None
        return record.error.code

    def both(self, sql: str) -> list[dict[str, Any]]:
        """Ask both engines, which have to agree."""
        fast, dependable = (self.done(sql, engine=name) for name in ("duckdb", "spark"))
        assert fast == dependable
        return fast

    def location(self, table: str) -> Path:
        registered = self.gateway.metastore.catalog.get(table)
        assert registered is not None
        return Path(registered.source.location)

    def register(self, name: str, location: str | Path, **fields: Any) -> None:
        self.gateway.registration.add(NewTable(name, str(location), **fields), user=IN_PROCESS)


@contextmanager
def opened(home: Path, *engines: Engine, **sections: Any) -> Iterator[House]:
    """Build a gateway over engines that outlive it, and close it at the end. sections: of its settings."""
    entries = [
        EngineEntry(engine, limit_bytes=None if engine.kind is EngineKind.DEPENDABLE else LIMIT) for engine in engines
    ]
    gateway = wiring.assemble(load(home, **sections), EngineRegistry(entries))
    gateway.coordinator.recover()
    gateway.catalog.current()
    try:
        yield House(gateway)
    finally:
        gateway.coordinator.stop(grace_s=10)
        gateway.catalog.rights.stop()
        gateway.planners.close()
        gateway.lake.close()
        gateway.objects.close()
        gateway.metastore.close()
