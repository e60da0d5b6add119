"""Gateways with a port for Flight SQL: over scripted engines, over a real DuckDB, and real clients of them."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pytest

from engines.duckdb.adapter import DuckDBSettings
from engines.scripted import ScriptedEngine
from engines.spark.adapter import SparkSettings
from gateway.drivers.flight.server import FlightServer
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.settings import FlightSettings, load
from metastore.discovery.inspection import inspect
from tests.gateway.conftest import register
from tests.gateway.scripted_gateway import ScriptedGateway, scripted_gateway

ENDS_WITHIN_S = 10.0


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds. what: to say if it does not."""
    give_up_s = time.monotonic() + ENDS_WITHIN_S
    while not holds():
        assert time.monotonic() < give_up_s, what
        time.sleep(0.02)


@contextmanager
def flight_port(gateway: Gateway, **changes: Any) -> Iterator[FlightServer]:
    """Serve Flight SQL on a free port of a gateway that was started; changes: of settings, by section."""
    updates = {"flight": FlightSettings(port=0, drain_s=0.5), **changes}
    gateway.settings = gateway.settings.model_copy(update=updates)
    server = wiring.flight_server(gateway)
    assert server is not None
    server.start()
    try:
        yield server
    finally:
        server.stop()


def told(error: adbc_driver_manager.Error) -> dict[str, str]:
    """Return what stands beside an error's message; the driver's types say that names are text, its values not."""
    return {str(name, "ascii"): str(value, "ascii") for name, value in error.details}  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class Served:
    """A gateway with its port. engines: where they are scripted."""

    gateway: Gateway
    server: FlightServer
    engines: ScriptedGateway | None = None

    @property
    def fast(self) -> ScriptedEngine:
        assert self.engines is not None
        return self.engines.fast

    @property
    def dependable(self) -> ScriptedEngine:
        assert self.engines is not None
        return self.engines.dependable

    def connect(self, scheme: str = "grpc", **options: str) -> adbc.Connection:
        """Connect as a program does; the driver has no transactions here, so it asks for none."""
        return adbc.connect(f"{scheme}://{self.server.address}", db_kwargs=options, autocommit=True)

    def add_table(self, name: str, folder: Path) -> None:
        """Register files."""
        self.gateway.metastore.catalog.put(inspect(name, folder), at=dt.datetime.now(dt.UTC))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Serve gateways over scripted engines; all end with the test."""
    with ExitStack() as stack:

        def start(**changes: Any) -> Served:
            engines = scripted_gateway(tmp_path / "home")
            stack.callback(engines.gateway.close)
            engines.gateway.authenticator = changes.pop("authenticator", engines.gateway.authenticator)
            engines.gateway.start()
            server = stack.enter_context(flight_port(engines.gateway, **changes))
            return Served(engines.gateway, server, engines)

        yield start


@pytest.fixture
def scripted(serve: Callable[..., Served]) -> Served:
    """One such gateway, as it comes."""
    return serve()


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory, bookstore: Path) -> Iterator[Served]:
    """Serve Flight SQL over a real DuckDB, and nothing behind it."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    settings = load(
        tmp_path_factory.mktemp("home"),
        duckdb=DuckDBSettings(workers=2, threads=1),
        spark=SparkSettings(enabled=False),
    )
    gateway = wiring.build(settings)
    register(gateway, bookstore)
    gateway.start()
    try:
        with flight_port(gateway) as server:
            yield Served(gateway, server)
    finally:
        gateway.close()


@pytest.fixture
def connection(duckdb: Served) -> Iterator[adbc.Connection]:
    """One connection to a real DuckDB behind the gateway."""
    with closing(duckdb.connect()) as opened:
        yield opened


@pytest.fixture
def cursor(connection: adbc.Connection) -> Iterator[adbc.Cursor]:
    """One cursor of it."""
    with closing(connection.cursor()) as opened:
        yield opened
