"""Gateways with a port for drivers: over scripted engines, and over a real DuckDB."""

from __future__ import annotations

import datetime as dt
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engines.duckdb.adapter import DuckDBSettings
from engines.protocol import EngineKind
from engines.scripted import Pause, Script, ScriptedEngine
from engines.spark.adapter import SparkSettings
from gateway import settings as settings_module
from gateway.drivers.hs2.binary import BinaryServer
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.app import create_app
from gateway.server.runtime import Gateway
from gateway.server.serve import driver_server
from gateway.settings import TlsSettings
from metastore.records import QueryRecord
from tests.gateway.conftest import SLOW, register, serving
from tests.gateway.scripted_gateway import ACTUALS, LIMIT_BYTES, PLAN, RAN_OUT, ROWS, WritingEngine

MANY_ROWS = 100_000
WITHIN_S = 10.0  # in which a client's end is noticed

MOMENTS = [dt.datetime(2020, 2, 29, 1, 2, 3, 456789), dt.datetime(1970, 1, 1), None]
EVERY_TYPE = pa.record_batch(
    {
        "yes": pa.array([True, False, None]),
        "tiny": pa.array([-128, 127, None], pa.int8()),
        "small": pa.array([-32768, 32767, None], pa.int16()),
        "whole": pa.array([-(2**31), 2**31 - 1, None], pa.int32()),
        "big": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
        "short": pa.array([0.5, -1.25, None], pa.float32()),
        "long": pa.array([1e300, -0.1, None], pa.float64()),
        "text": pa.array(["grüße 😀", "", None]),
        "raw": pa.array([b"\x00\xff", b"", None]),
        "day": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
        "moment": pa.array(
            [dt.datetime(2020, 2, 29, 1, 2, 3, 456789), dt.datetime(1970, 1, 1), None], pa.timestamp("us")
        ),
        "money": pa.array([Decimal("12345678.90"), Decimal("-0.01"), None], pa.decimal128(10, 2)),
        "exact": pa.array([Decimal("0.0000000001"), Decimal("-1"), None], pa.decimal128(38, 10)),
        "many": pa.array([[1, None], [], None], pa.list_(pa.int64())),
        "pairs": pa.array([{"a": 1}, {}, None], pa.map_(pa.string(), pa.int64())),
        "parts": pa.array([{"x": 1, "y": "ä"}, {"x": None, "y": None}, None]),
    }
)
UNTELLABLE = pa.record_batch(
    {"ages": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])}
)  # which no engine has, and no door can write
NUMBERS = pa.record_batch({"n": pa.array(range(MANY_ROWS), pa.int64()), "text": [f"row {n}" for n in range(MANY_ROWS)]})


@dataclass(frozen=True, slots=True)
class Drivers:
    """A gateway as drivers see it."""

    gateway: Gateway
    server: BinaryServer
    http_port: int

    @property
    def host(self) -> str:
        return self.server.address[0]

    @property
    def port(self) -> int:
        return self.server.address[1]

    def last_query(self) -> QueryRecord:
        (record,) = self.gateway.metastore.queries.search(limit=1)
        found = self.gateway.metastore.queries.get(record.id)
        assert found is not None
        return found


@contextmanager
def driving(gateway: Gateway) -> Iterator[Drivers]:
    """Serve a gateway on two free ports."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = driver_server(listening, gateway)
    gateway.listeners.append(server)
    with serving(create_app(gateway)) as client:
        port = client.base_url.port
        assert port is not None
        yield Drivers(gateway, server, port)


def scripted_engines() -> tuple[ScriptedEngine, ScriptedEngine]:
    """Return a fast and a dependable engine that answer what the tests ask."""
    fast = ScriptedEngine("duckdb", slots=8)
    dependable = WritingEngine("spark", kind=EngineKind.DEPENDABLE, slots=8)
    for engine in (fast, dependable):
        results = (("select", ROWS), ("every type", EVERY_TYPE), ("many rows", NUMBERS), ("for ages", UNTELLABLE))
        for text, batch in results:
            engine.script(text, Script(steps=(batch,), actuals=ACTUALS, plan=PLAN))
        engine.script("no rows", Script(steps=(ROWS.slice(0, 0),), plan=PLAN))
        engine.script("forever", Script(steps=(ROWS, Pause.UNTIL_ENDED), plan=PLAN))
    fast.script("too big", Script(steps=(ROWS, RAN_OUT), plan=PLAN))
    return fast, dependable


@contextmanager
def scripted(home: Path, **sections: Any) -> Iterator[Drivers]:
    """Serve a gateway over scripted engines."""
    fast, dependable = scripted_engines()
    entries = [
        EngineEntry(fast, limit_bytes=LIMIT_BYTES),
        EngineEntry(dependable, speed=SLOW),
    ]
    with driving(wiring.assemble(settings_module.load(home, **sections), EngineRegistry(entries))) as drivers:
        yield drivers


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Serve scripted engines to everybody on this machine."""
    with scripted(tmp_path_factory.mktemp("home")) as served:
        yield served


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Drivers]]:
    """Serve scripted engines under settings of a test's own."""
    with ExitStack() as stack:
        yield lambda **sections: stack.enter_context(scripted(tmp_path / "home", **sections))


@pytest.fixture(scope="session")
def bookshop(tmp_path_factory: pytest.TempPathFactory, bookstore: Path) -> Iterator[Drivers]:
    """Serve the bookstore from a real DuckDB."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    settings = settings_module.load(
        tmp_path_factory.mktemp("home"),
        duckdb=DuckDBSettings(workers=1, threads=1, spare_workers=0),
        spark=SparkSettings(enabled=False),
    )
    gateway = wiring.build(settings)
    register(gateway, bookstore)
    with driving(gateway) as served:
        yield served


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> TlsSettings:
    """Make a certificate for this machine."""
    folder = tmp_path_factory.mktemp("tls")
    made = TlsSettings(certificate=folder / "server.pem", key=folder / "server.key")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    try:
        subprocess.run(
            [*command, "-out", str(made.certificate), "-keyout", str(made.key)], check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("no openssl on PATH makes a certificate")
    return made
