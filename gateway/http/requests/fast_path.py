"""Fast path of POST /v1/queries: a valid request goes straight to its function (ADR 45).

The framework searches for a route, resolves each argument and wraps the call several times, which takes longer together
than some statements. The route stays among the others, for the OpenAPI description and for requests that are not plain
JSON.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.http.requests.bodies import read_model, replayed
from gateway.http.requests.login import user_of
from gateway.http.services import Services

_JSON = b"application/json"
_ARGUMENTS = ["body", "request", "gateway", "user"]

Function = Callable[..., Coroutine[Any, Any, Response]]


class FastPath:
    """ASGI middleware: answers valid requests of one address by a function, and passes on all others.

    function: takes a JSON body, the request, the gateway and its user. The application's handlers answer its errors.
    """

    def __init__(self, app: ASGIApp, *, method: str, path: str, function: Function) -> None:
        if list(inspect.signature(function).parameters) != _ARGUMENTS:
            raise TypeError(f"{function.__name__} does not take {', '.join(_ARGUMENTS)}")
        model = get_type_hints(function)["body"]
        if not issubclass(model, BaseModel):
            raise TypeError(f"the body of {function.__name__} is not a model")
        self._app = app
        self._method, self._path = method, path
        self._function = function
        self._model: type[BaseModel] = model
        self._answering: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http" or scope["path"] != self._path or scope["method"] != self._method:
            await self._app(scope, receive, send)
            return
        if self._answering is None:
            handlers = {
                key: handler for key, handler in scope["app"].exception_handlers.items() if key is not Exception
            }
            self._answering = ExceptionMiddleware(self._answer, handlers=handlers)
        await self._answering(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if dict(scope["headers"]).get(b"content-type") != _JSON:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        if not body:
            await self._app(scope, replayed(body, receive), send)
            return
        gateway, user = scope["app"].state.gateway, await user_of(request)
        assert isinstance(gateway, Services)
        parsed_body = await read_model(self._model, body, request.app, user)
        response = await self._function(parsed_body, request, gateway, user)
        await response(scope, receive, send)
