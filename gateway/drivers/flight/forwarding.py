"""Calls that another gateway answers: a token, or the handle in a message, says which one.

A call is forwarded as a request to that gateway's door for members, and its reply comes back in pieces. If it is gone,
the receiver answers.

    request: frames, of which the first is the call's metadata as JSON, and the others are its messages
    reply: frames that begin with MESSAGE, and a last one that begins with END, and then JSON: how the call ended
    frame: its length in four bytes, and that many bytes
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Protocol

import anyio
import grpc
from anyio import CapacityLimiter, create_task_group, from_thread, to_thread
from grpc import ServicerContext as Context
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.drivers.flight.messages import Malformed, read, unpack
from gateway.drivers.flight.protocol.flight_pb2 import (
    Action,
    CancelFlightInfoRequest,
    FlightData,
    FlightDescriptor,
    FlightInfo,
    Ticket,
)
from gateway.drivers.handles import MARK_BYTES, UNREACHABLE, Handles
from gateway.errors import GatewayStopped
from gateway.http.forwarding.forwarding import LOOK_S, wait_for_disconnect, whole_body
from gateway.http.forwarding.peers import OtherGateway, Sender
from gateway.http.requests.guard import ACCOUNT
from gateway.security.principals import Principal
from gateway.statements.statement import ID_BYTES, query_of

log = logging.getLogger(__name__)

HANDLE_BYTES = ID_BYTES + MARK_BYTES
PATH = "/members/flight/"
MESSAGE, END = b"m", b"e"
STALL_S = 4 * LOOK_S  # between two frames: the other gateway sends an empty one every LOOK_S
Handler = Callable[[Iterator[bytes], Any], Iterator[bytes]]
_LENGTH = struct.Struct(">I")
_HEADERS = [(b"content-type", b"application/octet-stream")]
_GONE = "The gateway that answers has ended; try again."
_FULL = "The gateway that answers has too many calls of others; try again soon."
_DEFECT = "The gateway failed; its log says how."


class Elsewhere(Exception):
    """Another gateway has to answer a call.

    connection: to it. first: the call's first message. principal: its user, who logged in here.
    """

    def __init__(self, owner: OtherGateway, connection: HTTPConnection, first: bytes, principal: Principal) -> None:
        super().__init__(f"{owner.place} answers")
        self.owner = owner
        self.connection = connection
        self.first = first
        self.principal = principal


def new_handle(handles: Handles, subject: bytes) -> bytes:
    """Return a handle. subject: ID_BYTES that are its own."""
    return subject + handles.mark(subject)


def new_token(handles: Handles, subject: bytes) -> str:
    """Return a session's token. subject: ID_BYTES that nobody can guess."""
    return base64.urlsafe_b64encode(new_handle(handles, subject)).decode().rstrip("=")


def handle_in(token: str) -> bytes:
    """Return the handle that is in a token; of a text that is none, an empty one."""
    try:
        handle = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        return b""
    return handle if len(handle) == HANDLE_BYTES else b""


