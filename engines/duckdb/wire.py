"""Frames between the pool and a worker process, over a socket pair: kind (1 byte), length (8), payload.

The pool sends COMMAND frames. The worker answers a command with one REPLY or ERROR, and a statement with
SCHEMA, then ROWS or any number of BATCH, then END or ERROR; before either of these, any number of HELD may come
between. A BATCH is an Arrow IPC stream of its own, so that dictionaries travel with the rows that need them. ROWS are
all of a small result, and the one message of it that SCHEMA does not tell already.
"""

from __future__ import annotations

import json
import math
import queue
import select
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, Self, TypeAlias

import pyarrow as pa

_HEADER = struct.Struct(">BQ")
_TIMEVAL = struct.Struct("@ll")  # as the kernel has it: seconds, microseconds
_AHEAD_BYTES = 16 << 10  # that are read at once: frames are mostly small, and come together


class Frame(IntEnum):
    """Kinds of frames."""

    COMMAND = 1
    REPLY = 2
    SCHEMA = 3
    BATCH = 4
    END = 5
    ERROR = 6
    HELD = 7
    ROWS = 8


Payload: TypeAlias = bytes | memoryview | pa.Buffer


class PeerGone(ConnectionError):
    """The other side closed the socket or died."""


def send(connection: socket.socket, kind: Frame, payload: Payload, *, before: Sequence[memoryview] = ()) -> None:
    """Send one frame; blocks while the other side does not read, which is the back-pressure. before: goes first."""
    views = [*before, *_framed(kind, payload)]
    try:
        sent = connection.sendmsg(views)
        for view in views:
            if sent < view.nbytes:
                connection.sendall(view[sent:])
            sent = max(0, sent - view.nbytes)
    except OSError as error:
        raise PeerGone(str(error)) from error


def _framed(kind: Frame, payload: Payload) -> tuple[memoryview, memoryview]:
    view = memoryview(payload).cast("B")
    return memoryview(_HEADER.pack(kind, view.nbytes)), view


def send_json(connection: socket.socket, kind: Frame, message: Mapping[str, Any]) -> None:
    """Send one frame of JSON."""
    send(connection, kind, json.dumps(message).encode())


class Receiver:
    """Reads the frames of a blocking socket, as many at once as have come. One thread at a time.

    How long it waits is left to the kernel: a timeout of Python's own takes two system calls more for every read, each
    of which lets other threads run first.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._ahead = memoryview(bytearray(_AHEAD_BYTES))
        self._begin = self._end = 0  # of what was read ahead

    def receive(self, *, wait_s: float | None = None, stalled_s: float | None = None) -> tuple[Frame, memoryview]:
        """Receive one frame. wait_s: longest wait for its first byte, after which TimeoutError is raised.

        Once a frame has begun it is read to its end, or the place in the stream would be lost; a peer that stalls for
        longer than stalled_s in the middle of one is as good as gone. Raises PeerGone.
        """
        try:
            if self._begin == self._end:
                wait_for_reading(self._connection, wait_s)
                self._begin, self._end = 0, self._read(self._ahead)
        except BlockingIOError as error:
            raise TimeoutError("nothing came") from error
        except OSError as error:
            raise PeerGone(str(error)) from error
        head = memoryview(bytearray(_HEADER.size))
        try:
            self._fill(head, stalled_s)
            kind, length = _HEADER.unpack(head)
            small = length <= _AHEAD_BYTES
            # A large one is not filled with zeros first; for a small one no other thread gets its turn.
            payload = memoryview(bytearray(length) if small else pa.allocate_buffer(length)).cast("B")
            self._fill(payload, stalled_s)
            return Frame(kind), payload
        except BlockingIOError as error:
            raise PeerGone("it stalled in the middle of a frame") from error
        except (OSError, ValueError) as error:
            raise PeerGone(str(error)) from error

    def _fill(self, target: memoryview, stalled_s: float | None) -> None:
        """Fill it with what was read ahead, and then from the socket."""
        filled = min(target.nbytes, self._end - self._begin)
        target[:filled] = self._ahead[self._begin : self._begin + filled]
        self._begin += filled
        if filled < target.nbytes:
            wait_for_reading(self._connection, stalled_s)
        while filled < target.nbytes:
            if target.nbytes - filled >= _AHEAD_BYTES:
                filled += self._read(target[filled:])
                continue
            self._begin, self._end = 0, self._read(self._ahead)
            count = min(target.nbytes - filled, self._end)
            target[filled : filled + count] = self._ahead[:count]
            self._begin, filled = count, filled + count

    def _read(self, target: memoryview) -> int:
        count = self._connection.recv_into(target)
        if count == 0:
            raise PeerGone("end of stream")
        return count


def wait_for_reading(connection: socket.socket, seconds: float | None) -> None:
    """Have reads of a blocking socket fail with BlockingIOError after a while; None: they wait as long as it takes."""
    _wait_for(connection, socket.SO_RCVTIMEO, seconds)


def wait_for_sending(connection: socket.socket, seconds: float | None) -> None:
    """Have writes do so: a peer that takes nothing for that long is as good as gone."""
    _wait_for(connection, socket.SO_SNDTIMEO, seconds)


def _wait_for(connection: socket.socket, what: int, seconds: float | None) -> None:
    whole, microseconds = divmod(math.ceil((seconds or 0.0) * 1_000_000), 1_000_000)  # 0: without an end
    connection.setsockopt(socket.SOL_SOCKET, what, _TIMEVAL.pack(whole, microseconds))


class Sender:
    """A worker's way out: every frame goes whole, whichever thread sends it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._held: list[memoryview] = []

    def send(self, kind: Frame, payload: Payload) -> None:
        """Send one frame; blocks while the other side does not read. Raises PeerGone."""
        with self._lock:
            held, self._held = self._held, []
            send(self._connection, kind, payload, before=held)

    def hold(self, kind: Frame, payload: Payload) -> None:
        """Have a frame sent together with the next: to wake the other side up takes longer than to send it."""
        with self._lock:
            self._held += _framed(kind, payload)

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


