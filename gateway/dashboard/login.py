"""Login of people by an identity provider, and the end of it. These routes exist where a provider is configured."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from gateway.dashboard import pages
from gateway.dashboard.actions import ActionRoute
from gateway.errors import AuthenticationFailed
from gateway.failures import MAPPED, failure_of
from gateway.http.queries import Served
from gateway.http.requests.browsers import (
    LOGIN,
    SESSION,
    STATIC,
    UNDER_WAY,
    base_of,
    cookie_of,
    put_cookie,
)
from gateway.http.requests.login import User
from gateway.security.identity.browser_login import (
    CALLBACK,
    LOGGED_OUT,
    NOT_THIS_LOGIN,
    UNDER_WAY_S,
    BrowserLogin,
    LoginUnderWay,
)

open_router = APIRouter(route_class=ActionRoute, include_in_schema=False)
router = APIRouter(route_class=ActionRoute, include_in_schema=False)
open_router.add_api_route(f"{STATIC}{{name:path}}", pages.static)


@open_router.get(LOGIN)
def begin(request: Request, gateway: Served, next: str = "") -> Response:
    """Send the browser to the provider. next: path of the page to show afterwards."""
    base = base_of(request, gateway.settings)
    address, login = _browser_login(gateway).begin(base, next)
    reply = RedirectResponse(address, status_code=303)
    put_cookie(reply, UNDER_WAY, login.cookie(), base, lasts_s=UNDER_WAY_S)
    return reply


@open_router.get(CALLBACK)
def finish(request: Request, gateway: Served) -> Response:
    """Take the provider's answer, begin a session, and show the page that was asked for."""
    base = base_of(request, gateway.settings)
    address = request.client.host if request.client is not None else ""
    try:
        cookie = cookie_of(request, UNDER_WAY, gateway.settings)
        if cookie is None:
            raise AuthenticationFailed(NOT_THIS_LOGIN)
        login = LoginUnderWay.of(cookie)
        session, user = _browser_login(gateway).finish(login, request.query_params, base, address)
    except MAPPED as error:
        reply: Response = pages.refused(request, failure_of(error))
    else:
        reply = RedirectResponse(base + login.next, status_code=303)
        put_cookie(reply, SESSION, session, base, lasts_s=(user.expires_at or 0.0) - time.time())
    put_cookie(reply, UNDER_WAY, "", base, lasts_s=0)
    return reply


@router.post("/logout")
def log_out(request: Request, gateway: Served, user: User) -> Response:
    """End the session of this browser, and lead to the provider to end the one there.

    The page leads there, not a redirect: a form may be sent to this gateway alone (``PAGE_POLICY``).
    """
    base, browser_login = base_of(request, gateway.settings), _browser_login(gateway)
    cookie = cookie_of(request, SESSION, gateway.settings)
    if cookie is not None:
        browser_login.end(cookie, user)
    reply = _logged_out(request, browser_login.logout_address(base))
    put_cookie(reply, SESSION, "", base, lasts_s=0)
    return reply


@open_router.get(LOGGED_OUT)
def logged_out(request: Request) -> Response:
    """Say that the session has ended."""
    return _logged_out(request, None)


def _logged_out(request: Request, provider: str | None) -> Response:
    return pages.rendered(request, "logged_out.html", provider=provider, live=False)


def _browser_login(gateway: Served) -> BrowserLogin:
    assert gateway.browser_login is not None  # or there were no such routes
    return gateway.browser_login
