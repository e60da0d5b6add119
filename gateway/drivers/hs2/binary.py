"""HiveServer2 on a TCP port, with or without SASL, by the first byte of a connection, and with TLS if configured.

Each connection has a thread. When all places are taken, a new connection replaces the oldest one that has not opened a
session, so that thousands of silent connections lock nobody out. The cost of a connection is limited: a message is not
larger than a statement may be, a reply not larger than ``operations.REPLY_BYTES`` and a row, and a client that stops
reading blocks only its own thread.
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
from gateway.drivers.hs2.protocol import sasl, security_layer
from gateway.drivers.hs2.protocol.sasl import Refused, SaslStatus
from gateway.drivers.hs2.protocol.security_layer import WRAPPING_BYTES, SecurityLayer
from gateway.drivers.hs2.protocol.thrift import Malformed
from gateway.drivers.hs2.registry import Peer
from gateway.drivers.hs2.service import PendingReply, Service
from gateway.errors import AuthenticationFailed
from gateway.security.authentication import Login
from gateway.security.identity.authenticator import Acceptor
from gateway.security.principals import Principal
from sql.errors import FusionError

log = logging.getLogger(__name__)

SASL_START, STRICT_BINARY = 0x01, 0x80
RECEIVE_BYTES = 64 << 10
MESSAGE_S = 60.0  # from a message's first byte to its last
WATCH_S = 0.5  # between two checks whether a waiting client is still there
GONE_S = 8.0  # silence of a client's machine after which the client counts as gone
KEEPALIVE_S, KEEPALIVE_REPEAT_S = 4, 2  # of probes on an idle connection
SMALL_REPLY_BYTES = 64 << 10  # fits into the buffers of a client's machine, whether the client reads or not
HIVES_LOGIN_ERROR = "Error validating the login"  # clients recognise a wrong login by these words
_LENGTH = struct.Struct(">I")
_TIMEVAL = struct.Struct("ll")  # of the kernel
_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class Hangup(Exception):
    """The client is gone, or its connection is to be closed."""


@dataclass(frozen=True, slots=True)
class BinaryLimits:
    """Limits of connections."""

    connections: int
    """Most at once."""
    handshake_s: float
    """Time for the login."""
    idle_s: float
    """Time between two calls."""


class BinaryServer:
    """Server of one listening socket. Started and stopped once."""

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
        """Host and port of the socket."""
        host, port = self._listening.getsockname()[:2]
        return str(host), int(port)

    def start(self) -> None:
        """Begin to accept connections."""
        self._listening.listen(socket.SOMAXCONN)
        self._acceptor.start()

    def stop(self) -> None:
        """Accept no more connections, and close all."""
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
        """Number of connections."""
        with self._lock:
            return len(self._connections)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                accepted, address = self._listening.accept()
            except OSError as error:
                if not self._stopping.is_set():
                    log.warning("cannot take a connection: %s", error)  # usually out of files, for a while
                    self._stopping.wait(WATCH_S)
                continue
            try:
                self._admit(Connection(accepted, str(address[0]), self._limits))
            except (OSError, RuntimeError) as error:
                log.warning("cannot serve a connection from %s: %s", address[0], error)  # usually out of threads
                accepted.close()

    def _admit(self, connection: Connection) -> None:
        """Give a connection a place and a thread. Raises RuntimeError where the process can have no more threads."""
        with self._lock:
            if len(self._connections) >= self._limits.connections:
                silent = next((other for other in self._connections if not other.peer.established), None)
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
        """Serve a connection to its end, and close its sessions."""
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
    """One client's socket."""

    thread: threading.Thread

    def __init__(self, accepted: socket.socket, address: str, limits: BinaryLimits) -> None:
        self.peer = Peer(address, connection=self)
        self._socket = accepted
        self._limits = limits
        self._idle_s: float | None = None  # between two calls, where the kernel has no time-out
        self._buffer = b""
        self._at = 0
        self._layer: SecurityLayer | None = None
        self._deadline = time.monotonic() + limits.handshake_s
        self._poll = select.poll()
        self._poll.register(accepted, select.POLLIN | select.POLLRDHUP)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_REPEAT_S)
        self._ack_limit_s = 0.0
        self._limit_acknowledgement(GONE_S)

    # ------------------------------------------------------------------ the beginning

    def shake_hands(self, service: Service, tls: ssl.SSLContext | None) -> bool:
        """Detect the transport, and log in with SASL; returns whether messages are framed."""
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
            tickets = service.tickets
            mechanisms = (sasl.PLAIN,) if tickets is None else (sasl.PLAIN, sasl.GSSAPI)
            if sasl.read_mechanism(self.take, mechanisms) == sasl.GSSAPI and tickets is not None:
                self.peer.user = self._logged_in_by_ticket(service, tickets)
            else:
                login = sasl.read_credentials(self.take)
                _require_own_name(login.authorization_id, login.name)
                self.peer.user = service.login(Login(login.name, login.password, self.peer.address))
        except (Refused, FusionError) as error:
            message = f"{HIVES_LOGIN_ERROR}: {error}" if isinstance(error, AuthenticationFailed) else str(error)
            self._socket.sendall(sasl.frame(SaslStatus.BAD, message.encode()))
            raise Hangup(f"refused: {error}") from error
        self._socket.sendall(sasl.frame(SaslStatus.COMPLETE, b""))
        return True

    def _logged_in_by_ticket(self, service: Service, tickets: Acceptor) -> Principal:
        """Log in with a Kerberos ticket. Raises Refused, AuthenticationFailed, IdentityProviderUnavailable."""
        exchange = tickets.begin(self.peer.address, over_http=False)
        accepted = security_layer.accept(
            exchange, self.take, self._socket.sendall, qop=service.qop, largest_message=service.largest_message
        )
        ticket = exchange.ticket()
        user = service.login(Login(None, None, self.peer.address, ticket=ticket))
        _require_own_name(accepted.authorization_id, ticket.principal, user.name)
        self._layer = accepted.layer
        return user

    # ------------------------------------------------------------------ messages

    def receive(self, dispatcher: Dispatcher, *, framed: bool) -> bytes | PendingReply[bytes]:
        """Read the next message and answer it. Raises Hangup, Malformed, OSError."""
        self._peek()
        self._limit_acknowledgement(GONE_S)
        established = self.peer.established
        if established:
            self._deadline = time.monotonic() + MESSAGE_S
        if framed:
            (length,) = _LENGTH.unpack(self.take(_LENGTH.size))
            layer = self._layer
            if length > dispatcher.largest_message + (WRAPPING_BYTES if layer is not None else 0):
                raise Malformed(f"a message of {length:,} bytes")
            data = self.take(length)
            outcome = dispatcher.frame(layer.unwrap(data) if layer is not None else data, self.peer)
        else:
            outcome = dispatcher.message(_Unframed(self, dispatcher.largest_message), self.peer)
        if self.peer.established and not established:
            self._use_kernel_timeouts()
        return outcome

    def wait_for(self, pending: PendingReply[bytes]) -> bytes:
        """Wait for a reply, and watch the client meanwhile.

        A client that sends another call has stopped waiting, as impala-shell does after Ctrl-C: it gets the reply of
        now, and then the answer to its new call.
        """
        until = None if pending.timeout_s is None else time.monotonic() + pending.timeout_s
        while not pending.done.done():
            left_s = WATCH_S if until is None else min(WATCH_S, until - time.monotonic())
            if left_s <= 0:
                break
            concurrent.futures.wait([pending.done], timeout=left_s)
            events = self._events()
            if events & _GONE:
                pending.abandon()
                raise Hangup("the client left while it waited")
            if events & select.POLLIN:
                break
        return pending.finish()

    def send(self, reply: bytes, *, framed: bool) -> None:
        """Send a reply; the connection ends if the client does not read it for too long. Raises OSError."""
        self._limit_acknowledgement(GONE_S if len(reply) <= SMALL_REPLY_BYTES else MESSAGE_S)
        if self._layer is not None:
            for message in self._layer.wrap(reply):
                self._socket.sendall(_LENGTH.pack(len(message)) + message)
        elif framed and len(reply) > SMALL_REPLY_BYTES:
            more = 0 if isinstance(self._socket, ssl.SSLSocket) else socket.MSG_MORE
            self._socket.sendall(_LENGTH.pack(len(reply)), more)
            self._socket.sendall(reply)
        else:
            self._socket.sendall(_LENGTH.pack(len(reply)) + reply if framed else reply)

    def do_afterwards(self) -> None:
        """Do the work that a call left for after its reply, unless the client has sent the next call already."""
        afterwards, self.peer.afterwards = self.peer.afterwards, None
        if afterwards is not None and self._at == len(self._buffer) and not self._events():
            afterwards()

    # ------------------------------------------------------------------ the end

    def hang_up(self) -> None:
        """Wake up the connection's thread, so that it ends."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    # ------------------------------------------------------------------ bytes

    def take(self, count: int) -> bytes:
        """Return the next bytes. Raises Hangup at the end of the connection, OSError."""
        end = self._at + count
        if end > len(self._buffer):
            pieces = [self._buffer[self._at :]]
            missing = end - len(self._buffer)
            while missing > 0:
                pieces.append(self._receive())
                missing -= len(pieces[-1])
            self._buffer = b"".join(pieces)
            self._at, end = 0, count
        begin, self._at = self._at, end
        return self._buffer[begin:end]

    def _peek(self) -> int:
        """Wait for the next byte and return it without taking it."""
        if self._at == len(self._buffer):
            self._buffer, self._at = self._receive(within_message=False), 0
        return self._buffer[self._at]

    def _receive(self, *, within_message: bool = True) -> bytes:
        """Return received bytes, at least one. Raises Hangup, OSError."""
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

    def _use_kernel_timeouts(self) -> None:
        """Leave time-outs between calls to the kernel, which saves two system calls for each call.

        With TLS they are Python's: OpenSSL would try again after the kernel's.
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

    def _limit_acknowledgement(self, limit_s: float) -> None:
        """Limit the time in which the client's machine has to acknowledge sent data."""
        if limit_s != self._ack_limit_s:
            self._ack_limit_s = limit_s
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(limit_s * 1_000))

    def _events(self) -> int:
        """Return the kernel's events of the socket."""
        return next((event for _, event in self._poll.poll(0)), 0)


def _require_own_name(authorization_id: str, *names: str) -> None:
    """Raise Refused where a client wants to act for another user."""
    if authorization_id not in ("", *names):
        raise Refused(f"{names[-1]} cannot act for {authorization_id}: impersonation is not supported.")


class _Unframed:
    """One message of a stream without frames: a source that ends after the largest message."""

    def __init__(self, connection: Connection, largest: int) -> None:
        self._connection = connection
        self._left = largest

    @property
    def left(self) -> int:
        """Most bytes that may follow."""
        return self._left

    def take(self, count: int) -> bytes:
        """Return the next bytes. Raises Malformed, Hangup, OSError."""
        if count > self._left:
            raise Malformed("the message is too large")
        self._left -= count
        return self._connection.take(count)
