"""Login over HTTP by the headers of every request, before a byte of its body is read.

It is Basic authentication, a bearer token, a browser's cookie, or a Kerberos ticket (SPNEGO, RFC 4559). Health checks
need none.

A login that was seen before is checked on the event loop. Only a new password or token needs a thread. These threads
serve no statements, so that a flood of logins delays only logins.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Collection
from functools import partial
from http import HTTPStatus
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Request
from fastapi.openapi.models import HTTPBase
from fastapi.security.base import SecurityBase
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import AuthenticationFailed
from gateway.failures import failure_of
from gateway.http.errors import reply
from gateway.http.requests.browsers import NO_PROMPT, SESSION, cookie_of, login_reply, session_cookie
from gateway.http.requests.guard import ACCOUNT
from gateway.http.services import Services
from gateway.security import audit
from gateway.security.authentication import Login, login_in
from gateway.security.identity.authenticator import Acceptor, Authenticator
from gateway.security.lockout import HASHES_WAITING
from gateway.security.principals import Principal
from sql.errors import FusionError

USER = "fusion.user"  # in the scope of a request, its user
BY_COOKIE = "fusion.by_cookie"  # in the scope of a request, set where the user has logged in with the browser
NEGOTIATED = "fusion.negotiated"  # in the scope of a request with a ticket, the message by which we prove who we are
NEGOTIATE = "Negotiate"
ONE_MESSAGE = (
    "The login takes more than one message; ask for a Kerberos ticket for the gateway's name, with a plain kinit."
)
NOT_BASE64 = "What follows Negotiate in the header Authorization is not base64."
LARGE_BYTES = 64 << 10  # from here on, a refused body is not read to keep the connection
READING = ("GET", "HEAD", "OPTIONS")
STATEMENT_PATHS = ("/v1/queries", "/v1/explain", "/cliservice")  # whose statements are events of their own
BEARER_CHALLENGE = 'Bearer realm="Fusion SQL Gateway", error="invalid_token"'  # RFC 6750, 3
THREADS = 2 * HASHES_WAITING  # more than may wait for a hash, so that refusals are immediate


def install(app: FastAPI) -> None:
    """Give an application the threads for its logins."""
    app.state.login_threads = CapacityLimiter(THREADS)


def login_of(request: Request) -> Login:
    """Return the name and password, or the token, in a request."""
    address = request.client.host if request.client is not None else ""
    return login_in(request.headers.get("authorization", ""), address)


class LoginFirst:
    """ASGI middleware: authenticates the sender of a request by its headers, or refuses it.

    open_paths: addresses that need no login; one with a slash at its end, all below it. OPTIONS needs none either.
    """

    def __init__(self, app: ASGIApp, *, open_paths: Collection[str]) -> None:
        self._app = app
        self._open_paths = frozenset(open_paths)
        self._open_folders = tuple(path for path in open_paths if path.endswith("/"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its user, or refuse it."""
        is_open = scope["type"] != "http" or scope["method"] == "OPTIONS" or self._is_open(scope["path"])
        if not is_open:
            try:
                scope[USER] = await _authenticated(Request(scope))
            except (FusionError, SQLAlchemyError) as error:
                refusal = _refusal(scope, error)
                if _has_large_body(scope):
                    refusal.headers["Connection"] = "close"  # or the server reads all of it, to find the next one
                await refusal(scope, receive, send)
                return
            if scope.get(NEGOTIATED):
                send = _proving(scope, send)
        if audit.is_kept() and not is_open and scope["method"] not in READING and scope["path"] not in STATEMENT_PATHS:
            send = _noting(scope, send)
        await self._app(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        return path in self._open_paths or path.startswith(self._open_folders)


def _refusal(scope: Scope, error: FusionError | SQLAlchemyError) -> Response:
    """Return the reply to a request that is not let in."""
    refusal, request = reply(failure_of(error)), Request(scope)
    if not isinstance(error, AuthenticationFailed):
        return refusal
    gateway = _services(request)
    if login_of(request).token is not None:
        refusal.headers["WWW-Authenticate"] = BEARER_CHALLENGE
        return refusal
    if gateway.browser_login is not None:
        way_to_login = login_reply(request, gateway.settings)
        if way_to_login is not None:
            return way_to_login
        if cookie_of(request, SESSION, gateway.settings) is not None:
            refusal.headers["WWW-Authenticate"] = NO_PROMPT
            return refusal
    if gateway.authenticator.tickets is not None and _negotiated(request) is None:  # one that was refused is not asked
        refusal.headers.append("WWW-Authenticate", NEGOTIATE)
    return refusal


def _noting(scope: Scope, send: Send) -> Send:
    """Return a function that sends a reply and notes the request as an event of security."""

    async def noted(message: Message) -> None:
        if message["type"] == "http.response.start":
            status, what = message["status"], f"{scope['method']} {scope['path']}"
            allowed = status not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
            user: Principal = scope[USER]
            audit.note("request", user.name, user.address, allowed=allowed, what=what, status=status)
        await send(message)

    return noted


def _proving(scope: Scope, send: Send) -> Send:
    """Return a function that sends a reply with the message by which the gateway proves who it is."""

    async def proving(message: Message) -> None:
        if message["type"] == "http.response.start":
            proof = b64encode(scope[NEGOTIATED]).decode()
            MutableHeaders(scope=message).append("WWW-Authenticate", f"{NEGOTIATE} {proof}")
        await send(message)

    return proving


def _negotiated(request: Request) -> str | None:
    """Return the message of Kerberos that a request has, in base64; None: it has none."""
    scheme, _, message = request.headers.get("authorization", "").partition(" ")
    return message.lstrip(" :") if scheme.lower() == NEGOTIATE.lower() else None  # Hive's driver puts a colon first


def _by_ticket(tickets: Acceptor, authenticator: Authenticator, message: str, address: str) -> tuple[Principal, bytes]:
    """Return the user who sent a message of Kerberos, and the reply. Raises as ``_authenticated``."""
    try:
        content = b64decode(message, validate=True)
    except binascii.Error as error:
        raise AuthenticationFailed(NOT_BASE64) from error
    exchange = tickets.begin(address, over_http=True)
    answer = exchange.step(content)
    if not exchange.complete:
        raise AuthenticationFailed(ONE_MESSAGE)
    return authenticator.authenticate(Login(None, None, address, ticket=exchange.ticket())), answer


def _has_large_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    return b"transfer-encoding" in headers or not length.isdigit() or int(length) > LARGE_BYTES


async def _authenticated(request: Request) -> Principal:
    """Authenticate the sender of a request. Raises AuthenticationFailed, IdentityProviderUnavailable."""
    gateway, login = _services(request), login_of(request)
    threads: CapacityLimiter = request.app.state.login_threads
    if ACCOUNT in request.scope:  # in a thread: the metastore may have to say who that is
        of_account = gateway.authenticator.of_account
        return await to_thread.run_sync(of_account, request.scope[ACCOUNT], login.address, limiter=threads)
    tickets, message = gateway.authenticator.tickets, _negotiated(request)
    if tickets is not None and message is not None:
        by_ticket = partial(_by_ticket, tickets, gateway.authenticator, message, login.address)
        user, request.scope[NEGOTIATED] = await to_thread.run_sync(by_ticket, limiter=threads)
        return user
    if gateway.browser_login is not None:
        cookie = session_cookie(request, gateway.settings)
        if cookie is not None:
            user = await to_thread.run_sync(gateway.browser_login.user_of, cookie, login.address, limiter=threads)
            request.scope[BY_COOKIE] = True
            return user
    recognised = gateway.authenticator.recognise(login)
    if recognised is not None:
        return recognised
    return await to_thread.run_sync(gateway.authenticator.authenticate, login, limiter=threads)


def _services(request: Request) -> Services:
    services = request.app.state.gateway
    assert isinstance(services, Services)
    return services


class _UserOfRequest(SecurityBase):
    """The user of a request, as a dependency that the OpenAPI description shows."""

    scheme_name = "login"
    model = HTTPBase(
        scheme="basic", description="Or a bearer token. Where the gateway has users; see docs/security.md."
    )

    async def __call__(self, request: Request) -> Principal:
        """Return the user that ``LoginFirst`` authenticated."""
        user = request.scope[USER]
        assert isinstance(user, Principal)
        return user


user_of = _UserOfRequest()

User = Annotated[Principal, Depends(user_of)]
