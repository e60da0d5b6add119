"""Rights of one user on tables and views, as they follow from the rules.

Administrators see everything, and owners what is theirs. A view whose owner may give a table away lends the right to
read it; any other view shows what its reader may see of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.security.access.rules import (
    AccessRules,
    ColumnMask,
    OwnGrants,
    Privilege,
    RowFilter,
    covers_database,
    is_named,
    is_on,
    touches_database,
)
from sql.access.rights import Restriction, is_own_name
from sql.tables import DEFAULT_DATABASE, Column, database_of


@dataclass(frozen=True, slots=True)
class UserAccess:
    """Rights of one user; an ``Access`` of ``sql/access/rights.py``."""

    name: str
    """Name of the user, for messages."""
    user: str | None
    """Name that the user has proved; None: none."""
    grantees: frozenset[str]
    """Names under which the user has rights (``AccessRules.grantees_of``)."""
    rules: AccessRules
    owners: Mapping[str, str | None] = field(default_factory=dict)
    """Owners of tables and views, by full name."""
    admins: frozenset[str] = frozenset()
    """Users with the role admin."""

    generation: int = 0
    """Number of the rules, owners and administrators, of one gateway."""

    @property
    def grants(self) -> OwnGrants:
        """The user's grants."""
        return self.rules.grants_of(self.grantees)

    @property
    def key(self) -> tuple[str, str | None, frozenset[str], int]:
        """Key of all that these rights follow from."""
        return self.name, self.user, self.grantees, self.generation

    def has(self, privilege: Privilege, relation: str) -> bool:
        """Tell whether a grant gives a privilege on all of a relation."""
        return any(privilege in grant.privileges and not grant.columns for grant in self.grants.on(relation))

    def has_in(self, privilege: Privilege, database: str) -> bool:
        """Tell whether a grant gives a privilege on all relations of a database."""
        return any(privilege in grant.privileges and covers_database(grant.on, database) for grant in self.grants.all)

    def owns(self, relation: str) -> bool:
        """Tell whether a relation is the user's."""
        return self.user is not None and self.owners.get(relation) == self.user

    def is_closed(self, relation: str) -> bool:
        """Tell whether only a grant lets the user use a relation."""
        return self.rules.closes(relation) and not self.owns(relation)

    def is_closed_database(self, database: str) -> bool:
        """Tell whether only a grant lets the user make relations in a database."""
        return covers_database(self.rules.closed, database)

    def sees_whole(self, relation: str) -> bool:
        """Tell whether no rule hides anything of a relation from the user, whatever columns it has."""
        filters = any(self._restricts(rule, relation) for rule in self.rules.filters)
        masks = any(self._restricts(rule, relation) for rule in self.rules.masks)
        return not self.is_closed(relation) and not filters and not masks

    def may_create_in(self, database: str) -> bool:
        """Tell whether the user may make tables and views in a database."""
        return not self.is_closed_database(database) or self.has_in(Privilege.CREATE, database)

    def sees(self, relation: str) -> bool:
        """Tell whether the user may know that a table or view exists. relation: full name."""
        if is_own_name(relation) or not self.is_closed(relation):
            return True
        return any(True for _ in self.grants.on(relation))

    def sees_database(self, database: str) -> bool:
        """Tell whether the user may know that a database exists."""
        if database == DEFAULT_DATABASE or not covers_database(self.rules.closed, database):
            return True
        if any(touches_database(grant.on, database) for grant in self.grants.all):
            return True
        own = (name for name, owner in self.owners.items() if owner is not None and owner == self.user)
        return any(database_of(name) == database for name in own)

    def restriction(self, relation: str, columns: Sequence[Column], lender: str | None = None) -> Restriction | None:
        """Return the part of a table or view that the user may see; None: all of it.

        lender: owner of the view whose query names the relation; None: no view does, or nobody owns it.
        """
        is_lent = lender is not None and (lender in self.admins or self.owners.get(relation) == lender)
        if is_own_name(relation) or is_lent or self.owns(relation):
            return None
        readable = self._readable(relation, columns)
        filters = tuple(rule.where for rule in self.rules.filters if self._restricts(rule, relation))
        masks: dict[str, str] = {}
        names = {column.name.lower() for column in columns}
        for mask in self.rules.masks:
            if self._restricts(mask, relation):
                if mask.column not in names and is_named(mask.on, relation):
                    return Restriction((), is_invalid=True)
                for column in columns:
                    if column.name.lower() == mask.column and column.name in readable:
                        masks.setdefault(column.name, mask.value)
        if len(readable) == len(columns) and not filters and not masks:
            return None
        return Restriction(readable, filters, masks)

    def _readable(self, relation: str, columns: Sequence[Column]) -> tuple[str, ...]:
        everything = tuple(column.name for column in columns)
        if not self.rules.closes(relation) or self.has(Privilege.SELECT, relation):
            return everything
        granted = {
            name for grant in self.grants.on(relation) if Privilege.SELECT in grant.privileges for name in grant.columns
        }
        return tuple(name for name in everything if name.lower() in granted)

    def _restricts(self, rule: RowFilter | ColumnMask, relation: str) -> bool:
        return self._is_for(rule.to) and not self._is_for(rule.but) and is_on(rule.on, relation)

    def _is_for(self, grantees: frozenset[str]) -> bool:
        return not self.grantees.isdisjoint(grantees)
