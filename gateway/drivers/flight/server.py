"""The port of Flight: gRPC calls in, the service's replies out.

It uses grpcio instead of ``pyarrow.flight``; docs/adr/0016-flight-on-grpcio.md explains why.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from http.cookies import CookieError, SimpleCookie
from itertools import chain
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import grpc
from grpc import ServicerContext as Context

from gateway.drivers.flight import errors
from gateway.drivers.flight.arrivals import Arrivals
from gateway.drivers.flight.forwarding import Elsewhere, Forwarding, Handler, RelayedContext
from gateway.drivers.flight.messages import FLIGHT
from gateway.drivers.flight.service import Call, FlightService
from gateway.drivers.flight.sessions import FlightSession
from gateway.errors import AuthenticationFailed, TooManyCalls
from gateway.http.forwarding.peers import OtherGateway, Sender
from gateway.security.authentication import Login, is_jwt, is_service_token, login_in
from gateway.security.principals import Principal
from sql.parsing import MESSAGE_OVERHEAD_BYTES

log = logging.getLogger(__name__)

SERVICE = f"{FLIGHT}.FlightService"
COOKIE = "arrow_flight_session_id"
HANDSHAKE, DO_GET, DO_PUT, DO_ACTION = "Handshake", "DoGet", "DoPut", "DoAction"
SHARE, SHARE_WITH_ACTIONS = 1 / 2, 3 / 4  # of all calls, for one user; actions have more, as they end other calls
KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS, HANDSHAKE_MS = 30_000, 10_000, 10_000
HEADERS_BYTES = 64 << 10  # of a call; with gRPC's own limits, those of 8 to 16 KiB are refused at random
CONNECTION_IDLE_MS = 600_000  # without a call; clients connect again by themselves


@dataclass(frozen=True, slots=True)
class Certificate:
    """Certificates and key of the port, in PEM. chain: the server's own certificate first."""

    chain: bytes
    key: bytes


