"""Grants and roles in the metastore, and what becomes of them when tables and databases go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metastore.access.grants import StoredAccess, StoredGrant
from metastore.errors import AlreadyExists
from metastore.records import Database
from metastore.store import Metastore
from sql.tables import Column, View
from tests.metastore.examples import MINUTE, NOON, books

READS = StoredGrant("books", "user:ann", "SELECT", by="root", at=NOON)
NAMES = replace(READS, grantee="group:sales", column="title")
CHEAP = View("cheap", "SELECT id FROM books WHERE price < 10", "spark", (Column("id", "bigint"),))


@pytest.fixture
def shop(store: Metastore) -> Metastore:
    store.catalog.put(books(), at=NOON, owner="olaf")
    return store


def test_grants_are_given_once_and_taken_back(shop: Metastore) -> None:
    before = shop.catalog.version()
    assert shop.access.give([NAMES, READS], at=NOON)
    assert shop.access.give([replace(READS, by="eve")], at=NOON + MINUTE)
    assert shop.access.read() == StoredAccess((NAMES, READS))
    assert shop.catalog.version() > before, "all gateways hear of it"
    assert shop.access.take_back([replace(READS, column="title")]) == 0
    assert shop.access.take_back([READS, replace(NAMES, column="")]) == 2, "of all columns: those of single ones, too"
    assert shop.access.read() == StoredAccess()


def test_the_owner_is_checked_when_it_happens(shop: Metastore) -> None:
    owners: list[str | None] = []
    assert shop.access.give([READS], at=NOON, check=owners.append)
    assert not shop.access.give([replace(READS, name="nothing")], at=NOON, check=owners.append)
    assert shop.access.take_back([READS], check=owners.append) == 1
    assert owners == ["olaf", "olaf"]


def test_what_is_made_under_a_name_that_was_dropped_has_no_grants(shop: Metastore) -> None:
    shop.access.give([READS], at=NOON)
    assert shop.catalog.remove("books")
    shop.catalog.put(books(), at=NOON, owner="eve")
    assert shop.access.read().grants == ()

    shop.views.put(CHEAP, at=NOON, replace=False)
    shop.access.give([replace(READS, name="cheap")], at=NOON)
    assert shop.views.remove("cheap")
    assert shop.access.read().grants == ()

    shop.databases.add(Database("hr"))
    shop.access.give([replace(READS, name="hr.*")], at=NOON)
    assert shop.databases.remove("hr")
    assert shop.access.read().grants == ()
    assert not shop.access.give([replace(READS, name="hr.*")], at=NOON)


def test_grants_follow_a_name_and_replace_what_was_left_there(shop: Metastore) -> None:
    shop.access.give([READS], at=NOON)
    shop.catalog.rename("books", "novels")
    assert [grant.name for grant in shop.access.read().grants] == ["novels"]
    shop.views.put(CHEAP, at=NOON, replace=False)
    shop.access.give([replace(READS, name="cheap")], at=NOON)
    shop.views.rename("cheap", "dear")
    assert [grant.name for grant in shop.access.read().grants] == ["dear", "novels"]


def test_a_role_goes_with_all_that_it_gave(shop: Metastore) -> None:
    shop.access.add_role("readers")
    with pytest.raises(AlreadyExists):
        shop.access.add_role("readers")
    shop.access.add_members(["readers", "of_the_file"], ["user:ann", "group:sales"])
    shop.access.add_members(["readers"], ["user:ann"])
    shop.access.add_members(["of_the_file"], ["role:readers"])
    shop.access.give([replace(READS, grantee="role:readers")], at=NOON)
    members = frozenset({"user:ann", "group:sales"})
    assert shop.access.read().roles == {"readers": members, "of_the_file": members | {"role:readers"}}
    assert shop.access.remove_members(["readers"], ["user:ann", "user:bob"]) == 1
    assert shop.access.remove_role("readers", "role:readers")
    assert not shop.access.remove_role("readers", "role:readers")
    assert shop.access.read() == StoredAccess(roles={"of_the_file": members})
