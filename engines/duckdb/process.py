"""A worker process seen from the gateway: start it, talk to it, end it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from engines.duckdb import wire
from engines.errors import (
    DataError,
    DeadlineExceeded,
    EngineError,
    EngineFault,
    EngineUnavailable,
    StatementCancelled,
)
from engines.machine.environment import child_environment
from engines.protocol import Actuals, Lease, OperatorActual, Snapshots, Watch, unwatched
from sql.tables import TableSource

START_TIMEOUT_S = 60.0
POLL_S = 0.1  # between two looks at whether a statement that is planned was cancelled
STALLED_S = 30.0  # in the middle of a frame
MOST_PINNED = 256  # tables with a snapshot that a process is told to remember
INTERRUPT_GRACE_S = 2.0  # most statements stop within 10 ms of an interrupt; the rest are killed after this

# The first two reserve address space in steps of 64 MiB to 1 GiB otherwise, which would eat up the worker's cap. With
# the others a batch's memory is used again for the next one: fresh pages would cost a tenth of a result's time.
_FRUGAL_ALLOCATORS = {
    "MALLOC_ARENA_MAX": "2",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}

_ERRORS = {kind.__name__: kind for kind in (*EngineError.__subclasses__(), DataError)}


class WorkerLost(EngineUnavailable):
    """The process ended, or was ended, while something was asked of it."""


class NoAnswer(EngineUnavailable):
    """The process did not answer in time and was ended."""


class WorkerProcess:
    """One worker. Not thread-safe, except ``interrupt``, ``raise_limit`` and ``kill``.

    tables: that statements may name, by their names in small letters. nice: by how much the gateway comes first.
    """

    def __init__(self, *, threads: int, tables: Mapping[str, TableSource], nice: int = 0) -> None:
        self.statements = 0
        self._tables: Mapping[str, TableSource] = {}
        self._pinned: dict[str, TableSource] = {}
        """Tables with a snapshot, as it was told last, by their names in small letters."""
        self._next_pinned: tuple[str, ...] = ()
        """Names of the tables that the next statement reads by their snapshots."""
        self._sending = threading.Lock()
        self._socket, theirs = socket.socketpair()
        self._frames = wire.Receiver(self._socket)
        wire.wait_for_sending(self._socket, STALLED_S)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "engines.duckdb.worker.worker",
                    *map(str, (theirs.fileno(), threads, nice)),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**child_environment(), **_FRUGAL_ALLOCATORS},
            )
        threading.Thread(target=self._process.wait, name="duckdb-end", daemon=True).start()
        self._memory = _opened(Path(f"/proc/{self.pid}/statm"))
        self.use_tables(tables)
        self._resident_bytes = self._resident()

    def use_tables(self, tables: Mapping[str, TableSource], snapshots: Snapshots = ()) -> None:
        """Tell the process what is new, defined otherwise or gone since it was last told.

        tables: all of them; the same object as long as they stay as they are.
        snapshots: tables that the next statement reads by their snapshots.

        Raises EngineError; then the process is ended, for nobody knows what it has heard.
        """
        pinned = {table.name.lower(): table for table in snapshots}
        self._next_pinned = tuple(pinned)
        new = _differing(pinned, self._pinned)
        before = self._tables
        if tables is before and not new:
            return
        is_full = len(self._pinned) + len(new) > MOST_PINNED
        command = {
            "op": "tables",
            "changed": [described(table) for table in _differing(tables, before)] if tables is not before else [],
            "gone": [name for name in before if name not in tables] if tables is not before else [],
            "pinned": list(map(described, new)),
            "unpinned": [name for name in self._pinned if name not in pinned] if is_full else [],
        }
        try:
            self.ask(command)
        except EngineError:
            self.kill()
            raise
        self._tables = tables
        self._pinned = pinned if is_full else {**self._pinned, **pinned}

    @property
    def pid(self) -> int:
        """The operating system's id of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once the process has ended, of which a thread is told: to ask would be a system call each time."""
        return self._process.returncode is None

    @property
    def growth_bytes(self) -> int:
        """Return how much memory it holds beyond what it held when it was new; 0 where nobody can tell."""
        return max(0, self._resident() - self._resident_bytes)

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Send a command and return its reply."""
        self._send(command)
        try:
            kind, payload = self.receive(wait_s=START_TIMEOUT_S)
        except TimeoutError as error:
            self.kill()
            raise NoAnswer("A DuckDB worker process did not answer in time.") from error
        if kind is not wire.Frame.REPLY:
            raise EngineFault(f"A DuckDB worker process answered with {kind.name}.")
        reply: dict[str, Any] = json.loads(bytes(payload))
        return reply

    def plan(self, sql: str, *, memory_bytes: int, timeout_s: float, cancelled: Callable[[], bool]) -> str:
        """Return DuckDB's plan as JSON. The process is ended where it does not answer, or nobody waits any more."""
        self._send({"op": "explain", "sql": sql, "pinned": self._next_pinned, "memory_bytes": memory_bytes})
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                _, payload = self.receive(wait_s=min(POLL_S, max(0.001, until_s - time.monotonic())))
            except TimeoutError as error:
                if cancelled():
                    self.kill()
                    raise StatementCancelled("The statement was cancelled while it was planned.") from error
                if time.monotonic() >= until_s:
                    self.kill()
                    raise NoAnswer("A DuckDB process did not plan in time.") from error
            else:
                plan: str = json.loads(bytes(payload))["plan"]
                return plan

    def start_statement(self, number: int, sql: str, lease: Lease, *, watched: bool) -> None:
        """Send a statement; its frames are to be received until END or an error. watched: its memory is told."""
        self.statements += 1
        terms = {"memory_bytes": lease.memory_bytes, "threads": lease.threads, "watched": watched}
        self._send({"op": "execute", "number": number, "sql": sql, "pinned": self._next_pinned, **terms})

    def receive(self, *, wait_s: float | None) -> tuple[wire.Frame, memoryview]:
        """Receive one frame; an ERROR frame is raised as what it means. Raises TimeoutError if none begins."""
        try:
            kind, payload = self._frames.receive(wait_s=wait_s, stalled_s=STALLED_S)
        except wire.PeerGone as error:
            raise WorkerLost("The DuckDB worker process that ran the statement was lost.") from error
        if kind is wire.Frame.ERROR:
            reported = json.loads(bytes(payload))
            raise _ERRORS.get(reported["kind"], EngineFault)(reported["message"], peak_bytes=reported["peak_bytes"])
        return kind, payload

    def interrupt(self, number: int) -> None:
        """Ask the worker to stop a statement, if it still runs that one."""
        with contextlib.suppress(EngineUnavailable):
            self._send({"op": "interrupt", "number": number})

    def raise_limit(self, number: int, memory_bytes: int) -> None:
        """Let a statement take more, if it still runs."""
        with contextlib.suppress(EngineUnavailable):
            self._send({"op": "raise", "number": number, "memory_bytes": memory_bytes})

    def kill(self) -> None:
        """End the process at once."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that is receiving
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process and give its socket back."""
        self.kill()
        self._socket.close()
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None

    def _resident(self) -> int:
        if self._memory is None:
            return 0
        try:
            pages = int(os.pread(self._memory, 256, 0).split()[1])
        except (OSError, IndexError):  # it has just ended
            return 0
        return pages * resource.getpagesize()

    def _send(self, command: dict[str, Any]) -> None:
        try:
            with self._sending:
                wire.send_json(self._socket, wire.Frame.COMMAND, command)
        except wire.PeerGone as error:
            raise WorkerLost("A DuckDB worker process was lost.") from error


