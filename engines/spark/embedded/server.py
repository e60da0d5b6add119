"""The embedded Spark Connect server: a child process that nobody has to install, start or clean up.

``spark-submit`` from the pyspark wheel runs the server on 127.0.0.1 behind ``engines/machine/lifeline.py``, so that
it ends with the gateway however the gateway ends. Only callers that hold the token of this start get in.

It is long because a process has many ways to start badly and to end, each told apart here.
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
"""Input of one task. A task hands in its rows as one piece, which has to fit the heap several times."""

OFF_HEAP_SHARE = 4
"""Beside a heap of n bytes, n / 4 bytes outside of it are for sorts, joins and aggregates, which spill there."""

PAGE_BYTES = MIB
"""What each of them takes at once. By Spark's own choice each small hash table of a broadcast takes 64 MiB, too."""

BYTES_PER_FILE_BYTE = 4.0
"""Of rows in memory, per byte of their file; by 1.0, Spark's own, 12 MB of Parquet became 256 MiB of a broadcast.

Adaptive execution still broadcasts what it finds to be small once it has run.
"""

COLLECT_EVERY_S = 120
"""Broadcasts and shuffle files go when the heap's collection meets their last reference; Spark's own is 30 minutes."""

RETENTION: Mapping[str, str] = {
    # The web UI is asked for what runs; what has ended is only memory. Plans and their metrics weigh the most.
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
    # Of each operation that has ended, Spark Connect keeps the whole request.
    "spark.connect.execute.manager.abandonedTombstonesSize": "200",
    "spark.connect.session.manager.closedSessionsTombstonesSize": "200",
    "spark.connect.session.manager.defaultSessionTimeout": "20m",
    "spark.sql.codegen.cache.maxEntries": "200",
}
"""How little the server keeps of statements that have ended."""

RESTART_DELAYS_S = (0.0, 0.0, 1.0, 5.0, 15.0, 60.0)
"""Wait before the next start after 0, 1, 2, ... failures in a row; the last value repeats."""

