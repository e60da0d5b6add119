"""Who calls over HTTP: Basic authentication, on every route but those of health."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from fastapi import Depends, Request

from gateway.authentication import Login
from gateway.gateway import Gateway


def login_of(request: Request) -> Login:
    """Return what a request says about its sender; a header that is no Basic authentication says nothing."""
    address = request.client.host if request.client is not None else ""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return Login(None, None, address)
    try:
        name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return Login(None, None, address)
    return Login(name or None, password, address)


def user_of(request: Request) -> str:
    """Return the user of a request. Raises AuthenticationFailed."""
    gateway = request.app.state.gateway
    assert isinstance(gateway, Gateway)
    return gateway.authenticator.authenticate(login_of(request))


User = Annotated[str, Depends(user_of)]
