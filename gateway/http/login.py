"""Who calls over HTTP: Basic authentication, on every route but those of health.

Who is known is let in on the event loop. Only a password that was not seen before needs a thread, and those threads are
no statement's: logins in a flood wait for each other alone.
"""

from __future__ import annotations

from typing import Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Request
from fastapi.openapi.models import HTTPBase
from fastapi.security.base import SecurityBase

from gateway.http.services import Services
from gateway.security.authentication import Login, basic_login
from gateway.security.lockout import HASHES_WAITING
from gateway.security.principals import Principal

THREADS = 2 * HASHES_WAITING  # more than ever wait for a hash, so that refusals come at once


def install(app: FastAPI) -> None:
    """Give an application the threads that its logins have."""
    app.state.login_threads = CapacityLimiter(THREADS)


def login_of(request: Request) -> Login:
    """Return what a request says about its sender."""
    address = request.client.host if request.client is not None else ""
    return basic_login(request.headers.get("authorization", ""), address)


class _UserOfRequest(SecurityBase):
    """The user of a request, as a dependency that the interface's description tells of."""

    scheme_name = "login"
    model = HTTPBase(scheme="basic", description="Needed where the gateway has users; see docs/security.md.")

    async def __call__(self, request: Request) -> Principal:
        """Return the user. Raises AuthenticationFailed."""
        gateway, login = request.app.state.gateway, login_of(request)
        assert isinstance(gateway, Services)
        known = gateway.authenticator.recognise(login)
        if known is not None:
            return known
        threads: CapacityLimiter = request.app.state.login_threads
        return await to_thread.run_sync(gateway.authenticator.authenticate, login, limiter=threads)


user_of = _UserOfRequest()

User = Annotated[Principal, Depends(user_of)]