class Statement:
    """A running statement: a ResultStream over a worker's frames.

    The thread that reads drives it. ``cancel`` may come from any thread: it interrupts, and kills the worker
    if that does not help within a grace period. watch: hears what it holds, on the thread that reads.
    """

    def __init__(
        self, worker: WorkerProcess, number: int, sql: str, lease: Lease, deadline_s: float, watch: Watch = unwatched
    ) -> None:
        self._worker = worker
        self._watch = watch
        self._number = number
        self._deadline = time.monotonic() + deadline_s
        self._ended = False
        self._cancelled = False
        self._late = False
        self._grace: threading.Timer | None = None
        self._state = threading.Lock()
        self._actuals = Actuals()
        self._schema: pa.Schema | None = None
        worker.start_statement(number, sql, lease, watched=watch is not unwatched)

    def open(self) -> None:
        """Wait until the worker tells the schema; only then are there rows to read."""
        _, payload = self._next_frame()
        self._schema = pa.ipc.read_schema(pa.py_buffer(payload))

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the result."""
        return self._schema

    @property
    def actuals(self) -> Actuals:
        """Peak and rows per operator; complete after the last batch."""
        return self._actuals

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._ended:
            raise StopIteration
        kind, payload = self._next_frame()
        if kind is not wire.Frame.END:
            return wire.decode_rows(kind, payload, self._schema)
        self._actuals = _actuals(json.loads(bytes(payload)))
        self._end()
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cancel(self) -> None:
        """Stop the statement from another thread."""
        with self._state:
            if self._ended or self._cancelled:
                return
            self._cancelled = True
            self._stop()

    def raise_limit(self, memory_bytes: int) -> None:
        """Let it take more, from another thread or from ``watch``."""
        if not self._ended:
            self._worker.raise_limit(self._number, memory_bytes)

    def close(self) -> None:
        """Stop the statement if it still runs, and read what is left of its frames."""
        if self._ended:
            return
        self.cancel()
        with contextlib.suppress(EngineError):
            while not self._ended:
                self._next_frame_until_end()

    def _next_frame_until_end(self) -> None:
        kind, _ = self._next_frame()
        if kind is wire.Frame.END:
            self._end()

    def _stop(self) -> None:
        """Interrupt now, kill after the grace period; a second reason to stop changes nothing."""
        if self._grace is not None:
            return
        self._worker.interrupt(self._number)
        self._grace = threading.Timer(INTERRUPT_GRACE_S, self._worker.kill)
        self._grace.daemon = True
        self._grace.start()

    def _next_frame(self) -> tuple[wire.Frame, memoryview]:
        """Return the next frame of the statement itself, and tell who watches of what came before it."""
        while True:
            kind, payload = self._receive()
            if kind is not wire.Frame.HELD:
                return kind, payload
            if not (self._cancelled or self._late):
                self._watch(json.loads(bytes(payload))["bytes"])

    def _receive(self) -> tuple[wire.Frame, memoryview]:
        try:
            while True:
                try:
                    return self._worker.receive(wait_s=self._remaining_s())
                except TimeoutError:
                    self._expire()
        except EngineError as error:
            self._end()
            if self._late:
                raise DeadlineExceeded("The statement's time is spent.", peak_bytes=error.peak_bytes) from error
            if self._cancelled:
                raise StatementCancelled("The statement was cancelled.", peak_bytes=error.peak_bytes) from error
            raise

    def _remaining_s(self) -> float | None:
        if self._late or self._cancelled:
            return None  # the grace timer ends the wait
        return max(0.001, self._deadline - time.monotonic())

    def _expire(self) -> None:
        with self._state:
            if not (self._late or self._cancelled):
                self._late = True
                self._stop()

    def _end(self) -> None:
        with self._state:
            self._ended = True
            if self._grace is not None:
                self._grace.cancel()


def _opened(path: Path) -> int | None:
    """Return the descriptor of a file that is read again and again; None where there is no such file: not on Linux."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _actuals(message: dict[str, Any]) -> Actuals:
    operators = tuple(OperatorActual(**operator) for operator in message["operators"])
    return Actuals(message["peak_bytes"], operators)


def _differing(tables: Mapping[str, TableSource], before: Mapping[str, TableSource]) -> list[TableSource]:
    """Return the tables that are not what they were before."""
    return [table for name, table in tables.items() if (old := before.get(name)) is not table and old != table]


def described(table: TableSource) -> dict[str, Any]:
    """Return a table as JSON holds it."""
    return {
        "name": table.name,
        "location": table.location,
        "format": table.format,
        "columns": [{"name": column.name, "data_type": column.data_type} for column in table.columns],
        "partition_columns": table.partition_columns,
        "options": dict(table.options),
        "snapshot": asdict(table.snapshot) if table.snapshot is not None else None,
    }
