"""Roles that statements make, and who has them.

CREATE ROLE r                        DROP ROLE r
GRANT [ROLE] r, ... TO grantee, ...  REVOKE [ROLE] r, ... FROM grantee, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from gateway.commands.command import DONE, Definition
from gateway.commands.grammar.reader import Reader
from gateway.commands.rights.grantees import grantee, name_of, require_roles, rules_of
from gateway.commands.services import CommandServices
from gateway.security import audit
from gateway.security.access.rules import ROLE
from gateway.security.policy import Action
from metastore.errors import AlreadyExists
from sql.errors import NotAllowed, RoleExists, UnknownGrant, UnknownRole
from sql.names import did_you_mean


@dataclass(frozen=True, slots=True)
class CreateRole(Definition):
    """Make a role."""

    role: str

    actions = (Action.ADMINISTER_ACCESS,)
    impala_words = "Role has been created."

    def run(self, services: CommandServices) -> pa.Table:
        """Make it. Raises RoleExists."""
        exists = self.role in rules_of(services).roles
        try:
            if not exists:
                services.metastore.access.add_role(self.role)
        except AlreadyExists:
            exists = True
        if exists:
            raise RoleExists(f"There is a role {self.role} already.")
        _note(services, f"make the role {self.role}")
        return DONE


@dataclass(frozen=True, slots=True)
class DropRole(Definition):
    """Drop a role with its grants."""

    role: str

    actions = (Action.ADMINISTER_ACCESS,)
    impala_words = "Role has been dropped."

    def run(self, services: CommandServices) -> pa.Table:
        """Drop it. Raises UnknownRole, NotAllowed."""
        roles = rules_of(services).roles
        if not services.metastore.access.remove_role(self.role, f"{ROLE}{self.role}"):
            if self.role in roles:
                raise NotAllowed(f"The role {self.role} is one of the policy file: take it out there.")
            raise UnknownRole(f"There is no role {self.role}{did_you_mean(self.role, roles)}")
        _note(services, f"drop the role {self.role}")
        return DONE


@dataclass(frozen=True, slots=True)
class RoleMembers(Definition):
    """Give roles to users, groups and other roles, or take them away."""

    roles: tuple[str, ...]
    members: tuple[str, ...]
    gives: bool
    """It gives them; else it takes them away."""

    actions = (Action.ADMINISTER_ACCESS,)

    def impala_reply(self) -> str:
        """Return the sentence with which Impala says that it is done."""
        return f"Role has been {'granted' if self.gives else 'revoked'}."

    def run(self, services: CommandServices) -> pa.Table:
        """Change the members. Raises UnknownRole, UnknownGrant."""
        rules, store = rules_of(services), services.metastore.access
        require_roles(rules, tuple(f"{ROLE}{role}" for role in self.roles))
        roles, members = ", ".join(self.roles), ", ".join(self.members)
        if self.gives:
            require_roles(rules, self.members)
            store.add_members(self.roles, self.members)
        elif not store.remove_members(self.roles, self.members):
            in_file = any(not rules.roles[role].isdisjoint(self.members) for role in self.roles)
            where = " The policy file gives it: take it away there." if in_file else ""
            raise UnknownGrant(f"No statement gave the role {roles} to {members}.{where}")
        _note(services, f"give {roles} to {members}" if self.gives else f"take {roles} away from {members}")
        return DONE


def _note(services: CommandServices, what: str) -> None:
    audit.note("grant", services.principal.name, services.principal.address, allowed=True, what=what)


def members(reader: Reader, *, gives: bool) -> RoleMembers:
    """Read the rest of a statement that gives roles, or takes them away."""
    reader.accept("ROLE")
    roles = reader.listed(lambda: name_of(reader))
    reader.expect("TO" if gives else "FROM")
    grantees = reader.listed(lambda: grantee(reader))
    token = reader.peek()
    if reader.accept("WITH", "ADMIN", "OPTION") or reader.accept("WITH", "GRANT", "OPTION"):
        message = "Roles are given by administrators alone; leave the option away."
        raise NotAllowed(message, reader.position(token))
    return RoleMembers(tuple(dict.fromkeys(roles)), tuple(dict.fromkeys(grantees)), gives)


def parse(reader: Reader) -> CreateRole | DropRole | None:
    """Read a statement that makes or drops a role."""
    if reader.accept("CREATE", "ROLE"):
        return CreateRole(name_of(reader))
    if reader.accept("DROP", "ROLE"):
        return DropRole(name_of(reader))
    return None


def roles_of(grantees: frozenset[str]) -> Iterator[str]:
    """Yield the names of the roles among grantees, in their order."""
    return (name.removeprefix(ROLE) for name in sorted(grantees) if name.startswith(ROLE))
