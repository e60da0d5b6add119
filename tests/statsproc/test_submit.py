"""The job as an orchestrator starts it: spark-submit, Spark Connect and a real cluster of one worker."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pyspark
import pytest

import statsproc
from engines.machine.ports import free_port
from engines.spark.embedded.java import spark_environment
from metastore.database.connection import sqlite_url
from metastore.discovery.inspection import inspect
from metastore.records import JobState
from metastore.store import Metastore

if TYPE_CHECKING:
    from engines.spark.embedded.server import SparkConnectServer

pytestmark = pytest.mark.spark

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
SPARK_HOME = Path(pyspark.__file__).parent
SCRIPT = Path(statsproc.__file__).parent / "__main__.py"
ROWS = 50_000
TIMEOUT_S = 150
WORKER_PACKAGES = ("numpy", "numpy.libs", "pyarrow")
LOOPBACK = "127.0.0.1"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Metastore]:
    """Give a metastore with the same table as Parquet, in two files, and as text."""
    table = pa.table({"id": np.arange(ROWS), "title": [f"t{n % 50}" for n in range(ROWS)]})
    for folder in ("books", "lines"):
        (tmp_path / folder).mkdir()
    half = ROWS // 2
    pq.write_table(table.slice(0, half), tmp_path / "books" / "0.parquet")
    pq.write_table(table.slice(half), tmp_path / "books" / "1.parquet")
    pa_csv.write_csv(table, tmp_path / "lines" / "0.csv")
    with Metastore(_url(tmp_path)) as store:
        for name in ("books", "lines"):
            store.catalog.put(inspect(name, tmp_path / name), at=NOON)
        yield store


def _url(folder: Path) -> str:
    return sqlite_url(folder / "metastore.db")


def _check(store: Metastore, *tables: str) -> None:
    for table in tables:
        found = store.statistics.current(table)
        assert found is not None, table
        assert found.rows == ROWS
        assert (found.columns["id"].minimum, found.columns["id"].maximum) == (0.0, ROWS - 1)
        assert found.columns["id"].ndv == pytest.approx(ROWS, rel=0.05)
        assert (found.columns["title"].ndv, found.columns["title"].maximum_length) == (50, 3)
    assert all(job.state is JobState.FINISHED for job in store.jobs.list())


def _environment(**changes: str) -> dict[str, str]:
    return {**spark_environment(), **changes}


def _run(
    command: list[str | Path], folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=environment or _environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def _submit(*options: str) -> list[str | Path]:
    return [SPARK_HOME / "bin" / "spark-submit", *options, SCRIPT]


def test_spark_submit(store: Metastore, tmp_path: Path) -> None:
    command = [
        *_submit("--master", "local[2]", "--driver-memory", "1g"),
        *("stats", "books", "lines", "--metastore", _url(tmp_path)),
    ]
    done = _run(command, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line.split(":")[0] for line in done.stdout.splitlines()]  # spark-submit puts both streams there
    assert [name for name in told if name in ("books", "lines")] == ["books", "lines"]
    _check(store, "books", "lines")


@pytest.mark.thorough
def test_exit_codes_of_spark_submit(store: Metastore, tmp_path: Path) -> None:
    submit = _submit("--master", "local[1]", "--driver-memory", "1g")
    failed = _run([*submit, "stats", "books", "missing", "--metastore", _url(tmp_path), "--json-progress"], tmp_path)
    assert failed.returncode == 1
    events = [json.loads(line) for line in failed.stdout.splitlines() if line.startswith("{")]
    assert events[-1] == {"event": "done", "failed": {"missing": "table missing is not registered"}}
    assert store.statistics.current("books") is not None
    assert _run([*submit, "stats", "--nonsense"], tmp_path).returncode == 2


def test_a_submitted_job_that_is_stopped(store: Metastore, tmp_path: Path) -> None:
    command = [*_submit("--master", "local[1]"), "stats", "books", "lines", "--metastore", _url(tmp_path)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            list(map(str, command)), cwd=tmp_path, env=_environment(), stdout=log, stderr=log, start_new_session=True
        )
    give_up_s = time.monotonic() + TIMEOUT_S
    while not any(job.state is JobState.RUNNING for job in store.jobs.list()):
        assert time.monotonic() < give_up_s
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGTERM)  # as an orchestrator does: spark-submit alone, not its Python
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    while not (job := store.jobs.list()[0]).state.ended:
        assert time.monotonic() < give_up_s
        time.sleep(0.1)
    assert job.state is JobState.FAILED
    assert job.error


def test_spark_connect(spark_server: SparkConnectServer, store: Metastore, tmp_path: Path) -> None:
    address = spark_server.start()
    what: list[str | Path] = ["stats", "books", "lines", "--metastore", _url(tmp_path)]
    module: list[str | Path] = [sys.executable, "-m", "statsproc"]
    for command in ([*module, *what, "--remote", address], [*_submit("--remote", address), *what]):
        done = _run(command, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        _check(store, "books", "lines")
        store.statistics.drop("books", at=NOON)


@contextmanager
def _daemon(kind: str, *arguments: str, log: Path, until: str) -> Iterator[None]:
    """Run a daemon of Spark's own cluster until it has logged some words, and then for as long as it is needed."""
    command = [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", LOOPBACK, *arguments]
    environment = {**_environment(), "SPARK_HOME": str(SPARK_HOME), "SPARK_DAEMON_MEMORY": "256m"}
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
        environment.pop(variable, None)
    with log.open("wb") as written:
        process = subprocess.Popen(
            [*map(str, command), "--webui-port", "0"], cwd=log.parent, env=environment, stdout=written, stderr=written
        )
    try:
        give_up_s = time.monotonic() + TIMEOUT_S
        while until not in log.read_text(encoding="utf-8"):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < give_up_s
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of a master with one worker."""
    folder = tmp_path_factory.mktemp("cluster")
    address = f"spark://{LOOPBACK}:{free_port()}"
    with ExitStack() as running:
        running.enter_context(
            _daemon(
                "master.Master",
                *("--port", address.rpartition(":")[2]),
                log=folder / "master.log",
                until="New state: ALIVE",
            )
        )
        running.enter_context(
            _daemon(
                "worker.Worker",
                *("--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"), address),
                log=folder / "worker.log",
                until="Successfully registered with master",
            )
        )
        yield address


@pytest.fixture(scope="module")
def workers_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a Python with numpy and pyarrow, and without this project."""
    folder = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in WORKER_PACKAGES:
        (packages / name).symlink_to(Path(np.__file__).parents[1] / name)
    python = folder / "bin" / "python"
    for module, there in (("numpy, pyarrow", True), ("statsproc", False), ("selector", False), ("pandas", False)):
        tried = subprocess.run([str(python), "-c", f"import {module}"], cwd=folder, capture_output=True, check=False)
        assert (tried.returncode == 0) == there, module
    return python


@pytest.mark.thorough
@pytest.mark.parametrize("by", ["master", "spark-submit"])
def test_a_cluster_whose_workers_have_numpy_and_pyarrow_only(
    by: str, cluster: str, workers_python: Path, store: Metastore, tmp_path: Path
) -> None:
    what: list[str | Path] = ["stats", "books", "lines", "--metastore", _url(tmp_path)]
    environment = _environment(PYSPARK_PYTHON=str(workers_python), PYSPARK_DRIVER_PYTHON=sys.executable)
    if by == "master":
        done = _run([sys.executable, "-m", "statsproc", *what, "--master", cluster], tmp_path, environment)
    else:
        done = _run([*_submit("--master", cluster), *what], tmp_path, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    _check(store, "books", "lines")
