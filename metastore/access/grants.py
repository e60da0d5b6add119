"""Grants and roles that statements gave. Each change is one of the catalog, so that all gateways hear of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from metastore.database.grants import ALL_IN, EVERYTHING
from metastore.database.models import DatabaseRow, GrantRow, RoleMemberRow, RoleRow, TableRow, ViewRow
from metastore.errors import AlreadyExists
from metastore.repositories.catalog import OwnerCheck, advance_version


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """One privilege of one grantee."""

    name: str
    """Full name of a table or view, ``hr.*`` for a database, ``*`` for everything."""
    grantee: str
    """Such as ``user:ann``, ``group:finance``, ``role:analyst`` or ``*``."""
    privilege: str
    column: str = ""
    """Column that it is limited to, in lower case; "": all of them."""
    by: str = ""
    """User who gave it."""
    at: dt.datetime | None = None
    """Time at which it was given; None: not stored yet."""


@dataclass(frozen=True, slots=True)
class StoredAccess:
    """All grants and roles."""

    grants: tuple[StoredGrant, ...] = ()
    roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Members of each role: users, groups and other roles."""


class AccessGrants:
    """Grants and roles."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self) -> StoredAccess:
        """Return all of them."""
        with Session(self._engine) as session:
            rows = session.scalars(
                select(GrantRow).order_by(GrantRow.name, GrantRow.grantee, GrantRow.privilege, GrantRow.column)
            )
            grants = tuple(
                StoredGrant(row.name, row.grantee, row.privilege, row.column, row.granted_by, row.granted_at)
                for row in rows
            )
            roles: dict[str, set[str]] = {role: set() for role in session.scalars(select(RoleRow.name))}
            for row in session.scalars(select(RoleMemberRow)):
                roles.setdefault(row.role, set()).add(row.member)
        return StoredAccess(grants, {role: frozenset(members) for role, members in roles.items()})

    def give(self, grants: Sequence[StoredGrant], *, at: dt.datetime, check: OwnerCheck = lambda _: None) -> bool:
        """Add grants, all on one name; those that are there stay as they are.

        check: is called with the owner of the table or view. Returns False if there is nothing of this name.
        """
        with Session(self._engine) as session, session.begin():
            advance_version(session)  # first: other writers wait
            if not _check_owner(session, grants[0].name, check):
                return False
            for grant in grants:
                row = GrantRow(name=grant.name, grantee=grant.grantee, privilege=grant.privilege, column=grant.column)
                if session.get(GrantRow, (row.name, row.grantee, row.privilege, row.column)) is None:
                    row.granted_by, row.granted_at = grant.by, at
                    session.add(row)
            return True

    def take_back(self, grants: Sequence[StoredGrant], *, check: OwnerCheck = lambda _: None) -> int:
        """Remove grants, all on one name, and return their number; one of all columns removes those of single ones.

        check: is called with the owner of the table or view.
        """
        removed = 0
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            _check_owner(session, grants[0].name, check)
            for grant in grants:
                matching = delete(GrantRow).where(
                    GrantRow.name == grant.name,
                    GrantRow.grantee == grant.grantee,
                    GrantRow.privilege == grant.privilege,
                )
                if grant.column:
                    matching = matching.where(GrantRow.column == grant.column)
                removed += len(session.execute(matching.returning(GrantRow.column)).all())
        return removed

    def add_role(self, name: str) -> None:
        """Make a role. Raises AlreadyExists."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            if session.get(RoleRow, name) is not None:
                raise AlreadyExists(name)
            session.add(RoleRow(name=name))

    def remove_role(self, name: str, grantee: str) -> bool:
        """Remove a role, its members, and its grants. Returns False if there is none. grantee: the role as one."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            row = session.get(RoleRow, name)
            if row is None:
                return False
            session.delete(row)
            session.execute(delete(RoleMemberRow).where(RoleMemberRow.role == name))
            session.execute(delete(RoleMemberRow).where(RoleMemberRow.member == grantee))
            session.execute(delete(GrantRow).where(GrantRow.grantee == grantee))
            return True

    def add_members(self, roles: Collection[str], members: Collection[str]) -> None:
        """Give roles to users, groups and other roles."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            for role in roles:
                for member in members:
                    session.merge(RoleMemberRow(role=role, member=member))

    def remove_members(self, roles: Collection[str], members: Collection[str]) -> int:
        """Take roles away from users, groups and other roles; return the number of memberships that ended."""
        with Session(self._engine) as session, session.begin():
            advance_version(session)
            ended = delete(RoleMemberRow).where(RoleMemberRow.role.in_(roles), RoleMemberRow.member.in_(members))
            return len(session.execute(ended.returning(RoleMemberRow.role)).all())


def _check_owner(session: Session, name: str, check: Callable[[str | None], None]) -> bool:
    """Call a check with the owner of what a grant is on. Returns False if there is nothing of this name."""
    if name == EVERYTHING:
        check(None)
        return True
    if name.endswith(ALL_IN):
        database = session.get(DatabaseRow, name.removesuffix(ALL_IN))
        check(database.owner if database is not None else None)
        return database is not None
    view = session.get(ViewRow, name)
    table = session.execute(select(TableRow.owner).where(TableRow.name == name)).first()
    if view is None and table is None:
        return False
    check(view.owner if view is not None else table.owner if table is not None else None)
    return True
