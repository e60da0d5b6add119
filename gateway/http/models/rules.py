"""Routing rules, the state of their file, and their effect on a statement, as JSON."""

from __future__ import annotations

import datetime as dt

from pydantic import BaseModel, Field

from gateway.http.models.common import ErrorModel, Moment, TextMap, Words
from gateway.http.models.queries import DecisionModel, ExplainRequest
from gateway.presentation.rules import conditions, says
from gateway.routing.rules.rules_file import RulesState
from gateway.security.principals import Role


class RuleModel(BaseModel):
    """One rule. match: its conditions in words; says: its effect in words. hits: statements that it decided about."""

    name: str
    match: list[str]
    says: str
    hits: int


class RulesReply(BaseModel):
    """The active rules, in their order.

    file: null: none. read_at: time of the last valid file; null: none. problems: errors in the file of now, while the
    last valid rules stay active. warnings: valid parts that are probably mistakes.
    """

    file: str | None
    read_at: dt.datetime | None
    rules: list[RuleModel]
    groups: dict[str, list[str]]
    problems: list[str]
    warnings: list[str]

    @classmethod
    def of(cls, state: RulesState) -> RulesReply:
        """Show the rules and the state of their file."""
        rules = [
            RuleModel(name=rule.name, match=list(conditions(rule)), says=says(rule), hits=state.hits[rule.name])
            for rule in state.rules.rule
        ]
        return cls(
            file=str(state.path) if state.path is not None else None,
            read_at=state.read_at,
            rules=rules,
            groups={name: list(members) for name, members in state.rules.groups.items()},
            problems=list(state.problems),
            warnings=list(state.rules.warnings()),
        )


class RulesExplainRequest(ExplainRequest):
    """A statement to apply the rules to; nothing runs."""

    user: str | None = Field(None, max_length=200, description="User who sends it; null: the one of this request.")
    role: Role | None = Field(None, strict=False, description="Role of that user; null: the actual one.")
    tags: Words = Field(default_factory=list, max_length=64, description="Tags, as in fusion.tags or X-Fusion-Tags.")
    headers: TextMap = Field(default_factory=dict, description="Headers of its request.")
    at: Moment | None = Field(None, description="Time at which it is sent; null: now.")


class RulesExplainReply(BaseModel):
    """Effect of the rules on a statement. rule: the one that it matches; null: none. says: its effect in words.

    decision: null: no engine runs it, or it is refused. error: null: it is not refused.
    """

    rule: str | None
    says: str | None
    kinds: list[str]
    tables: list[str]
    decision: DecisionModel | None
    error: ErrorModel | None
