"""A real gateway over HTTP on loopback, within reach of the benchmark: its engines are those that serve."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pyarrow as pa

from benchmarks.claim import RunFailed
from engines.errors import EngineError
from engines.protocol import Engine, Lease
from gateway.cli.client import Client
from gateway.server import wiring
from gateway.server.processes.gateway_process import GatewayProcess
from gateway.server.runtime import Gateway
from gateway.server.serve import own_server
from gateway.server.startup import configure_logging
from gateway.settings import Settings

LOOPBACK = "127.0.0.1"
DEADLINE_S = 600.0


@contextmanager
def serving(settings: Settings) -> Iterator[tuple[Gateway, Client]]:
    """Serve as ``fusion`` itself does, on a free port of the loopback, and yield the gateway with a client."""
    configure_logging("ERROR")
    built: list[Gateway] = []
    build = wiring.build

    def remembered(own: Settings, process: GatewayProcess | None = None) -> Gateway:
        built.append(build(own, process))
        return built[-1]

    server = settings.server.model_copy(update={"host": LOOPBACK, "port": 0})
    with patch.object(wiring, "build", remembered):
        with own_server(settings.model_copy(update={"server": server})) as url, Client(url) as client:
            yield built[0], client


def timed_straight(engine: Engine, sql: str, lease: Lease) -> tuple[float, pa.Table]:
    """Run a statement, in the engine's dialect, on the engine itself; returns seconds and the result."""
    begun = time.perf_counter()
    try:
        with engine.execute(sql, query_id=uuid.uuid4().hex, lease=lease, deadline_s=DEADLINE_S) as stream:
            result = pa.Table.from_batches(stream, stream.schema)
    except EngineError as error:
        raise RunFailed(f"{engine.name}, {sql}: {error.code}: {error.message}") from error
    return time.perf_counter() - begun, result


def engine_sql(client: Client, sql: str, engine: str) -> str:
    """Return a statement as the gateway writes it for an engine."""
    return str(client.post("/v1/explain", {"sql": sql})["sql"][engine])
