"""What is asked of every request before anything else looks at it, and what every reply carries."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.errors import reply
from gateway.security.web import SECURITY_HEADERS, BrowserRules

OPEN_TO_ALL_NAMES = ("/livez",)  # what asks whether a process lives knows it by all kinds of names


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
