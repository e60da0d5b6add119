"""Routes that show routing rules, reload their file, and apply them to a statement without running it."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter

from engines.compiled import CompiledStatement
from gateway.failures import failure_of
from gateway.http.models.common import ErrorModel
from gateway.http.models.queries import DecisionModel
from gateway.http.models.rules import RulesExplainReply, RulesExplainRequest, RulesReply
from gateway.http.queries import Served
from gateway.http.requests.login import User
from gateway.http.requests.routes import BoundedRoute
from gateway.http.services import Services
from gateway.presentation.rules import says
from gateway.security.policy import Action
from gateway.security.principals import Principal, Role
from gateway.statements.command import ClassifiedStatement, kinds_of, tables_of
from gateway.statements.settings import TAGS_HEADER
from gateway.statements.statement import Presumed, Statement
from selector.decision import Decision, NoEngine
from sql.errors import FusionError, RuleDenied

router = APIRouter(route_class=BoundedRoute, prefix="/v1/rules", tags=["routing"])


@router.get("")
def show_rules(gateway: Served, user: User) -> RulesReply:
    """Show the active rules, how often each decided, and the problems of their file."""
    gateway.policy.require(user, Action.ADMINISTER_RULES)
    return RulesReply.of(gateway.router.rules.state())


@router.post("/reload")
def reload_rules(gateway: Served, user: User) -> RulesReply:
    """Read the file of rules now. If it is wrong, the last valid rules stay active, and the reply says why."""
    gateway.policy.require(user, Action.ADMINISTER_RULES)
    return RulesReply.of(gateway.router.rules.reload())


@router.post("/explain")
def explain_rules(body: RulesExplainRequest, gateway: Served, user: User) -> RulesExplainReply:
    """Return the rule that a statement matches and the engine that it would go to; nothing runs."""
    if body.user is not None or body.role is not None:
        gateway.policy.require(user, Action.ADMINISTER_RULES)
    snapshot = gateway.catalog.shown_to(user)
    named = {*snapshot.tables, *snapshot.views}
    statement = _statement(body, gateway, user)
    gateway.engines.require(statement.pinned)
    classified = gateway.coordinator.classify(statement)
    rules = {rule.name: rule for rule in gateway.router.rules.current().rule}
    decision, error, name = None, None, None
    try:
        decision, name = _routed(gateway, statement, classified)
    except RuleDenied as denied:
        error, name = denied.failure, denied.rule
    except (FusionError, NoEngine) as failed:
        error = failure_of(failed)
        name = failed.matched if isinstance(failed, NoEngine) else None
    return RulesExplainReply(
        rule=name,
        says=says(rules[name]) if name in rules else None,
        kinds=sorted(kinds_of(classified)),
        tables=[name for name in tables_of(classified, named) if name in named],
        decision=DecisionModel.of(decision) if decision is not None else None,
        error=ErrorModel.of(error) if error is not None else None,
    )


def _statement(body: RulesExplainRequest, gateway: Services, user: Principal) -> Statement:
    """Return a statement that is read with the sender's rights; rules see the user of the request's body."""
    headers = {name.lower(): value for name, value in body.headers.items()}
    headers[TAGS_HEADER] = ",".join([*body.tags, *filter(None, [headers.get(TAGS_HEADER)])])
    statement = gateway.session(user, body.database).statement(
        body.sql,
        overlay=body.settings,
        dialect=body.dialect,
        engine=body.engine,
        headers=gateway.router.rules.headers_of(headers),
    )
    presumed = user
    if body.user is not None:
        presumed = Principal(body.user, _role(gateway, body.user), authenticated=True)
    if body.role is not None:
        presumed = replace(presumed, role=body.role)
    return replace(statement, session=None, presumed=Presumed(presumed, body.at))


def _role(gateway: Services, name: str) -> Role:
    """Return the role of a user in the users file; of anybody else, the least."""
    held = [role for role in Role if name in gateway.authenticator.holders(role)]
    return max(held, key=lambda role: role.rank, default=Role.READER)


def _routed(
    gateway: Services, statement: Statement, classified: ClassifiedStatement
) -> tuple[Decision | None, str | None]:
    """Return the decision about a statement, and the rule that it matches. Raises RuleDenied, NoEngine."""
    snapshot = gateway.catalog.current()
    if isinstance(classified, CompiledStatement):
        decision = gateway.coordinator.explain(statement)[1]
        return decision, decision.matched
    if classified.writes_rows:
        decision = gateway.router.route_write(statement, classified, snapshot)
        return decision, decision.matched
    rule = gateway.router.matched(statement, classified, snapshot)
    return None, rule.name if rule is not None else None
