"""Service accounts: tokens, their end, names that others have, and a metastore that is away."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from gateway.errors import AuthenticationFailed, LoginExpired, MetastoreUnavailable, NameInUse, NotFound
from gateway.security.authentication import Anonymous, Login, UsersFile, is_service_token, user_line
from gateway.security.identity.authenticator import CombinedAuthenticator
from gateway.security.identity.roles import Roles
from gateway.security.identity.service_accounts import ServiceAccountSource
from gateway.security.principals import Principal, Role
from metastore.members.logins import RememberedLogin
from metastore.members.service_accounts import ServiceAccount, ServiceAccounts
from metastore.store import Metastore
from tests.gateway.security.identity.test_authenticator import Badges, Watched, badge
from tests.waiting import wait_until

ADDRESS, ROOT = "192.0.2.7", Principal("root", Role.ADMIN, authenticated=True)
DAY, NONE = dt.timedelta(days=1), dt.timedelta()
FLOOD, ANSWERS_WITHIN_S = 50, 4.0


class Watching(ServiceAccounts):
    """Accounts of a metastore that can be away, and that counts how often it is asked for all of them."""

    reads = 0
    is_away = False

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.answers = threading.Event()
        self.answers.set()

    def list(self) -> tuple[ServiceAccount, ...]:
        self.reads += 1
        self.answers.wait(ANSWERS_WITHIN_S)
        if self.is_away:
            raise OperationalError("SELECT", {}, Exception("away"))
        return super().list()


class House:
    """Two gateways over one metastore, of which the second one learns only what it reads."""

    def __init__(self, metastore: Metastore, users: Path) -> None:
        self.clock, self.metastore = Watched(), metastore
        self.accounts = Watching(metastore.service_accounts._engine)
        self.here, self.there = (ServiceAccountSource(self.accounts, self.clock) for _ in range(2))
        self.door, self.other_door = (self._door(users, source) for source in (self.here, self.there))

    def _door(self, users: Path, source: ServiceAccountSource) -> CombinedAuthenticator:
        roles = Roles({"bi": Role.OPERATOR}, {"build": Role.WRITER}, Role.READER)
        return CombinedAuthenticator(
            UsersFile(users, anonymous=Anonymous.NEVER),
            source,
            [Badges()],
            roles,
            self.metastore.logins,
            required_groups=["staff"],
            clock=self.clock,
        )

    def add(self, name: str = "etl", role: Role | None = None, *groups: str, lasts: dt.timedelta = DAY) -> str:
        return self.here.add(name, role=role, groups=groups, lasts=lasts, by=ROOT)[1]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    users = tmp_path / "users"
    users.write_text(user_line("joe", "right"), encoding="utf-8")
    with Metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        yield House(metastore, users)


def as_password(token: str, name: str = "token") -> Login:
    return Login(name, token, ADDRESS)


def test_a_token_is_its_account_at_every_gateway(house: House) -> None:
    token = house.add("etl", Role.OPERATOR, "build")
    assert is_service_token(token)
    for door in (house.door, house.other_door):
        for login in (badge(token), as_password(token), as_password(token, "etl")):
            user = door.authenticate(login)
            assert (user.name, user.role, user.groups) == ("etl", Role.OPERATOR, frozenset({"build"}))
            assert (user.owner, door.recognise(login), door.current(user)) == ("etl", user, user)
    with pytest.raises(AuthenticationFailed, match="not of the user 'ann'"):
        house.door.authenticate(as_password(token, "ann"))


def test_an_account_without_a_role_has_that_of_the_settings(house: House) -> None:
    for name, groups, role in (("bi", (), Role.OPERATOR), ("a", ("build",), Role.WRITER), ("b", (), Role.READER)):
        assert house.door.authenticate(badge(house.add(name, None, *groups))).role is role


def test_the_metastore_has_no_token(house: House) -> None:
    token = house.add()
    account = house.accounts.get("etl")
    assert account is not None
    assert token not in str(account)
    assert len(bytes.fromhex(account.token)) == 32


def test_a_revoked_token_ends_its_sessions_and_comes_in_nowhere(house: House) -> None:
    token = house.add()
    users = [door.authenticate(badge(token)) for door in (house.door, house.other_door)]
    house.here.revoke("etl", by=ROOT)
    house.there.refresh()
    for door, user in zip((house.door, house.other_door), users, strict=True):
        assert door.recognise(badge(token)) is None
        with pytest.raises(AuthenticationFailed, match="it was revoked"):
            door.authenticate(badge(token))
        with pytest.raises(AuthenticationFailed):
            door.current(user)
        with pytest.raises(AuthenticationFailed):
            door.present("etl", True, ADDRESS)
    with pytest.raises(NotFound):
        house.here.revoke("etl", by=ROOT)


def test_a_name_that_is_made_again_does_not_bring_old_tokens_back(house: House) -> None:
    old = house.door.authenticate(badge(house.add()))
    house.here.revoke("etl", by=ROOT)
    house.add()
    with pytest.raises(AuthenticationFailed):
        house.door.current(old)


def test_a_token_expires(house: House) -> None:
    token = house.add()
    user = house.door.authenticate(badge(token))
    house.clock.now_s += DAY.total_seconds()
    for call in (house.door.recognise, house.door.authenticate, house.other_door.authenticate):
        with pytest.raises(LoginExpired, match="rotate"):
            call(badge(token))
    with pytest.raises(LoginExpired):
        house.door.current(user)


@pytest.mark.parametrize("overlap", [NONE, dt.timedelta(hours=1)])
def test_an_older_token_counts_for_as_long_as_the_rotation_says(house: House, overlap: dt.timedelta) -> None:
    old = house.add()
    user = house.door.authenticate(badge(old))
    _, new = house.here.rotate("etl", lasts=DAY, overlap=overlap, by=ROOT)
    assert house.door.authenticate(badge(new)).name == "etl"
    if overlap:
        assert house.door.current(user) == user
        assert house.other_door.authenticate(badge(old)).name == "etl"
        house.clock.now_s += overlap.total_seconds()
    with pytest.raises(AuthenticationFailed):
        house.door.authenticate(badge(old))
    with pytest.raises(AuthenticationFailed):
        house.door.current(user)
    assert house.door.current(house.door.authenticate(badge(new)))


def test_one_name_is_one_user(house: House) -> None:
    house.metastore.logins.put(RememberedLogin("zoe", "badges", [], "00" * 32, house.clock.now_s + 60.0))
    assert [name for name in ("joe", "zoe", "etl", "free") if house.door.has(name)] == ["joe", "zoe"]
    token = house.add()
    house.door.authenticate(badge(token))
    assert not house.door.has("etl")
    with pytest.raises(NameInUse):
        house.add()
    with pytest.raises(AuthenticationFailed, match="service account"):
        house.door.authenticate(badge("etl staff"))
    assert house.door.authenticate(badge("ann staff")).name == "ann"


def test_a_user_of_another_source_ends_with_an_account_of_the_name(house: House) -> None:
    ann = house.door.authenticate(badge("ann staff"))
    house.add("ann")
    with pytest.raises(AuthenticationFailed, match="service account"):
        house.door.current(ann)


def test_the_users_file_goes_before_an_account(house: House, tmp_path: Path) -> None:
    token = house.add()
    user = house.door.authenticate(badge(token))
    (tmp_path / "users").write_text(user_line("etl", "right"), encoding="utf-8")
    with pytest.raises(AuthenticationFailed, match="users file"):
        house.door.authenticate(badge(token))
    with pytest.raises(AuthenticationFailed):
        house.door.current(user)


def test_another_gateway_finds_the_user_of_a_statement(house: House) -> None:
    house.door.authenticate(badge(house.add("etl", Role.ADMIN)))
    assert house.other_door.present("etl", True, ADDRESS).role is Role.ADMIN  # without a look before


def test_tokens_that_came_before_need_no_metastore(house: House) -> None:
    token = house.add()
    user = house.door.authenticate(badge(token))
    reads, house.accounts.is_away = house.accounts.reads, True
    assert house.door.recognise(badge(token)) == house.door.authenticate(badge(token)) == house.door.current(user)
    assert house.accounts.reads == reads
    with pytest.raises(MetastoreUnavailable, match="does not answer"):
        house.other_door.authenticate(badge(token))
    house.accounts.is_away = False
    assert house.other_door.authenticate(badge(token)).name == "etl"


def test_service_accounts_need_no_extra() -> None:
    blocked = "import sys; sys.modules.update(joserfc=None, ldap3=None)"
    program = f"{blocked}; import gateway.server.app, gateway.server.wiring, gateway.security.identity.service_accounts"
    subprocess.run([sys.executable, "-W", "error::ImportWarning", "-c", program], check=True, timeout=120)


def test_a_flood_of_strange_tokens_costs_few_looks(house: House) -> None:
    stranger = house.add()
    house.here.revoke("etl", by=ROOT)
    reads = house.accounts.reads

    def refused(_: int) -> bool:
        with pytest.raises(AuthenticationFailed):
            house.door.authenticate(badge(stranger))
        return True

    house.accounts.answers.clear()
    with ThreadPoolExecutor(FLOOD) as pool:
        flood = [pool.submit(refused, number) for number in range(FLOOD)]
        wait_until(lambda: house.accounts.reads > reads, "the first look")
        house.accounts.answers.set()
        assert all(refusal.result() for refusal in flood)
    assert house.accounts.reads - reads < FLOOD
