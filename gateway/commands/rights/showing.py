"""Grants and roles, shown: those of statements and those of the policy file.

SHOW ROLES | CURRENT ROLES
SHOW ROLE GRANT grantee                 roles of a user, group or role
SHOW PRINCIPALS role                    users, groups and roles that have a role, for administrators
SHOW GRANT | GRANTS [grantee] [ON [TABLE | VIEW | DATABASE | SCHEMA] name | SERVER | ALL]

Administrators see all of them, owners those on what is theirs, and everybody those that give him something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from gateway.commands.command import ShowCommand
from gateway.commands.grammar.reader import Reader
from gateway.commands.rights.grantees import KINDS, grantee, name_of
from gateway.commands.rights.roles import roles_of
from gateway.commands.services import CommandServices
from gateway.security.access.rules import EVERYBODY, ROLE, AccessRules, Grant, is_on
from gateway.security.principals import Role
from gateway.statistics.tables import texts_of
from metastore.database.grants import ALL_IN, EVERYTHING
from sql.dialects.names import HIVE, IMPALA, SPARK
from sql.tables import DEFAULT_DATABASE, database_of, name_in_database

BY_FILE = "policy file"


class RightsKind(StrEnum):
    """Questions about roles and grants. The value is their first words."""

    ROLES = "ROLES"
    CURRENT_ROLES = "CURRENT ROLES"
    ROLE_GRANT = "ROLE GRANT"
    PRINCIPALS = "PRINCIPALS"
    GRANT = "GRANT"
    GRANTS = "GRANTS"


ROLE_HEADINGS = {SPARK: ("role",), HIVE: ("role",), IMPALA: ("role_name",)}
MEMBER_HEADINGS = ("principal_name", "principal_type", "grant_option", "grantor", "grantor_type", "grant_time")
GRANT_HEADINGS: Mapping[str, Sequence[str]] = {  # Spark's are those of Databricks, which dbt reads
    SPARK: ("Principal", "ActionType", "ObjectType", "ObjectKey", "Columns", "Grantor", "GrantTime"),
    HIVE: (
        *("database", "table", "partition", "column", "principal_name", "principal_type", "privilege"),
        *("grant_option", "grant_time", "grantor"),
    ),
    IMPALA: (
        *("principal_name", "principal_type", "scope", "database", "table", "column", "uri", "storage_type"),
        *("storage_uri", "privilege", "grant_option", "create_time"),
    ),
}


@dataclass(frozen=True, slots=True)
class ShowRights(ShowCommand):
    """Show roles or grants. grantee: whose, None for all. on: pattern of what they are on, None for all."""

    kind: RightsKind
    grantee: str | None = None
    on: str | None = None

    def run(self, services: CommandServices) -> pa.Table:
        """Return what the user may know of them."""
        services.catalog.current()
        rules, dialect = services.catalog.rights.rules(), services.dialect
        user = services.principal
        own = rules.grantees_of(user.owner, user.groups)
        sees_all = user.role is Role.ADMIN
        match self.kind:
            case RightsKind.ROLES | RightsKind.CURRENT_ROLES:
                shows_all = sees_all and self.kind is RightsKind.ROLES
                names = sorted(rules.roles) if shows_all else roles_of(own)
                return texts_of(ROLE_HEADINGS[dialect], [[name] for name in names])
            case RightsKind.ROLE_GRANT:
                roles = roles_of(rules.with_roles({self.grantee or ""}))
                rows = [[role] for role in roles if sees_all or f"{ROLE}{role}" in own]
                return texts_of(ROLE_HEADINGS[dialect], rows)
            case RightsKind.PRINCIPALS:
                members = rules.roles.get(self.grantee or "", frozenset()) if sees_all else frozenset()
                return texts_of(MEMBER_HEADINGS, [[*_typed(one), "false", "", "", ""] for one in sorted(members)])
            case _:
                return texts_of(GRANT_HEADINGS[dialect], list(self._grants(services, rules, own, sees_all=sees_all)))

    def _grants(
        self, services: CommandServices, rules: AccessRules, own: frozenset[str], *, sees_all: bool
    ) -> Iterator[Sequence[str]]:
        catalog, user = services.shown_catalog, services.principal.owner
        owners = {**catalog.owners, **{view.name: view.owner for view in catalog.views.values()}}
        theirs = rules.with_roles({self.grantee}) if self.grantee is not None else None
        for grant in rules.grants:
            if self.on is not None and not is_on(grant.on, self.on) and self.on not in grant.on:
                continue
            for one in sorted(grant.to):
                is_theirs = theirs is None or one in theirs
                owns = user is not None and all(owners.get(name) == user for name in grant.on)
                if is_theirs and (sees_all or owns or one in own):
                    yield from _rows(services.dialect, grant, one)


def _typed(grantee: str) -> tuple[str, str]:
    """Return the name of a grantee, and USER, GROUP or ROLE."""
    for word, prefix in KINDS.items():
        if grantee.startswith(prefix):
            return grantee.removeprefix(prefix), word
    return ("public" if grantee == EVERYBODY else grantee), "ROLE"


def _rows(dialect: str, grant: Grant, grantee: str) -> Iterator[Sequence[str]]:
    """Yield the rows of a grant, in a dialect's layout."""
    name, kind = _typed(grantee)
    time = grant.at.strftime("%Y-%m-%d %H:%M:%S") if grant.at is not None else ""
    by = grant.by or BY_FILE
    for pattern in grant.on:
        database, table = _place(pattern)
        for privilege in sorted(grant.privileges):
            if dialect == SPARK:
                principal = name if kind == "USER" else grantee
                level = "CATALOG" if pattern == EVERYTHING else "TABLE" if table else "DATABASE"
                key = f"{database}.{table}" if table else database
                yield principal, privilege, level, key, ", ".join(sorted(grant.columns)), by, time
                continue
            for column in sorted(grant.columns) or [""]:
                if dialect == HIVE:
                    yield database, table, "", column, name, kind, privilege, "false", time, by
                else:
                    scope = "COLUMN" if column else "TABLE" if table else "DATABASE"
                    scope = "SERVER" if pattern == EVERYTHING else scope
                    yield name, kind, scope, database, table, column, "", "", "", privilege, "false", time


