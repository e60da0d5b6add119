"""Sessions of browsers that logged in by an identity provider: their cookies, and the way to that login.

The browser sends a cookie by itself, whoever made it send the request. So a request that has no other login, and would
change something, must say that it comes from one of our own pages; the guard has checked what it says (``web.py``).
"""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from gateway.errors import CrossSiteRequest
from gateway.security.web import SAFE_METHODS
from gateway.settings import Settings

PAGES = "/dashboard"
LOGIN = "/login"
STATIC = f"{PAGES}/static/"
OPEN_PATHS = (LOGIN, f"{LOGIN}/callback", f"{LOGIN}/out", STATIC)  # pages before and after a login need their styles
BY_PASSWORD = ("login", "password")  # parameter of a page for which the browser asks for a password
SESSION, UNDER_WAY = "fusion_session", "fusion_login"  # cookies
HOST_ONLY = "__Host-"  # RFC 6265bis: such a cookie is Secure, and of this very host
NO_PROMPT = 'Bearer realm="Fusion SQL Gateway"'  # of which browsers make no prompt


def base_of(request: Request, settings: Settings) -> str:
    """Return the address of the gateway as browsers reach it, without a slash at its end."""
    return settings.server.public_url or str(request.base_url).rstrip("/")


def cookie_of(request: Request, name: str, settings: Settings) -> str | None:
    """Return a cookie; None: there is none."""
    return request.cookies.get(_full(name, base_of(request, settings)))


def put_cookie(reply: Response, name: str, value: str, base: str, *, lasts_s: float) -> None:
    """Add a cookie that scripts do not see, and requests of other sites do not have; lasts_s 0: remove it."""
    is_secure = base.startswith("https:")
    reply.set_cookie(
        _full(name, base),
        value,
        max_age=max(0, int(lasts_s)),
        path="/",
        secure=is_secure,
        httponly=True,
        samesite="lax",
    )


def session_cookie(request: Request, settings: Settings) -> str | None:
    """Return the session's cookie of a request that has no other login; None: there is none.

    Raises CrossSiteRequest.
    """
    cookie = None if "authorization" in request.headers else cookie_of(request, SESSION, settings)
    if cookie and request.method not in SAFE_METHODS and request.headers.get("origin") in (None, "", "null"):
        raise CrossSiteRequest(
            "The request has a browser's cookie and would change something, and does not say which page sends it "
            "(Origin). Send it from a page of the gateway, or with a login of its own."
        )
    return cookie


def login_reply(request: Request, settings: Settings) -> RedirectResponse | None:
    """Return the way to the provider's login for a page without a login; None: the request is no such page."""
    path, query = request.url.path.removeprefix(request.scope.get("root_path", "")), request.query_params
    is_page = path == "/" or path == PAGES or path.startswith(PAGES + "/")
    shows = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if not (is_page and shows) or "authorization" in request.headers or BY_PASSWORD in query.multi_items():
        return None
    page = f"{path}?{query}" if query else path
    return RedirectResponse(f"{base_of(request, settings)}{LOGIN}?{urlencode({'next': page})}", status_code=303)


def _full(name: str, base: str) -> str:
    return HOST_ONLY + name if base.startswith("https:") else name
