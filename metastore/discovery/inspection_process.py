"""The warm process behind ``metastore.discovery.inspector``: it forks a child for each inspection.

Run as ``python -m metastore.discovery.inspection_process FD``. FD is one end of a socket pair, over which sockets come,
one for each inspection. A child reads its request from its socket as JSON, writes dots while it works, and then its
reply, one line of JSON. When the other end of FD closes, the process ends with all its children.
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

from engines.files.listing import InspectionFailed
from metastore.discovery.inspection import inspect, require_fitting
from metastore.records import Inspection
from sql.tables import Column, TableSource

_REQUEST_BYTES = 1 << 16  # read at once


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
            _serve(socket.socket(fileno=descriptors[0]))
        os.close(descriptors[0])


def _serve(connection: socket.socket) -> NoReturn:
    """Reply to one request, as a child that does nothing else."""
    chunks = []
    while chunk := connection.recv(_REQUEST_BYTES):
        chunks.append(chunk)
    request = json.loads(b"".join(chunks))
    memory_bytes, file_s, look_s = request["limits"]
    _limit(memory_bytes, look_s)

    def alive() -> None:
        signal.setitimer(signal.ITIMER_REAL, file_s)  # its signal ends the process
        connection.sendall(b".")

    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the requester does not wait any more
        alive()
        connection.sendall(json.dumps(_reply(request, alive)).encode() + b"\n")
    os._exit(0)


def _limit(memory_bytes: int, look_s: float) -> None:
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (int(look_s), int(look_s)))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit_bytes = pages * resource.getpagesize() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))


def _reply(request: dict[str, Any], alive: Callable[[], None]) -> dict[str, Any]:
    name, location, format = request["name"], request["location"], request["format"]
    try:
        columns = tuple(Column(name, data_type) for name, data_type in request["columns"])
        if request["files"] is not None:
            source = TableSource(name, location, format, columns, tuple(request["partition_columns"]))
            require_fitting(source, request["files"], alive)
            return {}
        return _encode(inspect(name, location, format=format, options=request["options"], columns=columns, alive=alive))
    except InspectionFailed as failure:
        return {"failed": str(failure)}
    except MemoryError:
        return {"failed": "its files need more memory than an inspection may take: is one of them damaged?"}
    except RecursionError:
        return {"failed": "one of its files is nested too deeply to be read: give the location of other files"}


def _encode(inspection: Inspection) -> dict[str, Any]:
    source = inspection.source
    return {
        "name": source.name,
        "location": source.location,
        "format": source.format,
        "options": dict(source.options),
        "columns": [[column.name, column.declared_type] for column in source.columns],
        "partition_columns": source.partition_columns,
        "files": inspection.files,
        "bytes": inspection.bytes,
        "rows": inspection.rows,
        "declared": inspection.declared,
        "partitions": [[part.path, dict(part.values), part.files, part.bytes] for part in inspection.partitions],
    }


if __name__ == "__main__":
    main()
