from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore.database.connection import sqlite_url
from metastore.discovery.inspection import inspect
from metastore.records import JobRequest, JobState, StatisticsJob
from metastore.store import Metastore

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120
COMMAND = [sys.executable, "-m", "statsproc"]


def _run(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.spark
def test_from_text_to_statistics(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    made = _run("generate", "--out", tmp_path / "text", "--scale", "1e-5", "--format", "text", folder=elsewhere)
    assert (made.returncode, made.stdout) == (0, "")
    assert [line.split(":")[0] for line in made.stderr.splitlines()] == [
        "starting Spark",
        "books",
        "customers",
        "transactions",
    ]
    (tmp_path / "text" / "books" / "more.txt").write_text("one|two\n")

    columns = "id bigint, isbn string, category string, publish_date date, publisher string, price double"
    taken = _run(
        "ingest", "--in", tmp_path / "text" / "books", "--out", tmp_path / "books", "--columns", columns,
        "--json-progress", folder=elsewhere,
    )  # fmt: skip
    assert (taken.returncode, taken.stderr) == (0, "")
    events = [json.loads(line) for line in taken.stdout.splitlines()]
    assert events[-1] == {"event": "done"}
    finished = events[-2]
    assert (finished["rows_in"], finished["rows_quarantined"]) == (finished["rows_out"] + 1, 1)

    url = sqlite_url(tmp_path / "metastore.db")
    with Metastore(url) as store:
        store.catalog.put(inspect("books", tmp_path / "books"), at=NOON)
        described = _run(
            "stats", "--metastore", url, "--job-id", "j1", "books", "nobody", "--json-progress", folder=elsewhere
        )
        assert described.returncode == 1
        assert json.loads(described.stdout.splitlines()[-1]) == {
            "event": "done",
            "failed": {"nobody": "table nobody is not registered"},
        }
        job = store.jobs.get("j1")
        assert job is not None
        assert (job.state, job.error) == (JobState.FAILED, "nobody: table nobody is not registered")
        current = store.statistics.current("books")
        assert current is not None
        assert current.rows == finished["rows_out"]
    assert list(elsewhere.iterdir()) == []  # Spark's folders are not left in the current one


@pytest.mark.spark
def test_a_job_is_what_its_row_says(tmp_path: Path) -> None:
    for year in (2020, 2021):
        folder = tmp_path / "sales" / f"year={year}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"a,b": [year, 1], "a": [2, 2], "b": [3, 3]}), folder / "x.parquet")
    url = sqlite_url(tmp_path / "metastore.db")
    with Metastore(url) as store:
        store.catalog.put(inspect("sales", tmp_path / "sales"), at=NOON)
        now = dt.datetime.now(dt.UTC)
        request = JobRequest(("sales",), columns=("a,b",))
        store.jobs.create(StatisticsJob("j1", request, JobState.QUEUED, now))
        done = _run("stats", "--metastore", url, "--job-id", "j1", folder=tmp_path)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        current = store.statistics.current("sales")
        assert current is not None
        assert (current.rows, list(current.columns)) == (4, ["a,b", "year"])  # partition columns cost nothing
        again = _run("stats", "--metastore", url, "--job-id", "j1", folder=tmp_path)
        assert (again.returncode, again.stderr) == (
            1,
            "error: job j1 has ended already: all of its tables are done\n",
        )


@pytest.mark.spark
def test_sigterm_ends_a_job_cleanly(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "metastore.db")
    with Metastore(url) as store:
        process = subprocess.Popen(
            [*COMMAND, "stats", "--metastore", url, "--job-id", "j1", "--work-dir", str(tmp_path / "work"), "books"],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        until = time.monotonic() + TIMEOUT_S
        while (job := store.jobs.get("j1")) is None or job.state is JobState.QUEUED:
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, written = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 128 + signal.SIGTERM
        assert written.splitlines()[-1] == "stopped"
        assert "Traceback" not in written
        job = store.jobs.get("j1")
        assert job is not None
        assert (job.state, job.error, job.process_id) == (JobState.FAILED, "the job was stopped", process.pid)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["generate", "--out", "x"], 2, "scale"),
        (["generate", "--out", "x", "--scale", "0"], 2, "scale"),
        (["ingest", "--in", "x", "--out", "y", "--columns", "id bigunt"], 1, "error: 'id bigunt' is not a column"),
        (["stats", "--metastore", "sqlite:////nowhere/at/all.db", "books"], 1, "error: "),
        (["stats", "--metastore", "sqlite://", "--columns", "a", "books", "customers"], 2, "belong to a single table"),
        (["stats", "--metastore", "sqlite://", "--mode", "sample", "--share", "2", "books"], 2, "share"),
        (["stats", "--metastore", "sqlite://"], 2, "give TABLES"),
        (["stats", "--metastore", "sqlite://", "--job-id", "j1", "--mode", "sample"], 2, "give TABLES"),
        (["stats", "--metastore", "sqlite://", "--job-id", "j1"], 1, "error: there is no job j1: give the tables"),
    ],
)  # fmt: skip
@pytest.mark.e2e
def test_mistakes_are_told_in_a_line(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    result = _run(*arguments, folder=tmp_path)
    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
