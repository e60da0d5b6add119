"""``inspection.inspect`` in a process of its own: files of strangers are read where they can do no harm.

One process is kept warm. It forks a child for each inspection. The child has limits of memory, of time for a single
file and of time in all, may write no file and leaves no core dump. A file that crashes a reader, or blocks it, ends the
child, and the caller gets an error. The warm process ends when its parent's end of a socket closes.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.files.listing import InspectionFailed
from engines.machine.environment import child_environment
from engines.running_statement import require_time
from metastore.records import Inspection, Partition
from sql.tables import Column, InvalidTable, TableSource

_ONE_THREAD = {  # threads do not outlive a fork
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "MALLOC_ARENA_MAX": "2",
}
_REPLY_BYTES = 1 << 16  # read at once
_END_WITHIN_S = 5.0
_ALIVE = b"."
_BUSY = "the gateway is inspecting too many tables: try again in a moment"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one inspection, and of how many run."""

    memory_bytes: int = 1 << 30
    """Address space beyond that of the warm process."""
    file_s: float = 20.0
    """For a single file."""
    look_s: float = 600.0
    """For all files together."""
    start_s: float = 30.0
    """For a child to begin."""
    at_once: int = 8
    """Inspections that run at the same time, of all users."""


class Inspector:
    """Inspects files in child processes. Thread-safe; nothing runs before the first inspection."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self._limits = limits
        self._places = threading.BoundedSemaphore(limits.at_once)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._door: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the warm process; None before the first inspection."""
        return self._process.pid if self._process is not None else None

    def inspect(
        self,
        name: str,
        location: str | Path,
        *,
        format: str | None = None,
        options: Mapping[str, str] | None = None,
        columns: Sequence[Column] | None = None,
    ) -> Inspection:
        """Return the table at a location, as ``inspection.inspect`` does. Raises InspectionFailed."""
        reply = self._request(
            {
                "name": name,
                "location": str(location),
                "format": format,
                "options": dict(options or {}),
                "columns": _pairs(columns or ()),
                "files": None,
            }
        )
        try:
            return _inspection(reply)
        except InvalidTable as failure:
            raise InspectionFailed(f"{name} cannot be a table: {failure}") from failure

    def require_fitting(self, source: TableSource, files: Sequence[Path]) -> None:
        """Compare files with a table's columns, as ``inspection.require_fitting`` does. Raises InspectionFailed."""
        self._request(
            {
                "name": source.name,
                "location": source.location,
                "format": source.format,
                "columns": _pairs(source.columns),
                "partition_columns": source.partition_columns,
                "files": [str(file) for file in files],
            }
        )

    def close(self) -> None:
        """End the warm process and all inspections."""
        with self._lock:
            self._end()

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        limits = [self._limits.memory_bytes, self._limits.file_s, self._limits.look_s]
        if not self._places.acquire(timeout=self._limits.file_s):
            raise InspectionFailed(_BUSY)
        try:
            reply = self._reply(json.dumps({**request, "limits": limits}).encode())
        finally:
            self._places.release()
        if "failed" in reply:
            raise InspectionFailed(reply["failed"])
        return reply

    def _reply(self, request: bytes) -> dict[str, Any]:
        begun_s = time.monotonic()
        # No byte at all: the warm process was killed.
        output = self._output(request, begun_s) or self._output(request, begun_s)
        text = output.lstrip(_ALIVE)
        if text.endswith(b"\n"):
            reply: dict[str, Any] = json.loads(text)
            return reply
        if time.monotonic() - begun_s >= self._limits.file_s:
            raise InspectionFailed(
                f"reading its files took longer than {self._limits.file_s:.0f} s for one of them, or "
                f"{self._limits.look_s:.0f} s in all: is there a file that never ends, or a disk that does not answer?"
            )
        raise InspectionFailed(
            "reading its files ended the process that read them: one of them is damaged, or made to do that; "
            "give the format and the columns, or the location of other files"
        )

    def _output(self, request: bytes, begun_s: float) -> bytes:
        """Return the output of a child until it ends, or is silent for too long. Raises as ``require_time`` does."""
        chunks: list[bytes] = []
        with self._connected() as connection, contextlib.suppress(OSError):
            connection.settimeout(self._limits.start_s + self._limits.file_s)  # mostly the child ends itself before
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while time.monotonic() - begun_s < self._limits.look_s and (chunk := connection.recv(_REPLY_BYTES)):
                chunks.append(chunk)
                require_time()  # the child ends as the connection closes
        return b"".join(chunks)

    def _connected(self) -> socket.socket:
        """Return our end of a socket whose other end a new child reads."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            for _ in range(2):  # the warm process may have been killed
                try:
                    socket.send_fds(self._warm(), [b"."], [theirs.fileno()])
                except OSError:
                    self._end()
                else:
                    return ours
        ours.close()
        raise InspectionFailed("the process that inspects files does not start: see the gateway's log")

    def _warm(self) -> socket.socket:
        if self._door is not None and self._process is not None and self._process.poll() is None:
            return self._door
        self._end()
        door, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "metastore.discovery.inspection_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**child_environment(), **_ONE_THREAD},
            )
        self._door = door
        return door

    def _end(self) -> None:
        if self._door is not None:
            self._door.close()
            self._door = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_WITHIN_S)
            self._process.kill()
            self._process.wait()
            self._process = None


def _pairs(columns: Sequence[Column]) -> list[list[str]]:
    return [[column.name, column.declared_type] for column in columns]


def _inspection(reply: Mapping[str, Any]) -> Inspection:
    return Inspection(
        source=TableSource(
            name=reply["name"],
            location=reply["location"],
            format=reply["format"],
            columns=tuple(Column(name, data_type) for name, data_type in reply["columns"]),
            partition_columns=tuple(reply["partition_columns"]),
            options=dict(reply["options"]),
        ),
        files=int(reply["files"]),
        bytes=int(reply["bytes"]),
        rows=reply["rows"],
        partitions=tuple(Partition(*partition) for partition in reply["partitions"]),
        declared=bool(reply["declared"]),
    )


_SHARED = Inspector()
atexit.register(_SHARED.close)
inspect = _SHARED.inspect
"""Inspection by the one warm process of this process."""
require_fitting = _SHARED.require_fitting
"""Comparison by the same warm process."""