PATIENCE_S = 2.0
"""A statement waits out a delay of this length; it is refused when the delay is longer."""

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
    """How to run the embedded server.

    work_folder: belongs to this server alone; warehouse, scratch files and the log live there.
    driver_memory_bytes: the JVM's heap. cores: tasks that run at once in it.
    master: a cluster on which tasks run instead, in executors with a heap of executor_memory_bytes each.
    hive_metastore_uri: of a Hive Metastore whose tables statements may name beside those that they bring along.
    stable_after_s: a server that lived this long ends a row of failures.
    configuration: Spark settings that win over ours, but for SPARK_AS_WRITTEN.
    environment: names of the gateway's variables that the process gets beside those that it needs to run.
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
    """Where the server is in its life."""

    NOT_STARTED = "not started"
    STARTING = "starting"
    RUNNING = "running"
    LOST = "lost"  # it ran and died; it may start again
    FAILED = "failed"  # it could not start; it may start again after a while
    STOPPED = "stopped"


class SparkConnectServer:
    """Starts the server when it is asked for, and again when it died. Thread-safe."""

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
        self._last_death: tuple[str, bool] | None = None  # its address, whether memory was the cause
        self._restarted: str | None = None  # the address of the last server that was ended to start another one
        self._web_ui: WebUi | None = None

    @property
    def log_file(self) -> Path:
        """What the server printed since its last start."""
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
        """Tell whether the server that had this address died because its heap was full."""
        with self._lock:
            self._notice_death()
            return self._last_death == (address, True)

    def was_restarted(self, address: str) -> bool:
        """Tell whether the server that had this address was ended on purpose, to start another one."""
        with self._lock:
            return self._restarted == address

    def take_lost(self) -> Collection[str]:
        """Return tags of statements whose gateway died, each once; none where there is one gateway, which ends it."""
        return ()

    @property
    def shares_files(self) -> bool:
        """Whether what tasks write is sure to be here: executors of a cluster have disks of their own."""
        return self.settings.master is None

    def web_ui(self) -> WebUi | None:
        """Return the web UI of the server that runs. None on a cluster: there it would listen to the whole network."""
        with self._lock:
            self._notice_death()
            return self._web_ui if self._state is ServerState.RUNNING else None

    @property
    def results_folder(self) -> Path:
        """Where results are staged; server and gateway both reach it."""
        return self.settings.work_folder.absolute() / "results"

    @property
    def _pid_file(self) -> Path:
        return self.settings.work_folder / "server.pid"

    def status(self) -> tuple[ServerState, str]:
        """Return the state and one line about it, at once."""
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
        """Tell whether a start would be tried now, or the server runs already."""
        with self._lock:
            self._notice_death()
            if self._state is ServerState.STOPPED:
                return False
            return self._state is ServerState.RUNNING or self._next_start_s - time.monotonic() <= PATIENCE_S

    def start(self) -> str:
        """Return the address of the running server, starting it if need be. Raises EngineUnavailable."""
        return self.begin().result()

    def begin(self) -> Future[str]:
        """Start in the background unless it runs or starts already; the future holds the address."""
        with self._lock:
            self._notice_death()
            if self._state is ServerState.STOPPED:
                raise EngineUnavailable("Spark was stopped")
            if self._attempt is not None and self._state in (ServerState.STARTING, ServerState.RUNNING):
                return self._attempt
            wait_s = max(0.0, self._next_start_s - time.monotonic())
            if wait_s > PATIENCE_S:
                raise EngineUnavailable(f"{self._reason}; next start in {wait_s:.0f} s")
            self._state = ServerState.STARTING
            attempt: Future[str] = Future()
            self._attempt = attempt
            threading.Thread(target=self._bring_up, args=(attempt, wait_s), name="spark-start", daemon=True).start()
            return attempt

    def restart(self, reason: str) -> None:
        """End the server that runs, if one does, and start another one in the background. Blocks for the end.

        What ran on it is lost; ``was_restarted`` tells why.
        """
        with self._lock:
            self._notice_death()
            process, attempt = self._process, self._attempt
            if self._state is not ServerState.RUNNING or process is None or attempt is None:
                return
            _log.warning("Spark is started again: %s", reason)
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
        address, failure = None, EngineUnavailable("Spark did not start")  # whatever happens, those who wait are told
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
                raise EngineUnavailable(f"Spark did not start: {self._last_words()}")
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
        # What a killed server left behind. Results outlive a server: somebody may be reading one.
        left_over = ("local", "tmp") if self._launched else ("local", "tmp", "results")
        self._launched = True
        for scratch in left_over:
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
            environment.pop("SPARK_LOCAL_IP")  # executors have to find the driver
        # Anybody may read a command line, and what runs in a process its environment.
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
                    start_new_session=True,  # a Ctrl-C at the gateway's terminal is not Spark's business
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
            # Spark Connect holds a whole result in this heap while it is read: refuse it before the heap is full.
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
            # AQE merges small partitions; more of them let a big one spill in smaller pieces.
            "spark.sql.shuffle.partitions": str(4 * self.settings.cores),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }

    def _notice_death(self) -> None:
        """Turn RUNNING into LOST if the process ended; the caller holds the lock."""
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
            self._failures = 0  # a statement's doing: the next server starts as well as this one did
        self._count_failure("Spark ran out of memory" if out_of_memory else f"Spark ended with status {status}")

    def _count_failure(self, reason: str) -> None:
        self._reason = reason
        self._failures += 1
        delay_s = RESTART_DELAYS_S[min(self._failures, len(RESTART_DELAYS_S) - 1)]
        self._next_start_s = time.monotonic() + delay_s

    def _last_words(self) -> str:
        """Return the last lines of the log that say something, without stack traces and paths."""
        with self.log_file.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        telling = [_LOG_PREFIX.sub("", line).strip() for line in lines if not _LOG_NOISE.search(line)]
        return _PATH.sub("...", " | ".join(telling[-_LOG_TAIL_LINES:])) or "it printed nothing"


def _property(text: str) -> str:
    """Write a name or a value for a file of Java's properties in UTF-8, whatever is in it."""
    return "".join(
        each if each.isalnum() or each in "._-/" or not each.isascii() else f"\\u{ord(each):04x}" for each in text
    )


def _write_secret(file: Path, text: str) -> None:
    """Write a file that only this user may read."""
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
    """Close the lifeline's pipe and wait for it to have ended the server."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_STOP_GRACE_S + 5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
