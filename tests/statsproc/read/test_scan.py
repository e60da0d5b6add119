"""Tasks of Spark: how files are shared out, and how what they found comes back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from statsproc.read.files import Split
from statsproc.read.scan import SMALLEST_TASK_BYTES, TASK_BYTES, TASKS_PER_CORE, shared_out
from tests.statsproc.runs import Runs
from tests.statsproc.truth import check_column, line

CORES = 2
PARTS = 6
PART_ROWS = 2_000


def _splits(count: int, size: int) -> list[Split]:
    return [Split(f"/t/{n}", "parquet", "", (0,), 1, size, size, 0, ()) for n in range(count)]


@pytest.mark.parametrize(
    ("count", "size", "tasks"),
    [
        (1, 1, 1),
        (50, SMALLEST_TASK_BYTES // 100, 1),  # not worth a second one
        (50, SMALLEST_TASK_BYTES // 10, CORES),
        (3 * CORES, TASK_BYTES // 3, CORES),
        (22, TASK_BYTES // 5, 2 * CORES),
        (1_000, TASK_BYTES, TASKS_PER_CORE * CORES),
        (3, 10 * TASK_BYTES, 3),  # a split is not cut
    ],
)
def test_every_core_has_as_many_tasks_of_one_size(count: int, size: int, tasks: int) -> None:
    found = shared_out([("t", split) for split in _splits(count, size)], CORES)
    assert len(found) == tasks
    assert sorted(split.path for task in found for _, split in task) == sorted(
        split.path for split in _splits(count, size)
    )
    assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.spark
@pytest.mark.parametrize("connected", [False, True], ids=["with a context", "as over Spark Connect"])
@pytest.mark.parametrize("on_driver", [2, 64], ids=["merged by tasks", "merged by the driver"])
def test_what_tasks_find_comes_together(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, connected: bool, on_driver: int
) -> None:
    for name, value in {"SMALLEST_TASK_BYTES": 1, "TASK_BYTES": 1, "MERGED_ON_DRIVER": on_driver}.items():
        monkeypatch.setattr(f"statsproc.read.scan.{name}", value)
    if connected:
        monkeypatch.setattr("statsproc.read.scan.context_of", lambda spark: None)
    random = np.random.default_rng(5)
    tables = [pa.table({"n": random.integers(0, 900, PART_ROWS)}) for _ in range(PARTS)]
    for number, table in enumerate(tables):
        runs.write("t", table, f"part={number // 2}/{number}.parquet")
    runs.register("t")
    found = runs.statistics("t")
    check_column(found.columns["n"], line([float(n) for table in tables for n in table.column("n").to_pylist()]))
    check_column(found.columns["part"], line([float(n // 2) for n in range(PARTS) for _ in range(PART_ROWS)]))
    (runs.folder / "t" / "part=1" / "3.parquet").write_bytes(b"PAR1 broken PAR1")
    runs.run("t")
    assert runs.errors["t"].startswith("part=1/3.parquet cannot be read: ")
