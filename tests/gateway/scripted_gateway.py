"""A whole gateway over two scripted engines: real metastore, router, coordinator and spool, no driver."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from engines.errors import MemoryExceeded
from engines.protocol import Actuals, EngineKind, EngineStatus, OperatorActual, WriteTarget
from engines.scripted import Script, ScriptedEngine
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.runtime import Gateway
from tests.gateway.conftest import BY_MEMORY, SLOW, settings_for

MIB = 1 << 20
LIMIT_BYTES = 384 * MIB
RAN_OUT_AT_BYTES = 380 * MIB
ROWS = pa.RecordBatch.from_pydict({"answer": [42, 43]})
WRITTEN = pa.table({"answer": pa.array([1, 2, 3], pa.int32())})
ACTUALS = Actuals(operators=(OperatorActual("Project", 2, 0), OperatorActual("Range", 2, 1)))
RAN_OUT = MemoryExceeded("Out of memory: 380 of 384 MiB are taken", peak_bytes=RAN_OUT_AT_BYTES)
PLAN = json.dumps([{"name": "DUMMY_SCAN", "children": [], "extra_info": {}}])

TOO_BIG = "SELECT 'too big' AS answer"
SMALL = "SELECT 'small' AS answer"
_NUMBERS = itertools.count()


def too_big() -> str:
    """Return a statement that is too big and of no template that was met before, of which a miss would be known."""
    calls = next(_NUMBERS)
    return f"{TOO_BIG} WHERE {'abs(' * calls}1{')' * calls} > 0"


class WritingEngine(ScriptedEngine):
    """Writes the same rows whatever is asked."""

    def write(self, sql: str, target: WriteTarget, *, query_id: str, deadline_s: float) -> pa.Schema:
        folder = Path(target.folder)
        folder.mkdir(parents=True)
        pq.write_table(WRITTEN, folder / "part-0.parquet")
        return WRITTEN.schema


@dataclass(frozen=True, slots=True)
class ScriptedGateway:
    """TOO_BIG runs out of memory on ``fast`` and answers on ``dependable``; everything else answers at once."""

    gateway: Gateway
    fast: ScriptedEngine
    dependable: ScriptedEngine


def scripted_gateway(home: Path, **sections: Any) -> ScriptedGateway:
    """Build a gateway that is ready to be started. sections: of its settings."""
    fast = ScriptedEngine("duckdb")
    dependable = ScriptedEngine("spark", kind=EngineKind.DEPENDABLE, slots=4)
    fast.reported_status = EngineStatus(alive=True, detail="2 workers are idle")
    for engine in (fast, dependable):
        engine.script("select", Script(steps=(ROWS,), actuals=ACTUALS, plan=PLAN))
    fast.script("too big", Script(steps=(ROWS, RAN_OUT), plan=PLAN))
    engines = EngineRegistry(
        [
            EngineEntry(fast, limit_bytes=LIMIT_BYTES),
            EngineEntry(dependable, speed=SLOW),
        ]
    )
    settings = settings_for(home, routing=BY_MEMORY).model_copy(update=sections)
    return ScriptedGateway(wiring.assemble(settings, engines), fast, dependable)
