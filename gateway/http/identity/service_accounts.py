"""Routes about service accounts, for administrators."""

from __future__ import annotations

import datetime as dt

from fastapi import APIRouter

from gateway.errors import NameInUse
from gateway.http.errors import declared
from gateway.http.models.service_accounts import (
    AccountList,
    AccountReply,
    AccountRequest,
    NewTokenReply,
    RotationRequest,
)
from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute
from gateway.security.policy import Action

router = APIRouter(route_class=BoundedRoute, prefix="/v1/service-accounts", tags=["service accounts"])


@router.get("")
def list_service_accounts(gateway: Served, user: User) -> AccountList:
    """List service accounts, without their tokens."""
    gateway.policy.require(user, Action.ADMINISTER_ACCOUNTS)
    return AccountList(service_accounts=[AccountReply.of(account) for account in gateway.accounts.list()])


@router.post("", status_code=201, responses=declared(409))
def add_service_account(body: AccountRequest, gateway: Served, user: User) -> NewTokenReply:
    """Add a service account; no later reply has its token."""
    gateway.policy.require(user, Action.ADMINISTER_ACCOUNTS)
    if gateway.authenticator.has(body.name):
        raise NameInUse(f"There is a user {body.name} already, who would share tables with the account; rename it.")
    lasts = dt.timedelta(seconds=body.expires_s)
    account, token = gateway.accounts.add(body.name, role=body.role, groups=body.groups, lasts=lasts, by=user)
    return NewTokenReply(account=AccountReply.of(account), token=token)


@router.post("/{name}/rotate", responses=declared(404))
def rotate_service_account(name: str, body: RotationRequest, gateway: Served, user: User) -> NewTokenReply:
    """Replace the token of a service account; no later reply has the new one."""
    gateway.policy.require(user, Action.ADMINISTER_ACCOUNTS)
    lasts, overlap = dt.timedelta(seconds=body.expires_s), dt.timedelta(seconds=body.overlap_s)
    account, token = gateway.accounts.rotate(name, lasts=lasts, overlap=overlap, by=user)
    return NewTokenReply(account=AccountReply.of(account), token=token)


@router.delete("/{name}", responses=declared(404))
def revoke_service_account(name: str, gateway: Served, user: User) -> dict[str, str]:
    """Remove a service account; within a second no gateway takes its tokens, and its sessions end."""
    gateway.policy.require(user, Action.ADMINISTER_ACCOUNTS)
    gateway.accounts.revoke(name, by=user)
    return {"revoked": name}
