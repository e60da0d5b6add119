"""Drivers see that a statement waits: its state, its log, Impala's summary and profile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines.protocol import EngineKind
from engines.scripted import Script, ScriptedEngine
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from tests.gateway.conftest import BY_MEMORY, SLOW, settings_for
from tests.gateway.drivers.hs2.conftest import Drivers, driving
from tests.gateway.scripted_gateway import LIMIT_BYTES, PLAN, ROWS
from tests.waiting import wait_until

hive = pytest.importorskip("pyhive.hive", reason="needs the extra hive")
dbapi = pytest.importorskip("impala.dbapi", reason="needs the extra impala")
TOperationState = pytest.importorskip("TCLIService.ttypes").TOperationState
HELD, NEXT = "SELECT 'held' AS answer", "SELECT 'next' AS answer"


@dataclass(frozen=True, slots=True)
class House:
    """A gateway with one slot; ``end`` ends the statement that holds it."""

    drivers: Drivers
    end: threading.Event
    connections: ExitStack  # which end what they started when they are closed

    def hold(self) -> Any:
        """Have a statement that holds the slot, and runs."""
        holder = self.pyhive()
        holder.execute(HELD, async_=True)
        wait_until(lambda: holder.poll().operationState == TOperationState.RUNNING_STATE)
        return holder

    def pyhive(self) -> Any:
        """Return a cursor of a connection of its own."""
        return self._cursor(hive.connect(self.drivers.host, port=self.drivers.port))

    def impyla(self) -> Any:
        """Return a cursor of a connection of its own."""
        return self._cursor(dbapi.connect(self.drivers.host, self.drivers.port, auth_mechanism="PLAIN"))

    def _cursor(self, connection: Any) -> Any:
        self.connections.callback(connection.close)
        return connection.cursor()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    end = threading.Event()
    fast = ScriptedEngine("duckdb", slots=1)
    dependable = ScriptedEngine("spark", kind=EngineKind.DEPENDABLE, slots=1)
    for engine in (fast, dependable):
        engine.script("select", Script(steps=(ROWS,), plan=PLAN))
        engine.script("held", Script(steps=(end, ROWS), plan=PLAN))
    engines = EngineRegistry([EngineEntry(fast, limit_bytes=LIMIT_BYTES), EngineEntry(dependable, speed=SLOW)])
    with driving(wiring.assemble(settings_for(tmp_path, routing=BY_MEMORY), engines)) as drivers:
        with ExitStack() as connections:
            yield House(drivers, end, connections)
            end.set()


def test_pyhive_sees_a_statement_pending_and_its_log(house: House) -> None:
    holder, cursor = house.hold(), house.pyhive()
    cursor.execute("SET fusion.engine = duckdb")
    cursor.execute(NEXT, async_=True)
    wait_until(lambda: cursor.poll().operationState == TOperationState.PENDING_STATE)
    log: list[str] = []

    def is_told() -> bool:
        log.extend(cursor.fetch_logs())
        return any("1st in line" in line for line in log)

    wait_until(is_told)
    assert log[-1].startswith("waits for a slot of duckdb: 1st in line, expected ")
    assert cursor.fetch_logs() == []  # nothing has changed
    time.sleep(0.2)
    house.end.set()
    wait_until(lambda: cursor.poll().operationState == TOperationState.FINISHED_STATE)
    later = cursor.fetch_logs()
    assert later[0].startswith("admitted on duckdb after ")
    assert later[1].startswith("attempt 1 on duckdb: 2 rows in ")
    assert later[2].startswith("finished after ")
    assert cursor.fetchall() == holder.fetchall() == [(42,), (43,)]


def test_impyla_sees_a_statement_queued(house: House) -> None:
    house.hold()
    cursor = house.impyla()
    cursor.execute("SET fusion.engine = duckdb")
    cursor.execute_async(NEXT)
    wait_until(lambda: cursor.status() == "PENDING_STATE")
    wait_until(lambda: "1st in line" in cursor.get_log())
    assert cursor.is_executing()
    summary = cursor.get_summary()
    assert summary.is_queued
    assert "Admission result: Queued" in cursor.get_profile()
    time.sleep(0.2)
    house.end.set()
    assert cursor.fetchall() == [(42,), (43,)]
    assert "Admission result: Admitted (queued); admitted on duckdb after " in cursor.get_profile()
