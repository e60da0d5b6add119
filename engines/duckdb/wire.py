"""Frames between the pool and a worker process, over a socket pair: kind (1 byte), length (8), payload.

The pool sends COMMAND frames. The worker answers a command with one REPLY or ERROR, and a statement with
SCHEMA, any number of BATCH, then END or ERROR; before either of these, any number of PROGRESS may come between.
A BATCH is an Arrow IPC stream of its own, so that dictionaries travel with the rows that need them.
"""

from __future__ import annotations

import json
import queue
import select
import socket
import struct
import threading
from collections.abc import Mapping
from enum import IntEnum
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

_HEADER = struct.Struct(">BQ")


class Frame(IntEnum):
    """What a frame carries."""

    COMMAND = 1
    REPLY = 2
    SCHEMA = 3
    BATCH = 4
    END = 5
    ERROR = 6
    PROGRESS = 7


class PeerGone(ConnectionError):
    """The other side closed the socket or died."""


def send(connection: socket.socket, kind: Frame, payload: bytes | memoryview | pa.Buffer) -> None:
    """Send one frame; blocks while the other side does not read, which is the back-pressure."""
    view = memoryview(payload)
    try:
        head = _HEADER.pack(kind, view.nbytes)
        sent = connection.sendmsg((head, view))
        if sent < len(head) + view.nbytes:
            connection.sendall(head[sent:])
            connection.sendall(view[max(0, sent - len(head)) :])
    except OSError as error:
        raise PeerGone(str(error)) from error


def send_json(connection: socket.socket, kind: Frame, message: Mapping[str, Any]) -> None:
    """Send one frame of JSON."""
    send(connection, kind, json.dumps(message).encode())


def receive(
    connection: socket.socket, *, wait_s: float | None = None, stalled_s: float | None = None
) -> tuple[Frame, memoryview]:
    """Receive one frame. wait_s: longest wait for its first byte, after which TimeoutError is raised.

    Once a frame has begun it is read to its end, or the place in the stream would be lost; a peer that stalls for
    longer than stalled_s in the middle of one is as good as gone. Raises PeerGone.
    """
    connection.settimeout(wait_s)
    try:
        first = connection.recv(1)
        connection.settimeout(stalled_s)
        kind, length = _HEADER.unpack(first + bytes(_exactly(connection, _HEADER.size - 1)) if first else b"")
        return Frame(kind), _exactly(connection, length)
    except TimeoutError:
        raise
    except (OSError, struct.error, ValueError) as error:
        raise PeerGone(str(error)) from error


def _exactly(connection: socket.socket, size: int) -> memoryview:
    payload = memoryview(pa.allocate_buffer(size)).cast("B")  # not filled with zeros first
    filled = 0
    while filled < size:
        try:
            count = connection.recv_into(payload[filled:])
        except TimeoutError as error:
            raise PeerGone("it stalled in the middle of a frame") from error
        if count == 0:
            raise PeerGone("end of stream")
        filled += count
    return payload


class Sender:
    """A worker's way out: every frame goes whole, whichever thread sends it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, kind: Frame, payload: bytes | memoryview | pa.Buffer) -> None:
        """Send one frame; blocks while the other side does not read. Raises PeerGone."""
        with self._lock:
            send(self._connection, kind, payload)

    def send_json(self, kind: Frame, message: Mapping[str, Any]) -> None:
        """Send one frame of JSON."""
        self.send(kind, json.dumps(message).encode())

    def offer(self, kind: Frame, message: Mapping[str, Any]) -> bool:
        """Send a short frame unless that would wait, for another one or for the other side; tell whether it went."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not select.select((), (self._connection,), (), 0)[1]:
                return False
            send_json(self._connection, kind, message)
            return True
        finally:
            self._lock.release()


class BatchSender:
    """Sends batches in a thread of its own, so that the next one is made meanwhile; one waits at most.

    A single batch is sent at the end, without one. Leaving it waits for the last. Whatever fails in the thread, such as
    PeerGone or memory that is not to be had, is raised by the next ``send``, or at the end.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._first: pa.RecordBatch | None = None
        self._waiting: queue.Queue[pa.RecordBatch | None] = queue.Queue(maxsize=1)
        self._failure: BaseException | None = None
        self._memory = pa.allocate_buffer(0)
        self._thread: threading.Thread | None = None

    def send(self, batch: pa.RecordBatch) -> None:
        """Have a batch sent; blocks while another one waits, which is the back-pressure."""
        if self._failure is not None:
            raise self._failure
        if self._thread is None and self._first is None:
            self._first = batch
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
            self._thread.start()
            self._waiting.put(self._first)
            self._first = None
        self._waiting.put(batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
        elif self._first is not None and error is None:
            self._sender.send(Frame.BATCH, self._encoded(self._first))
        if self._failure is not None and error is None:
            raise self._failure

    def _run(self) -> None:
        while (batch := self._waiting.get()) is not None:
            if self._failure is None:
                try:
                    self._sender.send(Frame.BATCH, self._encoded(batch))
                except BaseException as error:
                    self._failure = error  # and take what comes, or whoever sends would wait for ever

    def _encoded(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Write a batch as an IPC stream, each into the memory of the last: fresh pages would cost as much again."""
        size = pa.MockOutputStream()
        _write(batch, size)
        if self._memory.size < size.size():
            self._memory = pa.allocate_buffer(size.size())
        _write(batch, pa.FixedSizeBufferWriter(self._memory))
        return self._memory.slice(0, size.size())


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def decode_batch(payload: memoryview) -> pa.RecordBatch:
    """Read what BatchSender wrote."""
    with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
        return reader.read_next_batch()