class FlightServer:
    """Answers calls on one port, whose address is host:port. Raises OSError where it cannot listen.

    calls: most calls at once.
    drain_s: time for running calls when it stops.
    is_shared: other processes take connections at the same port.
    forwarding: to other gateways; None: there are none.
    """

    def __init__(
        self,
        service: FlightService,
        *,
        host: str,
        port: int,
        calls: int,
        drain_s: float,
        certificate: Certificate | None = None,
        is_shared: bool = False,
        forwarding: Forwarding | None = None,
    ) -> None:
        self.service = service
        self._drain_s = drain_s
        self._arrivals = Arrivals(calls // 2)
        self._pool = ThreadPoolExecutor(calls, thread_name_prefix="flight")
        self.methods = _methods(service, _Calls(calls), self._arrivals, forwarding)
        """The handlers of all calls, by name; also of calls that other gateways forward."""
        self._server = grpc.server(
            self._pool,
            handlers=[_handler(self.methods)],
            maximum_concurrent_rpcs=calls,
            options=[
                ("grpc.so_reuseport", int(is_shared)),
                ("grpc.max_receive_message_length", service.statement_bytes + MESSAGE_OVERHEAD_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", HEADERS_BYTES),
                ("grpc.absolute_max_metadata_size", HEADERS_BYTES),
                ("grpc.keepalive_time_ms", KEEPALIVE_MS),
                ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
                ("grpc.max_connection_idle_ms", CONNECTION_IDLE_MS),
            ],
        )
        host = f"[{host}]" if ":" in host else host
        address = f"{host}:{port}"
        if port and not is_shared:
            _require_free(host.strip("[]"), port)
        try:
            if certificate is None:
                bound_port = self._server.add_insecure_port(address)
            else:
                credentials = grpc.ssl_server_credentials([(certificate.key, certificate.chain)])
                bound_port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from error
        self.address = f"{host}:{bound_port}"

    def start(self) -> None:
        """Begin to take calls."""
        self.service.start()
        self._arrivals.start()
        self._server.start()

    def stop(self) -> None:
        """Take no more calls, wait for running ones for a while, then end them."""
        self._server.stop(self._drain_s).wait()
        self.service.stop()
        self._arrivals.stop()
        self._pool.shutdown(wait=False)


def _require_free(host: str, port: int) -> None:
    """Raise OSError where an address cannot be used; gRPC would only log it."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


class _Calls:
    """Running calls of each user, which have a thread each. most: of all users. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._of_user: Counter[str] = Counter()

    @contextmanager
    def counted(self, user: str, name: str, *, share: float) -> Iterator[None]:
        """Count a running call. user: its account. share: part of all calls for one user. Raises TooManyCalls."""
        with self._lock:
            if self._of_user[user] >= share * self._most:
                raise TooManyCalls(f"{name} has {self._of_user[user]} calls open already; end some of them.")
            self._of_user[user] += 1
        try:
            yield
        finally:
            with self._lock:
                self._of_user[user] -= 1
                if not self._of_user[user]:
                    del self._of_user[user]


def _handler(methods: Mapping[str, Handler]) -> grpc.GenericRpcHandler:
    """Return what gRPC calls. Requests come as bytes, so that invalid ones are answered by ``_Edge``, too.

    All calls are streams to gRPC: otherwise it would wait for the message before the login, and without a time limit.
    """
    handlers = {name: grpc.stream_stream_rpc_method_handler(handle) for name, handle in methods.items()}
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _methods(
    service: FlightService, calls: _Calls, arrivals: Arrivals, forwarding: Forwarding | None
) -> Mapping[str, Handler]:
    """Return the handlers of all calls, by name."""

    def unary(name: str, answer: Callable[[bytes, Call], Any]) -> Handler:
        def handle(requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
            with admitted(name, requests, context) as (call, request):
                yield answer(request, call).SerializeToString()

        return handle

    def admitted(
        name: str, requests: Iterator[bytes], context: Context, share: float = SHARE
    ) -> AbstractContextManager[tuple[Call, bytes]]:
        def require_ours(message: bytes, principal: Principal) -> None:
            is_last = isinstance(context, RelayedContext) and context.sender.account is not None
            if forwarding is not None and not is_last:
                forwarding.require_ours(name, message, principal)

        return _admitted(service, context, requests, calls, arrivals, share, require_ours)

    def do_get(requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
        with (
            admitted(DO_GET, requests, context) as (call, request),
            service.downloads.watched(context.cancel) as download,
        ):
            for message in service.do_get(request, call):
                download.moved()
                if message:
                    yield message
                elif not context.is_active():  # the client has left while rows are still to come
                    return

    def do_put(requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
        with admitted(DO_PUT, requests, context) as (call, first):
            rest = arrivals.rest(requests, call.principal.quota_key, context.cancel)
            yield service.do_put(chain([first], rest), call).SerializeToString()

    def do_action(requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
        with admitted(DO_ACTION, requests, context, SHARE_WITH_ACTIONS) as (call, request):
            for result in service.do_action(request, call):
                yield result.SerializeToString()

    def list_actions(requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
        with admitted("ListActions", requests, context):
            for action in service.list_actions():
                yield action.SerializeToString()

    def list_flights(requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
        with admitted("ListFlights", requests, context):
            yield from ()

    def handshake(_: Iterator[bytes], context: Context) -> Iterator[bytes]:
        with _Edge(context):
            session = service.log_in(_login(context))
            try:
                _tell_token(context, session)
            finally:
                session.session.end_wait()
        yield from ()

    unaries = {
        "GetFlightInfo": service.get_flight_info,
        "PollFlightInfo": service.poll_flight_info,
        "GetSchema": service.get_schema,
    }
    methods = {
        **{name: unary(name, answer) for name, answer in unaries.items()},
        DO_GET: do_get,
        DO_PUT: do_put,
        DO_ACTION: do_action,
        "ListActions": list_actions,
        "ListFlights": list_flights,
    }
    if forwarding is not None:
        whoever_owns = partial(_by_whoever_owns, forwarding, service, calls, arrivals)
        methods = {name: whoever_owns(name, handle) for name, handle in methods.items()}
    return {HANDSHAKE: handshake, **methods}


def _by_whoever_owns(
    forwarding: Forwarding, service: FlightService, calls: _Calls, arrivals: Arrivals, name: str, handle: Handler
) -> Handler:
    """Have a call answered by the gateway that has its token's session, or else what its handle stands for."""

    def answer(requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
        address, texts = _address(context.peer()), _texts(context)

        def all_after(messages: Iterator[bytes]) -> Iterator[bytes]:
            return arrivals.rest(messages, address, context.cancel) if name == DO_PUT else iter(())

        def passed_on(
            other: tuple[OtherGateway, HTTPConnection], first: bytes | None, sender: Sender, key: str
        ) -> Iterator[bytes]:
            with ExitStack() as held:
                held.callback(other[1].close)
                with _Edge(context):
                    share = SHARE_WITH_ACTIONS if name == DO_ACTION else SHARE
                    held.enter_context(calls.counted(key, sender.account or address, share=share))
                    if first is None:
                        first = arrivals.first(requests, address, context.cancel)
                    messages = forwarding.collected(chain([first], all_after(requests)))
                watched = service.downloads.watched(context.cancel) if name == DO_GET else None
                download = held.enter_context(watched) if watched is not None else None
                for message in forwarding.pass_on(other, name, messages, context, sender, texts):
                    if download is not None:
                        download.moved()
                    if message:
                        yield message

        with _Edge(context):
            is_relayed = isinstance(context, RelayedContext)
            other = None if is_relayed else forwarding.of_token(_session_token(context))
        if other is not None:
            yield from passed_on(other, None, Sender(address or None), f"from {address}")
            return
        try:
            yield from handle(requests, context)
        except Elsewhere as error:
            account = error.principal.account
            sender = Sender(address or None, account=account)
            yield from passed_on((error.owner, error.connection), error.first, sender, account)

    return answer


class _Edge:
    """Turns every error into a status. A defect shows no details."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.call: Call | None = None

    def __enter__(self) -> _Edge:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if not isinstance(error, Exception) or isinstance(error, grpc.RpcError | Elsewhere):
            return  # no error, or the client is gone, or another process answers
        failure = errors.failure_of(error)
        query_id = self.call.query_id if self.call is not None else None
        self._context.set_trailing_metadata(errors.metadata(failure, query_id))
        self._context.abort(errors.status(error, failure), errors.message(failure))


@contextmanager
def _admitted(
    service: FlightService,
    context: Context,
    requests: Iterator[bytes],
    calls: _Calls,
    arrivals: Arrivals,
    share: float,
    require_ours: Callable[[bytes, Principal], None],
) -> Iterator[tuple[Call, bytes]]:
    """Authenticate the caller, read the first message, and answer errors.

    share: part of all calls for one user. require_ours: raises Elsewhere where another process has to answer.
    """
    with _Edge(context) as edge:
        session = _session(service, context)

        def when_gone(act: Callable[[], None]) -> None:
            if not context.add_callback(act):
                act()

        headers = partial(service.headers_of, _texts(context))
        edge.call = Call(session, when_gone, headers)
        try:
            if not session.is_counted:
                _tell_token(context, session)
            key = edge.call.principal.quota_key
            message = arrivals.first(requests, key, context.cancel)
            require_ours(message, edge.call.principal)
            with calls.counted(edge.call.user, edge.call.principal.name, share=share):
                yield edge.call, message
        finally:
            session.session.end_wait()


def _session(service: FlightService, context: Context) -> FlightSession:
    """Return the session of a call, which is not idle meanwhile; a call without a token gets a new one.

    Raises AuthenticationFailed, TooManySessions.
    """
    if isinstance(context, RelayedContext) and context.sender.account is not None:
        return _session_of_account(service, context, context.sender.account)
    token, login = _bearer(context), _login(context)
    if login.token is not None and _is_login(login.token) and service.takes_token(login.token):
        return service.session_of_login(login, _cookie(context))
    if token is not None:
        session = service.sessions.claim(token)
        if session is None:
            raise AuthenticationFailed("The session has ended; log in again.")
        service.sessions.require_current(session)
        return session
    session = service.sessions.claim(_cookie(context)) if login.name is None else None
    if session is None:
        return service.log_in(login)
    service.sessions.require_current(session)
    return session


def _session_of_account(service: FlightService, context: RelayedContext, account: str) -> FlightSession:
    """Return the session of a user who has logged in at another gateway: that of the token, or a new one."""
    session = service.sessions.claim(_session_token(context))
    if session is None:
        return service.open_session_of(account, context.sender.address or "")
    if session.session.principal.account != account:
        session.session.end_wait()
        return service.open_session_of(account, context.sender.address or "")
    return session


def _tell_token(context: Context, session: FlightSession) -> None:
    context.send_initial_metadata(
        (("authorization", f"Bearer {session.token}"), ("set-cookie", f"{COOKIE}={session.token}; Path=/; HttpOnly"))
    )


def _login(context: Context) -> Login:
    """Return the name and password, or the token, of a call."""
    return login_in(next(iter(_headers(context, "authorization")), ""), _caller(context))


def _caller(context: Context) -> str:
    """Return the address of the caller, or an empty text."""
    return _address(context.peer())


def _bearer(context: Context) -> str | None:
    for header in _headers(context, "authorization"):
        scheme, _, token = header.partition(" ")
        if scheme.lower() == "bearer":
            return token.strip()
    return None


def _session_token(context: Context) -> str:
    """Return the token of a session, or an empty text; a token that is a login has none."""
    token = _bearer(context)
    return token if token and not _is_login(token) else _cookie(context)


def _is_login(token: str) -> bool:
    """Tell whether a bearer token is that of a user, and not of a session."""
    return is_jwt(token) or is_service_token(token)


def _cookie(context: Context) -> str:
    """Return the session's cookie, or an empty text."""
    for header in _headers(context, "cookie"):
        try:
            cookie = SimpleCookie(header).get(COOKIE)
        except CookieError:
            continue
        if cookie is not None:
            return cookie.value
    return ""


def _headers(context: Context, name: str) -> list[str]:
    return [value for key, value in context.invocation_metadata() if key == name and isinstance(value, str)]


def _texts(context: Context) -> dict[str, str]:
    """Return the metadata of a call by name, in lower case as gRPC has it; the last one of a name counts."""
    return {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}


def _address(peer: str) -> str:
    """Return the address in ``ipv4:127.0.0.1:4711`` or ``ipv6:%5B::1%5D:4711``, or an empty text."""
    address = unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")
    try:
        return str(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return ""
