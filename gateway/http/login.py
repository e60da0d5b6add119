"""Who calls over HTTP: Basic authentication, on every route but those of health."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from gateway.authentication import Login, basic_login
from gateway.gateway import Gateway


def login_of(request: Request) -> Login:
    """Return what a request says about its sender."""
    address = request.client.host if request.client is not None else ""
    return basic_login(request.headers.get("authorization", ""), address)


def user_of(request: Request) -> str:
    """Return the user of a request. Raises AuthenticationFailed."""
    gateway = request.app.state.gateway
    assert isinstance(gateway, Gateway)
    return gateway.authenticator.authenticate(login_of(request))


User = Annotated[str, Depends(user_of)]
