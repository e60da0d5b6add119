"""What is asked of every request before anything else looks at it, and what every reply carries.

Bodies that are larger than any statement may be are refused before they are read into memory.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import StatementTooLong
from gateway.http.errors import reply
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
