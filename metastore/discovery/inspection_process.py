"""The warm process behind ``metastore.discovery.inspector``: it forks a child for each look at a table's files.

Run as ``python -m metastore.discovery.inspection_process FD``; FD is one end of a socket pair, over which sockets come,
one for each look. A child reads the question from its socket as JSON, writes dots while it lives and the answer at its
end, one line of JSON. When the other end of FD closes, the process ends with all its children.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from engines.protocol import Column
from metastore.discovery.formats import InspectionFailed
from metastore.discovery.inspection import inspect
from metastore.records import Inspection

_QUESTION_BYTES = 1 << 16  # read at once


def main() -> None:
    """Serve the socket whose file descriptor is the only argument, until its other end closes."""
    os.setsid()  # a group of our own, with all children
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are nobody's to wait for
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    door = socket.socket(fileno=int(sys.argv[1]))
    while True:
        _, descriptors, _, _ = socket.recv_fds(door, 1, 1)
        if not descriptors:
            os.killpg(0, signal.SIGKILL)
        if os.fork() == 0:
            door.close()
            _look(socket.socket(fileno=descriptors[0]))
        os.close(descriptors[0])


def _look(connection: socket.socket) -> NoReturn:
    """Answer one question, as a child that does nothing else."""
    chunks = []
    while chunk := connection.recv(_QUESTION_BYTES):
        chunks.append(chunk)
    asked = json.loads(b"".join(chunks))
    memory_bytes, file_s, look_s = asked["limits"]
    _limit(memory_bytes, look_s)

    def alive() -> None:
        signal.setitimer(signal.ITIMER_REAL, file_s)  # whose signal ends the process
        connection.sendall(b".")

    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who asked does not wait any more
        alive()
        connection.sendall(json.dumps(_answer(asked, alive)).encode() + b"\n")
    os._exit(0)


def _limit(memory_bytes: int, look_s: float) -> None:
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (int(look_s), int(look_s)))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit_bytes = pages * resource.getpagesize() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))


def _answer(asked: dict[str, Any], alive: Callable[[], None]) -> dict[str, Any]:
    try:
        found = inspect(
            asked["name"],
            asked["location"],
            format=asked["format"],
            options=asked["options"],
            columns=[Column(name, data_type) for name, data_type in asked["columns"]],
            alive=alive,
        )
    except InspectionFailed as failure:
        return {"failed": str(failure)}
    except MemoryError:
        return {"failed": "looking at its files takes more memory than the gateway gives: is one of them damaged?"}
    except RecursionError:
        return {"failed": "one of its files is nested too deep to be read: move it out of the table"}
    return _told(found)


def _told(found: Inspection) -> dict[str, Any]:
    source = found.source
    return {
        **{"name": source.name, "location": source.location, "format": source.format, "options": dict(source.options)},
        "columns": [[column.name, column.data_type] for column in source.columns],
        "partition_columns": source.partition_columns,
        **{"files": found.files, "bytes": found.bytes, "rows": found.rows, "declared": found.declared},
        "partitions": [[each.path, dict(each.values), each.files, each.bytes] for each in found.partitions],
    }


if __name__ == "__main__":
    main()
