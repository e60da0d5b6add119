"""HiveServer2 on a TCP port: SASL or not, as the first byte tells, with TLS where there is a certificate.

Each connection has a thread. One that has opened no session yet gives way to a newcomer when all places are taken, the
oldest first, so that thousands of silent ones keep nobody out. What one costs is bounded: a message is never larger
than a statement may be, a reply not larger than ``operations.REPLY_BYTES`` and a row, and a client that stops reading
is waited for in its own thread.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import select
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass

from gateway.drivers.hs2.dispatch import Dispatcher
from gateway.drivers.hs2.protocol import sasl
from gateway.drivers.hs2.protocol.sasl import Refused, SaslStatus
from gateway.drivers.hs2.protocol.thrift import Malformed
from gateway.drivers.hs2.registry import Peer
from gateway.drivers.hs2.service import PendingReply, Service
from gateway.errors import AuthenticationFailed
from gateway.security.authentication import Login

log = logging.getLogger(__name__)

SASL_START, STRICT_BINARY = 0x01, 0x80
RECEIVE_BYTES = 64 << 10
MESSAGE_S = 60.0  # from a message's first byte to its last
WATCH_S = 0.5  # between two looks whether a client that waits is still there
GONE_S = 8.0  # after which a client whose machine is silent is gone
KEEPALIVE_S, KEEPALIVE_REPEAT_S = 4, 2  # how often it is asked, where nothing is on its way to it
SMALL_REPLY_BYTES = 64 << 10  # that a client's machine takes at once, whether the client reads or not
HIVE_REFUSES = "Error validating the login"  # the words by which clients know that a login is wrong
_LENGTH = struct.Struct(">I")
_TIMEVAL = struct.Struct("ll")  # as the kernel has it
_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class Hangup(Exception):
    """The client is gone, or has to go."""


@dataclass(frozen=True, slots=True)
class BinaryLimits:
    """connections: at once; handshake_s: until a client has said who it is; idle_s: between two calls."""

    connections: int
    handshake_s: float
    idle_s: float


class BinaryServer:
    """Serves one listening socket. Started and stopped once."""

    def __init__(
        self, listening: socket.socket, service: Service, *, limits: BinaryLimits, tls: ssl.SSLContext | None = None
    ) -> None:
        self._listening = listening
        self._service = service
        self._dispatcher = Dispatcher(service)
        self._limits = limits
        self._tls = tls
        self._lock = threading.Lock()
        self._connections: dict[Connection, None] = {}  # in the order in which they came
        self._acceptor = threading.Thread(target=self._accept, name="drivers", daemon=True)
        self._stopping = threading.Event()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens: host and port."""
        host, port = self._listening.getsockname()[:2]
        return str(host), int(port)

    def start(self) -> None:
        """Begin to take connections."""
        self._listening.listen(socket.SOMAXCONN)
        self._acceptor.start()

    def stop(self) -> None:
        """Take no more connections, and close those that there are."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listening.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.hang_up()
        for connection in connections:
            connection.thread.join()

    @property
    def connections(self) -> int:
        """How many connections there are."""
        with self._lock:
            return len(self._connections)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                accepted, address = self._listening.accept()
            except OSError as error:
                if not self._stopping.is_set():
                    log.warning("cannot take a connection: %s", error)  # out of files, mostly; it passes
                    self._stopping.wait(WATCH_S)
                continue
            try:
                self._admit(Connection(accepted, str(address[0]), self._limits))
            except (OSError, RuntimeError) as error:
                log.warning("cannot serve a connection from %s: %s", address[0], error)  # out of threads, mostly
                accepted.close()

    def _admit(self, connection: Connection) -> None:
        """Give a connection its place and its thread. Raises RuntimeError where the process can have no more."""
        with self._lock:
            if len(self._connections) >= self._limits.connections:
                silent = next((each for each in self._connections if not each.peer.established), None)
                if silent is None:
                    log.warning("a connection from %s is refused: all places are taken", connection.peer.address)
                    connection.close()
                    return
                self._connections.pop(silent)
                silent.hang_up()
            self._connections[connection] = None
        connection.thread = threading.Thread(
            target=self._serve, args=(connection,), name=f"driver {connection.peer.address}", daemon=True
        )
        try:
            connection.thread.start()
        except RuntimeError:
            with self._lock:
                self._connections.pop(connection, None)
            raise

    def _serve(self, connection: Connection) -> None:
        """Live through a connection; whatever ends it, its sessions end with it."""
        try:
            framed = connection.shake_hands(self._service, self._tls)
            while True:
                outcome = connection.receive(self._dispatcher, framed=framed)
                reply = connection.wait_for(outcome) if isinstance(outcome, PendingReply) else outcome
                del outcome
                connection.send(reply, framed=framed)
                del reply
                connection.peer.held.close()
                connection.do_afterwards()
        except (Hangup, Malformed, OSError) as error:
            log.debug("a connection from %s ends: %s", connection.peer.address, error)
        finally:
            connection.peer.held.close()
            self._service.registry.close_connection(connection)
            with self._lock:
                self._connections.pop(connection, None)
            connection.close()


class Connection:
    """One client's socket. peer: who is there."""

    thread: threading.Thread

    def __init__(self, accepted: socket.socket, address: str, limits: BinaryLimits) -> None:
        self.peer = Peer(address, connection=self)
        self._socket = accepted
        self._limits = limits
        self._idle_s: float | None = None  # between two calls, where the kernel does not watch over it
        self._buffer = b""
        self._at = 0
        self._deadline = time.monotonic() + limits.handshake_s
        self._poll = select.poll()
        self._poll.register(accepted, select.POLLIN | select.POLLRDHUP)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_REPEAT_S)
        self._patience_s = 0.0
        self._give(GONE_S)

    # ------------------------------------------------------------------ the beginning

    def shake_hands(self, service: Service, tls: ssl.SSLContext | None) -> bool:
        """Find out how the client speaks, and who it is where it says so; returns whether messages are framed."""
        if tls is not None:
            self._socket.settimeout(self._limits.handshake_s)
            self._socket = tls.wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
            self._socket.do_handshake()
        first = self._peek()
        if first == STRICT_BINARY:
            return False
        if first != SASL_START:
            raise Hangup("neither SASL nor Thrift's binary protocol")
        try:
            login = sasl.read_credentials(self.take)
            if login.authorization_id not in ("", login.name):
                raise Refused(f"{login.name} cannot act for {login.authorization_id}.")
            self.peer.user = service.login(Login(login.name, login.password, self.peer.address))
        except (Refused, AuthenticationFailed) as error:
            told = f"{HIVE_REFUSES}: {error}" if isinstance(error, AuthenticationFailed) else str(error)
            self._socket.sendall(sasl.frame(SaslStatus.BAD, told.encode()))
            raise Hangup(f"refused: {error}") from error
        self._socket.sendall(sasl.frame(SaslStatus.COMPLETE, b""))
        return True

    # ------------------------------------------------------------------ messages

    def receive(self, dispatcher: Dispatcher, *, framed: bool) -> bytes | PendingReply[bytes]:
        """Read the next message and answer it. Raises Hangup, Malformed, OSError."""
        self._peek()
        self._give(GONE_S)
        established = self.peer.established
        if established:
            self._deadline = time.monotonic() + MESSAGE_S
        if framed:
            (length,) = _LENGTH.unpack(self.take(_LENGTH.size))
            if length > dispatcher.largest_message:
                raise Malformed(f"a message of {length:,} bytes")
            outcome = dispatcher.frame(self.take(length), self.peer)
        else:
            outcome = dispatcher.message(_Unframed(self, dispatcher.largest_message), self.peer)
        if self.peer.established and not established:
            self._settle()
        return outcome

    def wait_for(self, pending: PendingReply[bytes]) -> bytes:
        """Wait for a reply, and watch whether the client does, too.

        One that sends something else meanwhile has stopped waiting, as impala-shell does after Ctrl-C: it gets the
        reply as it is now, and then what it asked for.
        """
        until = None if pending.timeout_s is None else time.monotonic() + pending.timeout_s
        while not pending.done.done():
            left_s = WATCH_S if until is None else min(WATCH_S, until - time.monotonic())
            if left_s <= 0:
                break
            concurrent.futures.wait([pending.done], timeout=left_s)
            seen = self._seen()
            if seen & _GONE:
                pending.abandon()
                raise Hangup("the client left while it waited")
            if seen & select.POLLIN:
                break
        return pending.finish()

    def send(self, reply: bytes, *, framed: bool) -> None:
        """Send a reply; a client that does not read it for too long is let go. Raises OSError."""
        self._give(GONE_S if len(reply) <= SMALL_REPLY_BYTES else MESSAGE_S)
        if framed and len(reply) > SMALL_REPLY_BYTES:
            more = 0 if isinstance(self._socket, ssl.SSLSocket) else socket.MSG_MORE
            self._socket.sendall(_LENGTH.pack(len(reply)), more)
            self._socket.sendall(reply)
        else:
            self._socket.sendall(_LENGTH.pack(len(reply)) + reply if framed else reply)

    def do_afterwards(self) -> None:
        """Do what a call left to be done behind its reply, unless the client has sent something already."""
        afterwards, self.peer.afterwards = self.peer.afterwards, None
        if afterwards is not None and self._at == len(self._buffer) and not self._seen():
            afterwards()

    # ------------------------------------------------------------------ the end

    def hang_up(self) -> None:
        """Wake the connection's thread up, to its end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    # ------------------------------------------------------------------ bytes

    def take(self, count: int) -> bytes:
        """Return the next bytes. Raises Hangup where there are no more, OSError."""
        end = self._at + count
        if end > len(self._buffer):
            pieces = [self._buffer[self._at :]]
            missing = end - len(self._buffer)
            while missing > 0:
                pieces.append(self._receive())
                missing -= len(pieces[-1])
            self._buffer = b"".join(pieces)
            self._at, end = 0, count
        taken = self._buffer[self._at : end]
        self._at = end
        return taken

    def _peek(self) -> int:
        """Wait for the next byte and return it; it stays where it is."""
        if self._at == len(self._buffer):
            self._buffer, self._at = self._receive(within_message=False), 0
        return self._buffer[self._at]

    def _receive(self, *, within_message: bool = True) -> bytes:
        """Return what has come, at least a byte. Raises Hangup, OSError."""
        if self.peer.established and not within_message:
            received = self._socket.recv(RECEIVE_BYTES)
        else:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise Hangup("the client took too long")
            self._socket.settimeout(left_s)
            received = self._socket.recv(RECEIVE_BYTES)
            if self.peer.established:
                self._socket.settimeout(self._idle_s)
        if not received:
            raise Hangup("the client left")
        return received

    def _settle(self) -> None:
        """Leave time-outs between calls to the kernel, which spares two system calls for each of them.

        With TLS they are Python's: OpenSSL takes the kernel's for a reason to try again.
        """
        if isinstance(self._socket, ssl.SSLSocket):
            self._idle_s = self._limits.idle_s
            self._socket.settimeout(self._idle_s)
            return
        seconds, rest = divmod(self._limits.idle_s, 1.0)
        idle = _TIMEVAL.pack(int(seconds), int(rest * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, idle)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, idle)
        self._socket.settimeout(None)

    def _give(self, patience_s: float) -> None:
        """Say for how long what was sent may stay without a sign from the client's machine that it came."""
        if patience_s != self._patience_s:
            self._patience_s = patience_s
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(patience_s * 1_000))

    def _seen(self) -> int:
        """Return what the kernel knows of the client."""
        return next((event for _, event in self._poll.poll(0)), 0)


class _Unframed:
    """One message of a stream without frames: a source that ends after the largest message."""

    def __init__(self, connection: Connection, largest: int) -> None:
        self._connection = connection
        self._left = largest

    @property
    def left(self) -> int:
        """Return how many bytes there may still be."""
        return self._left

    def take(self, count: int) -> bytes:
        """Return the next bytes. Raises Malformed, Hangup, OSError."""
        if count > self._left:
            raise Malformed("the message is too large")
        self._left -= count
        return self._connection.take(count)
