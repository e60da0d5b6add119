"""A gateway with a past: it ran statements over scripted engines, of which some did not fit."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from engines.errors import MemoryExceeded
from engines.protocol import Actuals, EngineKind, Lease, Snapshots, Watch, unwatched
from engines.scripted import Script, ScriptedEngine, ScriptedResult
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.security.principals import Role
from gateway.server import wiring
from gateway.server.app import create_app
from gateway.server.runtime import Gateway
from gateway.settings import AuthenticationSettings
from selector.forecast.seconds import Speed
from selector.wording import MIB
from tests.gateway.conftest import register, serving, settings_for

LIMIT = 64 * MIB
STATEMENTS = 60
SLOTS = 2
SLOW_S = 0.03  # that the dependable engine takes: more than the fast one, so that there is something to decide
ROWS = pa.RecordBatch.from_pydict({"id": [1, 2]})


class SlowEngine(ScriptedEngine):
    """Takes a while for everything."""

    def execute(
        self,
        sql: str,
        *,
        query_id: str,
        lease: Lease,
        deadline_s: float,
        watch: Watch = unwatched,
        snapshots: Snapshots = (),
    ) -> ScriptedResult:
        time.sleep(SLOW_S)
        return super().execute(sql, query_id=query_id, lease=lease, deadline_s=deadline_s)


def gateway_of(home: Path, bookstore: Path, role: Role = Role.ADMIN) -> tuple[Gateway, ScriptedEngine]:
    fast = ScriptedEngine("fast", cost_model="tests.engines.toy_cost", slots=SLOTS)
    slow = SlowEngine("slow", kind=EngineKind.DEPENDABLE, slots=SLOTS)
    slow.script("books", Script(steps=(ROWS,)))
    entries = [
        EngineEntry(fast, limit_bytes=LIMIT),
        EngineEntry(slow, speed=Speed(start_s=1.0)),
    ]
    settings = settings_for(home).model_copy(update={"authentication": AuthenticationSettings(anonymous_role=role)})
    gateway = wiring.assemble(settings, EngineRegistry(entries))
    register(gateway, bookstore)
    return gateway, fast


def statement(number: int) -> str:
    return f"SELECT id FROM books WHERE id < {100_000 + number}"


@dataclass(frozen=True, slots=True)
class House:
    """A gateway with a past. replies: of the statements that it ran, in order."""

    client: httpx.Client
    gateway: Gateway
    fast: ScriptedEngine
    replies: list[dict[str, Any]]

    def replay(self, **asked: Any) -> dict[str, Any]:
        return self.ask("replay", **asked)

    def ask(self, route: str, **asked: Any) -> dict[str, Any]:
        reply = self.client.post(f"/v1/{route}", json=asked)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found


@contextmanager
def lived(home: Path, bookstore: Path, *, clients: int = 1) -> Iterator[House]:
    """Serve a gateway that has run statements of some clients; some came again, and some ran out of memory."""
    gateway, fast = gateway_of(home, bookstore)
    chance = random.Random(3)  # noqa: S311 - examples, no secrets
    for number in range(STATEMENTS):
        expected, factor = chance.randint(10, 90), chance.lognormvariate(0.0, 0.4)
        peak = round(expected * factor) * MIB
        plan = f"takes {expected} MiB"
        ran_out = MemoryExceeded("full", peak_bytes=LIMIT)
        fits = Script(steps=(ROWS,), actuals=Actuals(peak_bytes=peak), plan=plan)
        fast.script(str(100_000 + number), fits if peak <= LIMIT else Script(steps=(ROWS, ran_out), plan=plan))
    with serving(create_app(gateway)) as client:

        def run(sql: str) -> dict[str, Any]:
            reply: dict[str, Any] = client.post("/v1/queries", json={"sql": sql}).json()
            assert reply["state"] == "FINISHED", reply
            return reply

        asked = [statement(chance.randint(0, number)) for number in range(STATEMENTS)]
        with ThreadPoolExecutor(clients) as threads:
            replies = list(threads.map(run, asked))
        yield House(client, gateway, fast, replies)
