"""Access rules as values: grants, row filters and column masks, to users, groups and roles.

Names of relations are patterns, where ``*`` is any text: ``sales.orders``, ``sales.*``, ``*``. A relation of the
database ``default`` is matched by its bare name and by ``default.name``.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from sql.tables import DEFAULT_DATABASE

EVERYBODY = "*"
"""Grantee: everybody, also clients without a login."""
USER, GROUP, ROLE = "user:", "group:", "role:"
"""Beginnings of grantees."""
USERS_KEPT = 1_024
"""Sets of grantees whose grants are kept ready."""


class Privilege(StrEnum):
    """Rights on a table, a view, or all of a database."""

    SELECT = "SELECT"
    """Rows are read."""
    INSERT = "INSERT"
    """Rows are added."""
    MODIFY = "MODIFY"
    """Rows are changed, overwritten or deleted."""
    CREATE = "CREATE"
    """Tables and views are made in a database."""


ALL_PRIVILEGES = frozenset(Privilege)


@dataclass(frozen=True, slots=True)
class Grant:
    """Privileges on relations."""

    on: tuple[str, ...]
    """Patterns of relations."""
    to: frozenset[str]
    """Grantees, such as ``user:ann``, ``group:finance``, ``role:analyst`` or ``*``."""
    privileges: frozenset[Privilege]
    columns: frozenset[str] = frozenset()
    """Columns, in lower case, that SELECT is limited to; none: all of them."""
    by: str = ""
    """User who gave it by a statement; "": it is in the policy file."""
    at: dt.datetime | None = None
    """Time at which a statement gave it."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Rows that users see of relations."""

    on: tuple[str, ...]
    """Patterns of relations."""
    where: str
    """Condition in Spark's SQL."""
    to: frozenset[str] = frozenset({EVERYBODY})
    """Grantees whom it restricts."""
    but: frozenset[str] = frozenset()
    """Grantees whom it does not restrict."""


@dataclass(frozen=True, slots=True)
class ColumnMask:
    """Value that users see in the place of a column's."""

    on: tuple[str, ...]
    """Patterns of relations."""
    column: str
    """Name of the column, in lower case."""
    value: str
    """Expression in Spark's SQL."""
    to: frozenset[str] = frozenset({EVERYBODY})
    """Grantees whom it restricts."""
    but: frozenset[str] = frozenset()
    """Grantees whom it does not restrict."""


class OwnGrants:
    """Grants of one user, by the relations that they are on."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self.all = tuple(grants)
        self._with_patterns = tuple(grant for grant in self.all if any("*" in pattern for pattern in grant.on))
        self._by_name: dict[str, list[Grant]] = {}
        for grant in self.all:
            for pattern in grant.on:
                if "*" not in pattern:
                    self._by_name.setdefault(_full(pattern), []).append(grant)

    def on(self, relation: str) -> Iterator[Grant]:
        """Yield the grants on a relation; one that names it twice may come twice."""
        yield from self._by_name.get(_full(relation), ())
        yield from (grant for grant in self._with_patterns if is_on(grant.on, relation))


class _Cache(dict[frozenset[str], OwnGrants]):
    """Grants by grantees; copies in other processes begin empty."""

    def __reduce__(self) -> tuple[type[_Cache], tuple[()]]:
        return _Cache, ()


@dataclass(frozen=True, slots=True)
class AccessRules:
    """All access rules of one version."""

    version: str = ""
    """Digest of the rules; "": there are none."""
    closed: tuple[str, ...] = ()
    """Patterns of relations that only grants open; ``*``: nothing may be read without one."""
    roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Members of each role: users, groups and other roles."""
    grants: tuple[Grant, ...] = ()
    filters: tuple[RowFilter, ...] = ()
    masks: tuple[ColumnMask, ...] = ()
    _grants_of: _Cache = field(default_factory=_Cache, init=False, repr=False, compare=False)

    def grants_of(self, grantees: frozenset[str]) -> OwnGrants:
        """Return the grants that are for one of these grantees."""
        own = self._grants_of.get(grantees)
        if own is None:
            own = OwnGrants(grant for grant in self.grants if not grantees.isdisjoint(grant.to))
            if len(self._grants_of) >= USERS_KEPT:
                self._grants_of.clear()
            self._grants_of[grantees] = own
        return own

    def grantees_of(self, user: str | None, groups: Iterable[str]) -> frozenset[str]:
        """Return all names under which a user has rights. user: None where he has not proved his name."""
        own = {EVERYBODY, *(f"{GROUP}{group}" for group in groups)}
        return self.with_roles(own if user is None else {*own, f"{USER}{user}"})

    def with_roles(self, grantees: Iterable[str]) -> frozenset[str]:
        """Return grantees with the roles that they have, also by other roles."""
        own = set(grantees)
        while True:
            more = {f"{ROLE}{role}" for role, members in self.roles.items() if not members.isdisjoint(own)}
            if more <= own:
                return frozenset(own)
            own |= more

    def closes(self, relation: str) -> bool:
        """Tell whether only grants open a relation."""
        return is_on(self.closed, relation)


NO_RULES = AccessRules()


def is_on(patterns: Iterable[str], relation: str) -> bool:
    """Tell whether a pattern matches the full name of a relation."""
    return any(_matches(pattern, relation) for pattern in patterns)


def is_named(patterns: Iterable[str], relation: str) -> bool:
    """Tell whether a pattern is the name of a relation, and of no other one."""
    return any("*" not in pattern and _matches(pattern, relation) for pattern in patterns)


def touches_database(patterns: Iterable[str], database: str) -> bool:
    """Tell whether a pattern may match a relation of a database."""
    return any(_matches(_database_pattern(pattern), f"{database}.x") for pattern in patterns)


def covers_database(patterns: Iterable[str], database: str) -> bool:
    """Tell whether a pattern matches all relations of a database, those to come included."""
    wholes = (pattern.removesuffix(".*") for pattern in patterns if pattern == "*" or pattern.endswith(".*"))
    return any(whole == "*" or _compiled(whole).match(database) is not None for whole in wholes)


def _database_pattern(pattern: str) -> str:
    database, dot, _ = pattern.rpartition(".")
    return f"{database}.*" if dot else (pattern if pattern == "*" else f"{DEFAULT_DATABASE}.*")


def _full(relation: str) -> str:
    return relation if "." in relation else f"{DEFAULT_DATABASE}.{relation}"


@lru_cache(4_096)
def _matches(pattern: str, relation: str) -> bool:
    full = _full(relation)
    wanted = pattern if "." in pattern or pattern == "*" else f"{DEFAULT_DATABASE}.{pattern}"
    return _compiled(wanted).match(full) is not None


@lru_cache(1_024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]").replace("?", "[?]")))
