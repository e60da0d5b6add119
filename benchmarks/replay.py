"""A client's own limit: what a server sent it is recorded on the way, and sent once more by a socket that only sends.

The recording is made by a proxy. It is played to the same client, which asks the same again, by a process of its own
that computes nothing: it waits until the client has asked as much as it had when these bytes came. Over HTTP/2 it also
keeps to the client's windows and answers its pings, as every server must.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import select
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate, count
from multiprocessing.connection import Connection as Pipe

from benchmarks import http2
from benchmarks.http2 import ACK, Frame, FrameKind, Frames

LOOPBACK = "127.0.0.1"
READ_BYTES = 256 << 10
SEND_BYTES = 1 << 20  # before a look at what the client says
START_WITHIN_S = 60.0
SASL_MESSAGES = 2  # of a client: which mechanism, and who it is
_OF_CONNECTION = 0


class Protocol(StrEnum):
    """What is spoken. HS2: Thrift in SASL's frames; GRPC: HTTP/2 without TLS."""

    HS2 = "hs2"
    GRPC = "grpc"


@dataclass(frozen=True, slots=True)
class Piece:
    """What a server sent. after: how many messages the client had sent, or which stream it had ended.

    window_bytes: of the client's windows that it takes; 0 with HS2.
    """

    after: int
    data: bytes
    window_bytes: int = 0


@dataclass(slots=True)
class Recorded:
    """One connection. asked: the client's messages, with HS2."""

    pieces: list[Piece] = field(default_factory=list)
    asked: list[bytes] = field(default_factory=list)

    @property
    def reply_bytes(self) -> int:
        """Tell how much the server sent."""
        return sum(len(piece.data) for piece in self.pieces)

    @property
    def streams(self) -> int:
        """Tell how many calls of gRPC were answered."""
        return len({piece.after for piece in self.pieces} - {_OF_CONNECTION})


@dataclass(frozen=True, slots=True)
class Recording:
    """What a server sent on all connections, in the order in which they were made."""

    protocol: Protocol
    connections: list[Recorded] = field(default_factory=list)


class Hs2Messages:
    """Cuts what a client of HiveServer2 sends into messages."""

    def __init__(self) -> None:
        self.count = 0
        self._held = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that are whole now."""
        self._held += data
        while True:
            head = 5 if self.count < SASL_MESSAGES else 4
            end = head + int.from_bytes(self._held[head - 4 : head], "big")
            if len(self._held) < max(head, end):
                return
            message, self._held = self._held[head:end], self._held[end:]
            self.count += 1
            yield message


# ---------------------------------------------------------------------- recording


@contextmanager
def recording(protocol: Protocol, server: str) -> Iterator[tuple[str, Recording]]:
    """Stand between a server and its clients; yields host:port for them, and what is recorded. server: host:port."""
    made = Recording(protocol)

    def relay(client: socket.socket) -> None:
        recorded = Recorded()
        made.connections.append(recorded)
        host, _, port = server.rpartition(":")
        with socket.create_connection((host, int(port))) as upstream:
            keep = _keeper(protocol, recorded)
            while True:
                ready, _, _ = select.select([client, upstream], [], [])
                for each in ready:
                    data = each.recv(READ_BYTES)
                    if not data:
                        return
                    keep(each is client, data)
                    (upstream if each is client else client).sendall(data)

    with _serving(relay) as address:
        yield address, made


def _keeper(protocol: Protocol, recorded: Recorded) -> Callable[[bool, bytes], None]:
    """Return what takes note of bytes: from the client or not, and which."""
    asked, answered = Hs2Messages(), Frames()

    def keep_hs2(from_client: bool, data: bytes) -> None:
        if from_client:
            recorded.asked.extend(asked.feed(data))
        else:
            recorded.pieces.append(Piece(asked.count, data))

    def keep_grpc(from_client: bool, data: bytes) -> None:
        if from_client:
            return
        for frame in answered.feed(data):
            if frame.kind in (FrameKind.SETTINGS, FrameKind.PING) and frame.flags & ACK:
                continue  # what the client says next time is answered next time
            window_bytes = len(frame.payload) if frame.kind == FrameKind.DATA else 0
            recorded.pieces.append(Piece(frame.stream, frame.encode(), window_bytes))

    return keep_hs2 if protocol is Protocol.HS2 else keep_grpc


@contextmanager
def _serving(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Take connections on a free port, each in a thread; yields host:port."""
    listening = socket.create_server((LOOPBACK, 0))

    def attend(accepted: socket.socket) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with accepted, contextlib.suppress(OSError):  # a client that leaves ends it
            talk(accepted)

    def accept() -> None:
        with contextlib.suppress(OSError):  # the end: the socket was shut down
            while True:
                threading.Thread(target=attend, args=(listening.accept()[0],), daemon=True).start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield f"{LOOPBACK}:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        acceptor.join()
        listening.close()


