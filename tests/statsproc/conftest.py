"""One local Spark for all tests of this room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give the session that all tests share."""
    from statsproc.session import open_session

    with open_session(tmp_path_factory.mktemp("spark"), master="local[2]", driver_memory="1g") as session:
        yield session
