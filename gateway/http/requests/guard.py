"""Checks of every request that need nothing but its address and headers, and headers of every reply."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import NotFound
from gateway.http.errors import allowed, reply
from gateway.security.web import SECURITY_HEADERS, BrowserRules

PASSED_ON = "fusion.passed_on"  # in the scope of a request that came from another gateway, which has checked it
ACCOUNT = "fusion.account"  # in the scope of such a request: of a user who has logged in there
OPEN_TO_ALL_NAMES = ("/livez",)  # probes reach a process under all kinds of names


class Guard:
    """ASGI middleware: refuses requests that a page tricked a browser into sending, and adds security headers."""

    def __init__(self, app: ASGIApp, *, rules: BrowserRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = None if scope.get(PASSED_ON) else self._rules.refusal(scope["method"], scope["headers"])
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
        """Send the head of a reply; its route sees a client that has left."""
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
