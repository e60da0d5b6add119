"""Roles of users who are not in the users file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gateway.security.principals import Role


@dataclass(frozen=True, slots=True)
class Roles:
    """Roles by the settings: that of the name, else the highest one of the groups, else the default one."""

    by_name: Mapping[str, Role]
    by_group: Mapping[str, Role]
    default: Role

    def of(self, name: str, groups: Collection[str]) -> Role:
        """Return the role of a user."""
        if name in self.by_name:
            return self.by_name[name]
        of_groups = (self.by_group[group] for group in groups if group in self.by_group)
        return max(of_groups, key=lambda role: role.rank, default=self.default)
