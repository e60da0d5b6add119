"""A gateway for a module's tests of lake tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines.duckdb.engine import DuckDBEngine
from engines.spark.engine import SparkConnectEngine
from tests.gateway.house import House, opened


@pytest.fixture(scope="module")
def house(
    tmp_path_factory: pytest.TempPathFactory, duckdb: DuckDBEngine, spark_engine: SparkConnectEngine
) -> Iterator[House]:
    """Open a gateway over DuckDB and Spark; modules that need other settings have their own."""
    with opened(tmp_path_factory.mktemp("lake") / "home", duckdb, spark_engine) as house:
        yield house
