"""The embedded Spark Connect server: a child process without installation, manual start or cleanup.

``spark-submit`` from the pyspark wheel runs the server on 127.0.0.1 behind ``engines/machine/lifeline.py``, so that it
ends with the gateway in every case. Only callers with the token of this start are accepted.

It is long because a process can fail to start and can end in many ways, each handled here.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

import pyspark

import engines.machine.lifeline
from engines.errors import EngineUnavailable
from engines.machine.ports import free_port
from engines.machine.private_files import UMASK, open_private, private_folder
from engines.spark.embedded.java import JavaNotFound, spark_environment
from engines.spark.embedded.web_ui import WebUi
from engines.spark_sql.session_settings import SESSION_SETTINGS

_log = logging.getLogger(__name__)

MIB = 1024 * 1024
DEFAULT_DRIVER_MEMORY_BYTES = 1024 * MIB
DEFAULT_EXECUTOR_MEMORY_BYTES = 1024 * MIB

MAX_PARTITION_BYTES = 32 * MIB
"""Input of one task. A task returns its rows as one piece, which has to fit the heap several times."""

OFF_HEAP_SHARE = 4
"""Beside a heap of n bytes, n / 4 bytes outside of it are for sorts, joins and aggregates, which spill there."""

PAGE_BYTES = MIB
"""Allocation unit of sorts, joins and aggregates. With Spark's default, small hash tables of broadcasts take 64 MiB."""

BYTES_PER_FILE_BYTE = 4.0
"""Memory of rows per byte of their file. With 1.0, Spark's default, 12 MB of Parquet became 256 MiB of a broadcast.

Adaptive execution still broadcasts results that are small once they are computed.
"""

COLLECT_EVERY_S = 120
"""Broadcasts and shuffle files are deleted once the collector finds no reference; Spark's default is 30 minutes."""

RETENTION: Mapping[str, str] = {
    # Only running work is read from the web UI; ended work only uses memory. Plans and their metrics use the most.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "1000",
    "spark.ui.retainedDeadExecutors": "1",
    "spark.ui.dagGraph.retainedRootRDDs": "1",
    "spark.ui.timelineEnabled": "false",
    "spark.ui.heapHistogramEnabled": "false",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.sql.connect.ui.retainedSessions": "5",
    "spark.sql.connect.ui.retainedStatements": "5",
    # Spark Connect keeps the whole request of each ended operation.
    "spark.connect.execute.manager.abandonedTombstonesSize": "200",
    "spark.connect.session.manager.closedSessionsTombstonesSize": "200",
    "spark.connect.session.manager.defaultSessionTimeout": "20m",
    "spark.sql.codegen.cache.maxEntries": "200",
}
"""Limits of what the server keeps about ended statements."""

RESTART_DELAYS_S = (0.0, 0.0, 1.0, 5.0, 15.0, 60.0)
"""Wait before the next start after 0, 1, 2, ... failures in a row; the last value repeats."""

LONGEST_START_WAIT_S = 2.0
"""A statement waits for a start that is delayed by at most this; it is refused when the delay is longer."""

JVM_OUT_OF_MEMORY_STATUSES = frozenset({3, 52})
"""Exit statuses of a JVM that ran out of heap: of ``-XX:+ExitOnOutOfMemoryError``, and Spark's own."""

