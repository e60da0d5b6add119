"""Grants of the metastore and of a policy file together, beside a model that knows single rights alone."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.catalog.snapshot import CatalogSnapshot
from gateway.security.access.control import AccessControl
from gateway.security.access.policy_file import GONE, PolicyFile
from gateway.security.access.rules import Privilege
from gateway.security.principals import Principal, Role
from metastore.access.grants import StoredAccess, StoredGrant
from metastore.store import Metastore
from sql.tables import Column
from tests.metastore.examples import NOON, books

COLUMNS = tuple(Column(name, "bigint") for name in ("id", "Wage", "day"))
TABLES = ("books", "novels", "poems")
USERS = ("ann", "bob")
GROUPS = {"ann": frozenset({"sales"}), "bob": frozenset[str]()}
ROLES = ("reader", "clerk")
GRANTEES = ("user:ann", "user:bob", "group:sales", "role:reader", "role:clerk", "*")
Single = tuple[str, str, str, str]


@pytest.fixture
def store(tmp_path: Path) -> Metastore:
    opened = Metastore(f"sqlite:///{tmp_path / 'metastore.db'}")
    for name in TABLES:
        opened.catalog.put(replace(books(), source=replace(books().source, name=name)), at=NOON)
    return opened


def members(user: str, roles: set[tuple[str, str]]) -> set[str]:
    own = {f"user:{user}", "*", *(f"group:{group}" for group in GROUPS[user])}
    for _ in ROLES:
        own |= {f"role:{role}" for role, member in roles if member in own}
    return own


@pytest.mark.parametrize("seed", range(25))
def test_what_users_may_read_is_what_was_given_and_not_taken_back(store: Metastore, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secrets
    control = AccessControl(closed=["*"])
    rights, roles = set[Single](), set[tuple[str, str]]()
    access = store.access
    for role in ROLES:
        access.add_role(role)
    for _ in range(40):
        name, grantee = chance.choice([*TABLES, "default.*", "*"]), chance.choice(GRANTEES)
        privilege = chance.choice(["SELECT", "SELECT", "SELECT", "INSERT"])
        column = chance.choice(["", "id", "wage"]) if privilege == "SELECT" and name in TABLES else ""
        one = StoredGrant(name, grantee, privilege, column)
        match chance.choice(["give", "give", "take", "join", "leave", "drop", "rename"]):
            case "give":
                assert access.give([one], at=NOON) is (
                    name in ("default.*", "*") or store.catalog.get(name) is not None
                )
                if name in ("default.*", "*") or store.catalog.get(name) is not None:
                    rights.add((name, grantee, privilege, column))
            case "take":
                gone = {each for each in rights if each[:3] == (name, grantee, privilege) and column in ("", each[3])}
                assert access.take_back([one]) == len(gone)
                rights -= gone
            case "join":
                access.add_members(["reader"], [chance.choice(["user:ann", "role:clerk"])])
                roles = {(role, member) for role, some in access.read().roles.items() for member in some}
            case "leave":
                access.remove_members(["reader"], ["user:ann"])
                roles.discard(("reader", "user:ann"))
            case "drop":
                store.catalog.remove("poems")
                rights = {each for each in rights if each[0] != "poems"}
                store.catalog.put(replace(books(), source=replace(books().source, name="poems")), at=NOON)
            case "rename":
                store.catalog.rename("novels", "other")
                store.catalog.rename("other", "novels")
        control.use(access.read())
        for user in USERS:
            own = control.of(Principal(user, Role.READER, authenticated=True, groups=GROUPS[user]), CatalogSnapshot(1))
            assert own is not None
            theirs = {each for each in rights if each[1] in members(user, roles)}
            for table in TABLES:
                on = {each for each in theirs if each[0] in (table, "default.*", "*")}
                selects = {each[3] for each in on if each[2] == "SELECT"}
                part = own.restriction(table, COLUMNS)
                shown = COLUMNS if part is None else [column for column in COLUMNS if column.name in part.columns]
                expected = COLUMNS if "" in selects else [each for each in COLUMNS if each.name.lower() in selects]
                assert list(shown) == list(expected)
                assert own.sees(table) is bool(on)
                assert own.has(Privilege.INSERT, table) is any(each[2] == "INSERT" for each in on)
    store.close()


def test_a_policy_file_that_is_gone_closes_what_statements_opened(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("closed = '*'")
    control = AccessControl(PolicyFile(policy), closed=["hr.*"])
    control.use(StoredAccess((StoredGrant("books", "*", "SELECT"),)))
    first = control.rules()
    assert first is control.rules() and [grant.on for grant in first.grants] == [("books",)]
    policy.unlink()
    assert control.rules() is GONE


def test_each_change_has_a_version_of_its_own() -> None:
    control = AccessControl(closed=["*"])
    versions = [control.rules().version]
    for stored in (
        StoredAccess((StoredGrant("books", "user:ann", "SELECT"),)),
        StoredAccess((StoredGrant("books", "user:ann", "SELECT", "id"),)),
        StoredAccess(roles={"reader": frozenset({"user:ann"})}),
        StoredAccess(roles={"reader": frozenset()}),
    ):
        control.use(stored)
        versions.append(control.rules().version)
    assert len(set(versions)) == len(versions)
