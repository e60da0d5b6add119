"""Routes that decide recorded history again. They show what others asked, which takes the role of an operator."""

from __future__ import annotations

import datetime as dt

from fastapi import APIRouter

from gateway.errors import InvalidBody
from gateway.http.login import User
from gateway.http.models.replay import AdviceReply, AdviceRequest, HistoryRequest, ReplayReply, ReplayRequest
from gateway.http.queries import Served
from gateway.http.services import Services
from gateway.routing.history import Explain
from gateway.routing.replaying import Question
from gateway.security.policy import Action
from gateway.security.principals import Principal
from gateway.statements.statement import Statement
from metastore.records import QueryRecord
from selector.decision import Decision

router = APIRouter(prefix="/v1", tags=["routing"])


@router.post("/replay")
def replay_history(body: ReplayRequest, gateway: Served, user: User) -> ReplayReply:
    """Decide recorded statements again under other settings and tell what would change; nothing runs."""
    gateway.policy.require(user, Action.REPLAY)
    explain = _explain(gateway, user) if body.statistics == "current" else None
    report = gateway.replaying.replay(_question(body, body.limit), explain=explain, sample=body.sample, seed=body.seed)
    return ReplayReply.of(report, body.prices)


@router.post("/advise")
def advise(body: AdviceRequest, gateway: Served, user: User) -> AdviceReply:
    """Tell which memory limit and how many workers of each fast engine would have cost the least on history."""
    gateway.policy.require(user, Action.REPLAY)
    report = gateway.replaying.advise(_question(body, body.limit), memory_bytes=body.memory_bytes)
    return AdviceReply.of(report, body.prices)


def _question(body: HistoryRequest, limit: int) -> Question:
    for engine, price in body.prices.items():
        if not 0.0 <= price < float("inf"):
            raise InvalidBody(f"prices: {engine} cannot cost {price} an hour.")
    since = body.since
    if since is not None and since.tzinfo is None:
        since = since.replace(tzinfo=dt.UTC)
    return Question(limit, since, body.settings, body.policy, body.prices)


def _explain(gateway: Services, user: Principal) -> Explain:
    def explain(record: QueryRecord) -> tuple[Decision, str]:
        asked = Statement(sql=record.sql, dialect=record.dialect, database=record.database, principal=user)
        query, decision = gateway.coordinator.explain(asked, by_rules=False)
        return decision, gateway.catalog.current().statistics_version(query.tables)

    return explain
