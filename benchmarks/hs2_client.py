"""HiveServer2 byte by byte: what a driver sends, without a driver's cost, and for tests what none would send."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Self, TypeVar

from gateway.drivers.hs2.protocol import messages, thrift
from gateway.drivers.hs2.protocol.messages import SessionHandle
from gateway.drivers.hs2.protocol.thrift import STOP, Decoder, Frame, MessageKind, Struct, Wire

R = TypeVar("R", bound=Struct)
TIMEOUT_S = 300.0
SASL_START, SASL_OK, SASL_COMPLETE = 1, 2, 5


def call_bytes(method: str, request: Struct, sequence: int = 1) -> bytes:
    """Write a call as a driver does."""
    arguments = thrift.field_head(Wire.STRUCT, 1) + thrift.encode(request) + STOP
    return thrift.head(MessageKind.CALL, method, sequence) + arguments


def success_of(reply: bytes) -> bytes:
    """Return the struct in a reply's bytes, and what comes after it."""
    (length,) = struct.unpack_from(">i", reply, 4)
    return reply[4 + 4 + length + 4 + 3 :]  # version, name, sequence number, head of the struct's field


def reply_of(reply: bytes, kind: type[R]) -> R:
    """Read a reply."""
    return Decoder(Frame(success_of(reply))).struct(kind)


class RawClient:
    """One connection, framed after a login with SASL, or raw where there is no user.

    refusal: what the server said to the login, None where it let the user in.
    """

    def __init__(self, host: str, port: int, *, user: str | None, password: str, timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.framed = user is not None
        self.refusal: str | None = None
        if user is not None:
            self.socket.sendall(_sasl(SASL_START, b"PLAIN") + _sasl(SASL_COMPLETE, f"\0{user}\0{password}".encode()))
            status, length = struct.unpack(">BI", self.receive(5))
            told = self.receive(length)
            self.refusal = None if status in (SASL_OK, SASL_COMPLETE) else told.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes, framed where frames are spoken."""
        self.socket.sendall(struct.pack(">I", len(data)) + data if self.framed else data)

    def ask(self, method: str, request: Struct, kind: type[R]) -> R:
        """Call, and read the reply; frames only."""
        self.send(call_bytes(method, request))
        return reply_of(self.frame(), kind)

    def frame(self) -> bytes:
        """Read a whole frame. Raises EOFError."""
        return self.receive(struct.unpack(">I", self.receive(4))[0])

    def receive(self, count: int) -> bytes:
        """Read exactly as many bytes. Raises EOFError."""
        received = bytearray(count)
        view = memoryview(received)
        while view:
            size = self.socket.recv_into(view)
            if not size:
                raise EOFError
            view = view[size:]
        return bytes(received)

    def open_session(self, configuration: Mapping[str, str] | None = None) -> SessionHandle:
        """Begin a session of protocol V10."""
        request = messages.OpenSessionRequest(configuration=dict(configuration or {}))
        opened = self.ask("OpenSession", request, messages.OpenSessionReply)
        if opened.session is None:
            raise ConnectionError(opened.status.message)
        return opened.session


def _sasl(status: int, text: bytes) -> bytes:
    return struct.pack(">BI", status, len(text)) + text
