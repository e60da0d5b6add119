"""Policy files: what they say, what is wrong with them, and what holds meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.security.access.policy_file import GONE, AccessRulesInvalid, PolicyFile, read_access_rules
from gateway.security.access.rules import ALL_PRIVILEGES, EVERYBODY, Privilege

WHOLE = b"""
closed = ["hr.*"]

[roles]
analyst = ["ann", "group:finance"]
lead = "role:analyst"

[[grant]]
on = "hr.people"
to = ["role:analyst", "bob"]
columns = ["id", "Name"]

[[grant]]
on = "hr.*"
to = "*"
privileges = "all"

[[filter]]
on = ["hr.people"]
where = "dept = 'sales'"
except = "role:lead"

[[mask]]
on = "hr.people"
column = "SSN"
value = "concat('***', right(ssn, 4))"
to = "group:finance"
"""
WRONG = {
    b"closed = 3": "closed",
    b"clsoed = []": "clsoed: there is no such key",
    b"[[grant]]\non = 'a'": "grant.1.to: Field required",
    b"[[grant]]\non = []\nto = 'a'": "the list is empty",
    b"[[grant]]\non = 'a'\nto = 'b'\nprivileges = 'SELCT'": "there is no privilege SELCT",
    b"[[grant]]\non = 'a'\nto = 'b'\nprivileges = 'ALL'\ncolumns = 'c'": "columns limit SELECT alone",
    b"[[grant]]\non = 'a'\nto = 'role:nobody'": "there is no role nobody",
    b"[roles]\na = 'role:b'": "there is no role b",
    b"[[filter]]\non = 'a'\nwhere = 'x ='": "filter.1.where",
    b"[[filter]]\non = 'a'\nwhere = '1) OR (2'": "filter.1.where",
    b"[[filter]]\non = 'a'\nwhere = '1), (2'": "filter.1.where",
    b"[[filter]]\non = 'a'\nwhere = 'x) FROM t --'": "filter.1.where",
    b"[[mask]]\non = 'a'\ncolumn = 'c'\nvalue = 'no_such_function(c)'": "mask.1.value",
    b"[[mask]]\non = 'a'\ncolumn = 'c'\nvalue = 'NULL AS c FROM t'": "mask.1.value",
    b"[[mask]]\non = 'a'\ncolumn = 'c'\nvalue = 'max(c)'": "no aggregate",
    b"[[mask]]\non = 'a'\ncolumn = 'c'\nvalue = 'explode(c)'": "no aggregate",
    b"[[filter]]\non = 'a'\nwhere = 'row_number() OVER (ORDER BY c) = 1'": "no aggregate",
    b"[[filter]]\non = 'a'\nwhere = '" + b"(" * 50_000 + b"1" + b")" * 50_000 + b"'": "",
    b"[[mask": "no TOML",
    b"\xff": "no TOML",
}


def test_a_file_is_read_into_rules() -> None:
    rules = read_access_rules(WHOLE)
    first, second = rules.grants
    assert first.to == {"role:analyst", "user:bob"}
    assert first.privileges == {Privilege.SELECT}
    assert first.columns == {"id", "name"}
    assert second.to == {EVERYBODY}
    assert second.privileges == ALL_PRIVILEGES
    assert rules.filters[0].but == {"role:lead"}
    assert rules.masks[0].column == "ssn"
    assert rules.closes("hr.people") and not rules.closes("people")


@pytest.mark.parametrize(("content", "problem"), WRONG.items(), ids=[str(text)[:40] for text in WRONG])
def test_what_is_wrong_is_said(content: bytes, problem: str) -> None:
    with pytest.raises(AccessRulesInvalid) as caught:
        read_access_rules(content)
    assert problem in str(caught.value)


def test_a_change_holds_from_the_next_look_on(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(WHOLE)
    file = PolicyFile(path)
    before = file.current()
    assert file.current() is before
    path.write_bytes(b"closed = '*'")
    assert file.current().closed == ("*",)
    path.write_bytes(b"closed = 3")
    assert file.current().closed == ("*",), "the last valid rules stay active"
    path.unlink()
    assert file.current() is GONE
    assert file.current().closes("anything")
    path.write_bytes(WHOLE)
    assert file.current().version == before.version


def test_a_gateway_does_not_start_on_a_wrong_file(tmp_path: Path) -> None:
    with pytest.raises(AccessRulesInvalid, match="cannot be read"):
        PolicyFile(tmp_path / "none.toml")
