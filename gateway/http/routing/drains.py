"""Routes that drain an engine, and resume it."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute
from gateway.security.policy import Action

router = APIRouter(route_class=BoundedRoute, prefix="/v1/engines", tags=["routing"])


@router.post("/{name}/drain")
def drain_engine(name: str, gateway: Served, user: User) -> dict[str, str]:
    """Keep new statements off an engine; those on it finish."""
    gateway.policy.require(user, Action.DRAIN_ENGINE)
    gateway.drains.drain(name, by=user.name)
    return {"drained": name}


@router.post("/{name}/resume")
def resume_engine(name: str, gateway: Served, user: User) -> dict[str, str]:
    """Let statements use an engine again."""
    gateway.policy.require(user, Action.DRAIN_ENGINE)
    gateway.drains.resume(name)
    return {"resumed": name}
