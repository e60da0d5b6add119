"""Sail's servers: child processes of which each runs one statement, with a memory pool of its own.

A pool's size and the number of threads are fixed when a server starts, which takes a quarter of a second. So a
statement with another lease than the idle servers were started for gets a server of its own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import engines.machine.lifeline
from engines.errors import EngineBusy, EngineUnavailable
from engines.machine.environment import child_environment
from engines.machine.ports import free_port
from engines.machine.private_files import UMASK, private_folder

log = logging.getLogger(__name__)

SERVER_WAIT_S = 30.0  # admission keeps statements out while all are busy; this covers a server being replaced
RECYCLE_AFTER = 1_000
RECYCLE_GROWTH_BYTES = 256 << 20
START_TIMEOUT_S = 30.0
RESPAWN_BACKOFF_S = 1.0
NEAR = 0.9  # of a lease: a server with no less memory than that is good enough for it

_HOST = "127.0.0.1"
_RUN = "import sys; sys.path.append(sys.argv.pop(1)); from pysail.cli import main; main()"
_READY_CHECK_S = 0.01
_CONNECT_TIMEOUT_S = 1.0
_LOOK_S = 0.05
_END_GRACE_S = 0.2
_STOP_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Shape:
    """What a server is started for. memory_bytes: of its pool. threads: of one statement."""

    memory_bytes: int
    threads: int

    def serves(self, wanted: Shape) -> bool:
        """Tell whether a statement with a lease of the wanted shape may run here, and has nearly all that it may."""
        return self.threads == wanted.threads and NEAR * wanted.memory_bytes <= self.memory_bytes <= wanted.memory_bytes


@dataclass(frozen=True, slots=True)
class Spilling:
    """Where a server may write what does not fit its pool, and how much."""

    folder: Path
    max_bytes: int


class Server:
    """One process, ready to be asked at ``address``. Raises EngineUnavailable where it does not start."""

    def __init__(self, shape: Shape, folder: Path, spilling: Spilling | None) -> None:
        self.shape = shape
        self.statements = 0
        self._folder = folder
        self._pid_file = folder / "server.pid"
        self.port = free_port(_HOST)
        self.address = f"sc://{_HOST}:{self.port}"
        private_folder(folder)
        lifeline = [sys.executable, str(Path(engines.machine.lifeline.__file__)), "--grace", str(_END_GRACE_S)]
        # Each server has an empty folder of its own: its catalog, which nobody uses, would write below where it stands.
        command = [*_alone(folder), "spark", "server", "--ip", _HOST, "--port", str(self.port)]
        self._process = subprocess.Popen(
            [*lifeline, "--pid-file", str(self._pid_file), "--", *command, "-C", str(folder)],
            stdin=subprocess.PIPE,  # closes when this process ends, however it ends
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # it would print statements with their literals
            env={**child_environment(), **_configuration(shape, spilling)},
            umask=UMASK,
        )
        try:
            self._wait_until_ready()
        except EngineUnavailable:
            self.stop()
            raise
        self.pid = int(self._pid_file.read_text(encoding="ascii"))
        self._first_bytes = _resident_bytes(self.pid)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def growth_bytes(self) -> int:
        """Memory that it holds beyond what it held when it was new; 0 where the system does not tell."""
        now = _resident_bytes(self.pid)
        return now - self._first_bytes if now is not None and self._first_bytes is not None else 0

    def kill(self) -> None:
        """End it at once, with what runs on it; may be called twice and from any thread."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()  # the lifeline does the rest

    def stop(self) -> None:
        """End it and wait for that."""
        self.kill()
        try:
            self._process.wait(_STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_ready(self) -> None:
        give_up_s = time.monotonic() + START_TIMEOUT_S
        while not (_answers(self.port) and self._pid_file.exists()):
            if not self.alive:
                raise EngineUnavailable("Sail did not start: its process ended")
            if time.monotonic() > give_up_s:
                raise EngineUnavailable(f"Sail did not start within {START_TIMEOUT_S:.0f} s")
            time.sleep(_READY_CHECK_S)


class Servers:
    """Idle and busy servers, of which ``size`` are kept ready in the usual shape. Thread-safe.

    size: statements at once. folder: belongs to these servers alone.
    """

    def __init__(self, usual: Shape, folder: Path, spilling: Spilling | None, *, size: int) -> None:
        self.usual = usual
        self._folder = folder
        self._spilling = spilling
        self._size = size
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._idle: list[Server] = []
        self._servers: set[Server] = set()
        self._starting = 0
        self._failure: str | None = None
        self._closed = False
        private_folder(folder)
        if spilling is not None:
            private_folder(spilling.folder)
        self._fill()

    def take(self, wanted: Shape, *, give_up: Callable[[], None]) -> Server:
        """Return a server for a statement alone. give_up: raises what ended the statement meanwhile.

        Raises EngineBusy, EngineUnavailable.
        """
        until_s = time.monotonic() + SERVER_WAIT_S
        while True:
            give_up()
            with self._changed:
                if self._closed:
                    raise EngineUnavailable("Sail is shutting down.")
                found = self._fitting(wanted)
                if found is not None:
                    return found
                if self._has_room():
                    self._starting += 1
                    break
                if self._failure and not self._starting and not self._servers:
                    raise EngineUnavailable(self._failure)
                if time.monotonic() > until_s:
                    raise EngineBusy("No Sail server became free in time.")
                self._changed.wait(_LOOK_S)
        return self._start(wanted, idle=False)

    def give_back(self, server: Server, *, healthy: bool) -> None:
        """Keep a server for the next statement, unless it is to be replaced by a new one."""
        server.statements += 1
        outworn = server.statements >= RECYCLE_AFTER or server.growth_bytes > RECYCLE_GROWTH_BYTES
        with self._changed:
            if healthy and server.alive and not outworn and not self._closed:
                self._idle.append(server)
                self._changed.notify_all()
                return
            self._retire(server)
        self._fill()

    def describe(self) -> tuple[bool, str]:
        """Return whether there is anything to run on, and one line about it."""
        with self._changed:
            if self._closed:
                return False, "closed"
            alive = sum(server.alive for server in self._servers)
            if not alive and self._failure:
                return False, self._failure
            busy = max(0, len(self._servers) - len(self._idle))
            return True, f"{alive} of {self._size} servers, {busy} busy, {self._starting} starting"

    def pids(self) -> tuple[int, ...]:
        """Return the process ids of the servers that run."""
        with self._changed:
            return tuple(server.pid for server in self._servers if server.alive)

    def close(self) -> None:
        """End all servers; may be called twice."""
        with self._changed:
            self._closed = True
            servers, self._servers = list(self._servers), set()
            self._idle.clear()
            self._changed.notify_all()
        for server in servers:
            server.stop()

    def _fitting(self, wanted: Shape) -> Server | None:
        """Take the idle server with most memory that serves a shape; drop those that died."""
        for server in [server for server in self._idle if not server.alive]:
            self._idle.remove(server)
            self._retire(server)
        fitting = [server for server in self._idle if server.shape.serves(wanted)]
        if not fitting:
            return None
        found = max(fitting, key=lambda server: server.shape.memory_bytes)
        self._idle.remove(found)
        return found

    def _has_room(self) -> bool:
        """Tell whether one more server may start, if an idle one of another shape is ended for it."""
        if len(self._servers) + self._starting < self._size:
            return True
        if not self._idle:
            return False
        self._retire(self._idle.pop(0))
        return True

    def _retire(self, server: Server) -> None:
        self._servers.discard(server)
        server.kill()
        threading.Thread(target=server.stop, name="sail-retire", daemon=True).start()

    def _fill(self) -> None:
        """Start servers of the usual shape in the background, as many as are missing."""
        with self._changed:
            missing = 0 if self._closed else max(0, self._size - len(self._servers) - self._starting)
            self._starting += missing
        for _ in range(missing):
            threading.Thread(target=self._start_usual, name="sail-start", daemon=True).start()

    def _start_usual(self) -> None:
        try:
            self._start(self.usual, idle=True)
        except EngineUnavailable as error:
            log.warning("%s", error.message)
            time.sleep(RESPAWN_BACKOFF_S)
            with self._changed:
                try_again = not self._closed and not self._servers and not self._starting
            if try_again:
                self._fill()

    def _start(self, shape: Shape, *, idle: bool) -> Server:
        """Start a server that was counted among those that start. Raises EngineUnavailable."""
        server, failure = None, "Sail did not start"
        try:
            server = Server(shape, self._folder / f"server-{os.getpid()}-{next(self._numbers)}", self._spilling)
        except EngineUnavailable as error:
            failure = error.message
        except OSError as error:
            failure = f"Sail did not start: {error.strerror or error}"
        with self._changed:
            self._starting -= 1
            self._changed.notify_all()
            if server is not None and not self._closed:
                self._failure = None
                self._servers.add(server)
                if idle:
                    self._idle.append(server)
                return server
            self._failure = failure if server is None else self._failure
        if server is not None:
            server.stop()
        raise EngineUnavailable(failure if server is None else "Sail is shutting down.")


def _alone(folder: Path) -> Sequence[str]:
    """Return the command by which Sail runs and finds no other package: it refuses a pyspark that is newer than it.

    Without one it runs no functions in Python either, which is as well.
    """
    found = importlib.util.find_spec("pysail")
    if found is None or not found.submodule_search_locations:
        raise EngineUnavailable("Sail did not start: pysail is not installed")
    packages = private_folder(folder / "packages")
    (packages / "pysail").symlink_to(found.submodule_search_locations[0])
    return [sys.executable, "-I", "-S", "-c", _RUN, str(packages.absolute())]


def _configuration(shape: Shape, spilling: Spilling | None) -> Mapping[str, str]:
    """Return Sail's settings as its environment."""
    settings = {
        "RUST_LOG": "off",
        "TOKIO_WORKER_THREADS": str(shape.threads + 1),  # one that hears of a cancel
        "SAIL_MODE": "local",
        "SAIL_EXECUTION__DEFAULT_PARALLELISM": str(shape.threads),
        # A view's files are listed by each statement, and what was read of one statement's must not weigh on the next.
        "SAIL_EXECUTION__FILE_LISTING_CACHE__TYPE": "none",
        "SAIL_PARQUET__FILE_STATISTICS_CACHE__TYPE": "none",
        "SAIL_PARQUET__FILE_METADATA_CACHE__TYPE": "none",
    }
    if spilling is None:
        return settings | {
            "SAIL_RUNTIME__MEMORY_POOL__TYPE": "greedy",
            "SAIL_RUNTIME__MEMORY_POOL__GREEDY__MAX_SIZE": str(shape.memory_bytes),
            "SAIL_RUNTIME__TEMPORARY_FILES__MAX_SIZE": "0",
        }
    return settings | {
        "SAIL_RUNTIME__MEMORY_POOL__TYPE": "fair",  # else the operator that asks first takes all
        "SAIL_RUNTIME__MEMORY_POOL__FAIR__MAX_SIZE": str(shape.memory_bytes),
        "SAIL_RUNTIME__TEMPORARY_FILES__PATHS": json.dumps([str(spilling.folder.absolute())]),
        "SAIL_RUNTIME__TEMPORARY_FILES__MAX_SIZE": str(spilling.max_bytes),
        "SAIL_OPTIMIZER__PREFER_HASH_JOIN": "false",  # the table of a hash join does not spill; joins of sorted rows do
    }


def _answers(port: int) -> bool:
    try:
        socket.create_connection((_HOST, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _resident_bytes(pid: int) -> int | None:
    """Return the memory that a process holds, None where the system does not tell."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
