"""START HERE: rights of each user on tables and views, by the access rules that hold now.

They are those of the policy file or service and of the settings, with the grants and roles that statements gave.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from gateway.security.access.policy_file import GONE, VERSION_HEX
from gateway.security.access.rules import NO_RULES, AccessRules, Grant, Privilege
from gateway.security.access.user_access import UserAccess
from gateway.security.principals import Principal, Role
from sql.tables import View

if TYPE_CHECKING:  # planners import this module, and no metastore
    from metastore.access.grants import StoredAccess, StoredGrant

ADMINS_KEPT_S = 0.5
"""Time for which the names of administrators are kept."""


class RulesSource(Protocol):
    """A policy file or service."""

    def current(self) -> AccessRules:
        """Return the active rules; ``GONE``: there are none any more."""

    def stop(self) -> None:
        """End what it runs."""


class OwnedRelations(Protocol):
    """Tables and views with their owners."""

    @property
    def owners(self) -> Mapping[str, str | None]:
        """Owners of tables by name."""

    @property
    def views(self) -> Mapping[str, View]:
        """Views by name."""


class AccessControl:
    """Rights of users. Thread-safe.

    policy: policy file or service; None: there is none.
    admins: returns the users with the role admin.
    closed: patterns of relations that only grants open, beside the policy's. Without both there are no rules.
    """

    def __init__(
        self,
        policy: RulesSource | None = None,
        admins: Callable[[], Collection[str]] = tuple,
        closed: Collection[str] = (),
    ) -> None:
        self._policy = policy
        self._settings = AccessRules("settings", tuple(map(str.lower, closed))) if closed else NO_RULES
        self._stored: StoredAccess | None = None
        self._merged: tuple[AccessRules, StoredAccess | None, AccessRules] = (NO_RULES, None, NO_RULES)
        self._admins = admins
        self._lock = threading.Lock()
        self._basis: tuple[AccessRules, Mapping[str, str | None], frozenset[str]] = (NO_RULES, {}, frozenset())
        self._seen: tuple[object, object] = (None, None)  # owners and views of the catalog that the basis is of
        self._generation = 0
        self._admins_until_s = 0.0

    @property
    def is_on(self) -> bool:
        """There are rules."""
        return self._policy is not None or self._settings is not NO_RULES

    def use(self, stored: StoredAccess) -> None:
        """Take the grants and roles that statements gave."""
        if stored != self._stored:
            self._stored = stored

    def stop(self) -> None:
        """End what the policy runs."""
        if self._policy is not None:
            self._policy.stop()

    def rules(self) -> AccessRules:
        """Return the rules that hold now."""
        base = self._settings if self._policy is None else self._policy.current()
        if not self.is_on or base is GONE:
            return base
        stored = self._stored
        of_base, of_stored, rules = self._merged
        if not (base is of_base and stored is of_stored):
            rules = _with_stored(base, stored, self._settings.closed)
            self._merged = (base, stored, rules)
        return rules

    def of(self, principal: Principal, catalog: OwnedRelations) -> UserAccess | None:
        """Return the rights of a user; None: the user may read everything."""
        rules = self.rules()
        if not rules.version or principal.role is Role.ADMIN:
            return None
        (rules, owners, admins), generation = self._basis_of(rules, catalog)
        grantees = rules.grantees_of(principal.owner, principal.groups)
        return UserAccess(principal.name, principal.owner, grantees, rules, owners, admins, generation)

    def without_catalog(self, principal: Principal) -> UserAccess | None:
        """Return the rights that grants give a user, without those of an owner; None: there are no rules."""
        rules = self.rules()
        if not rules.version:
            return None
        grantees = rules.grantees_of(principal.owner, principal.groups)
        return UserAccess(principal.name, principal.owner, grantees, rules)

    def _basis_of(
        self, rules: AccessRules, catalog: OwnedRelations
    ) -> tuple[tuple[AccessRules, Mapping[str, str | None], frozenset[str]], int]:
        """Return what all rights follow from, the same objects until something changes, and a number for it."""
        with self._lock:
            old_rules, owners, admins = self._basis
            if self._seen[0] is not catalog.owners or self._seen[1] is not catalog.views:
                self._seen = (catalog.owners, catalog.views)
                new_owners = {**catalog.owners, **{view.name: view.owner for view in catalog.views.values()}}
                owners = owners if new_owners == owners else new_owners
            if time.monotonic() >= self._admins_until_s:
                new_admins = frozenset(self._admins())
                admins = admins if new_admins == admins else new_admins
                self._admins_until_s = time.monotonic() + ADMINS_KEPT_S
            if not (rules is old_rules and owners is self._basis[1] and admins is self._basis[2]):
                self._basis = (rules, owners, admins)
                self._generation += 1
            return self._basis, self._generation


def _with_stored(base: AccessRules, stored: StoredAccess | None, closed: Collection[str]) -> AccessRules:
    """Return rules with the grants and roles that statements gave, and with patterns of relations to close."""
    closed = tuple(dict.fromkeys((*base.closed, *closed)))
    if stored is None or not (stored.grants or stored.roles):
        return replace(base, closed=closed)
    columns: dict[tuple[str, str], list[StoredGrant]] = {}
    grants = list(base.grants)
    for grant in stored.grants:
        if grant.column:
            columns.setdefault((grant.name, grant.grantee), []).append(grant)
        else:
            to, privileges = frozenset({grant.grantee}), frozenset({Privilege(grant.privilege)})
            grants.append(Grant((grant.name,), to, privileges, by=grant.by, at=grant.at))
    for (name, grantee), some in columns.items():
        names = frozenset(grant.column for grant in some)
        only = frozenset({Privilege.SELECT})
        grants.append(Grant((name,), frozenset({grantee}), only, names, by=some[-1].by, at=some[-1].at))
    roles = {
        role: base.roles.get(role, frozenset()) | stored.roles.get(role, frozenset())
        for role in {**base.roles, **stored.roles}
    }
    content = (base.version, closed, stored.grants, sorted((role, sorted(members)) for role, members in roles.items()))
    version = hashlib.sha256(repr(content).encode()).hexdigest()[:VERSION_HEX]
    return replace(base, version=version, closed=closed, grants=tuple(grants), roles=roles)
