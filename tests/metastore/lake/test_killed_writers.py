"""Writers of one table that are killed at any moment, and begin again with what was not acknowledged."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from engines.files.manifest import read_manifest
from metastore.lake import writing
from metastore.lake.resolution import pin
from sql.tables import LAKE_FORMATS, Column, TableSource

CLIENTS = 3
COLUMNS = (Column("id", "bigint"),)
WRITER = """
import sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from metastore.lake import writing
from metastore.lake.values import LakeCommit
from sql.tables import Column, TableSource

folder, format, client, commits = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
table = TableSource("t", str(folder / "t"), format, (Column("id", "bigint"),))
acknowledged = folder / f"{client}.txt"
done = len(acknowledged.read_text().split()) if acknowledged.exists() else 0
rows = folder / f"{client}.parquet"
for number in range(done, commits):
    pq.write_table(pa.table({"id": pa.array([client * 10_000 + number], pa.int64())}), rows)
    while True:
        try:
            writing.commit(table, LakeCommit(f"q{client}-{number}", "INSERT", (str(rows),)))
            break
        except Exception as error:
            if type(error).__name__ != "TableChangedConcurrently":
                raise
    with acknowledged.open("a") as file:
        file.write(f"{number}\\n")
"""


@pytest.mark.parametrize("format", LAKE_FORMATS)
@pytest.mark.parametrize("commits", [10, pytest.param(330, marks=pytest.mark.thorough)])
@pytest.mark.timeout(3_600)
def test_what_was_acknowledged_is_there_once(tmp_path: Path, format: str, commits: int) -> None:
    table = TableSource("t", str(tmp_path / "t"), format, COLUMNS)
    (tmp_path / "t").mkdir()
    writing.create(table, (), {})
    kills = [0] * CLIENTS
    threads = [
        threading.Thread(target=keep_writing, args=(tmp_path, format, client, commits, kills))
        for client in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(kills)
    files = read_manifest(pin(table, None, tmp_path / "manifests").snapshot.manifest).files
    ids = Counter(number for file in files for number in pq.ParquetFile(file.path).read()["id"].to_pylist())
    expected = {client * 10_000 + number for client in range(CLIENTS) for number in range(commits)}
    assert set(ids) == expected
    assert set(ids.values()) == {1}


def keep_writing(folder: Path, format: str, client: int, commits: int, kills: list[int]) -> None:
    """Run a writer until it ends by itself; kill it now and then, at first before it can have done anything."""
    chance = random.Random(client)  # noqa: S311 - when it dies is no secret
    wait_s = 1.5
    while True:
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), format, str(client), str(commits)], stderr=subprocess.PIPE
        )
        try:
            _, problem = process.communicate(timeout=wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills[client] += 1
            wait_s = chance.uniform(2.0, 4.0) * (1 + kills[client] / 4)  # so that it comes to an end on a slow machine
            continue
        assert process.returncode == 0, problem.decode()
        return
