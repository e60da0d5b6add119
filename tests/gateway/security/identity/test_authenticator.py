"""The users file and another source of identity, composed: names, roles, groups, expiry, and users found again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from gateway.drivers.shared_sessions import SharedSessions
from gateway.errors import AuthenticationFailed, LoginExpired
from gateway.security.authentication import Anonymous, Login, UsersFile, user_line
from gateway.security.identity.authenticator import (
    LONGEST_GROUP,
    MOST_GROUPS,
    CombinedAuthenticator,
    Identity,
    require_groups,
)
from gateway.security.identity.roles import Roles
from gateway.security.identity.service_accounts import ServiceAccountSource
from gateway.security.principals import Principal, Role
from gateway.server.authentication import authenticator_of
from gateway.settings import AuthenticationSettings
from gateway.statements.session import Session
from metastore.members.logins import Logins, RememberedLogin
from metastore.store import Metastore

NOW_S, LASTS_S = 4_000_000_000.0, 600.0
ADDRESS = "192.0.2.7"


class Badges:
    """A source whose tokens are ``NAME GROUP ...``, and that knows those it has seen."""

    name = "badges"

    def __init__(self) -> None:
        self.seen: dict[str, Identity] = {}

    def takes(self, login: Login) -> bool:
        return login.token is not None

    def recognise(self, login: Login) -> Identity | None:
        return self.seen.get(login.token or "")

    def authenticate(self, login: Login) -> Identity:
        name, *groups = (login.token or "").split()
        self.seen[login.token or ""] = identity = Identity(name, frozenset(groups), bytes(32), NOW_S + LASTS_S)
        return identity


class Watched:
    """A clock that a test sets."""

    now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[Metastore]:
    with Metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as opened:
        yield opened


@pytest.fixture
def users(tmp_path: Path) -> Path:
    file = tmp_path / "users"
    file.write_text(user_line("joe", "right", Role.OPERATOR), encoding="utf-8")
    return file


def combined(users: Path, metastore: Metastore, clock: Watched, *required: str) -> CombinedAuthenticator:
    by_name, by_group = {"zoe": Role.READER, "root": Role.ADMIN}, {"build": Role.WRITER, "run": Role.OPERATOR}
    return CombinedAuthenticator(
        UsersFile(users, anonymous=Anonymous.LOOPBACK),
        ServiceAccountSource(metastore.service_accounts),
        [Badges()],
        Roles(by_name, by_group, Role.READER),
        metastore.logins,
        required_groups=required,
        clock=clock,
    )


def badge(token: str, address: str = ADDRESS) -> Login:
    return Login(None, None, address, token=token)


@pytest.fixture
def clock() -> Watched:
    return Watched()


@pytest.fixture
def authenticator(users: Path, metastore: Metastore, clock: Watched) -> CombinedAuthenticator:
    return combined(users, metastore, clock)


@pytest.mark.parametrize(
    ("token", "role"),
    [
        *(("ann", Role.READER), ("ann build", Role.WRITER), ("ann build run other", Role.OPERATOR)),
        *(("zoe run", Role.READER), ("root", Role.ADMIN)),
    ],
)
def test_a_role_is_that_of_the_name_or_of_the_highest_group(
    authenticator: CombinedAuthenticator, token: str, role: Role
) -> None:
    user = authenticator.authenticate(badge(token))

    assert (user.role, user.authenticated, user.owner) == (role, True, token.split()[0])
    assert user.groups == frozenset(token.split()[1:])
    assert authenticator.recognise(badge(token)) == authenticator.current(user) == user


def test_a_name_in_the_users_file_is_nobody_elses(
    authenticator: CombinedAuthenticator, users: Path, metastore: Metastore
) -> None:
    for _ in range(2):  # also once the source knows it
        with pytest.raises(AuthenticationFailed, match="joe is in the gateway's users file"):
            authenticator.authenticate(badge("joe"))
    assert metastore.logins.last("joe") is None
    assert authenticator.authenticate(Login("joe", "right", ADDRESS)).role is Role.OPERATOR

    ann = authenticator.authenticate(badge("ann"))
    users.write_text(user_line("ann", "x"), encoding="utf-8")  # ends the user's sessions at once
    with pytest.raises(AuthenticationFailed, match="may not come in any more"):
        authenticator.current(ann)
    with pytest.raises(AuthenticationFailed, match="users file"):
        authenticator.recognise(badge("ann"))


def test_clients_without_a_login_are_as_ever(authenticator: CombinedAuthenticator) -> None:
    guest = authenticator.authenticate(Login("ann", None, "127.0.0.1"))
    assert (guest.authenticated, guest.role, authenticator.current(guest)) == (False, Role.READER, guest)
    with pytest.raises(AuthenticationFailed):
        authenticator.authenticate(Login("ann", None, ADDRESS))
    assert authenticator.of_account(guest.account, "127.0.0.1") == guest


def test_a_login_ends_at_its_time(authenticator: CombinedAuthenticator, clock: Watched) -> None:
    user = authenticator.authenticate(badge("ann"))
    clock.now_s = NOW_S + LASTS_S - 1.0
    assert authenticator.current(user) is user
    clock.now_s = NOW_S + LASTS_S
    with pytest.raises(LoginExpired, match="log in again"):
        authenticator.current(user)
    with pytest.raises(LoginExpired):
        authenticator.present("ann", True, ADDRESS)


def test_a_user_is_required_to_be_in_a_group(users: Path, metastore: Metastore, clock: Watched) -> None:
    authenticator = combined(users, metastore, clock, "staff", "guests")
    assert authenticator.authenticate(badge("ann staff")).name == "ann"
    for _ in range(2):
        with pytest.raises(AuthenticationFailed, match="eve is in none of the groups"):
            authenticator.authenticate(badge("eve build"))
    assert metastore.logins.last("eve") is None
    assert authenticator.authenticate(Login("joe", "right", ADDRESS)).name == "joe"  # of the file: no groups


def test_another_gateway_finds_the_user_of_the_last_login(
    authenticator: CombinedAuthenticator, users: Path, metastore: Metastore, clock: Watched
) -> None:
    authenticator.authenticate(badge("ann build"))
    last = authenticator.authenticate(badge("ann run"))
    other = combined(users, metastore, clock)

    assert other.of_account(last.account, ADDRESS) == other.present("ann", True, ADDRESS) == last
    assert other.of_account("joe", ADDRESS).role is Role.OPERATOR
    with pytest.raises(AuthenticationFailed):
        other.present("eve", True, ADDRESS)
    users.write_text(user_line("ann", "x"), encoding="utf-8")
    assert other.present("ann", True, ADDRESS).source == ""  # the users file's ann


def test_a_user_of_a_source_that_is_gone_may_not_come_in(authenticator: CombinedAuthenticator) -> None:
    user = authenticator.authenticate(badge("ann"))
    with pytest.raises(AuthenticationFailed):
        authenticator.current(replace(user, source="ldap"))
    with pytest.raises(AuthenticationFailed):
        authenticator.current(replace(user, expires_at=None))
    with pytest.raises(AuthenticationFailed):
        authenticator.current(replace(user, source=""))


def test_a_session_is_found_again_with_its_own_login(
    authenticator: CombinedAuthenticator, users: Path, metastore: Metastore, clock: Watched
) -> None:
    shared = SharedSessions(metastore.driver_sessions, authenticator, 600.0)
    user = authenticator.authenticate(badge("ann build"))
    session = Session(user, deadline_s=1.0)
    shared.add(b"key", session, dict)
    authenticator.authenticate(badge("ann run"))  # a later login is of another session

    saved = SharedSessions(metastore.driver_sessions, combined(users, metastore, clock), 600.0).find(b"key")
    assert saved is not None
    assert saved[0] == user

    session.principal = replace(user, expires_at=NOW_S + 2 * LASTS_S)
    shared.change(b"key", session, dict)
    clock.now_s = NOW_S + LASTS_S
    assert shared.find(b"key") is not None
    clock.now_s = NOW_S + 2 * LASTS_S
    with pytest.raises(LoginExpired):
        shared.find(b"key")


def test_a_login_works_without_the_metastore(
    users: Path, metastore: Metastore, clock: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Logins, login: RememberedLogin) -> None:
        raise OperationalError("INSERT", {}, Exception("it is down"))

    monkeypatch.setattr(Logins, "put", fail)
    assert combined(users, metastore, clock).authenticate(badge("ann")).name == "ann"
    assert "does not remember the login of 'ann'" in caplog.text


def test_holders_of_a_role_are_those_of_the_file_and_of_the_settings(authenticator: CombinedAuthenticator) -> None:
    assert authenticator.holders(Role.ADMIN) == ["root"]
    assert authenticator.holders(Role.READER) == ["joe", "zoe", "root"]


def test_expired_logins_are_forgotten(metastore: Metastore) -> None:
    metastore.logins.put(RememberedLogin("old", "oidc", (), "00", time.time() - 1.0))
    metastore.logins.put(RememberedLogin("new", "oidc", ("a",), "00", time.time() + 60.0))
    assert metastore.logins.last("old") is None
    last = metastore.logins.last("new")
    assert last is not None
    assert list(last.groups) == ["a"]


def test_groups_are_bounded() -> None:
    assert len(require_groups([str(number) for number in range(MOST_GROUPS)])) == MOST_GROUPS
    for wrong in ([str(number) for number in range(MOST_GROUPS + 1)], ["a" * (LONGEST_GROUP + 1)], [1]):
        with pytest.raises(AuthenticationFailed):
            require_groups(wrong)


def test_without_other_sources_a_strange_token_is_ignored(metastore: Metastore, users: Path) -> None:
    accounts = ServiceAccountSource(metastore.service_accounts)
    authenticator = authenticator_of(AuthenticationSettings(users_file=users), metastore.logins, accounts)
    assert not authenticator.takes_token("x.y.z")
    guest = authenticator.authenticate(badge("ignored", "127.0.0.1"))
    assert guest == Principal("anonymous", Role.READER, address="127.0.0.1")


def test_a_source_without_a_users_file_makes_guests_readers(metastore: Metastore) -> None:
    settings = AuthenticationSettings.model_validate({"oidc": {"issuer": "https://idp.example", "audience": ["x"]}})
    assert settings.has_users
    accounts = ServiceAccountSource(metastore.service_accounts)
    authenticator = authenticator_of(settings, metastore.logins, accounts)
    assert authenticator.authenticate(Login(None, None, "127.0.0.1")).role is Role.READER


def test_an_audience_is_required() -> None:
    with pytest.raises(ValueError, match="audience is missing"):
        AuthenticationSettings.model_validate({"oidc": {"issuer": "https://idp.example"}})
