"""START HERE: rights of each user on tables and views, by the access rules that hold now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from gateway.security.access.policy_file import PolicyFile
from gateway.security.access.rules import NO_RULES, AccessRules
from gateway.security.access.user_access import UserAccess
from gateway.security.principals import Principal, Role
from sql.tables import View

ADMINS_KEPT_S = 0.5
"""Time for which the names of administrators are kept."""


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

    path: policy file; None: there are no rules.
    admins: returns the users with the role admin.

    Raises AccessRulesInvalid.
    """

    def __init__(self, path: Path | None = None, admins: Callable[[], Collection[str]] = tuple) -> None:
        self._file = PolicyFile(path) if path is not None else None
        self._admins = admins
        self._lock = threading.Lock()
        self._basis: tuple[AccessRules, Mapping[str, str | None], frozenset[str]] = (NO_RULES, {}, frozenset())
        self._seen: tuple[object, object] = (None, None)  # owners and views of the catalog that the basis is of
        self._generation = 0
        self._admins_until_s = 0.0

    def rules(self) -> AccessRules:
        """Return the rules that hold now."""
        return NO_RULES if self._file is None else self._file.current()

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
