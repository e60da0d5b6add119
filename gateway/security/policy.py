"""Access control: the one decision below every door.

An action requires a role. An object with an owner takes that owner, or a higher role; an object without one takes the
role alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from gateway.security import audit
from gateway.security.access.rules import Privilege
from gateway.security.principals import Principal, Role
from sql.errors import AccessDenied
from sql.tables import database_of

if TYPE_CHECKING:  # planners import this module, and no files of rules
    from gateway.security.access.control import AccessControl

NAMES_SHOWN = 3
_RELATIONS, _DATABASE = ("table", "view"), "database"  # kinds of objects that grants are about

RoleHolders = Callable[[Role], Sequence[str]]


class Action(Enum):
    """Actions, each with words that complete ``may not ...``, its role, and the role for objects of other owners.

    A fourth value is the privilege that a grant may give instead of ownership.
    """

    QUERY = "run queries", Role.READER
    CREATE = "create tables and views", Role.WRITER
    REGISTER = "register tables", Role.WRITER
    WRITE_ROWS = "write to", Role.WRITER, Role.ADMIN, Privilege.INSERT
    CHANGE_ROWS = "change, overwrite or delete rows of", Role.WRITER, Role.ADMIN, Privilege.MODIFY
    SHARE_PLACE = "register the files of", Role.WRITER
    REPLACE = "replace", Role.WRITER
    DROP = "drop", Role.WRITER
    ALTER = "alter", Role.WRITER
    SET_OWNER = "change the owner of", Role.WRITER
    GRANT = "give or take away rights on", Role.WRITER
    ADMINISTER_ACCESS = "make roles, give them, or give rights on whole databases", Role.ADMIN
    REFRESH = "refresh", Role.WRITER
    COMPUTE_STATISTICS = "compute statistics", Role.WRITER
    CHANGE_STATISTICS = "change the statistics of", Role.WRITER, Role.OPERATOR
    LEARN_KEYS = "register join keys", Role.WRITER
    CANCEL_JOB = "cancel", Role.WRITER, Role.OPERATOR
    CREATE_SCHEDULE = "create schedules", Role.WRITER
    CHANGE_SCHEDULE = "change", Role.WRITER, Role.OPERATOR
    USE_QUERY = "cancel, or fetch the rows of,", Role.READER, Role.OPERATOR
    SEE_STATEMENT = "see the values in", Role.READER, Role.OPERATOR
    FORGET_MISESTIMATE = "forget misestimates", Role.OPERATOR
    RELEASE_CASE = "release cases of differing answers", Role.OPERATOR
    DRAIN_ENGINE = "drain or resume engines and gateways", Role.OPERATOR
    REPLAY = "replay the statements of others", Role.OPERATOR
    ADMINISTER_CATALOGS = "add, test or drop catalogs, or see their addresses", Role.OPERATOR
    ADMINISTER_ACCOUNTS = "add, rotate or revoke service accounts, or see them", Role.ADMIN
    ADMINISTER_RULES = "see or reload routing rules, or try them as somebody else", Role.OPERATOR

    def __init__(
        self, words: str, role: Role, over_others: Role = Role.ADMIN, privilege: Privilege | None = None
    ) -> None:
        self.words = words
        self.role = role
        self.over_others = over_others
        self.privilege = privilege
        """Privilege that a grant may give instead of ownership; None: none."""


@dataclass(frozen=True, slots=True)
class Owned:
    """An object that may have an owner."""

    kind: str
    """Word for messages, such as ``table``."""
    name: str
    owner: str | None = None
    """None: no owner."""


@dataclass(frozen=True, slots=True)
class Need:
    """A right that a statement or call needs: an action, and its object where that can have an owner."""

    action: Action
    subject: Owned | None = None


class Policy:
    """Decides. Thread-safe.

    holders: returns the users with at least a role, for messages.
    access: grants on tables and views; None: there are none.
    """

    def __init__(self, holders: RoleHolders = lambda _: (), access: AccessControl | None = None) -> None:
        self._holders = holders
        self._access = access

    def allows(self, principal: Principal, action: Action, subject: Owned | None = None) -> bool:
        """Tell whether a user may do something."""
        return principal.role.includes(action.role) and (
            subject is None or principal.role.includes(action.over_others) or self._may_use(principal, action, subject)
        )

    def require(self, principal: Principal, action: Action, subject: Owned | None = None) -> None:
        """Raise AccessDenied where a user may not do something."""
        if self.allows(principal, action, subject):
            return
        what = f"{action.words} the {subject.kind} {subject.name}" if subject else action.words
        audit.note("refusal", principal.name, principal.address, allowed=False, what=what, action=action.name)
        if not principal.role.includes(action.role):
            raise AccessDenied(
                f"{principal.name} has the role {principal.role} here, and may not {what}: "
                f"that takes the role {action.role}. Ask {self._whom(Role.ADMIN)}."
            )
        owner = subject.owner if subject else None
        if subject is not None and self._hides(principal, subject):
            raise AccessDenied(f"{principal.name} may not {action.words} what is there. {self._asked()}")
        whose = f", which belongs to {owner}. Ask {owner}, or" if owner is not None else ": there is no grant. Ask"
        raise AccessDenied(f"{principal.name} may not {what}{whose} {self._whom(action.over_others)}.")

    def require_creating(self, principal: Principal, relation: str) -> None:
        """Raise AccessDenied where a user may make no table or view of a name."""
        rights = self._access.without_catalog(principal) if self._access is not None else None
        database = database_of(relation)
        if rights is None or principal.role is Role.ADMIN or rights.may_create_in(database):
            return
        audit.note("refusal", principal.name, principal.address, allowed=False, what=f"create {relation}")
        raise AccessDenied(f"{principal.name} may not make tables or views in the database {database}. {self._asked()}")

    def hides_names(self, principal: Principal) -> bool:
        """Tell whether a user may not see which tables and columns others name in their statements."""
        return self._access is not None and bool(self._access.rules().version) and principal.role is not Role.ADMIN

    def owner_check(self, principal: Principal, action: Action, kind: str, name: str) -> Callable[[str | None], None]:
        """Return a check of an object's owner, for the moment at which it changes. It raises AccessDenied."""
        return lambda owner: self.require(principal, action, Owned(kind, name, owner))

    def require_all(self, principal: Principal, needs: Iterable[Need]) -> None:
        """Raise AccessDenied for the first right that a user does not have."""
        for need in needs:
            self.require(principal, need.action, need.subject)

    def _may_use(self, principal: Principal, action: Action, subject: Owned) -> bool:
        """Tell whether an object is the user's, or nobody's, or a grant lets the user do this to it."""
        if subject.owner is not None and principal.owner == subject.owner:
            return True
        if action is Action.GRANT:  # what is nobody's is not everybody's to give away
            return False
        if self._access is None or subject.kind not in (*_RELATIONS, _DATABASE):
            return subject.owner is None
        rights = self._access.without_catalog(principal)
        if rights is None:
            return subject.owner is None
        if subject.kind == _DATABASE:
            return subject.owner is None and not rights.is_closed_database(subject.name)
        if action.privilege is not None and rights.has(action.privilege, subject.name):
            return True
        return subject.owner is None and rights.sees_whole(subject.name)

    def _hides(self, principal: Principal, subject: Owned) -> bool:
        """Tell whether a user may not know that a table or view exists."""
        rights = self._access.without_catalog(principal) if self._access is not None else None
        return rights is not None and subject.kind in _RELATIONS and not rights.sees(subject.name)

    def _asked(self) -> str:
        return f"Ask {self._whom(Role.ADMIN)}."

    def _whom(self, role: Role) -> str:
        names = sorted(self._holders(role))
        title = "an administrator" if role is Role.ADMIN else f"one with the role {role}"
        if not names:
            return f"{title}, whom authentication.roles or the users file names"
        more = ", ..." if len(names) > NAMES_SHOWN else ""
        return f"{title} ({', '.join(names[:NAMES_SHOWN])}{more})"
