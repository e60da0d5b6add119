"""Rights on tables, views and databases, given and taken away. ``showing.py`` shows them.

GRANT  right, ... ON [TABLE | VIEW | DATABASE | SCHEMA] name | SERVER TO   grantee, ...
REVOKE right, ... ON [TABLE | VIEW | DATABASE | SCHEMA] name | SERVER FROM grantee, ...

A right is SELECT [(column, ...)], INSERT, MODIFY, CREATE or ALL [PRIVILEGES].
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from gateway.commands.command import DONE, Definition
from gateway.commands.grammar.reader import Reader
from gateway.commands.rights.grantees import grantee, require_roles, rules_of
from gateway.commands.rights.roles import RoleMembers, members
from gateway.commands.services import CommandServices
from gateway.security import audit
from gateway.security.access.rules import ALL_PRIVILEGES, Privilege, is_on
from gateway.security.policy import Action, Need
from gateway.statements.command import OwnedCatalog, OwnedKind, owned_relation
from metastore.access.grants import StoredGrant
from metastore.database.grants import ALL_IN, EVERYTHING
from sql.access.rights import is_own_name
from sql.errors import NotAllowed, SyntaxInvalid, UnknownGrant, UnknownTable
from sql.tables import Column


@dataclass(frozen=True, slots=True)
class Right:
    """A privilege, on all columns or on some."""

    privilege: Privilege
    columns: tuple[str, ...] = ()
    """Names in lower case; none: all of them."""

    def __str__(self) -> str:
        return f"{self.privilege} ({', '.join(self.columns)})" if self.columns else self.privilege


@dataclass(frozen=True, slots=True)
class ChangeGrants(Definition):
    """Give or take away rights."""

    rights: tuple[Right, ...]
    on: str
    """Full name of a table or view, ``hr.*`` or ``*``."""
    grantees: tuple[str, ...]
    gives: bool
    """It gives them; else it takes them away."""

    @property
    def is_of_relation(self) -> bool:
        """It is about one table or view."""
        return not self.on.endswith(EVERYTHING)

    def impala_reply(self) -> str:
        """Return the sentence with which Impala says that it is done."""
        return f"Privilege(s) have been {'granted' if self.gives else 'revoked'}."

    def required_actions(self, catalog: OwnedCatalog) -> Iterator[Need]:
        """Yield the right to give this one: the owner's on a table or view, else an administrator's."""
        if self.is_of_relation:
            yield Need(Action.GRANT, owned_relation(self.on, catalog))
        else:
            yield Need(Action.ADMINISTER_ACCESS)

    def table_names(self, catalog: Iterable[str]) -> Iterator[str]:
        """Yield the name of the table or view."""
        if self.is_of_relation:
            yield self.on

    def run(self, services: CommandServices) -> pa.Table:
        """Change the grants. Raises NotAllowed, UnknownRole, UnknownTable, UnknownGrant."""
        rules = rules_of(services)
        user, store = services.principal, services.metastore.access
        action = Action.GRANT if self.is_of_relation else Action.ADMINISTER_ACCESS
        check = services.policy.owner_check(user, action, OwnedKind.TABLE, self.on)
        grants = [
            StoredGrant(self.on, one, right.privilege, column, by=user.name)
            for one in self.grantees
            for right in self.rights
            for column in right.columns or ("",)
        ]
        if self.gives:
            require_roles(rules, self.grantees)
            if not store.give(grants, at=dt.datetime.now(dt.UTC), check=check):
                raise UnknownTable(f"{self.on} is gone.")
        elif not store.take_back(grants, check=check):
            raise UnknownGrant(self._missing(services))
        rights, grantees = ", ".join(map(str, self.rights)), ", ".join(self.grantees)
        verb, to = ("give", "to") if self.gives else ("take away", "from")
        audit.note("grant", user.name, user.address, allowed=True, what=f"{verb} {rights} on {self.on} {to} {grantees}")
        return DONE

    def _missing(self, services: CommandServices) -> str:
        """Return a message for rights that no statement gave; it names what else gives them, if anything does."""
        message = f"No statement gave {', '.join(self.grantees)} this right on {self.on}."
        wanted = {right.privilege for right in self.rights}
        for grant in services.catalog.rights.rules().grants:
            if is_on(grant.on, self.on) and grant.privileges & wanted and not grant.to.isdisjoint(self.grantees):
                where = f"The grant on {', '.join(grant.on)}" if grant.by else "The policy file"
                return f"{message} {where} gives it; take it away there."
        return message


def parse(reader: Reader) -> ChangeGrants | RoleMembers | None:
    """Read a statement that gives or takes away rights or roles."""
    gives = reader.accept("GRANT")
    if not gives and not reader.accept("REVOKE"):
        return None
    token = reader.peek()
    if reader.accept("GRANT", "OPTION") or reader.accept("ADMIN", "OPTION"):
        raise NotAllowed(_no_option(), reader.position(token))
    if not _is_about_rights(reader):
        return members(reader, gives=gives)
    listed = reader.listed(lambda: _right(reader))
    reader.expect("ON")
    on, rights = _subject(reader, listed)
    return ChangeGrants(rights, on, _grantees(reader, gives=gives), gives)


def _is_about_rights(reader: Reader) -> bool:
    """Tell whether ON comes before TO or FROM; takes nothing."""
    start, is_about = reader.at, False
    while not is_about and reader.more() and reader.next_word not in ("TO", "FROM"):
        is_about = reader.next_word == "ON"
        reader.skip()
    reader.at = start
    return is_about


def _right(reader: Reader) -> tuple[frozenset[Privilege], int | None]:
    """Read a right; return its privileges, and the index of the first token of its columns, where it has any."""
    token = reader.peek()
    word = reader.next_word
    if reader.accept("ALL"):
        reader.accept("PRIVILEGES")
        return ALL_PRIVILEGES, None
    if word not in set(Privilege):
        message = f"There is no right {token.text}: give {', '.join(Privilege)} or ALL."
        raise SyntaxInvalid(message, reader.position(token))
    reader.skip()
    if word != Privilege.SELECT or not reader.accept_open():
        return frozenset({Privilege(word)}), None
    start = reader.at
    reader.rest_of_list(reader.name)
    return frozenset({Privilege.SELECT}), start


def _subject(reader: Reader, listed: list[tuple[frozenset[Privilege], int | None]]) -> tuple[str, tuple[Right, ...]]:
    """Read what rights are on; return its name, and the rights with their columns as the catalog spells them."""
    token = reader.peek()
    columns: tuple[Column, ...] = ()
    if reader.accept("SERVER"):
        name = EVERYTHING
    elif reader.accept_one("DATABASE", "SCHEMA"):
        name = reader.database() + ALL_IN
    else:
        reader.accept_one("TABLE", "VIEW")
        token = reader.peek()
        name = reader.relation()
        if is_own_name(name):
            raise NotAllowed("A temporary view is its session's alone.", reader.position(token))
        columns = (reader.views.get(name) or reader.catalog[name]).columns
    end, rights = reader.at, list[Right]()
    for privileges, start in listed:
        if start is None:
            rights += map(Right, sorted(privileges))
            continue
        if not columns:
            raise NotAllowed("Columns are of one table or view.", reader.position(token))
        reader.at = start
        names = reader.rest_of_list(lambda: reader.column_of(name, columns))
        rights.append(Right(Privilege.SELECT, tuple(dict.fromkeys(map(str.lower, names)))))
    reader.at = end
    return name, tuple(rights)


def _grantees(reader: Reader, *, gives: bool) -> tuple[str, ...]:
    reader.expect("TO" if gives else "FROM")
    grantees = reader.listed(lambda: grantee(reader))
    token = reader.peek()
    if reader.accept("WITH", "GRANT", "OPTION"):
        raise NotAllowed(_no_option(), reader.position(token))
    return tuple(dict.fromkeys(grantees))


def _no_option() -> str:
    return "Rights are given by owners and administrators alone; leave the option away."