def _place(pattern: str) -> tuple[str, str]:
    """Return the database and the table of a pattern; no table where it stands for all of a database."""
    if pattern == EVERYTHING:
        return EVERYTHING, ""
    if pattern.endswith(ALL_IN):
        return pattern.removesuffix(ALL_IN), ""
    return (database_of(pattern), name_in_database(pattern)) if "." in pattern else (DEFAULT_DATABASE, pattern)


def parse(reader: Reader) -> ShowRights | None:
    """Read a statement that shows roles or grants."""
    reader.expect("SHOW")
    kind = next((kind for kind in RightsKind if reader.accept(*kind.split())), None)
    match kind:
        case None:
            return None
        case RightsKind.ROLES | RightsKind.CURRENT_ROLES:
            return ShowRights(kind)
        case RightsKind.ROLE_GRANT:
            return ShowRights(kind, grantee(reader))
        case RightsKind.PRINCIPALS:
            reader.accept("ROLE")
            return ShowRights(kind, name_of(reader))
        case _:
            whose = grantee(reader) if reader.more() and reader.next_word != "ON" else None
            return ShowRights(kind, whose, _subject(reader) if reader.accept("ON") else None)


def _subject(reader: Reader) -> str | None:
    """Read what grants are on; None for all of them."""
    if reader.accept("ALL"):
        return None
    if reader.accept("SERVER"):
        return EVERYTHING
    if reader.accept_one("DATABASE", "SCHEMA"):
        return reader.database() + ALL_IN
    reader.accept_one("TABLE", "VIEW")
    return reader.relation(in_part=True)
