"""Routes that show routing rules, have their file read, and tell what they would do with a statement."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter

from engines.errors import EngineError
from gateway.commands.answers import writes_rows
from gateway.errors import GatewayError, NoEngineAvailable, RuleDenied, failure_of
from gateway.http.login import User
from gateway.http.models.common import ErrorModel
from gateway.http.models.queries import DecisionModel
from gateway.http.models.rules import RulesExplainReply, RulesExplainRequest, RulesReply
from gateway.http.queries import Served
from gateway.http.services import Services
from gateway.presentation.rules import says
from gateway.routing.rules.kinds import Understood, kinds_of, tables_of
from gateway.security.policy import Action
from gateway.security.principals import Principal, Role
from gateway.sql.compiled import CompiledStatement
from gateway.statements.session import Session
from gateway.statements.settings import TAGS_HEADER
from gateway.statements.statement import Presumed, Statement
from selector.decision import Decision, NoEngine

router = APIRouter(prefix="/v1/rules", tags=["routing"])


@router.get("")
def show_rules(gateway: Served, user: User) -> RulesReply:
    """Show the rules that hold, how often each decided, and what is wrong with their file as it is now."""
    gateway.policy.require(user, Action.ADMINISTER_RULES)
    return RulesReply.of(gateway.router.rules.state())


@router.post("/reload")
def reload_rules(gateway: Served, user: User) -> RulesReply:
    """Read the file of rules now. Where it is wrong, those of before hold on, and the reply says where."""
    gateway.policy.require(user, Action.ADMINISTER_RULES)
    return RulesReply.of(gateway.router.rules.reload())


@router.post("/explain")
def explain_rules(body: RulesExplainRequest, gateway: Served, user: User) -> RulesExplainReply:
    """Tell which rule a statement meets and where it would go, as it would be run; nothing runs."""
    if body.user is not None or body.role is not None:
        gateway.policy.require(user, Action.ADMINISTER_RULES)
    statement = _statement(body, gateway, user)
    gateway.engines.require(statement.pinned)
    understood = gateway.coordinator.understand(statement)
    snapshot = gateway.catalog.current()
    met = {rule.name: rule for rule in gateway.router.rules.current().rule}
    decision, error, name = None, None, None
    try:
        decision, name = _routed(gateway, statement, understood)
    except RuleDenied as denied:
        error, name = denied.failure, denied.rule
    except NoEngine as none:
        error = NoEngineAvailable(f"No engine can take it: {none}").failure
        name = none.matched
    except (GatewayError, EngineError) as failed:
        error = failure_of(failed)
    return RulesExplainReply(
        rule=name,
        says=says(met[name]) if name in met else None,
        kinds=sorted(kinds_of(understood)),
        tables=list(tables_of(understood, (*snapshot.tables, *snapshot.views))),
        decision=DecisionModel.of(decision) if decision is not None else None,
        error=ErrorModel.of(error) if error is not None else None,
    )


def _statement(body: RulesExplainRequest, gateway: Services, user: Principal) -> Statement:
    """Return a statement that is read with the rights of who asks, and judged by rules as of whom it is said to be."""
    limits = gateway.coordinator.parser_limits
    session = Session(user, deadline_s=gateway.settings.limits.deadline_s, limits=limits)
    session.use(gateway.catalog.current().require_database(body.database))
    told = {name.lower(): value for name, value in body.headers.items()}
    told[TAGS_HEADER] = ",".join([*body.tags, *filter(None, [told.get(TAGS_HEADER)])])
    asked = session.statement(
        body.sql,
        overlay=body.settings,
        dialect=body.dialect,
        engine=body.engine,
        headers=gateway.router.rules.headers_of(told),
    )
    who = user
    if body.user is not None:
        who = Principal(body.user, _role(gateway, body.user), authenticated=True)
    if body.role is not None:
        who = replace(who, role=body.role)
    return replace(asked, session=None, presumed=Presumed(who, body.at))


def _role(gateway: Services, name: str) -> Role:
    """Return the role that a user has; of somebody whom the users file does not know, the least."""
    held = [role for role in Role if name in gateway.authenticator.holders(role)]
    return max(held, key=lambda role: role.rank, default=Role.READER)


def _routed(gateway: Services, statement: Statement, understood: Understood) -> tuple[Decision | None, str | None]:
    """Return where a statement goes, as when it is run, and the rule that it meets. Raises RuleDenied, NoEngine."""
    snapshot = gateway.catalog.current()
    if isinstance(understood, CompiledStatement):
        decision = gateway.coordinator.explain(statement)[1]
        return decision, decision.matched
    if writes_rows(understood):
        decision = gateway.router.route_write(statement, understood, snapshot)
        return decision, decision.matched
    met = gateway.router.matched(statement, understood, snapshot)
    return None, met.name if met is not None else None
