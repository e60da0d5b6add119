"""Routes about answers that were compared with the dependable engine's."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from fastapi import APIRouter, Query

from gateway.errors import NotFound
from gateway.http.errors import declared
from gateway.http.models.common import Moment
from gateway.http.models.parity import ParityCaseModel, ParityReply
from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute
from gateway.http.services import Services
from gateway.presentation.disclosure import visible_case
from gateway.security.policy import Action
from gateway.security.principals import Principal

MONTH = dt.timedelta(days=30)

router = APIRouter(route_class=BoundedRoute, prefix="/v1/parity", tags=["routing"])


@router.get("")
def get_parity(
    gateway: Served,
    user: User,
    since: Annotated[Moment | None, Query(description="Day from which on answers are counted; 30 days ago.")] = None,
) -> ParityReply:
    """Return how many answers were compared with the dependable engine's, and the cases in which they differ."""
    begin = since or dt.datetime.now(dt.UTC) - MONTH
    counts = gateway.metastore.parity.counts(begin)
    shown = [visible_case(case, user, gateway.policy) for case in gateway.metastore.parity.cases()]
    return ParityReply(
        since=begin,
        share=gateway.settings.parity.share,
        compared=counts.compared,
        different=counts.different,
        left_out=dict(counts.left_out),
        seconds=counts.seconds,
        cases=[ParityCaseModel.showing(case) for case in shown],
    )


@router.post("/{query_id}/release", responses=declared(404))
def release_case(query_id: str, gateway: Served, user: User) -> dict[str, str]:
    """Let the template of a case run on its engine again; all its cases are released."""
    release(gateway, user, query_id)
    return {"released": query_id}


def release(gateway: Services, user: Principal, query_id: str) -> None:
    """Release a case. Raises AccessDenied, NotFound."""
    gateway.policy.require(user, Action.RELEASE_CASE)
    if not gateway.metastore.parity.release(query_id, by=user.name, at=dt.datetime.now(dt.UTC)):
        raise NotFound("There is no open case of this query.")
    gateway.router.open_cases.changed()
