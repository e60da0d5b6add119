"""Real engines and servers of a module's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.object_store_server import ObjectStoreServer
from engines.duckdb.engine import DuckDBEngine
from tests.object_store import object_store


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDBEngine]:
    engine = DuckDBEngine(workers=1, threads=1)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStoreServer]:
    """Return a real object store."""
    with object_store(tmp_path_factory.mktemp("objects")) as running:
        yield running
