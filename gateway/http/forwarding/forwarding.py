"""Forwarding of requests about a query of another gateway to that gateway.

If it is gone, the receiver answers from the metastore, as after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable

import h11
from anyio import to_thread
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.forwarding.peers import CLIENT_HEADER, OtherGateway, Peers, Sender, digest, is_signed, signed
from gateway.http.requests.bodies import replayed
from gateway.http.requests.guard import ACCOUNT, PASSED_ON

log = logging.getLogger(__name__)

_CLIENT = CLIENT_HEADER.encode()
_REPEATABLE = ("GET", "HEAD", "DELETE")
RECEIVE_BYTES = 64 << 10
LOOK_S = 2.0  # between two looks whether a gateway that does not answer is still alive
_OF_A_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"expect", b"upgrade", b"te", b"trailer")
)
_OF_A_REPLY = _OF_A_CONNECTION - {b"content-length"} | {b"date"}  # which the server adds


class Forwarding:
    """ASGI middleware: forwards requests whose address names a query of another gateway."""

    def __init__(self, app: ASGIApp, *, peers: Peers) -> None:
        self._app = app
        self._peers = peers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or have it answered here."""
        if scope["type"] == "http" and not scope.get(PASSED_ON):
            peer = await self._peers.of_path(scope["path"])
            if peer is not None:
                body = await whole_body(receive)
                may_repeat = scope["method"] in _REPEATABLE
                if body is None or await pass_on(peer, scope, body, receive, send, may_repeat=may_repeat):
                    return
                receive = replayed(body, receive)
        await self._app(scope, receive, send)


class PassedOn:
    """The application as other gateways reach it: a header names the client. secret: with which they sign it."""

    def __init__(self, app: ASGIApp, secret: Callable[[], bytes]) -> None:
        self._app = app
        self._secret = secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request in the name of its client; 403 for whoever is no member."""
        if scope["type"] == "http":
            header = dict(scope["headers"]).get(_CLIENT, b"").decode("latin-1")
            if not is_signed(self._secret(), scope["method"], _target(scope), header):
                await self._refuse(scope, receive, send)
                return
            sender, of_body = Sender.of(header)
            body = await whole_body(receive)
            if body is None:
                return
            if digest(body) != of_body:
                await self._refuse(scope, receive, send)
                return
            receive = replayed(body, receive)
            headers = [(name, value) for name, value in scope["headers"] if name != _CLIENT]
            client = None if sender.address is None else (sender.address, sender.port)
            scope = {**scope, "headers": headers, "client": client, "scheme": sender.scheme, PASSED_ON: True}
            if sender.account is not None:
                scope[ACCOUNT] = sender.account
        await self._app(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        log.warning("a request on the members' port is not signed, or was signed at another time: see the clocks")
        await PlainTextResponse("This port is for gateways of the same metastore.\n", 403)(scope, receive, send)


class AnswerLost(ConnectionError):
    """The gateway that a request was passed on to has ended before it answered; it may have done what it was asked."""


class ForwardedReply(Response):
    """A reply of another gateway, as a route returns it.

    fallback: answers where that one is gone.
    lost: answers where it may have begun; None: what it was asked may be done again.
    """

    def __init__(
        self,
        peer: OtherGateway,
        content: bytes,
        fallback: Callable[[], Awaitable[ASGIApp]],
        lost: Callable[[], ASGIApp] | None = None,
    ) -> None:
        super().__init__()
        self._peer = peer
        self._content = content
        self._fallback = fallback
        self._lost = lost

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and its reply back."""
        try:
            if await pass_on(self._peer, scope, self._content, receive, send, may_repeat=self._lost is None):
                return
            answer = await self._fallback()
        except AnswerLost:
            assert self._lost is not None
            answer = self._lost()
        await answer(scope, receive, send)


async def pass_on(
    peer: OtherGateway, scope: Scope, body: bytes, receive: Receive, send: Send, *, may_repeat: bool = True
) -> bool:
    """Have another gateway answer a request; returns False where it is gone and nothing was sent yet.

    may_repeat: the request may be answered here although the other one has begun. Raises AnswerLost where it may not,
    ConnectionError where the other one ends in the middle of its reply.
    """
    try:
        reader, writer = await peer.connect()
    except (OSError, TimeoutError):
        return False
    begun = False

    async def noted(message: Message) -> None:
        nonlocal begun
        begun = True
        await send(message)

    answering = asyncio.ensure_future(_relay(peer, reader, writer, scope, body, noted))
    leaving = asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        while not (answering.done() or leaving.done()):
            await asyncio.wait((answering, leaving), timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if not (answering.done() or leaving.done() or await to_thread.run_sync(peer.is_alive)):
                raise ConnectionError("the gateway that answers is paused")  # and others own what it had
        if answering.done():  # else the other gateway hears of it as the connection closes
            answering.result()
    except (h11.RemoteProtocolError, OSError) as error:
        if begun:
            raise ConnectionError("the gateway that answers has ended") from error
        if not may_repeat:
            raise AnswerLost from error
        return False
    except h11.LocalProtocolError:  # such as a request of HTTP/1.0 without a host
        return False
    else:
        return True
    finally:
        answering.cancel()
        leaving.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await asyncio.wait((answering, leaving))
        writer.close()


async def _relay(
    peer: OtherGateway,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    scope: Scope,
    body: bytes,
    send: Send,
) -> None:
    """Send a request and pass its reply on, piece by piece as the client takes it."""
    connection = h11.Connection(h11.CLIENT)
    headers = _headers(scope, body, peer.secret)
    request = h11.Request(method=scope["method"], target=_target(scope), headers=headers)
    for part in (request, h11.Data(data=body), h11.EndOfMessage()):
        writer.write(connection.send(part) or b"")
    await writer.drain()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(RECEIVE_BYTES))
        elif isinstance(event, h11.Response):
            headers = [(name, value) for name, value in event.headers if name not in _OF_A_REPLY]
            await send({"type": "http.response.start", "status": event.status_code, "headers": headers})
        elif isinstance(event, h11.Data):
            await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        elif isinstance(event, h11.EndOfMessage):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        elif isinstance(event, h11.ConnectionClosed):
            raise ConnectionError("the process that answers has ended")


def _target(scope: Scope) -> bytes:
    target: bytes = scope.get("raw_path") or scope["path"].encode()
    return target + b"?" + scope["query_string"] if scope["query_string"] else target


def _headers(scope: Scope, body: bytes, secret: bytes) -> list[tuple[bytes, bytes]]:
    address, port = scope.get("client") or (None, 0)
    client = signed(secret, scope["method"], _target(scope), Sender(address, port, scope["scheme"]), body)
    own: Iterable[tuple[bytes, bytes]] = (
        (b"connection", b"close"),
        (b"content-length", b"%d" % len(body)),
        (_CLIENT, client.encode("ascii")),
    )
    others = [header for header in scope["headers"] if header[0] not in {*_OF_A_CONNECTION, _CLIENT}]
    return [*others, *own]


async def whole_body(receive: Receive) -> bytes | None:
    """Return a request's body, whose size is limited (``bodies.py``); None where the client leaves."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


async def wait_for_disconnect(receive: Receive) -> None:
    """Return once the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