class Forwarding:
    """Forwards calls to other gateways. most_bytes: of one call's messages. Thread-safe."""

    def __init__(self, handles: Handles, most_bytes: int) -> None:
        self._handles = handles
        self._most_bytes = most_bytes

    def of_token(self, token: str) -> tuple[OtherGateway, HTTPConnection] | None:
        """Return the other gateway that has a token's session, and a connection to it; None: this one answers."""
        handle = handle_in(token)
        return _connected(self._handles.owner(handle[:ID_BYTES], handle[ID_BYTES:])) if handle else None

    def require_ours(self, method: str, message: bytes, principal: Principal) -> None:
        """Raise Elsewhere if another gateway has what a call's first message is about."""
        try:
            handle, is_statement = handle_of(method, message)
        except Malformed:  # the service refuses it
            return
        if len(handle) != HANDLE_BYTES:
            return
        subject = handle[:ID_BYTES]
        query_id = query_of(subject) if is_statement else None
        other = _connected(self._handles.owner(subject, handle[ID_BYTES:], query_id))
        if other is not None:
            raise Elsewhere(*other, message, principal)

    def collected(self, messages: Iterator[bytes]) -> list[bytes]:
        """Return all messages of a call. Raises Malformed where they are too large."""
        pieces, size = list[bytes](), 0
        for message in messages:
            pieces.append(message)
            size += len(message)
            if size > self._most_bytes:
                raise Malformed("The call's messages are too large.")
        return pieces

    def pass_on(
        self,
        other: tuple[OtherGateway, HTTPConnection],
        method: str,
        messages: Sequence[bytes],
        context: Context,
        sender: Sender,
        metadata: Mapping[str, str],
    ) -> Iterator[bytes]:
        """Have another gateway answer a call; empty messages say that it is at it. metadata: of the call, as texts."""
        owner, connection = other
        with contextlib.closing(connection):
            if not context.add_callback(partial(_shut, connection.sock)):
                return
            pieces = map(_frame, (json.dumps(dict(metadata)).encode(), *messages))
            end: dict[str, Any] = {"code": grpc.StatusCode.UNAVAILABLE.value[0], "details": _GONE, "metadata": []}
            with contextlib.suppress(OSError, HTTPException, ValueError, struct.error):
                owner.post(connection, PATH + method, b"".join(pieces), sender, {})
                connection.sock.settimeout(STALL_S)
                reply = connection.getresponse()
                while reply.status == HTTPStatus.OK:
                    piece = _next_frame(reply)
                    if piece[:1] == END:
                        end = json.loads(piece[1:])
                        break
                    yield piece[1:]
        code = next(code for code in grpc.StatusCode if code.value[0] == end["code"])
        if code is not grpc.StatusCode.OK:
            context.set_trailing_metadata(tuple((key, value) for key, value in end["metadata"]))
            context.abort(code, end["details"])


def _connected(owner: OtherGateway | None) -> tuple[OtherGateway, HTTPConnection] | None:
    """Connect to a gateway, before a call's messages are sent, which is possible only once; None: it is gone.

    Raises GatewayStopped where it lives: nobody else may answer.
    """
    if owner is None:
        return None
    try:
        return owner, owner.connected()
    except OSError as error:
        if owner.is_alive():
            raise GatewayStopped(UNREACHABLE) from error
        return None


