"""The gateways of a metastore: which there are, and one of them taken out of the load balancer and back."""

from __future__ import annotations

import datetime as dt
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from gateway.errors import NotFound
from gateway.http.errors import declared
from gateway.http.forwarding.forwarding import ForwardedReply
from gateway.http.models.common import RecordModel
from gateway.http.queries import Served
from gateway.http.replies import ModelResponse
from gateway.http.requests.guard import PASSED_ON
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute
from gateway.http.services import Services
from gateway.security.policy import Action

router = APIRouter(route_class=BoundedRoute, prefix="/v1/gateways", tags=["routing"])


class GatewayModel(RecordModel):
    """A gateway of this metastore.

    address: at which the others reach it; empty: none does.
    is_leaving: it is about to stop, or drained. answers: it is the one that answers. seen_at: its last sign of life.
    """

    name: str
    address: str
    is_leaving: bool
    answers: bool
    open_queries: int
    seen_at: dt.datetime


class GatewayList(BaseModel):
    """All gateways of this metastore, by name."""

    gateways: list[GatewayModel]


@router.get("")
def list_gateways(gateway: Served, user: User) -> GatewayList:
    """List the gateways that share this metastore."""
    current = gateway.metastore.membership.current
    return GatewayList(
        gateways=[
            GatewayModel(
                name=state.member.name,
                address=state.member.address,
                is_leaving=gateway.leaving.is_set() if state.member.id == current else state.is_leaving,
                answers=state.member.id == current,
                open_queries=state.open_queries,
                seen_at=state.seen_at,
            )
            for state in gateway.metastore.membership.states()
        ]
    )


@router.post("/{name}/drain", response_model=GatewayList, responses=declared(404))
async def drain_gateway(name: str, request: Request, gateway: Served, user: User) -> Response:
    """Have load balancers go elsewhere: its /readyz is 503. What comes nevertheless is answered."""
    return await _told(name, request, gateway, user, is_leaving=True)


@router.post("/{name}/resume", response_model=GatewayList, responses=declared(404))
async def resume_gateway(name: str, request: Request, gateway: Served, user: User) -> Response:
    """Have load balancers use a gateway again."""
    return await _told(name, request, gateway, user, is_leaving=False)


async def _told(name: str, request: Request, gateway: Services, user: User, *, is_leaving: bool) -> Response:
    gateway.policy.require(user, Action.DRAIN_ENGINE)
    if gateway.peers is not None and not request.scope.get(PASSED_ON):
        other = await run_in_threadpool(gateway.peers.of_name, name)
        if other is not None:
            return ForwardedReply(other, b"", fallback=partial(_gone, name))
    states = await run_in_threadpool(gateway.metastore.membership.states)
    if name not in {state.member.name for state in states if state.member.id == gateway.metastore.membership.current}:
        raise _unknown(name)
    if is_leaving:
        gateway.leaving.set()
    else:
        gateway.leaving.clear()
    return ModelResponse(await run_in_threadpool(list_gateways, gateway, user))


async def _gone(name: str) -> Response:
    raise _unknown(name)


def _unknown(name: str) -> NotFound:
    return NotFound(f"There is no gateway {name[:80]}; fusion gateways list tells their names.")
