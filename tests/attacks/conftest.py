"""Gateways that are attacked: processes over a real DuckDB, and over a real Spark behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.security.authentication import user_line
from tests.attacks.doors import Door, Served, served
from tests.gateway.conftest import bookstore

__all__ = ["bookstore"]

DUCKDB = {"workers": 2, "threads": 1, "memory_limit": "128MiB"}


@pytest.fixture(params=list(Door), ids=str)
def door(request: pytest.FixtureRequest) -> Door:
    """Give each way in, one after the other."""
    found = request.param
    assert isinstance(found, Door)
    if found is Door.FLIGHT:
        pytest.importorskip("adbc_driver_flightsql", reason="no ADBC driver is installed")
    elif found is not Door.HTTP:
        pytest.importorskip("pyhive.hive", reason="needs the extra hive")
    return found


@pytest.fixture(scope="session")
def duckdb_gateway(tmp_path_factory: pytest.TempPathFactory, bookstore: Path) -> Iterator[Served]:
    """Serve the bookstore from DuckDB alone, for all tests that leave it whole."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    home = tmp_path_factory.mktemp("attacked") / "home"
    with served(home, duckdb=DUCKDB, spark={"enabled": False}) as gateway:
        register_bookstore(gateway, bookstore)
        yield gateway


@pytest.fixture(scope="session")
def spark_gateway(tmp_path_factory: pytest.TempPathFactory, bookstore: Path) -> Iterator[Served]:
    """Serve the bookstore from DuckDB and an embedded Spark, for all tests that leave it whole (marker spark)."""
    home = tmp_path_factory.mktemp("attacked") / "home"
    with served(home, duckdb=DUCKDB) as gateway:
        register_bookstore(gateway, bookstore)
        yield gateway


@pytest.fixture(scope="session")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a gateway that lets in nobody without a login (joe, right), and has names of its own."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    folder = tmp_path_factory.mktemp("closed")
    users = folder / "users"
    users.write_text(user_line("joe", "right"), encoding="utf-8")
    with served(
        folder / "home",
        duckdb=DUCKDB,
        spark={"enabled": False},
        authentication={"users_file": str(users), "anonymous": "never"},
        server={"port": 0, "hosts": ["sql.example"], "origins": ["https://notebook.example"]},
    ) as gateway:
        yield gateway


def register_bookstore(gateway: Served, bookstore: Path) -> None:
    for folder in sorted(bookstore.iterdir()):
        gateway.register(folder.name, folder)