def _shut(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def _frame(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


def _next_frame(reply: HTTPResponse) -> bytes:
    """Read a frame. Raises struct.error, ValueError where there is none."""
    (length,) = _LENGTH.unpack(reply.read(_LENGTH.size))
    content = reply.read(length)
    if len(content) != length:
        raise ValueError("the reply ends within a frame")
    return content


def _frames(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        yield body[at : at + length]
        at += length


# ---------------------------------------------------------------------- the other side


class _Ended(Exception):
    """A call ended with a status."""


class RelayedContext:
    """Context of a call that another gateway forwards, in the place of gRPC's.

    sender: its client. metadata: of the call.
    """

    def __init__(self, sender: Sender, metadata: Mapping[str, str]) -> None:
        self.sender = sender
        self._metadata = metadata
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self._is_active = True
        self.code, self.details = grpc.StatusCode.OK, ""
        self.trailing: Sequence[tuple[str, str]] = ()

    def invocation_metadata(self) -> list[tuple[str, str]]:
        """Return the call's metadata."""
        return list(self._metadata.items())

    def peer(self) -> str:
        """Return the client's address as gRPC has it."""
        address = self.sender.address or ""
        return f"ipv6:[{address}]:0" if ":" in address else f"ipv4:{address}:0"

    def add_callback(self, callback: Callable[[], object]) -> bool:
        """Register a function to call at the call's end; False where it has ended."""
        with self._lock:
            if self._is_active:
                self._callbacks.append(callback)
            return self._is_active

    def is_active(self) -> bool:
        """Tell whether the call goes on."""
        return self._is_active

    def cancel(self) -> None:
        """End the call."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
            self._is_active = False
        for callback in callbacks:
            callback()

    def send_initial_metadata(self, _: object) -> None:
        """Do nothing: the gateway that forwards has sent them."""

    def set_trailing_metadata(self, metadata: Sequence[tuple[str, str]]) -> None:
        """Set what is sent at the end."""
        self.trailing = metadata

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the call with a status."""
        self.code, self.details = code, details
        raise _Ended

    def end(self) -> bytes:
        """Return how the call ended, as the last frame has it."""
        end = {"code": self.code.value[0], "details": self.details, "metadata": self.trailing}
        return END + json.dumps(end).encode()


class Answers(Protocol):
    """Whatever answers calls."""

    @property
    def methods(self) -> Mapping[str, Handler]:
        """The handlers of all calls, by name."""


class Relay:
    """ASGI middleware at the door for members: answers calls that other gateways forward. calls: most at once."""

    def __init__(self, app: ASGIApp, answers: Answers, calls: int) -> None:
        self._app = app
        self._answers = answers
        self._threads = CapacityLimiter(calls)
        self._for_actions = CapacityLimiter(calls)  # which end other calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call, or pass a request on."""
        if scope["type"] != "http" or not scope["path"].startswith(PATH):
            await self._app(scope, receive, send)
            return
        body = await whole_body(receive)
        handler = self._answers.methods.get(scope["path"].removeprefix(PATH))
        if body is None or handler is None:
            return
        metadata, *messages = _frames(body)
        address, port = scope.get("client") or (None, 0)
        sender = Sender(address, port, scope["scheme"], scope.get(ACCOUNT))
        context = RelayedContext(sender, json.loads(metadata))
        threads = self._for_actions if scope["path"] == f"{PATH}DoAction" else self._threads
        sending, has_begun = anyio.Lock(), False

        async def sent(content: bytes, more_body: bool = True) -> None:
            nonlocal has_begun
            async with sending:
                if not has_begun:
                    has_begun = True
                    await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": _HEADERS})
                await send({"type": "http.response.body", "body": _frame(content), "more_body": more_body})

        def answered() -> None:
            try:
                for reply in handler(iter(messages), context):
                    if not context.is_active():
                        return
                    if reply:
                        from_thread.run(sent, MESSAGE + reply)
            except _Ended:
                return
            except Exception:  # a defect: the client is told of it, as of one in a call that came directly
                log.exception("a call of another gateway failed")
                context.code, context.details = grpc.StatusCode.INTERNAL, _DEFECT

        async def watched() -> None:
            await wait_for_disconnect(receive)
            await to_thread.run_sync(context.cancel)

        async def kept_alive() -> None:
            while True:
                await sent(MESSAGE)
                await anyio.sleep(LOOK_S)

        if not threads.available_tokens:
            context.code, context.details = grpc.StatusCode.RESOURCE_EXHAUSTED, _FULL
            await sent(context.end(), more_body=False)
            return
        async with create_task_group() as tasks:
            tasks.start_soon(watched)
            tasks.start_soon(kept_alive)
            try:
                await to_thread.run_sync(answered, limiter=threads)
            finally:
                await to_thread.run_sync(context.cancel)
            await sent(context.end(), more_body=False)
            tasks.cancel_scope.cancel()


def handle_of(method: str, message: bytes) -> tuple[bytes, bool]:
    """Return the handle in a call's first message, or nothing, and whether it is a statement's. Raises Malformed."""
    match method:
        case "GetFlightInfo" | "PollFlightInfo" | "GetSchema":
            return _handle_in(read(FlightDescriptor, message).cmd)
        case "DoGet":
            return _handle_in(read(Ticket, message).ticket)
        case "DoPut":
            return _handle_in(read(FlightData, message).flight_descriptor.cmd)
        case "DoAction":
            action = read(Action, message)
            match action.type:
                case "ClosePreparedStatement":
                    return _handle_in(action.body)
                case "CancelFlightInfo":
                    return _handle_of_info(read(CancelFlightInfoRequest, action.body).info)
                case "CancelQuery":
                    _, request = unpack(action.body)
                    return _handle_of_info(read(FlightInfo, getattr(request, "info", b"")))
    return b"", False


def _handle_in(packed: bytes) -> tuple[bytes, bool]:
    _, command = unpack(packed)
    statement: bytes = getattr(command, "statement_handle", b"")
    prepared: bytes = getattr(command, "prepared_statement_handle", b"")
    return statement or prepared, bool(statement)


def _handle_of_info(info: Any) -> tuple[bytes, bool]:
    if info.app_metadata:
        handle: bytes = info.app_metadata
        return handle, True
    return _handle_in(info.endpoint[0].ticket.ticket) if info.endpoint else (b"", False)
