"""Rights of one user, as they follow from the rules."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gateway.catalog.snapshot import CatalogSnapshot
from gateway.security.access.control import AccessControl
from gateway.security.access.policy_file import read_access_rules
from gateway.security.access.rules import AccessRules, Privilege
from gateway.security.access.user_access import UserAccess
from gateway.security.policy import Action, Owned, Policy
from gateway.security.principals import Principal, Role
from sql.tables import Column

COLUMNS = tuple(Column(name, "bigint") for name in ("id", "Name", "salary"))
RULES = read_access_rules(b"""
closed = ["hr.*", "secret"]
[roles]
staff = ["ann", "group:all"]
heads = "role:staff"
[[grant]]
on = "hr.people"
to = "role:heads"
columns = ["id", "name"]
[[grant]]
on = "hr.people"
to = "cy"
privileges = ["SELECT", "MODIFY"]
[[grant]]
on = "hr.*"
to = "dora"
privileges = "CREATE"
[[filter]]
on = ["hr.people", "open*"]
where = "id > 1"
except = "cy"
[[filter]]
on = "hr.people"
where = "id < 9"
to = "role:staff"
[[mask]]
on = "open_table"
column = "salary"
value = "0"
[[mask]]
on = "open_table"
column = "salary"
value = "1"
""")


def access(user: str | None, groups: frozenset[str] = frozenset(), rules: AccessRules = RULES) -> UserAccess:
    owners = {"hr.people": "olaf", "hr.view": "olaf", "secret": "root"}
    return UserAccess(user or "x", user, rules.grantees_of(user, groups), rules, owners, frozenset({"root"}))


def test_roles_hold_roles_and_groups() -> None:
    assert {"role:staff", "role:heads", "user:ann", "*"} <= RULES.grantees_of("ann", ())
    assert "role:heads" in RULES.grantees_of("new", {"all"})
    assert RULES.grantees_of(None, ()) == {"*"}, "a name that is not proved has no rights of its own"


def test_columns_filters_and_masks_add_up() -> None:
    part = access("ann").restriction("hr.people", COLUMNS)
    assert part is not None
    assert (part.columns, part.filters) == (("id", "Name"), ("id > 1", "id < 9"))
    assert access("cy").restriction("hr.people", COLUMNS) is None
    masked = access("ann").restriction("open_table", COLUMNS)
    assert masked is not None
    assert masked.masks == {"salary": "0"}, "the first mask counts"
    nobody = access("eve").restriction("hr.people", COLUMNS)
    assert nobody is not None and not nobody.columns


def test_an_owner_sees_what_is_his_and_a_view_lends_what_its_owner_may_give() -> None:
    assert access("olaf").restriction("hr.people", COLUMNS) is None
    assert access("eve").restriction("hr.people", COLUMNS, lender="olaf") is None
    assert access("eve").restriction("hr.people", COLUMNS, lender="root") is None, "an administrator may give all away"
    assert access("eve").restriction("hr.people", COLUMNS, lender="cy") is not None
    assert access("eve").restriction("secret", COLUMNS, lender="olaf") is not None
    assert access(None).restriction("hr.people", COLUMNS, lender=None) is not None


@pytest.mark.parametrize(
    ("user", "relation", "sees"),
    [
        ("ann", "hr.people", True),
        ("ann", "hr.other", False),
        ("ann", "open_table", True),
        ("eve", "secret", False),
        ("eve", ".own_view", True),
        ("olaf", "hr.view", True),
    ],
)
def test_what_is_closed_is_seen_by_whom_a_grant_names(user: str, relation: str, sees: bool) -> None:
    assert access(user).sees(relation) is sees


def test_databases_are_seen_where_something_in_them_may_be() -> None:
    assert not access("eve").sees_database("hr")
    assert access("ann").sees_database("hr")
    assert access("olaf").sees_database("hr")
    assert access("eve").sees_database("open")
    assert access("dora").may_create_in("hr") and not access("ann").may_create_in("hr")


def test_a_pattern_without_a_database_is_of_the_default_one() -> None:
    rules = read_access_rules(b"closed = ['people', 'sales.*']")
    assert rules.closes("people") and rules.closes("default.people")
    assert not rules.closes("hr.people")
    assert rules.closes("sales.x") and not rules.closes("salesx")
    assert read_access_rules(b"closed = '*'").closes("lake.sales.orders")


OWNERS: Mapping[str, str | None] = {"hr.people": "olaf", "hr.nobodys": None, "open": None}


class _Control(AccessControl):
    def rules(self) -> AccessRules:
        return RULES


def principal(name: str, role: Role = Role.WRITER) -> Principal:
    return Principal(name, role, authenticated=True)


@pytest.mark.parametrize(
    ("user", "action", "subject", "allowed"),
    [
        ("cy", Action.CHANGE_ROWS, Owned("table", "hr.people", "olaf"), True),
        ("cy", Action.WRITE_ROWS, Owned("table", "hr.people", "olaf"), False),
        ("cy", Action.DROP, Owned("table", "hr.people", "olaf"), False),
        ("olaf", Action.DROP, Owned("table", "hr.people", "olaf"), True),
        ("ann", Action.WRITE_ROWS, Owned("table", "hr.nobodys"), False),
        ("ann", Action.WRITE_ROWS, Owned("table", "plain"), True),
        ("ann", Action.DROP, Owned("table", "open"), False),
        ("ann", Action.SHARE_PLACE, Owned("table", "hr.people", "olaf"), False),
        ("cy", Action.SHARE_PLACE, Owned("table", "hr.people", "olaf"), False),
        ("ann", Action.DROP, Owned("database", "hr"), False),
        ("ann", Action.DROP, Owned("database", "open"), True),
    ],
)
def test_a_grant_opens_what_belongs_to_another(user: str, action: Action, subject: Owned, allowed: bool) -> None:
    assert Policy(access=_Control()).allows(principal(user), action, subject) is allowed


def test_administrators_have_no_restrictions_and_rights_keep_their_number_until_something_changes() -> None:
    control = _Control()
    catalog = CatalogSnapshot(1, owners=OWNERS)
    assert control.of(principal("root", Role.ADMIN), catalog) is None
    first, again = (control.of(principal("ann"), catalog) for _ in range(2))
    assert first is not None and again is not None
    assert first.key == again.key
    later = control.of(principal("ann"), CatalogSnapshot(2, owners={**OWNERS, "open": "ann"}))
    assert later is not None and later.key != first.key
    assert first.has(Privilege.SELECT, "hr.people") is False
    assert AccessControl().of(principal("ann"), catalog) is None


def test_a_mask_of_a_column_that_is_gone_closes_the_table() -> None:
    rules = read_access_rules(b"[[mask]]\non = ['gone', 'all.*']\ncolumn = 'salery'\nvalue = '0'")
    part = access("ann", rules=rules).restriction("gone", COLUMNS)
    assert part is not None and part.is_invalid
    assert access("ann", rules=rules).restriction("all.t", COLUMNS) is None, "a pattern is about tables that have it"


def test_patterns_of_databases_are_patterns() -> None:
    rules = read_access_rules(b"closed = ['h*.*']")
    assert not access("eve", rules=rules).sees_database("hr")
    assert not access("eve", rules=rules).may_create_in("hr")
    assert access("eve", rules=rules).sees_database("sales")
    assert not access("eve", rules=read_access_rules(b"closed = '*.*'")).may_create_in("sales")
