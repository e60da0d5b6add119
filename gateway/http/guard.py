"""What is asked of every request before anything else looks at it, and what every reply carries.

Bodies that are larger than any statement may be are refused before they are read into memory.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import NotFound, StatementTooLong
from gateway.http.errors import allowed, reply
from gateway.security.web import SECURITY_HEADERS, BrowserRules

OPEN_TO_ALL_NAMES = ("/livez",)  # what asks whether a process lives knows it by all kinds of names
OVERHEAD_BYTES = 64 << 10  # the JSON around a statement
EXPANSION = 6  # an escaped character of JSON against the byte it stands for


class Guard:
    """ASGI middleware: refuses what a browser was tricked into sending, and adds headers that bind browsers."""

    def __init__(self, app: ASGIApp, *, rules: BrowserRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._rules.refusal(scope["method"], scope["headers"])
        if refusal is not None and scope["path"] not in OPEN_TO_ALL_NAMES:
            await reply(refusal)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


class EveryAddress:
    """ASGI middleware: answers HEAD as GET without the body, and OPTIONS with the methods of an address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            methods = allowed(scope)
            answer = Response(status_code=204, headers={"Allow": methods})
            missing = reply(NotFound("Not Found").failure)
            await (answer if methods else missing)(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "HEAD":
            await self._head(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what stands before the body; whoever makes the body is told that nobody reads on."""
        begun = False

        async def without_body(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        async def until_begun() -> Message:
            return {"type": "http.disconnect"} if begun else await receive()

        await self._app({**scope, "method": "GET"}, until_begun, without_body)


class BodyLimit:
    """ASGI middleware: answers 413 once a body has grown past the limit, told or not by its Content-Length."""

    def __init__(self, app: ASGIApp, *, statement_bytes: int) -> None:
        self._app = app
        self._statement_bytes = statement_bytes
        self._limit = statement_bytes * EXPANSION + OVERHEAD_BYTES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on while its body is small enough."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"")
        if length.isdigit() and int(length) > self._limit:
            await self._refuse(scope, receive, send)
            return
        seen = 0
        refused = False

        async def counted() -> Message:
            nonlocal seen, refused
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                refused = True
                return {"type": "http.disconnect"}
            return message

        async def unless_refused(message: Message) -> None:
            if not refused:
                await send(message)

        await self._app(scope, counted, unless_refused)
        if refused:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"The statement is longer than {self._statement_bytes:,} bytes."
        await reply(StatementTooLong(message).failure)(scope, receive, send)


def given_again(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read already, and then what comes after it."""
    waiting = [body]

    async def given() -> Message:
        return {"type": "http.request", "body": waiting.pop(), "more_body": False} if waiting else await receive()

    return given
