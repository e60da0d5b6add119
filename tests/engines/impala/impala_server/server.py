"""The listening sockets: binary with and without SASL on one port, HTTP on another, with or without TLS."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from impala._thrift_gen.ImpalaService import ImpalaHiveServer2Service as service  # type: ignore[import-untyped]
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated  # type: ignore[import-untyped]
from thrift.Thrift import TException  # type: ignore[import-untyped]
from thrift.transport.TSocket import TSocket  # type: ignore[import-untyped]
from thrift.transport.TTransport import (  # type: ignore[import-untyped]
    TBufferedTransport,
    TFramedTransport,
    TMemoryBuffer,
    TTransportBase,
)

from tests.engines.impala.impala_server.operation import Fault
from tests.engines.impala.impala_server.service import ImpalaService
from tests.engines.impala.impala_server.warehouse import Warehouse

_HEADER = struct.Struct(">BI")
_START, _OK, _BAD, _COMPLETE = 1, 2, 3, 5
_FIRST_OF_SASL, _FIRST_OF_BINARY = 0x01, 0x80


class ImpalaServer:
    """An Impala to connect to. passwords: by user; without them everybody comes in. context: for TLS.

    port: of binary clients, with SASL PLAIN or without; http_port: of those that speak HTTP. warehouse: what the
    coordinators of one cluster share.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        passwords: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
        warehouse: Warehouse | None = None,
    ) -> None:
        self.service = ImpalaService(warehouse or Warehouse())
        self._processor = service.Processor(self.service)
        self._passwords = passwords
        self._context = context
        self._stopped = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listening.getsockname()[1]
        self._http = _HttpServer(self)
        if context is not None:
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.http_port: int = self._http.server_address[1]
        threading.Thread(target=self._accept, name="impala-accept", daemon=True).start()
        threading.Thread(target=self._http.serve_forever, args=(0.05,), name="impala-http", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def address(self) -> tuple[str, int]:
        """Where binary clients go."""
        return "127.0.0.1", self.port

    @property
    def connections(self) -> int:
        """Binary connections that are open now."""
        with self._lock:
            return len(self._open)

    def fail(self, part: str, text: str, *, phase: str = "run", times: int = 1) -> None:
        """Let the next statements that contain a part fail with a text of Impala."""
        self.service.faults += [Fault(part, text, phase)] * times

    def drop_connections(self) -> None:
        """Cut every binary connection, as a coordinator does that dies."""
        with self._lock:
            opened = list(self._open)
        for connection in opened:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Stop listening, cut all connections and end all statements."""
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._http.shutdown()
        self._http.server_close()
        self.drop_connections()
        for operation in list(self.service.operations.values()):
            operation.close()

    def allows(self, user: str, password: str) -> bool:
        """Tell whether somebody may come in."""
        return self._passwords is None or (user in self._passwords and self._passwords[user] == password)

    def answer(self, call: bytes) -> bytes:
        """Answer one call of an HTTP client."""
        reply = TMemoryBuffer()
        self._processor.process(_protocol(TMemoryBuffer(call)), _protocol(reply))
        return bytes(reply.getvalue())

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="impala-client", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, TException, EOFError):
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(connection)
            try:
                transport = self._handshake(connection)
                protocol = _protocol(transport) if transport is not None else None
                while protocol is not None and not self._stopped.is_set():
                    self._processor.process(protocol, protocol)
            finally:
                with self._lock:
                    self._open.discard(connection)
                connection.close()

    def _handshake(self, connection: socket.socket) -> TTransportBase | None:
        """Return the transport that a client's first byte asks for; None for one that may not come in."""
        first = _exactly(connection, 1)
        handle = TSocket()
        handle.setHandle(_Again(connection, first))
        if first[0] == _FIRST_OF_BINARY:
            return TBufferedTransport(handle)
        _frame(connection, first)  # START with the mechanism's name
        _, response = _frame(connection, b"")
        _, user, password = response.decode().split("\0")
        if not self.allows(user, password):
            _send(connection, _BAD, b"Error validating LDAP user")
            return None
        _send(connection, _COMPLETE, b"")
        plain = TSocket()
        plain.setHandle(connection)
        return TFramedTransport(plain)


class _Again:
    """A socket whose first byte was looked at already."""

    def __init__(self, connection: socket.socket, first: bytes) -> None:
        self._connection = connection
        self._first = first

    def recv(self, size: int) -> bytes:
        first, self._first = self._first, b""
        return first or self._connection.recv(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class _HttpServer(ThreadingHTTPServer):
    """One call per request, as Impala's hs2-http."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, impala: ImpalaServer) -> None:
        self.impala = impala
        super().__init__(("127.0.0.1", 0), _HttpCall)


class _HttpCall(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HttpServer

    def do_POST(self) -> None:
        call = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.server.impala.allows(*_basic(self.headers.get("Authorization", ""))):
            self._reply(401, b"")
            return
        self._reply(200, self.server.impala.answer(call))

    def _reply(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/x-thrift")
        self.send_header("Content-Length", str(len(body)))
        if code == 401:
            self.send_header("WWW-Authenticate", "Basic")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        return None


def _basic(header: str) -> tuple[str, str]:
    user, _, password = base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")
    return user, password


def _protocol(transport: TTransportBase) -> TBinaryProtocolAccelerated:
    return TBinaryProtocolAccelerated(transport)


def _frame(connection: socket.socket, begun: bytes) -> tuple[int, bytes]:
    status, length = _HEADER.unpack(begun + _exactly(connection, _HEADER.size - len(begun)))
    return status, _exactly(connection, length)


def _send(connection: socket.socket, status: int, payload: bytes) -> None:
    connection.sendall(_HEADER.pack(status, len(payload)) + payload)


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise EOFError("the client went away")
        found += more
    return found
