"""Routing rules, how it stands with their file, and what they would do, as JSON."""

from __future__ import annotations

import datetime as dt

from pydantic import BaseModel, Field

from gateway.http.models.common import ErrorModel, Moment, PositionModel
from gateway.http.models.queries import DecisionModel, ExplainRequest
from gateway.presentation.rules import conditions, says
from gateway.routing.rules.rules_file import RulesState
from gateway.security.principals import Role


class RuleModel(BaseModel):
    """One rule. match: its conditions. says: what it says; both in words. hits: statements that it decided about."""

    name: str
    match: list[str]
    says: str
    hits: int


class RulesProblemModel(BaseModel):
    """One thing that is wrong with the file; the position is null where it is no one place."""

    message: str
    position: PositionModel | None


class RulesReply(BaseModel):
    """The rules that hold, in their order.

    file: null where there is none. read_at: when they were, null where there was nothing to read. problems: of the file
    as it is now, while those of before hold on. warnings: of what is allowed and hardly meant.
    """

    file: str | None
    read_at: dt.datetime | None
    rules: list[RuleModel]
    groups: dict[str, list[str]]
    problems: list[RulesProblemModel]
    warnings: list[str]

    @classmethod
    def of(cls, state: RulesState) -> RulesReply:
        """Show how it stands."""
        rules = [
            RuleModel(name=each.name, match=list(conditions(each)), says=says(each), hits=state.hits[each.name])
            for each in state.rules.rule
        ]
        problems = [
            RulesProblemModel(
                message=each.message,
                position=PositionModel.showing(each.position) if each.position is not None else None,
            )
            for each in state.problems
        ]
        return cls(
            file=str(state.path) if state.path is not None else None,
            read_at=state.read_at,
            rules=rules,
            groups={name: list(members) for name, members in state.rules.groups.items()},
            problems=problems,
            warnings=list(state.rules.warnings()),
        )


class RulesExplainRequest(ExplainRequest):
    """A statement of which to tell what rules do with it; nothing runs."""

    user: str | None = Field(None, max_length=200, description="Who sends it; null for who asks.")
    role: Role | None = Field(None, strict=False, description="Role of that user; null for the one it has.")
    tags: list[str] = Field(default_factory=list, max_length=64, description="As fusion.tags or X-Fusion-Tags say.")
    headers: dict[str, str] = Field(default_factory=dict, max_length=64, description="Headers that come with it.")
    at: Moment | None = Field(None, description="When it is sent; null for now.")


class RulesExplainReply(BaseModel):
    """What rules do with a statement. rule: that it meets, null for none. says: what that says, in words.

    decision: null of what no engine runs, and of what is refused. error: what it is refused with, null if it is not.
    """

    rule: str | None
    says: str | None
    kinds: list[str]
    tables: list[str]
    decision: DecisionModel | None
    error: ErrorModel | None
