"""Routes that decide recorded history again. They show statements of others, so they require the role operator."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.errors import InvalidBody
from gateway.http.models.replay import AdviceReply, AdviceRequest, HistoryRequest, ReplayReply, ReplayRequest
from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute
from gateway.http.services import Services
from gateway.routing.history import Explain
from gateway.routing.replaying import Question
from gateway.security.policy import Action
from gateway.security.principals import Principal
from gateway.statements.statement import Statement
from metastore.records import QueryRecord
from selector.decision import Decision

router = APIRouter(route_class=BoundedRoute, prefix="/v1", tags=["routing"])


@router.post("/replay")
def replay_history(body: ReplayRequest, gateway: Served, user: User) -> ReplayReply:
    """Decide recorded statements again under other settings and return the changes; nothing runs."""
    gateway.policy.require(user, Action.REPLAY)
    explain = _explain(gateway, user) if body.statistics == "current" else None
    report = gateway.replaying.replay(_question(body, body.limit), explain=explain, sample=body.sample, seed=body.seed)
    return ReplayReply.of(report, body.prices)


@router.post("/advise")
def advise(body: AdviceRequest, gateway: Served, user: User) -> AdviceReply:
    """Return the memory limit and number of workers of each fast engine that would have cost least on history."""
    gateway.policy.require(user, Action.REPLAY)
    report = gateway.replaying.advise(_question(body, body.limit), memory_bytes=body.memory_bytes)
    return AdviceReply.of(report, body.prices)


def _question(body: HistoryRequest, limit: int) -> Question:
    for engine, price in body.prices.items():
        if not 0.0 <= price < float("inf"):
            raise InvalidBody(f"prices: {engine} cannot cost {price} an hour; give a number from 0 on.")
    return Question(limit, body.since, body.settings, body.policy, body.prices)


def _explain(gateway: Services, user: Principal) -> Explain:
    def explain(record: QueryRecord) -> tuple[Decision, str]:
        statement = Statement(sql=record.sql, dialect=record.dialect, database=record.database, principal=user)
        query, decision = gateway.coordinator.explain(statement, by_rules=False)
        return decision, gateway.catalog.current().statistics_version(query.tables)

    return explain