# ---------------------------------------------------------------------- replaying


@contextmanager
def replaying(recording: Recording) -> Iterator[str]:
    """Play a recording, from its first connection on and over again, in a process of its own; yields host:port."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_play, args=(recording, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(START_WITHIN_S):
            raise TimeoutError("the process that replays did not start")
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


def _play(recording: Recording, pipe: Pipe) -> None:
    numbers = count()
    play = _play_hs2 if recording.protocol is Protocol.HS2 else _play_grpc

    def talk(client: socket.socket) -> None:
        play(client, recording.connections[next(numbers) % len(recording.connections)].pieces)
        while client.recv(READ_BYTES):
            pass

    with _serving(talk) as address:
        pipe.send(address)
        threading.Event().wait()


def _play_hs2(client: socket.socket, pieces: Sequence[Piece]) -> None:
    asked = Hs2Messages()
    for piece in pieces:
        while asked.count < piece.after:
            data = client.recv(READ_BYTES)
            if not data:
                return
            for _ in asked.feed(data):
                pass
        client.sendall(piece.data)


def _play_grpc(client: socket.socket, pieces: Sequence[Piece]) -> None:
    windows, data = _Windows(client), memoryview(b"".join(piece.data for piece in pieces))
    ends = [0, *accumulate(len(piece.data) for piece in pieces)]
    at = 0
    while at < len(pieces):
        begin = at
        while at < len(pieces) and ends[at] - ends[begin] < SEND_BYTES and windows.admit(pieces[at]):
            at += 1
        client.sendall(data[ends[begin] : ends[at]])
        if (at == begin or select.select([client], [], [], 0)[0]) and not windows.read():
            return
    while windows.read():
        pass


class _Windows:
    """What a client of HTTP/2 lets a server send. It is answered where it wants an answer."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._frames = Frames(len(http2.PREFACE))
        self._of_stream = http2.FIRST_WINDOW_BYTES  # at its beginning
        self._left = {_OF_CONNECTION: http2.FIRST_WINDOW_BYTES}  # of a stream: beyond that
        self._ended = {_OF_CONNECTION}

    def admit(self, piece: Piece) -> bool:
        """Tell whether a piece may be sent; its room is taken then."""
        if piece.after not in self._ended:
            return False
        if piece.window_bytes:
            own = self._left.get(piece.after, 0)
            if piece.window_bytes > min(self._left[_OF_CONNECTION], self._of_stream + own):
                return False
            self._left[_OF_CONNECTION] -= piece.window_bytes
            self._left[piece.after] = own - piece.window_bytes
        return True

    def read(self) -> bool:
        """Wait for something of the client; returns whether it is still there."""
        data = self._client.recv(READ_BYTES)
        for frame in self._frames.feed(data):
            self._note(frame)
        return bool(data)

    def _note(self, frame: Frame) -> None:
        if frame.kind == FrameKind.WINDOW_UPDATE:
            self._left[frame.stream] = self._left.get(frame.stream, 0) + http2.widening(frame)
        elif frame.kind == FrameKind.SETTINGS and not frame.flags & ACK:
            self._of_stream = http2.settings_of(frame).get(http2.INITIAL_WINDOW_SIZE, self._of_stream)
        elif frame.ends_stream:
            self._ended.add(frame.stream)
        if answer := http2.answer_to(frame):
            self._client.sendall(answer)
