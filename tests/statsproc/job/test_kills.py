"""kill -9 of a job, and of its JVM, while it works: what is in force stays whole, and the next job gets through."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from metastore.database.connection import sqlite_url
from metastore.records import JobState, Mode
from metastore.store import Metastore
from selector.statistics import TableStatistics
from statsproc.job.job import STARTING
from statsproc.sketches.table_summary import decode
from tests.statsproc.runs import Runs
from tests.statsproc.truth import check_column, line

ROOT = Path(__file__).parents[3]
KILLS = int(os.environ.get("STATSPROC_KILLS", "2"))  # of the job; 20 take some minutes, since each starts a Spark
SEED = 7
COLUMNS = 40
PART_ROWS = 4_000
PARTS = 4
SILENCE_S = 60.0
BEYOND = 1.1  # the last points lie behind the publication
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Course:
    """How long an undisturbed job takes: until Spark is up, and from then on until it has published."""

    starting_s: float
    working_s: float


class World:
    """One table that gains a partition per round, and jobs over it as processes."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.tables: list[pa.Table] = []

    def grow(self) -> None:
        number = len(self.tables)
        source = np.random.default_rng(number)
        columns = {f"c{n}": source.integers(0, 10 ** (1 + n % 6), PART_ROWS) for n in range(COLUMNS)}
        table = pa.table(columns | {"s": [f"text {n}" for n in source.integers(0, 3_000, PART_ROWS)]})
        self.runs.write("t", table, f"part={number:02}/a.parquet")
        self.tables.append(table)

    def check(self, found: TableStatistics, tables: Sequence[pa.Table]) -> None:
        """Compare with the rows themselves: every column, every part."""
        whole = pa.concat_tables(tables)
        assert found.rows == whole.num_rows
        assert list(found.columns) == [*whole.column_names, "part"]
        for name in ("c0", "c3", "c5", "s"):
            values = whole.column(name).to_pylist()
            check_column(found.columns[name], line([v.encode() if isinstance(v, str) else v for v in values]))
        parts = self.runs.store.statistics.parts("t")
        assert [part.folder for part in parts] == [f"part={number:02}" for number in range(len(tables))]
        for part in parts:
            summary = decode(part.summary)
            assert part.rows == summary.rows == PART_ROWS
            assert list(summary.columns) == whole.column_names
            assert (len(part.files), part.bytes) == (1, sum(mark.bytes for mark in part.files))


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return sqlite_url(tmp_path_factory.mktemp("killed") / "metastore.db")


@pytest.fixture
def store(url: str) -> Iterator[Metastore]:
    with Metastore(url) as store:
        yield store


@pytest.fixture
def world(runs: Runs) -> World:
    world = World(runs)
    for _ in range(PARTS):
        world.grow()
    runs.register("t")
    runs.statistics("t")
    return world


def _start(url: str, job_id: str, mode: Mode) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "statsproc", "stats", "t", "--job-id", job_id, "--mode", mode, "--json-progress"]
    return subprocess.Popen(
        [*command, "--master", "local[2]", "--driver-memory", "1g"],
        env={**os.environ, "STATSPROC_METASTORE": url},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _await(process: subprocess.Popen[str], step: str) -> None:
    assert process.stdout is not None
    for written in process.stdout:
        event = json.loads(written)
        if event["event"] == "finished" and event["what"] == step:
            return
    raise AssertionError(f"the job ended before {step}: {process.communicate()[1]}")


def _course(url: str) -> Course:
    began = time.monotonic()
    process = _start(url, "undisturbed", Mode.FULL)
    _await(process, STARTING)
    up = time.monotonic()
    _await(process, "t")
    published = time.monotonic()
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    return Course(up - began, published - up)


def _family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    return found


def _recover(store: Metastore) -> None:
    """Do what a gateway does when it starts."""
    later = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=SILENCE_S + 1)
    dead = store.jobs.dead(host=socket.gethostname(), alive=psutil.pid_exists, now=later, silence_s=SILENCE_S)
    for job in dead:
        store.jobs.ended(job.id, at=later, error="its process is gone")


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.thorough
@pytest.mark.timeout(60 * max(10, KILLS))
def test_killed_at_random_points(world: World, url: str, store: Metastore, capsys: pytest.CaptureFixture[str]) -> None:
    """A quarter of the points lie before Spark is up; from there on they cover the work from start to end."""
    chance = np.random.default_rng(SEED)
    course = _course(url)
    told = [f"starting {course.starting_s:.1f} s, working {course.working_s:.1f} s"]
    for number in range(KILLS):
        before = len(world.tables)
        world.grow()
        was = store.statistics.current("t")
        assert was is not None
        mode = (Mode.FULL, Mode.INCREMENTAL)[number % 2]
        process = _start(url, f"kill{number}", mode)
        share = (
            (number // 4 + chance.random()) / max(1, KILLS / 4) if KILLS >= 4 else (number + chance.random()) / KILLS
        )
        if number % 4 == 3:
            time.sleep(share * course.starting_s)
        else:
            _await(process, STARTING)
            time.sleep(share * BEYOND * course.working_s)
        family = _family(process)
        process.kill()
        process.communicate(timeout=TIMEOUT_S)
        _, alive = psutil.wait_procs(family, timeout=30)
        assert not alive, "Spark outlived its job"

        with Metastore(url) as fresh:  # as another process sees it, with nothing remembered
            found = fresh.statistics.current("t")
        assert found is not None
        new = found.version != was.version
        assert found.version == was.version + new
        world.check(found, world.tables if new else world.tables[:before])
        job = store.jobs.get(f"kill{number}")
        state = job.state if job is not None else None
        _recover(store)
        assert store.jobs.open_jobs() == ()
        job = store.jobs.get(f"kill{number}")
        assert job is None or job.state.ended
        world.check(world.runs.incremental("t"), world.tables)
        told.append(f"{mode} at {share:.0%} of {'the start' if number % 4 == 3 else 'the work'}: {state}, new: {new}")
    with capsys.disabled():
        print("\n" + "\n".join(told))


@pytest.mark.spark
@pytest.mark.e2e
def test_its_jvm_is_killed(world: World, url: str, store: Metastore) -> None:
    """The job itself lives, says what happened and ends its row; the tables are free at once."""
    was = store.statistics.current("t")
    assert was is not None
    process = _start(url, "headless", Mode.FULL)
    _await(process, STARTING)
    for child in _family(process):
        if child.name() == "java":
            child.send_signal(signal.SIGKILL)
    told, _ = process.communicate(timeout=TIMEOUT_S)
    job = store.jobs.get("headless")
    assert job is not None
    assert process.returncode == 1
    assert job.state is JobState.FAILED
    assert job.error is not None
    assert job.error.startswith("t: ")
    assert "\n" not in job.error
    assert json.loads(told.splitlines()[-1]) == {"event": "done", "failed": {"t": job.tables[0].error}}
    world.check(world.runs.current("t"), world.tables)
    assert world.runs.current("t").version == was.version
    world.check(world.runs.statistics("t"), world.tables)
