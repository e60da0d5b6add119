"""A small bookstore, and gateways over it: with scripted engines, or with a real DuckDB."""

from __future__ import annotations

import datetime as dt
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr

from engines.duckdb.adapter import DuckDBSettings
from engines.protocol import EngineKind
from engines.scripted import ScriptedEngine
from engines.spark.adapter import SparkSettings
from gateway import settings as settings_module
from gateway.catalog.lake import lake_tables
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.security import authentication
from gateway.server import wiring
from gateway.server.app import create_app
from gateway.server.connections.protocol import PatientProtocol
from gateway.server.runtime import Gateway
from metastore.discovery.inspection import inspect
from selector.decision import Rule
from selector.forecast.seconds import Speed
from tests.gateway.lasting_planners import LastingPlanners, end_waiting

MIB = 1 << 20
LIMIT = 64 * MIB
BOOKS = 1_000
TRANSACTIONS = 5_000
HASHED_WITHIN_S = 10.0
SLOW = Speed(start_s=20.0)
BY_SECONDS = settings_module.RoutingSettings()
BY_MEMORY = settings_module.RoutingSettings(policy=Rule.SAFE)


@pytest.fixture(scope="session")
def bookstore(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bookstore")
    ids = range(1, BOOKS + 1)
    books = {
        "id": pa.array(ids, pa.int64()),
        "isbn": [f"978-{i:010d}" for i in ids],
        "category": [f"category {i % 20}" for i in ids],
        "publish_date": [dt.date(1990, 1, 1) + dt.timedelta(days=i) for i in ids],
        "publisher": [f"publisher {i % 50}" for i in ids],
        "price": [float(i % 100) for i in ids],
    }
    sold = range(1, TRANSACTIONS + 1)
    transactions = {
        "id": pa.array(sold, pa.int64()),
        "customer_id": pa.array([i % 300 for i in sold], pa.int64()),
        "book_id": pa.array([1 + i % BOOKS for i in sold], pa.int64()),
        "quantity": pa.array([1 + i % 10 for i in sold], pa.int32()),
        "transaction_date": [dt.date(2020, 1, 1) + dt.timedelta(days=i % 900) for i in sold],
    }
    for name, columns in (("books", books), ("transactions", transactions)):
        (folder / name).mkdir()
        pq.write_table(pa.table(columns), folder / name / "part-0.parquet")
    return folder


@dataclass(frozen=True, slots=True)
class Scripted:
    """A gateway whose engines play back what a test wrote down."""

    gateway: Gateway
    fast: ScriptedEngine
    dependable: ScriptedEngine


def settings_for(
    home: Path, *, routing: settings_module.RoutingSettings = BY_SECONDS, **limits: float
) -> settings_module.Settings:
    """Return the settings of a gateway that lives for one test: one planner, half a second of start-up, is enough."""
    return settings_module.load(
        home, limits=settings_module.LimitSettings(**{"planners": 1, **limits}), routing=routing
    )


def register(gateway: Gateway, folder: Path) -> None:
    for table in sorted(folder.iterdir()):
        gateway.metastore.catalog.put(inspect(table.name, table), at=dt.datetime.now(dt.UTC))


@pytest.fixture(scope="session", autouse=True)
def lasting_planners() -> Iterator[None]:
    """Have gateways of one test after the other use the same planners' processes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wiring, "Planners", LastingPlanners)
        patched.setattr(lake_tables, "Planners", LastingPlanners)
        yield
    end_waiting()


@pytest.fixture
def scripted(tmp_path: Path, bookstore: Path) -> Iterator[Callable[..., Scripted]]:
    """Build gateways over scripted engines; each closes at the end of the test.

    These engines answer at once, so that their seconds say nothing: unless told otherwise, memory alone decides.
    """
    built: list[Gateway] = []

    def build(
        *,
        limit_bytes: int = LIMIT,
        slots: int = 2,
        home: str = "home",
        metastore_url: str | None = None,
        roots: tuple[Path, ...] = (),
        routing: settings_module.RoutingSettings = BY_MEMORY,
        pools: Mapping[str, settings_module.PoolSettings] = {},
        **limits: float,
    ) -> Scripted:
        fast = ScriptedEngine("fast", kind=EngineKind.FAST, slots=slots)
        dependable = ScriptedEngine("dependable", kind=EngineKind.DEPENDABLE, slots=slots)
        entries = [
            EngineEntry(fast, limit_bytes=limit_bytes),
            EngineEntry(dependable, speed=SLOW),
        ]
        settings = settings_for(tmp_path / home, routing=routing, **limits)
        settings = settings.model_copy(update={"catalog": settings_module.CatalogSettings(roots=roots), "pools": pools})
        if metastore_url is not None:
            settings = settings.model_copy(
                update={"metastore": settings_module.MetastoreSettings(url=SecretStr(metastore_url))}
            )
        gateway = wiring.assemble(settings, EngineRegistry(entries))
        built.append(gateway)
        register(gateway, bookstore)
        gateway.start()
        return Scripted(gateway, fast, dependable)

    yield build
    for gateway in built:
        gateway.close()


@contextmanager
def hashing_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no hash come to its end meanwhile."""
    held, hashed = threading.Event(), authentication._hashed

    def waiting(password: str, salt: bytes) -> bytes:
        assert held.wait(HASHED_WITHIN_S)
        return hashed(password, salt)

    monkeypatch.setattr(authentication, "_hashed", waiting)
    try:
        yield
    finally:
        held.set()


@contextmanager
def stopped_planners(gateway: Gateway) -> Iterator[list[int]]:
    """Let no text be read to its end by the processes that there are; yields their ids."""
    pids = [process.pid for process in gateway.planners._idle]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield pids
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextmanager
def serving(app: FastAPI) -> Iterator[httpx.Client]:
    """Serve an application on a real socket and yield a client of it."""
    # With the protocol named, asyncio switches off what delays small replies by 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, http=PatientProtocol, log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        host, port = listening.getsockname()
        try:
            with httpx.Client(base_url=f"http://{host}:{port}", timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, bookstore: Path) -> Iterator[httpx.Client]:
    """Serve a gateway over a real DuckDB, and nothing behind it."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    settings = settings_module.load(
        tmp_path_factory.mktemp("home"),
        duckdb=DuckDBSettings(workers=1, threads=1),
        spark=SparkSettings(enabled=False),
    )
    gateway = wiring.build(settings)
    register(gateway, bookstore)
    with serving(create_app(gateway)) as served:
        yield served
