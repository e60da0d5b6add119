"""The way of a request that is made hundreds of times a second: a valid one goes straight to its function.

The framework looks for a route, resolves each argument anew, and wraps the call several times over, in steps that take
longer together than some statements. The route stays among the others, which tell the interface's description of it and
take whatever is wrong with a request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ValidationError
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.http.guard import given_again
from gateway.http.login import user_of
from gateway.http.services import Services

_JSON = b"application/json"
_ARGUMENTS = ["body", "request", "gateway", "user"]

Function = Callable[..., Coroutine[Any, Any, Response]]


class ShortWay:
    """ASGI middleware: answers valid requests of one address by a function, and passes on all others.

    function: takes a JSON body, the request, the gateway and its user. The errors that it raises are told as the
    application tells them, which is asked for that when the first request comes.
    """

    def __init__(self, app: ASGIApp, *, method: str, path: str, function: Function) -> None:
        if list(inspect.signature(function).parameters) != _ARGUMENTS:
            raise TypeError(f"{function.__name__} does not take {', '.join(_ARGUMENTS)}")
        model = get_type_hints(function)["body"]
        if not issubclass(model, BaseModel):
            raise TypeError(f"the body of {function.__name__} is no model")
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
            self._answering = self._with_handlers(scope["app"])
        await self._answering(scope, receive, send)

    def _with_handlers(self, app: FastAPI) -> ASGIApp:
        """Return what answers, with the errors told that the application tells."""
        handlers = {kind: tell for kind, tell in app.exception_handlers.items() if kind not in (500, Exception)}
        return ExceptionMiddleware(self._answer, handlers=handlers)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if dict(scope["headers"]).get(b"content-type") != _JSON:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        try:
            asked = self._model.model_validate_json(body)
        except ValidationError:
            await self._app(scope, given_again(body, receive), send)
            return
        gateway = scope["app"].state.gateway
        assert isinstance(gateway, Services)
        response = await self._function(asked, request, gateway, await user_of(request))
        await response(scope, receive, send)
