"""What a user may do: the one decision below every door.

A rule asks for a role. Where what is acted on has an owner, only that owner and a higher role may; what has none is
everybody's who has the role. Rules for tables and columns will be asked here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from gateway.errors import AccessDenied
from gateway.security.principals import Principal, Role

NAMES_SHOWN = 3

RoleHolders = Callable[[Role], Sequence[str]]


class Action(Enum):
    """What can be done; the value completes ``may not ...``."""

    QUERY = "run queries"
    CREATE = "create tables and views"
    REGISTER = "register tables"
    WRITE_ROWS = "write to"
    REPLACE = "replace"
    DROP = "drop"
    ALTER = "alter"
    SET_OWNER = "change the owner of"
    REFRESH = "refresh"
    COMPUTE_STATISTICS = "compute statistics"
    CHANGE_STATISTICS = "change the statistics of"
    LEARN_KEYS = "teach keys"
    CANCEL_JOB = "cancel"
    CREATE_SCHEDULE = "create schedules"
    CHANGE_SCHEDULE = "change"
    USE_QUERY = "cancel, or fetch the rows of,"
    SEE_STATEMENT = "see the values in"
    FORGET_MISESTIMATE = "forget misestimates"
    REPLAY = "replay what others asked"
    ADMINISTER_RULES = "see or reload routing rules, or try them as somebody else"


@dataclass(frozen=True, slots=True)
class Rule:
    """role: that it takes. over_others: the role that may do it to what belongs to somebody else."""

    role: Role
    over_others: Role = Role.ADMIN


RULES: Mapping[Action, Rule] = {
    Action.QUERY: Rule(Role.READER),
    Action.CREATE: Rule(Role.WRITER),
    Action.REGISTER: Rule(Role.WRITER),
    Action.WRITE_ROWS: Rule(Role.WRITER),
    Action.REPLACE: Rule(Role.WRITER),
    Action.DROP: Rule(Role.WRITER),
    Action.ALTER: Rule(Role.WRITER),
    Action.SET_OWNER: Rule(Role.WRITER),
    Action.REFRESH: Rule(Role.WRITER),
    Action.COMPUTE_STATISTICS: Rule(Role.WRITER),
    Action.CHANGE_STATISTICS: Rule(Role.WRITER, Role.OPERATOR),
    Action.LEARN_KEYS: Rule(Role.WRITER),
    Action.CANCEL_JOB: Rule(Role.WRITER, Role.OPERATOR),
    Action.CREATE_SCHEDULE: Rule(Role.WRITER),
    Action.CHANGE_SCHEDULE: Rule(Role.WRITER, Role.OPERATOR),
    Action.USE_QUERY: Rule(Role.READER, Role.OPERATOR),
    Action.SEE_STATEMENT: Rule(Role.READER, Role.OPERATOR),
    Action.FORGET_MISESTIMATE: Rule(Role.OPERATOR),
    Action.REPLAY: Rule(Role.OPERATOR),
    Action.ADMINISTER_RULES: Rule(Role.OPERATOR),
}


@dataclass(frozen=True, slots=True)
class Owned:
    """What is acted on. kind: a word for it; owner: None where it is nobody's."""

    kind: str
    name: str
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """What one statement or call needs: an action, and what it is done to where that can have an owner."""

    action: Action
    subject: Owned | None = None


class Policy:
    """Decides. holders: names of the users who have at least a role, to say whom to ask. Thread-safe."""

    def __init__(self, holders: RoleHolders = lambda _: ()) -> None:
        self._holders = holders

    def allows(self, principal: Principal, action: Action, subject: Owned | None = None) -> bool:
        """Tell whether a user may do something."""
        rule = RULES[action]
        return principal.role.includes(rule.role) and (
            subject is None or _owns(principal, subject) or principal.role.includes(rule.over_others)
        )

    def require(self, principal: Principal, action: Action, subject: Owned | None = None) -> None:
        """Raise AccessDenied where a user may not do something."""
        if self.allows(principal, action, subject):
            return
        rule, what = RULES[action], f" the {subject.kind} {subject.name}" if subject else ""
        if not principal.role.includes(rule.role):
            raise AccessDenied(
                f"{principal.name} has the role {principal.role} here, and may not {action.value}{what}: "
                f"that takes the role {rule.role}. Ask {self._whom(Role.ADMIN)}."
            )
        owner = subject.owner if subject else None
        raise AccessDenied(
            f"{principal.name} may not {action.value}{what}, which belongs to {owner}. "
            f"Ask {owner}, or {self._whom(rule.over_others)}."
        )

    def owner_check(self, principal: Principal, action: Action, kind: str, name: str) -> Callable[[str | None], None]:
        """Return what is told the owner of something at the moment at which it changes. It raises AccessDenied."""
        return lambda owner: self.require(principal, action, Owned(kind, name, owner))

    def require_all(self, principal: Principal, needs: Iterable[Need]) -> None:
        """Raise AccessDenied for the first need that a user has no right to."""
        for need in needs:
            self.require(principal, need.action, need.subject)

    def _whom(self, role: Role) -> str:
        names = sorted(self._holders(role))
        title = "an administrator" if role is Role.ADMIN else f"one with the role {role}"
        if not names:
            return f"{title}, whom authentication.roles or the users file names"
        more = ", ..." if len(names) > NAMES_SHOWN else ""
        return f"{title} ({', '.join(names[:NAMES_SHOWN])}{more})"


def _owns(principal: Principal, subject: Owned) -> bool:
    return subject.owner is None or principal.owner == subject.owner
