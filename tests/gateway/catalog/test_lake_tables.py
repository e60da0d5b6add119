"""Processes that read and write lake tables: whatever happens in them is a typed error."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.errors import StatementCancelled
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.planning.fairness import Requester
from metastore.lake.values import LakeCommit
from sql.errors import TableUnreadable
from sql.tables import LAKE_FORMATS, Column, TableSource

TABLE = TableSource("t", "/data/t", "delta", (Column("id", "bigint"),))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeTables]:
    snapshots = LakeTables(tmp_path_factory.mktemp("snapshots"), wait_s=30.0)
    yield snapshots
    snapshots.close()


def requester() -> Requester:
    return Requester("ada", time.monotonic() + 60.0)


@pytest.mark.parametrize(("function", "argument"), [(math.sqrt, -1), (os._exit, 3)], ids=["unforeseen", "crash"])
def test_a_library_that_fails(lake: LakeTables, function: Callable[..., object], argument: int) -> None:
    with pytest.raises(TableUnreadable, match="t cannot be read"):
        lake._call(TABLE, requester(), function, argument)


def test_a_folder_that_is_gone(lake: LakeTables) -> None:
    with pytest.raises(TableUnreadable, match="t cannot be read"):
        lake.state(TABLE, requester())


def after(wait_s: float) -> Callable[[], bool]:
    until_s = time.monotonic() + wait_s
    return lambda: time.monotonic() > until_s


@pytest.mark.parametrize("format", LAKE_FORMATS)
def test_a_commit_that_is_cancelled_is_made_or_not(lake: LakeTables, tmp_path: Path, format: str) -> None:
    """The process is ended at any moment: the statement has failed exactly where its rows are not there."""
    table = TableSource("t", str(tmp_path / "t"), format, TABLE.columns)
    (tmp_path / "t").mkdir()
    lake.create(table, (), {}, requester())
    pq.write_table(pa.table({"id": pa.array(range(300_000), pa.int64())}), tmp_path / "rows.parquet")
    committed = 0
    for number in range(8):
        hurried = Requester("ada", time.monotonic() + 60.0, after(0.04 * number))
        try:
            lake.commit(table, LakeCommit(f"q{number}", "INSERT", (str(tmp_path / "rows.parquet"),)), hurried)
            committed += 1
        except StatementCancelled:
            pass
        assert lake.state(table, requester()).snapshot.rows == 300_000 * committed
