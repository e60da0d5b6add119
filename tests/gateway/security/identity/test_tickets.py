"""Users of tickets that were checked: names of principals, trusted realms, groups. No Kerberos library is needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.cli.setup.doctor import examine
from gateway.errors import AuthenticationFailed, IdentityProviderUnavailable
from gateway.security.authentication import Login, Ticket
from gateway.security.identity.service_accounts import ServiceAccountSource
from gateway.security.identity.settings import KerberosSettings, LdapSettings
from gateway.security.identity.tickets import JITTER_S, PrincipalRules, TicketSource
from gateway.server.authentication import authenticator_of
from gateway.server.startup import MissingExtra
from gateway.settings import AuthenticationSettings, load
from metastore.store import Metastore

SERVICE, ENDS_S, KEEP_S = "hive/gateway.example.com@EXAMPLE.COM", 4_000_000_000.0, 60.0


def login(principal: str, ends_s: float = ENDS_S) -> Login:
    return Login(None, None, "192.0.2.7", ticket=Ticket(principal, SERVICE, ends_s))


@pytest.mark.parametrize(
    ("principal", "name"),
    [("ann@EXAMPLE.COM", "ann"), ("Ann@EXAMPLE.COM", "ann"), ("etl/worker1@EXAMPLE.COM", "etl")],
)
def test_a_principal_is_a_user(principal: str, name: str) -> None:
    identity = TicketSource(PrincipalRules(services=["etl"])).authenticate(login(principal))
    assert (identity.name, identity.groups, identity.expires_at) == (name, frozenset(), ENDS_S)


@pytest.mark.parametrize(
    "principal",
    [
        *("ann@ELSEWHERE.ORG", "ann@example.com", "ann", "ann@EXAMPLE.COM@ELSEWHERE.ORG", "@EXAMPLE.COM", ""),
        *("admin/ann@EXAMPLE.COM", "ann/admin@EXAMPLE.COM", "etl/worker/x@EXAMPLE.COM", "/etl@EXAMPLE.COM"),
        *("WELLKNOWN/ANONYMOUS@WELLKNOWN:ANONYMOUS", "ann\\@EXAMPLE.COM", "ann\\/x@EXAMPLE.COM"),
        *(
            "#ann@EXAMPLE.COM",
            "an:n@EXAMPLE.COM",
            "ann @EXAMPLE.COM",
            "an\u202en@EXAMPLE.COM",
            f"{'a' * 200}@EXAMPLE.COM",
        ),
    ],
)
def test_other_principals_are_none(principal: str) -> None:
    with pytest.raises(AuthenticationFailed):
        TicketSource(PrincipalRules(services=["etl"])).authenticate(login(principal))


def test_only_trusted_realms_count_once_they_are_named() -> None:
    source = TicketSource(PrincipalRules(realms=["PEOPLE.EXAMPLE.COM"]))
    assert source.authenticate(login("ann@PEOPLE.EXAMPLE.COM")).name == "ann"
    with pytest.raises(AuthenticationFailed, match=r"realm EXAMPLE\.COM is not"):
        source.authenticate(login("ann@EXAMPLE.COM"))


class Asked:
    """A directory that notes who is looked up."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.now_s = 0.0
        self.answers = True

    def __call__(self, name: str) -> Sequence[str]:
        self.names.append(name)
        if not self.answers:
            raise IdentityProviderUnavailable("The directory does not answer.")
        return ("analysts",)


def test_groups_are_remembered_for_a_while_with_the_ticket() -> None:
    directory = Asked()
    source = TicketSource(PrincipalRules(), directory, keep_s=KEEP_S, timer=lambda: directory.now_s)
    identity = source.authenticate(login("ann@EXAMPLE.COM"))
    assert identity.groups == {"analysts"}
    for ends_s in (ENDS_S, ENDS_S + JITTER_S / 2):  # the same ticket, within the library's whole seconds
        assert source.recognise(login("ann@EXAMPLE.COM", ends_s)) is identity
    assert source.recognise(login("ann@EXAMPLE.COM", ENDS_S + 600.0)) is None
    assert source.recognise(login("joe@EXAMPLE.COM")) is None
    directory.now_s += KEEP_S + 1.0
    directory.answers = False
    assert source.recognise(login("ann@EXAMPLE.COM")) is None
    with pytest.raises(IdentityProviderUnavailable):  # a group that decides might be missing
        source.authenticate(login("ann@EXAMPLE.COM"))
    assert directory.names == ["ann", "ann"]


def test_settings_that_could_not_work_are_refused() -> None:
    for wrong in ({"principal": "hive"}, {"principal": "hive/a/b"}, {"http_principal": "HTTP/a b"}, {"qop": "none"}):
        with pytest.raises(ValidationError):
            KerberosSettings.model_validate(wrong)
    ldap = LdapSettings(servers=("ldaps://ldap",), user_base="o=x", group_base="o=x")
    with pytest.raises(ValidationError, match="bind_dn is missing"):
        AuthenticationSettings.model_validate({"kerberos": {"keytab": "/etc/keytab"}, "ldap": ldap.model_dump()})


def test_a_missing_library_is_told_with_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gateway.security.identity.kerberos", raising=False)
    monkeypatch.setitem(sys.modules, "gssapi", None)
    authentication = AuthenticationSettings(kerberos=KerberosSettings(keytab=tmp_path / "keytab"))
    needed = r"fusion-sql-gateway\[kerberos\].*libkrb5-dev"
    with Metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        with pytest.raises(MissingExtra, match=needed):
            authenticator_of(authentication, metastore.logins, ServiceAccountSource(metastore.service_accounts))
    results = examine(load(tmp_path / "home", authentication=authentication))
    (keytab,) = [result for result in results if result.subject == "Keytab"]
    assert not keytab.good
    assert re.search(needed, keytab.remedy)
