"""One local Spark for all tests of this room, and a metastore for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from metastore.database.connection import sqlite_url
from metastore.store import Metastore
from tests.statsproc.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give the session that all tests share."""
    from statsproc.spark.session import open_session

    with open_session(tmp_path_factory.mktemp("spark"), master="local[2]", driver_memory="1g") as session:
        yield session


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    """Give an empty metastore."""
    with Metastore(sqlite_url(tmp_path_factory.mktemp("metastore") / "metastore.db")) as store:
        yield store


@pytest.fixture
def runs(spark: SparkSession, store: Metastore, tmp_path: Path) -> Runs:
    """Give jobs in the shared Spark over tables in this test's folder."""
    return Runs(spark, store, tmp_path)
