"""START HERE: a route with bounded work: it has a turn and a deadline, and its body is parsed off the event loop.

All requests except statements run in threads. A user has a few of these at once (``turns.py``); their work ends by
``limits.request_s``, and soon after the client has left (``engines/running_statement.py``).
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.status import HTTP_200_OK

from engines.running_statement import Deadline, within
from gateway.http.replies import ExactJSONResponse
from gateway.http.requests.bodies import read_model
from gateway.http.requests.login import USER
from gateway.http.requests.turns import Turns
from gateway.http.services import Services
from gateway.security.principals import Principal

CLIENT_CLOSED_REQUEST = 499  # nobody reads it

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class BoundedRoute(APIRoute):
    """A route of the application, for all routers. Routes that take a thread wait for a turn of ``app.state.turns``."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if not inspect.iscoroutinefunction(endpoint):
            endpoint = _rendering(endpoint, options.get("status_code"))
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Handler:
        """Return the function that answers a request."""
        answer = super().get_route_handler()
        model = _model_of(self)
        takes_thread = not inspect.iscoroutinefunction(self.endpoint)

        async def bounded(request: Request) -> Response:
            user: Principal | None = request.scope.get(USER)
            gateway = request.app.state.gateway
            assert isinstance(gateway, Services)
            try:
                body = await request.body()
            except ClientDisconnect:
                return Response(status_code=CLIENT_CLOSED_REQUEST)
            if body and model is not None and user is not None and _is_json(request):
                parsed_body = await read_model(model, body, request.app, user)
                request = _ParsedRequest(request.scope, request.receive, body, parsed_body)
            if not takes_thread or user is None:
                return await answer(request)
            turns: Turns = request.app.state.turns
            async with turns.hold(user.quota_key):
                return await _while_awaited(answer, request, gateway.settings.limits.request_s)

        return bounded


def _rendering(endpoint: Callable[..., Any], status: int | None) -> Callable[..., Any]:
    """Return a function that also encodes its reply in its thread, which takes long for a thousand queries."""

    @wraps(endpoint)
    def rendered(*arguments: Any, **named: Any) -> Any:
        reply = endpoint(*arguments, **named)
        if isinstance(reply, BaseModel):
            return ExactJSONResponse(reply.model_dump(mode="json"), status_code=status or HTTP_200_OK)
        return reply

    return rendered


def _model_of(route: APIRoute) -> type[BaseModel] | None:
    """Return the model of a route's body; None: it takes no body."""
    model: object = route.body_field.field_info.annotation if route.body_field is not None else None
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


class _ParsedRequest(Request):
    """A request whose body was read and parsed already."""

    def __init__(self, scope: Any, receive: Any, body: bytes, parsed: BaseModel) -> None:
        super().__init__(scope, receive)
        self._read_body = body
        self._parsed = parsed

    async def body(self) -> bytes:
        """Return the bytes of the body."""
        return self._read_body

    async def json(self) -> BaseModel:
        """Return the model instead of JSON: FastAPI accepts a valid model as it is."""
        return self._parsed


async def _while_awaited(answer: Handler, request: Request, time_s: float) -> Response:
    """Answer a request; its work in threads ends once its client has left or its time is over."""
    client_left = asyncio.Event()
    deadline = Deadline(time.monotonic() + time_s, client_left.is_set)
    watching = asyncio.ensure_future(_note_leaving(request, client_left))
    try:
        with within(deadline):
            return await answer(request)
    finally:
        watching.cancel()


async def _note_leaving(request: Request, client_left: asyncio.Event) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    client_left.set()


def _is_json(request: Request) -> bool:
    """Tell whether the content type is JSON, by FastAPI's rule."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    main, _, sub = kind.partition("/")
    return main == "application" and (sub == "json" or sub.endswith("+json"))
