"""Routing rules for routes that do the same as a statement."""

from __future__ import annotations

from fastapi import Request

from gateway.http.services import Services
from gateway.security.principals import Principal
from gateway.statements.command import ClassifiedStatement


def require_permitted(command: ClassifiedStatement, request: Request, gateway: Services, user: Principal) -> None:
    """Raise RuleDenied where a rule denies a command to the sender of a request."""
    statement = gateway.session(user).statement("", headers=gateway.router.rules.headers_of(request.headers))
    gateway.router.require_allowed(statement, command, gateway.catalog.current(), runs=True)
