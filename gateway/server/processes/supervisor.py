"""START HERE: starts the processes of a gateway, restarts those that die, and holds what they share.

It holds the home folder's lock, the ports and the embedded engines' parts that all use. It takes no connection of a
client's and runs no statement.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, Pipe

from sqlalchemy.exc import SQLAlchemyError

from engines.adapter import EngineContext, SharedPart, SharingAdapter
from engines.machine.private_files import FILE_MODE, UMASK, private_file, private_folder
from engines.machine.sharing import Host, SocketFolder
from gateway.server.connections import ports
from gateway.server.heartbeat import gateway_id
from gateway.server.own_files import close_home, exposed, roots_at_fault
from gateway.server.processes.gateway_process import (
    SUPERVISOR,
    ProcessArguments,
    gateway_of,
    socket_folder,
)
from gateway.server.serve import addresses, allow_connections, tls_context
from gateway.server.startup import ADDRESS_FILE, LOCK_FILE, AlreadyServed, MissingExtra, StartFailed
from gateway.settings import Settings
from metastore.store import Metastore

log = logging.getLogger(__name__)

START_S = 180.0  # that a process may take until it takes connections
END_S = 60.0  # that one may take to end beside what its settings let drivers and calls take
RESTART_DELAYS_S = (0.0, 1.0, 5.0, 15.0)  # before a process that died is started again: the more often it did, the more
STABLE_S = 60.0  # after which one that lived so long counts as new


def supervise(settings: Settings) -> None:
    """Serve with several processes until SIGINT or SIGTERM. Raises StartFailed, SQLAlchemyError."""
    os.umask(UMASK)
    allow_connections()
    close_home(settings)
    for warning in (*exposed(settings), *roots_at_fault(settings)):
        log.warning("%s", warning)
    tls_context(settings.tls)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with _locked(settings) as lock, ExitStack() as held:
        reserved = held.enter_context(ports.reserved(settings))
        sockets = SocketFolder.opened(private_folder(socket_folder(settings)))
        parts = list(_shared_parts(settings))
        for part in parts:
            held.callback(part.stop)
        functions = {name: function for part in parts for name, function in part.functions.items()}
        holders = {name: holder for part in parts for name, holder in part.holders.items()}
        Host(sockets.path(SUPERVISOR), functions, holders).start()
        metastore = held.enter_context(Metastore(settings.metastore_url))
        home_id = gateway_id(settings.home)
        processes = [
            _Process(ProcessArguments(reserved.settings, number, settings.server.processes), lock, metastore, home_id)
            for number in range(settings.server.processes)
        ]
        address_file = settings.home / ADDRESS_FILE
        try:
            _start(processes, stopping)
            if not stopping.is_set():
                published = addresses(settings, reserved.http) | reserved.others
                private_file(address_file).write_text(json.dumps(published), encoding="utf-8")
                log.info(
                    "%d processes serve %s, dashboard at %s/dashboard", len(processes), settings.home, published["url"]
                )
            stopping.wait()
        finally:
            address_file.unlink(missing_ok=True)
            _end(processes, settings)


@contextmanager
def _locked(settings: Settings) -> Iterator[int]:
    """Hold the home's lock, and yield its descriptor: processes inherit it, so that it holds as long as any lives.

    Raises AlreadyServed.
    """
    descriptor = os.open(settings.home / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise AlreadyServed(f"another gateway serves {settings.home}; stop it or choose another --home") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _shared_parts(settings: Settings) -> Iterator[SharedPart]:
    for adapter, section in settings.engines():
        if isinstance(adapter, SharingAdapter):
            around = EngineContext(settings.home / adapter.section, settings.limits.planners, os.cpu_count() or 1)
            try:
                part = adapter.share(section, around)
            except ImportError as error:
                hint = f"{adapter.product} is configured: pip install 'fusion-sql-gateway[{adapter.extra}]'"
                raise MissingExtra(hint) from error
            if part is not None:
                yield part


def _start(processes: list[_Process], stopping: threading.Event) -> None:
    """Start the first process, which cleans up after earlier ones, and then all others. Raises StartFailed."""
    for group in (processes[:1], processes[1:]):
        for process in group:
            process.start()
        for process in group:
            if not process.wait_until_ready(stopping):
                return


def _end(processes: list[_Process], settings: Settings) -> None:
    """End all processes, and wait for that."""
    for process in processes:
        process.stop()
    until_s = time.monotonic() + END_S + 2 * settings.hs2.drain_s + settings.flight.drain_s
    for process in processes:
        process.join(until_s)


class _Process:
    """One process, from the first start to the last end. A thread waits for its ends."""

    def __init__(self, arguments: ProcessArguments, lock: int, metastore: Metastore, home_id: str) -> None:
        self._arguments = arguments
        self._lock_descriptor = lock
        self._metastore = metastore
        self._name = gateway_of(home_id, arguments.number)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._keep_alive, name=f"process {arguments.number}", daemon=True)

    def start(self) -> None:
        """Start it, and restart it whenever it dies."""
        self._thread.start()

    def wait_until_ready(self, stopping: threading.Event) -> bool:
        """Wait until it takes connections; False where all is to end before. Raises StartFailed."""
        until_s = time.monotonic() + START_S
        while not self._ready.wait(0.05):
            if stopping.is_set():
                return False
            if self._failure is not None:
                raise StartFailed(self._failure)
            if time.monotonic() > until_s:
                raise StartFailed(f"process {self._arguments.number} did not start within {START_S:.0f} s")
        return True

    def stop(self) -> None:
        """End it, and do not restart it."""
        with self._lock:
            self._stopping.set()
            if self._process is not None:
                self._process.send_signal(signal.SIGTERM)

    def join(self, until_s: float) -> None:
        """Wait for its end; one that takes too long is killed."""
        if not self._thread.ident:
            return
        self._thread.join(max(0.0, until_s - time.monotonic()))
        if self._thread.is_alive():
            log.warning("process %d does not end and is killed", self._arguments.number)
            with self._lock:
                if self._process is not None:
                    self._process.kill()
            self._thread.join()

    def _keep_alive(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began_s = time.monotonic()
            status = self._run_once()
            if self._stopping.is_set():
                return
            failures = 1 if time.monotonic() - began_s > STABLE_S else failures + 1
            log.error("process %d ended with status %d and is started again", self._arguments.number, status)
            if not self._ready.is_set():
                self._failure = (
                    self._failure or f"process {self._arguments.number} ended as it started; the log says why"
                )
                return
            self._stopping.wait(RESTART_DELAYS_S[min(failures, len(RESTART_DELAYS_S)) - 1])

    def _run_once(self) -> int:
        """Start it, wait for its end, and clean up; return its exit status."""
        ours, theirs = Pipe()
        with ours:
            with theirs, self._lock:
                if self._stopping.is_set():
                    return 0
                process = self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "gateway.server.processes.process", str(theirs.fileno())],
                    pass_fds=(theirs.fileno(), self._lock_descriptor),
                    stdin=subprocess.DEVNULL,
                )
            self._follow(ours)
            status = process.wait()
        if status:
            self._disown_queries()
        return status

    def _follow(self, process: Connection) -> None:
        """Send it its arguments, and record the outcome of its start, until its end."""
        with contextlib.suppress(EOFError, OSError):
            process.send(self._arguments)
            while True:
                failure = process.recv()
                if failure:
                    self._failure = failure
                    log.error("process %d did not start: %s", self._arguments.number, failure)
                else:
                    self._ready.set()

    def _disown_queries(self) -> None:
        """Tell the others that it is gone, whose queries are nobody's now."""
        try:
            self._metastore.membership.remove(self._name)
        except SQLAlchemyError as error:
            log.warning(
                "queries of process %d stay open until its silence is noticed: %s", self._arguments.number, error
            )
