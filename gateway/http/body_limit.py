"""Refuse bodies that are larger than any statement may be, before they are read into memory."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import StatementTooLong
from gateway.http.errors import reply

OVERHEAD_BYTES = 64 << 10  # the JSON around a statement
EXPANSION = 6  # an escaped character of JSON against the byte it stands for


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