_HOST = "127.0.0.1"
_TOKEN = "spark.connect.authenticate.token"  # noqa: S105 - the name of a setting
_SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_READY_CHECK_S = 0.1
_CONNECT_TIMEOUT_S = 1.0
_STOP_GRACE_S = 5.0
_LOG_TAIL_BYTES = 16 * 1024
_LOG_TAIL_LINES = 3
_LOG_NOISE = re.compile(r"^\s*(at |\.\.\. \d+ more|$)|^WARNING: |^Using Spark's|^Setting default log level")
_LOG_PREFIX = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?=[A-Z])")
_PATH = re.compile(r"(?<![\w.])/[^\s'\":,;)]+")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of the embedded server.

    work_folder: for this server only, with its warehouse, scratch files and log.
    driver_memory_bytes: the JVM's heap.
    cores: tasks that run at once in the JVM.
    master: a cluster on which tasks run instead.
    executor_memory_bytes: heap of each executor on a cluster.
    hive_metastore_uri: of a Hive Metastore whose tables statements may also name.
    start_timeout_s: limit of the time for a start.
    stable_after_s: a server that ran so long resets the count of failures.
    configuration: Spark settings that override the gateway's, except SPARK_AS_WRITTEN.
    environment: names of further variables of the gateway that the process gets.
    """

    work_folder: Path
    driver_memory_bytes: int = DEFAULT_DRIVER_MEMORY_BYTES
    cores: int = 2
    master: str | None = None
    executor_memory_bytes: int = DEFAULT_EXECUTOR_MEMORY_BYTES
    hive_metastore_uri: str | None = None
    start_timeout_s: float = 120.0
    stable_after_s: float = 60.0
    configuration: Mapping[str, str] = field(default_factory=dict)
    environment: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.driver_memory_bytes < 512 * MIB:
            raise ValueError("Spark needs a driver memory of at least 512 MiB")
        if self.executor_memory_bytes < 512 * MIB:
            raise ValueError("Spark needs an executor memory of at least 512 MiB")
        if self.cores < 1:
            raise ValueError("Spark needs at least one core")


class ServerState(StrEnum):
    """State of the server."""

    NOT_STARTED = "not started"
    STARTING = "starting"
    RUNNING = "running"
    LOST = "lost"  # it ran and died; it may be restarted
    FAILED = "failed"  # it did not start; it may be restarted after a while
    STOPPED = "stopped"


class SparkConnectServer:
    """Starts the server when it is needed, and again when it died. Thread-safe."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._state = ServerState.NOT_STARTED
        self._attempt: Future[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reason = ""
        self._launched = False
        self._failures = 0
        self._running_since_s = 0.0
        self._next_start_s = 0.0
        self._last_death: tuple[str, bool] | None = None  # address; True: memory was the cause
        self._restarted: str | None = None  # address of the last server that was ended for a restart
        self._web_ui: WebUi | None = None

    @property
    def log_file(self) -> Path:
        """Output of the server since its last start."""
        return self.settings.work_folder / "server.log"

    @property
    def pid(self) -> int | None:
        """Process id of the JVM while it runs."""
        with self._lock:
            self._notice_death()
            if self._state is not ServerState.RUNNING:
                return None
        return int(self._pid_file.read_text(encoding="ascii"))

    def ran_out_of_memory(self, address: str) -> bool:
        """Return True if the server with this address died because its heap was full."""
        with self._lock:
            self._notice_death()
            return self._last_death == (address, True)

    def was_restarted(self, address: str) -> bool:
        """Return True if the server with this address was ended for a restart."""
        with self._lock:
            return self._restarted == address

    def take_lost(self) -> Collection[str]:
        """Return tags of statements whose process died, each once; with one process, the server dies with it."""
        return ()

    @property
    def shares_files(self) -> bool:
        """True if files of tasks are on this machine: executors of a cluster have separate disks."""
        return self.settings.master is None

    def web_ui(self) -> WebUi | None:
        """Return the web UI of the running server. None on a cluster, where it would listen on the network."""
        with self._lock:
            self._notice_death()
            return self._web_ui if self._state is ServerState.RUNNING else None

    @property
    def results_folder(self) -> Path:
        """Folder of staged results; server and gateway both can read it."""
        return self.settings.work_folder.absolute() / "results"

    @property
    def _pid_file(self) -> Path:
        return self.settings.work_folder / "server.pid"

    def status(self) -> tuple[ServerState, str]:
        """Return the state and one line about it, without waiting."""
        with self._lock:
            self._notice_death()
            wait_s = self._next_start_s - time.monotonic()
            next_start = f"next start in {wait_s:.0f} s" if wait_s > 0 else "starts with the next statement"
            match self._state:
                case ServerState.LOST | ServerState.FAILED:
                    return self._state, f"{self._state}: {self._reason}; {next_start}"
                case ServerState.NOT_STARTED:
                    return self._state, f"{self._state} yet, {next_start}"
                case _:
                    return self._state, str(self._state)

    def may_start(self) -> bool:
        """Return True if the server runs, or a start would be tried now."""
        with self._lock:
            self._notice_death()
            if self._state is ServerState.STOPPED:
                return False
            return self._state is ServerState.RUNNING or self._next_start_s - time.monotonic() <= LONGEST_START_WAIT_S

    def start(self) -> str:
        """Return the address of the server; start it if it does not run. Raises EngineUnavailable."""
        return self.begin().result()

    def begin(self) -> Future[str]:
        """Start the server in the background unless it runs or is starting; the future gets the address."""
        with self._lock:
            self._notice_death()
            if self._state is ServerState.STOPPED:
                raise EngineUnavailable("Spark was stopped")
            if self._attempt is not None and self._state in (ServerState.STARTING, ServerState.RUNNING):
                return self._attempt
            wait_s = max(0.0, self._next_start_s - time.monotonic())
            if wait_s > LONGEST_START_WAIT_S:
                raise EngineUnavailable(f"{self._reason}; next start in {wait_s:.0f} s")
            self._state = ServerState.STARTING
            attempt: Future[str] = Future()
            self._attempt = attempt
            threading.Thread(target=self._bring_up, args=(attempt, wait_s), name="spark-start", daemon=True).start()
            return attempt

    def restart(self, reason: str) -> None:
        """End the server, if it runs, and start another one. Blocks.

        Its statements are lost; ``was_restarted`` is their reason.
        """
        with self._lock:
            self._notice_death()
            process, attempt = self._process, self._attempt
            if self._state is not ServerState.RUNNING or process is None or attempt is None:
                return
            _log.warning("Spark is restarted: %s", reason)
            self._process, self._web_ui = None, None
            self._restarted = attempt.result()
            self._state, self._reason = ServerState.STARTING, reason
            self._attempt = Future()
            following = self._attempt
        _end(process)
        self._bring_up(following, 0.0)

    def stop(self) -> None:
        """End the server for good; may be called twice."""
        with self._lock:
            self._state = ServerState.STOPPED
            process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _bring_up(self, attempt: Future[str], wait_s: float) -> None:
        time.sleep(wait_s)
        address, failure = None, EngineUnavailable("Spark did not start")  # waiters get it after any other error
        try:
            address = self._launch_and_wait()
        except EngineUnavailable as error:
            failure = error
        except OSError as error:
            failure = EngineUnavailable(f"Spark did not start: {error.strerror or error}")
        finally:
            if address is None:
                self._give_up(failure)
                attempt.set_exception(failure)
            else:
                attempt.set_result(address)

    def _give_up(self, failure: EngineUnavailable) -> None:
        with self._lock:
            process, self._process = self._process, None
            if self._state is ServerState.STARTING:
                self._state = ServerState.FAILED
                self._count_failure(failure.message)
        if process is not None:
            _end(process)

    def _launch_and_wait(self) -> str:
        port, token = free_port(), secrets.token_urlsafe(32)
        web_ui = WebUi(_HOST, free_port()) if self.settings.master is None else None
        process = self._launch(port, token, web_ui)
        with self._lock:
            self._web_ui = web_ui
            stopped = self._state is ServerState.STOPPED
            if not stopped:
                self._process = process
        if stopped:
            _end(process)
            raise EngineUnavailable("Spark was stopped")
        give_up_s = time.monotonic() + self.settings.start_timeout_s
        while not _answers(port):
            if process.poll() is not None:
                raise EngineUnavailable(f"Spark did not start: {self._log_tail()}")
            if time.monotonic() > give_up_s:
                raise EngineUnavailable(f"Spark did not start within {self.settings.start_timeout_s:.0f} s")
            time.sleep(_READY_CHECK_S)
        with self._lock:
            if self._state is not ServerState.STARTING:
                raise EngineUnavailable("Spark was stopped")
            self._state = ServerState.RUNNING
            self._running_since_s = time.monotonic()
        return f"sc://{_HOST}:{port}/;authorization={quote('Bearer ' + token)}"

    def _launch(self, port: int, token: str, web_ui: WebUi | None) -> subprocess.Popen[bytes]:
        folder = self.settings.work_folder
        try:
            environment = spark_environment(self.settings.environment)
        except JavaNotFound as error:
            raise EngineUnavailable(str(error)) from None
        # Files of a killed server. Results stay after the first start: they may be read right now.
        scratch_folders = ("local", "tmp") if self._launched else ("local", "tmp", "results")
        self._launched = True
        for scratch in scratch_folders:
            shutil.rmtree(folder / scratch, ignore_errors=True)
        private_folder(folder)
        for part in ("local", "tmp", "warehouse", "derby", "results"):
            private_folder(folder / part)
        self._pid_file.unlink(missing_ok=True)
        if self.log_file.exists():
            self.log_file.replace(folder / "server.previous.log")
        spark_home = Path(pyspark.__file__).parent
        supervisor = [
            *(sys.executable, "-I", engines.machine.lifeline.__file__),
            *("--grace", str(_STOP_GRACE_S), "--pid-file", str(self._pid_file), "--"),
        ]
        command = [
            *(str(spark_home / "bin" / "spark-submit"), "--class", _SERVER_CLASS),
            *("--master", self.settings.master or f"local[{self.settings.cores}]", "--name", "fusion-sql-gateway"),
            *("--driver-memory", f"{self.settings.driver_memory_bytes // MIB}m"),
        ]
        if self.settings.master is not None:
            command += ["--executor-memory", f"{self.settings.executor_memory_bytes // MIB}m"]
            environment.pop("SPARK_LOCAL_IP")  # executors have to reach the driver
        # Any user may read a command line, and code in a process its environment.
        secret = {**(web_ui.settings() if web_ui else {}), **self.settings.configuration, _TOKEN: token}
        for name, value in self._configuration(port).items():
            if name not in secret:
                command += ["--conf", f"{name}={value}"]
        secret_file = folder.absolute() / "secret.properties"
        _write_secret(secret_file, "".join(f"{_property(name)}={_property(value)}\n" for name, value in secret.items()))
        command += ["--properties-file", str(secret_file), "--load-spark-defaults"]
        try:
            with open_private(self.log_file) as log:
                return subprocess.Popen(
                    [*supervisor, *command, "spark-internal"],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env={**environment, "SPARK_HOME": str(spark_home)},
                    umask=UMASK,
                    start_new_session=True,  # no Ctrl-C from the gateway's terminal
                )
        except OSError as error:
            raise EngineUnavailable(f"Spark did not start: {error.strerror}") from None

    def _configuration(self, port: int) -> dict[str, str]:
        folder = self.settings.work_folder.absolute()
        alone = {"spark.driver.host": _HOST, "spark.driver.bindAddress": _HOST}
        catalog = {"spark.sql.catalogImplementation": "in-memory"}
        if self.settings.hive_metastore_uri is not None:
            catalog = {
                "spark.sql.catalogImplementation": "hive",
                "spark.hadoop.hive.metastore.uris": self.settings.hive_metastore_uri,
            }
        return {
            **(alone if self.settings.master is None else {}),
            **catalog,
            "spark.connect.grpc.binding.address": _HOST,
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.extraJavaOptions": " ".join(
                (
                    "-XX:+ExitOnOutOfMemoryError",
                    "-Duser.timezone=UTC",
                    f'-Djava.io.tmpdir="{folder / "tmp"}"',
                    f'-Dderby.system.home="{folder / "derby"}"',
                )
            ),
            # Spark Connect holds a whole result in this heap while it is read: it is refused before the heap is full.
            "spark.driver.maxResultSize": str(self.settings.driver_memory_bytes // 3),
            "spark.sql.files.maxPartitionBytes": str(MAX_PARTITION_BYTES),
            "spark.sql.sources.fileCompressionFactor": str(BYTES_PER_FILE_BYTE),
            "spark.memory.offHeap.enabled": "true",
            "spark.memory.offHeap.size": str(self.settings.driver_memory_bytes // OFF_HEAP_SHARE),
            "spark.buffer.pageSize": str(PAGE_BYTES),
            "spark.cleaner.periodicGC.interval": f"{COLLECT_EVERY_S}s",
            **RETENTION,
            "spark.local.dir": str(folder / "local"),
            "spark.log.level": "WARN",
            **({} if self.settings.master is None else {"spark.ui.enabled": "false"}),
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.adaptive.enabled": "true",
            **SESSION_SETTINGS,
            # AQE merges small partitions; with more of them, a large one spills in smaller pieces.
            "spark.sql.shuffle.partitions": str(4 * self.settings.cores),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }

    def _notice_death(self) -> None:
        """Change RUNNING to LOST if the process ended; the caller holds the lock."""
        if self._state is not ServerState.RUNNING or self._process is None:
            return
        status = self._process.poll()
        if status is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None
        self._state = ServerState.LOST
        out_of_memory = status in JVM_OUT_OF_MEMORY_STATUSES
        if self._attempt is not None:
            self._last_death = (self._attempt.result(), out_of_memory)
        if out_of_memory or time.monotonic() - self._running_since_s > self.settings.stable_after_s:
            self._failures = 0  # caused by a statement: the next start will not fail
        self._count_failure("Spark ran out of memory" if out_of_memory else f"Spark ended with status {status}")

    def _count_failure(self, reason: str) -> None:
        self._reason = reason
        self._failures += 1
        delay_s = RESTART_DELAYS_S[min(self._failures, len(RESTART_DELAYS_S) - 1)]
        self._next_start_s = time.monotonic() + delay_s

    def _log_tail(self) -> str:
        """Return the last lines of the log, without noise, stack traces and paths."""
        with self.log_file.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        telling = [_LOG_PREFIX.sub("", line).strip() for line in lines if not _LOG_NOISE.search(line)]
        return _PATH.sub("...", " | ".join(telling[-_LOG_TAIL_LINES:])) or "it printed nothing"


def _property(text: str) -> str:
    """Return a name or a value with escapes for a file of Java's properties in UTF-8."""
    return "".join(
        sign if sign.isalnum() or sign in "._-/" or not sign.isascii() else f"\\u{ord(sign):04x}" for sign in text
    )


def _write_secret(file: Path, text: str) -> None:
    """Write a new file that only this user may read."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((_HOST, port), timeout=_CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the lifeline's pipe and wait until it has ended the server."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_STOP_GRACE_S + 5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
