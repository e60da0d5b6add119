"""Writers of one table that are killed at any moment, and begin again with what was not acknowledged."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from engines.files.manifest import read_manifest
from metastore.lake import writing
from metastore.lake.resolution import pin
from sql.tables import LAKE_FORMATS, Column, TableSource

CLIENTS, KILLS = 3, 3
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
    """Run a writer until it ends by itself; kill it some time after it was acknowledged so and so many commits."""
    chance = random.Random(client)  # noqa: S311 - when it dies is no secret
    command = [sys.executable, "-c", WRITER, str(folder), format, str(client), str(commits)]
    for acknowledged in sorted(chance.sample(range(1 + commits // 2), KILLS)):
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        while process.poll() is None and written(folder, client) < acknowledged:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.3))
        process.kill()
        process.communicate()
        kills[client] += process.returncode == -signal.SIGKILL
    ended = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 0, ended.stderr.decode()


def written(folder: Path, client: int) -> int:
    """Return the commits that a writer was acknowledged."""
    notes = folder / f"{client}.txt"
    return len(notes.read_text().split()) if notes.exists() else 0
