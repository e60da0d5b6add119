"""``inspection.inspect`` in a process of its own: files of strangers are looked at where they can harm nobody.

One process is kept warm. It forks a child for each look, which has limits of memory, of time for a single file and of
time in all, may write no file and leaves no core dump. A file that crashes a reader, or keeps it waiting, ends the
child; the gateway hears of it and says so. The warm process ends with its parent's end of a socket, however that comes.
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

from engines.machine.environment import child_environment
from engines.protocol import Column, InvalidTable, TableSource
from metastore.discovery.formats import InspectionFailed
from metastore.records import Inspection, Partition

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
_BUSY = "the gateway looks at too many tables already: try again in a moment"


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one look. memory_bytes: of address space, beyond what the warm process has. file_s: of a single file.

    look_s: of all files together; start_s: for a child to begin; at_once: looks that run, of everybody.
    """

    memory_bytes: int = 1 << 30
    file_s: float = 20.0
    look_s: float = 600.0
    start_s: float = 30.0
    at_once: int = 8


class Inspector:
    """Looks at files in children. Thread-safe; nothing runs before the first look."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self._limits = limits
        self._places = threading.BoundedSemaphore(limits.at_once)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._door: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The warm process; None before the first look."""
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
        """Say what table lies at a location, as ``inspection.inspect`` does. Raises InspectionFailed."""
        asked = {
            "name": name,
            "location": str(location),
            "format": format,
            "options": dict(options or {}),
            "columns": [[column.name, column.data_type] for column in columns or ()],
            "limits": [self._limits.memory_bytes, self._limits.file_s, self._limits.look_s],
        }
        if not self._places.acquire(timeout=self._limits.file_s):
            raise InspectionFailed(_BUSY)
        try:
            reply = self._reply(json.dumps(asked).encode())
        finally:
            self._places.release()
        if "failed" in reply:
            raise InspectionFailed(reply["failed"])
        try:
            return _inspection(reply)
        except InvalidTable as failure:
            raise InspectionFailed(f"{name} cannot be a table: {failure}") from failure

    def close(self) -> None:
        """End the warm process and all looks."""
        with self._lock:
            self._end()

    def _reply(self, asked: bytes) -> dict[str, Any]:
        begun_s = time.monotonic()
        said = self._said(asked, begun_s) or self._said(asked, begun_s)  # nothing at all: the warm process was killed
        text = said.lstrip(_ALIVE)
        if text.endswith(b"\n"):
            reply: dict[str, Any] = json.loads(text)
            return reply
        if time.monotonic() - begun_s >= self._limits.file_s:
            raise InspectionFailed(
                f"looking at its files took longer than {self._limits.file_s:.0f} s for one of them, or "
                f"{self._limits.look_s:.0f} s in all: is there a file that never ends, or a disk that does not answer?"
            )
        raise InspectionFailed(
            "looking at its files ended the process that did it: one of them is damaged, or made to do that; "
            "give the format and the columns, or move the file out of the table"
        )

    def _said(self, asked: bytes, begun_s: float) -> bytes:
        """Return all that a child says until it ends, or is silent for too long."""
        chunks: list[bytes] = []
        with self._connected() as connection, contextlib.suppress(OSError):
            connection.settimeout(self._limits.start_s + self._limits.file_s)  # mostly the child ends itself before
            connection.sendall(asked)
            connection.shutdown(socket.SHUT_WR)
            while time.monotonic() - begun_s < self._limits.look_s and (chunk := connection.recv(_REPLY_BYTES)):
                chunks.append(chunk)
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
        raise InspectionFailed("the process that looks at files does not start: the gateway's log may say why")

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
"""The look of a process that has one warm process for all."""