_NO_MEMORY = pa.allocate_buffer(0)


class BatchSender:
    """Sends the batches of one statement after the other in a thread of its own; one batch waits at most.

    The thread is there before any statement: one that begins within a statement's memory may never get as far as to
    tell that it has begun, and whoever starts it waits for that. A single batch is left to go with the end. Leaving a
    statement's block waits for its last batch. Whatever fails in the thread, such as PeerGone or memory that is not to
    be had, is raised by the next ``send``, or at the end.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._first: pa.RecordBatch | None = None
        self._has_more = False
        self._waiting: queue.Queue[pa.RecordBatch] = queue.Queue(maxsize=1)
        self._failure: BaseException | None = None
        self._memory = _NO_MEMORY
        threading.Thread(target=self._run, name="batches", daemon=True).start()

    def send(self, batch: pa.RecordBatch) -> None:
        """Have a batch sent; blocks while another one waits, which is the back-pressure."""
        if self._failure is not None:
            raise self._failure
        if not self._has_more and self._first is None:
            self._first = batch
            return
        if self._first is not None:
            self._waiting.put(self._first)
            self._first, self._has_more = None, True
        self._waiting.put(batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.join()
        first, failure = self._first, self._failure
        self._first, self._failure, self._has_more = None, None, False
        self._memory = _NO_MEMORY
        if first is not None and error is None:
            self._hold(first)
        if failure is not None and error is None:
            raise failure

    def _hold(self, batch: pa.RecordBatch) -> None:
        if batch.nbytes > _AHEAD_BYTES or any(map(_has_dictionary, batch.schema.types)):
            self._sender.hold(Frame.BATCH, self._encoded(batch))
        else:
            self._sender.hold(Frame.ROWS, batch.serialize())

    def _run(self) -> None:
        while True:
            batch = self._waiting.get()
            try:
                if self._failure is None:
                    self._sender.send(Frame.BATCH, self._encoded(batch))
            except BaseException as error:
                self._failure = error  # and take what comes, or whoever sends would wait for ever
            finally:
                del batch  # whose memory is the statement's
                self._waiting.task_done()

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


def _has_dictionary(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or any(_has_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def decode_rows(kind: Frame, payload: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """Read what BatchSender wrote, as ROWS or as a BATCH."""
    if kind is Frame.ROWS:
        return pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
    with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
        return reader.read_next_batch()
