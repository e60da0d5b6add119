"""Processes that read lake tables: whatever happens in them is a typed error."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator

import pytest

from gateway.catalog.lake_snapshots import LakeSnapshots
from gateway.planning.fairness import Requester
from sql.errors import TableUnreadable
from sql.tables import Column, TableSource

TABLE = TableSource("t", "/data/t", "delta", (Column("id", "bigint"),))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeSnapshots]:
    snapshots = LakeSnapshots(tmp_path_factory.mktemp("snapshots"), wait_s=30.0)
    yield snapshots
    snapshots.close()


def requester() -> Requester:
    return Requester("ada", time.monotonic() + 60.0)


@pytest.mark.parametrize(("function", "argument"), [(math.sqrt, -1), (os._exit, 3)], ids=["unforeseen", "crash"])
def test_a_library_that_fails(lake: LakeSnapshots, function: Callable[..., object], argument: int) -> None:
    with pytest.raises(TableUnreadable, match="t cannot be read"):
        lake._call(TABLE, requester(), function, argument)


def test_a_folder_that_is_gone(lake: LakeSnapshots) -> None:
    with pytest.raises(TableUnreadable, match="t cannot be read"):
        lake.state(TABLE, requester())
