"""Logins by a real OpenLDAP server: at the server, remembered, and through every door."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import httpx
import ldap3
import pytest
from pydantic import ValidationError
from pyhive import hive  # type: ignore[import-untyped]  # it has no types, like the next one
from thrift.transport.TTransport import TTransportException  # type: ignore[import-untyped]  # as above

from engines.adapter import CheckResult
from gateway.cli.setup.doctor import examine
from gateway.errors import AuthenticationFailed, IdentityProviderUnavailable
from gateway.http.requests.login import THREADS
from gateway.security.authentication import Anonymous, Login, user_line
from gateway.security.identity.directory import DOWN_S, Directory, DirectoryFault, Entry
from gateway.security.identity.passwords import AWAITING, LONGEST_PASSWORD, PasswordSource
from gateway.security.identity.provider import MOST_WAITING
from gateway.security.identity.settings import LdapSettings
from gateway.security.lockout import ASKING_AT_ONCE, ASKING_WAITING, FREE_FAILURES
from gateway.security.principals import Role
from gateway.server.authentication import directory_of
from gateway.settings import AuthenticationSettings, load
from tests.gateway.drivers.flight.conftest import flight_port
from tests.gateway.drivers.hs2.conftest import scripted as scripted_drivers
from tests.gateway.security.identity.slapd import (
    GROUPS,
    PASSWORDS,
    PEOPLE,
    SERVICE,
    SERVICES,
    Slapd,
    certificate_for,
    free_port,
    slapd_in,
)

ADDRESS, ANN = "192.0.2.7", ("ann", PASSWORDS["Ann"])
KEEP_S, SESSION_S = 60.0, 600.0
SQL, ANSWER = "SELECT 42 AS answer", 42
ANNS_GROUPS = ["analysts", "circle", "company", "data"]
WITHIN_S = 15.0


def settings(*servers: str, **changed: Any) -> LdapSettings:
    usual: dict[str, Any] = {
        "user_base": PEOPLE,
        "bind_dn": SERVICE,
        "bind_password": SERVICES,
        "group_base": GROUPS,
        "timeout_s": 1,
    }
    return LdapSettings.model_validate({"servers": servers, **usual, **changed})


def directory(*servers: str, **changed: Any) -> Directory:
    return directory_of(settings(*servers, **changed))


# ---------------------------------------------------------------------- the server


@pytest.mark.parametrize("name", PASSWORDS)
def test_a_right_password_is_its_user(slapd: Slapd, name: str) -> None:
    asked = directory(slapd.plain)
    for typed in (name, name.lower(), name.upper()):
        entry = asked.prove(typed, PASSWORDS[name])
        assert entry is not None
        assert entry.name == name.lower()


@pytest.mark.parametrize("how", [{}, {"user_base": "", "user_dn": f"uid={{name}},{PEOPLE}"}], ids=["search", "dn"])
def test_groups_of_a_user_who_proved_the_name_elsewhere(slapd: Slapd, how: dict[str, str]) -> None:
    asked = directory(slapd.plain, **how)
    assert sorted(asked.groups_of("ann")) == ANNS_GROUPS
    for name in ("nobody", "*", "a*", "ann)(uid=joe", "ann\\", f"uid=ann,{PEOPLE}", "ann,ou=people"):
        assert list(asked.groups_of(name)) == []
    assert sorted(asked.groups_of("ann")) == ANNS_GROUPS  # none of them was taken for a fault of the server


def test_groups_are_not_those_of_a_user_with_another_name(slapd: Slapd) -> None:
    by_surname = directory(slapd.plain, user_filter="(|(uid={name})(sn={name}))", user_attribute="uid")
    admin = slapd.admin()
    assert admin.modify(f"uid=Ann,{PEOPLE}", {"sn": [(ldap3.MODIFY_ADD, ["zoe"])]})
    admin.unbind()
    assert list(by_surname.groups_of("zoe")) == []


HOSTILE = {
    "wrong": ("ann", "wrong"),
    "of another": ("ann", PASSWORDS["joe"]),
    "nobody": ("nobody", "wrong"),
    "empty": ("ann", ""),
    "a soft hyphen, with which the library fails": ("ann", "\u00ad"),
    "nothing but a zero": ("ann", "\0"),
    "a star": ("*", ANN[1]),
    "a prefix": ("a*", ANN[1]),
    "another filter": ("nobody)(uid=ann", ANN[1]),
    "an alternative": ("nobody)(|(uid=*", ANN[1]),
    "a zero within": ("ann\0", ANN[1]),
    "a backslash": ("ann\\", ANN[1]),
    "the whole name": (f"uid=ann,{PEOPLE}", ANN[1]),
    "a longer name": ("ann,ou=people", ANN[1]),
    "surrogates": ("ann\udcff", "\udcff"),
    "only surrogates in the password": ("ann", "\udcff"),
    "long": ("ann", "x" * 10_000),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("how", [{}, {"user_base": "", "user_dn": f"uid={{name}},{PEOPLE}"}], ids=["search", "dn"])
def test_a_hostile_login_is_a_wrong_one(slapd: Slapd, case: str, how: dict[str, str]) -> None:
    name, password = HOSTILE[case]
    asked = directory(slapd.plain, **how)
    assert asked.prove(name, password) is None
    assert asked.prove(*ANN) is not None  # the server does not count as down


def test_groups_are_nested_and_may_be_circles(slapd: Slapd) -> None:
    def groups(depth: int) -> list[str]:
        entry = directory(slapd.plain, group_depth=depth).prove(*ANN)
        assert entry is not None
        return sorted(entry.groups)

    assert [groups(depth) for depth in (0, 1, 2, 20)] == [
        ["analysts"],
        ["analysts", "data"],
        ["analysts", "company", "data"],
        ANNS_GROUPS,
    ]


def test_groups_may_name_their_members(slapd: Slapd) -> None:
    entry = directory(slapd.plain, group_filter="(cn={name}*)", group_depth=3).prove("eve", PASSWORDS["eve"])
    assert entry == Entry("eve", [])
    entry = directory(slapd.plain, group_base="").prove(*ANN)
    assert entry == Entry("ann", ())


def test_a_user_is_found_by_the_distinguished_name(slapd: Slapd) -> None:
    by_dn = directory(slapd.plain, user_base="", user_dn=f"uid={{name}},{PEOPLE}")
    assert by_dn.prove("o'(bri*en)", PASSWORDS["o'(bri*en)"]) == Entry("o'(bri*en)", [])
    entry = by_dn.prove(*ANN)
    assert entry is not None
    assert sorted(entry.groups) == ANNS_GROUPS  # which the service account reads


def test_a_wrong_service_account_is_no_wrong_login(slapd: Slapd) -> None:
    with pytest.raises(IdentityProviderUnavailable):
        directory(slapd.plain, bind_password="wrong").prove(*ANN)
    with pytest.raises(DirectoryFault, match="does not accept"):
        directory(slapd.plain, bind_password="wrong").check()
    assert directory(slapd.plain).check() == slapd.plain


def test_the_doctor_asks_the_directory(slapd: Slapd, tmp_path: Path) -> None:
    def check(**changed: Any) -> CheckResult:
        authentication = AuthenticationSettings(ldap=settings(slapd.plain, **changed))
        results = examine(load(tmp_path / "home", authentication=authentication))
        (result,) = [result for result in results if result.subject == "Directory"]
        return result

    assert check() == CheckResult("Directory", True, slapd.plain)
    assert (check(bind_password="wrong").good, check(user_base="dc=elsewhere").good) == (False, False)


def test_encryption_is_checked(tmp_path: Path) -> None:
    certificate, key = certificate_for("127.0.0.1", tmp_path)
    with slapd_in(tmp_path / "slapd", certificate=certificate, key=key) as server:
        right = {"ca_file": certificate}
        assert directory(server.tls, **right).prove(*ANN) is not None
        assert directory(server.plain, start_tls=True, **right).prove(*ANN) is not None
        for address, start_tls in ((server.tls, False), (server.plain, True)):
            with pytest.raises(IdentityProviderUnavailable):  # nobody vouches for the certificate
                directory(address, start_tls=start_tls).prove(*ANN)
        with pytest.raises(IdentityProviderUnavailable):  # it speaks no TLS there
            directory(server.plain.replace("ldap:", "ldaps:"), **right).prove(*ANN)


def test_a_certificate_of_another_machine_is_refused(tmp_path: Path) -> None:
    certificate, key = certificate_for("ldap.example.com", tmp_path)
    with slapd_in(tmp_path / "slapd", certificate=certificate, key=key) as server:
        for address, start_tls in ((server.tls, False), (server.plain, True)):
            with pytest.raises(IdentityProviderUnavailable):
                directory(address, start_tls=start_tls, ca_file=certificate).prove(*ANN)


def test_without_starttls_no_password_is_sent(slapd: Slapd) -> None:
    with pytest.raises(IdentityProviderUnavailable):
        directory(slapd.plain, start_tls=True).prove(*ANN)


def test_another_server_answers_in_the_place_of_one_that_is_down(slapd: Slapd) -> None:
    asked = directory(f"ldap://127.0.0.1:{free_port()}", slapd.plain)
    for _ in range(2):
        assert asked.prove(*ANN) is not None


def test_a_directory_that_was_down_comes_back(tmp_path: Path) -> None:
    port, now_s = free_port(), [1_000.0]
    asked = directory(f"ldap://127.0.0.1:{port}")
    asked._clock = lambda: now_s[0]
    with pytest.raises(IdentityProviderUnavailable, match="does not answer"):
        asked.prove(*ANN)
    with slapd_in(tmp_path / "slapd", port=port):
        with pytest.raises(IdentityProviderUnavailable):  # nobody tries for a moment
            asked.prove(*ANN)
        now_s[0] += DOWN_S
        assert asked.prove(*ANN) is not None


@contextmanager
def silent_server() -> Iterator[str]:
    """Take connections and say nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(listening.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield f"ldap://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in taken:
            connection.close()


def test_a_directory_that_hangs_is_given_up() -> None:
    with silent_server() as address:
        began_s = time.monotonic()
        with pytest.raises(IdentityProviderUnavailable):
            directory(address).prove(*ANN)
        assert time.monotonic() - began_s < WITHIN_S


# ---------------------------------------------------------------------- remembered


@dataclass
class Asked:
    """A directory that counts how often it is asked."""

    inner: Callable[[str, str], Entry | None]
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def prove(self, name: str, password: str) -> Entry | None:
        with self.lock:
            self.count += 1
        return self.inner(name, password)


def source(asked: Asked, timer: Callable[[], float] = time.monotonic) -> PasswordSource:
    directory: Any = asked
    return PasswordSource(directory, keep_s=KEEP_S, session_s=SESSION_S, timer=timer)


def ann(name: str, password: str) -> Entry | None:
    """Know ann's password alone, and take a moment."""
    time.sleep(0.05)
    return Entry("ann", ["analysts"]) if (name, password) == ANN else None


def test_a_password_is_remembered_for_its_time(slapd: Slapd) -> None:
    now_s = [1_000.0]
    asked = Asked(directory(slapd.plain).prove)
    passwords = source(asked, lambda: now_s[0])
    login = Login(*ANN, ADDRESS)
    identity = passwords.authenticate(login)
    assert sorted(identity.groups) == ANNS_GROUPS
    assert identity.expires_at == pytest.approx(time.time() + SESSION_S, abs=5.0)

    admin = slapd.admin()
    admin.modify(f"uid=Ann,{PEOPLE}", {"userPassword": [(ldap3.MODIFY_REPLACE, ["another"])]})
    admin.delete(f"cn=circle,{GROUPS}")
    admin.unbind()
    now_s[0] += KEEP_S - 1.0
    assert passwords.authenticate(login) == identity
    assert asked.count == 1
    now_s[0] += 2.0
    with pytest.raises(AuthenticationFailed, match="is wrong"):
        passwords.authenticate(login)
    changed = passwords.authenticate(Login("ann", "another", ADDRESS))
    assert sorted(changed.groups) == [group for group in ANNS_GROUPS if group != "circle"]


def test_the_same_wrong_password_is_asked_once() -> None:
    asked = Asked(ann)
    passwords = source(asked)

    def login(password: str) -> str:
        try:
            return passwords.authenticate(Login("Ann", password, ADDRESS)).name
        except AuthenticationFailed as error:
            return str(error)

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(login, ["wrong"] * 16)) == {"The user name or the password is wrong."}
        assert asked.count == 1
        assert set(pool.map(login, [ANN[1]] * 16)) == {"ann"}
    assert asked.count == 2


def test_wrong_passwords_lock_out_as_those_of_the_users_file_do() -> None:
    asked = Asked(ann)
    passwords = source(asked)
    for number in range(FREE_FAILURES):
        with pytest.raises(AuthenticationFailed, match="is wrong"):
            passwords.authenticate(Login("ann", f"wrong {number}", ADDRESS))
    with pytest.raises(AuthenticationFailed, match="Try again in"):
        passwords.authenticate(Login(*ANN, ADDRESS))
    assert asked.count == FREE_FAILURES
    assert passwords.authenticate(Login(*ANN, "198.51.100.1")).name == "ann"  # who is elsewhere


def test_a_directory_that_is_down_counts_as_no_wrong_password() -> None:
    def down(name: str, password: str) -> Entry | None:
        raise IdentityProviderUnavailable("down")

    asked = Asked(down)
    passwords = source(asked)
    for number in range(2 * FREE_FAILURES):
        with pytest.raises(IdentityProviderUnavailable):
            passwords.authenticate(Login("ann", f"wrong {number}", ADDRESS))
    asked.inner = ann
    assert passwords.authenticate(Login(*ANN, ADDRESS)).name == "ann"


def test_few_logins_ask_at_once() -> None:
    at_once: list[int] = []

    def slow(name: str, password: str) -> Entry | None:
        at_once.append(1)
        time.sleep(0.1)
        assert len(at_once) <= 8
        at_once.pop()
        return Entry(name, ())

    passwords = source(Asked(slow))

    def login(number: int) -> str:
        return passwords.authenticate(Login(f"user{number}", "x", f"192.0.2.{number}")).name

    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(login, range(24))) == [f"user{number}" for number in range(24)]


def test_a_directory_that_hangs_holds_few_threads() -> None:
    released = threading.Event()

    def hung(name: str, password: str) -> Entry | None:
        assert released.wait(WITHIN_S)
        return None

    passwords = source(Asked(hung))
    began_s = time.monotonic()

    def login(number: int) -> str:
        name, address = (f"user{number}", f"192.0.2.{number}") if number % 2 else ("ann", ADDRESS)
        with pytest.raises(AuthenticationFailed) as refused:
            passwords.authenticate(Login(name, "x", address))
        return str(refused.value)

    with ThreadPoolExecutor(2 * THREADS) as pool:
        logins = [pool.submit(login, number) for number in range(2 * THREADS)]
        while sum(each.done() for each in logins) < 2 * THREADS - ASKING_AT_ONCE - ASKING_WAITING - AWAITING:
            assert time.monotonic() - began_s < WITHIN_S, "they wait"
            time.sleep(0.01)
        assert ASKING_AT_ONCE + ASKING_WAITING + AWAITING + MOST_WAITING < THREADS
        released.set()


@pytest.mark.parametrize("name", ["ann:x", " ann", "#ann", "a\nb", "a" * 129])
def test_a_name_that_cannot_be_used_is_not_asked_for(name: str) -> None:
    asked = Asked(ann)
    with pytest.raises(AuthenticationFailed):
        source(asked).authenticate(Login(name, "x", ADDRESS))
    with pytest.raises(AuthenticationFailed):
        source(asked).authenticate(Login("ann", "x" * (LONGEST_PASSWORD + 1), ADDRESS))
    assert asked.count == 0


def test_a_login_without_a_password_is_not_the_directorys() -> None:
    passwords = source(Asked(ann))
    for login in (Login("ann", None, ""), Login("ann", "", ""), Login(None, "x", ""), Login(None, None, "", token="x")):
        assert not passwords.takes(login)


# ---------------------------------------------------------------------- doors


@pytest.mark.e2e
def test_every_door_takes_the_directorys_passwords(slapd: Slapd, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(user_line("eve", "of the file"), encoding="utf-8")
    authentication = AuthenticationSettings(
        users_file=users,
        anonymous=Anonymous.NEVER,
        default_role=Role.READER,
        group_roles={"company": Role.OPERATOR},
        ldap=settings(slapd.plain, session_s=12.0),
    )
    with scripted_drivers(tmp_path / "home", authentication=authentication) as drivers:
        url = f"http://{drivers.host}:{drivers.http_port}"

        def status(name: str, password: str) -> int:
            return httpx.get(f"{url}/v1/queries", auth=(name, password)).status_code

        def resume(name: str) -> int:
            auth = (name.lower(), PASSWORDS[name])
            return httpx.post(f"{url}/v1/engines/duckdb/resume", auth=auth).status_code

        def over_binary(name: str, password: str) -> Any:
            return hive.connect(drivers.host, drivers.port, username=name, password=password, auth="LDAP")

        assert [status(*ANN), status("ANN", ANN[1]), status("ann", "wrong")] == [200, 200, 401]
        assert [status("eve", "of the file"), status("eve", PASSWORDS["eve"])] == [200, 401]  # the file's name
        assert status("EVE", PASSWORDS["eve"]) == 401
        assert resume("Ann") in (200, 204)
        assert resume("o'(bri*en)") == 403

        connection = over_binary(*ANN)
        cursor = connection.cursor()
        cursor.execute(SQL)
        assert cursor.fetchall() == [(ANSWER,), (ANSWER + 1,)]
        with pytest.raises(TTransportException, match="is wrong"):
            over_binary("ann", "wrong as well")
        with flight_port(drivers.gateway) as server:
            options = {"username": "joe", "password": PASSWORDS["joe"]}
            with adbc.connect(f"grpc://{server.address}", db_kwargs=options, autocommit=True) as opened:
                with opened.cursor() as flight_cursor:
                    flight_cursor.execute(SQL)
                    assert flight_cursor.fetchone() == (ANSWER,)
            record = drivers.last_query()
            assert (record.user, record.authenticated) == ("joe", True)
            with pytest.raises(adbc_driver_manager.Error, match="is wrong"):
                adbc.connect(f"grpc://{server.address}", db_kwargs={**options, "password": "wrong"}, autocommit=True)

        until_s = time.monotonic() + WITHIN_S
        while drivers.gateway.session_counts["hiveserver2"]():  # after session_s
            assert time.monotonic() < until_s
            time.sleep(0.05)
        connection._transport.close()

        slapd.process.kill()
        slapd.process.wait()
        assert [status(*ANN), status("ann", "new"), status("eve", "of the file")] == [200, 503, 200]
        with pytest.raises(TTransportException, match="The directory does not answer"):
            over_binary("ann", "newer")


# ---------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"servers": ["ldap://ldap.example.com"]}, "would get passwords unencrypted"),
        ({"servers": ["http://127.0.0.1"]}, "is not an address such as"),
        ({"servers": ["ldaps://ldap.example.com/dc=x"]}, "is not an address such as"),
        ({"user_base": ""}, "set user_dn or user_base"),
        ({"user_dn": "uid={name}"}, "set user_dn or user_base"),
        ({"user_filter": "(uid=ann)"}, "user_filter has no {name} in it"),
        ({"group_filter": "(cn=all)"}, "group_filter has no {name} in it"),
        ({"bind_password": ""}, "belong together"),
    ],
)
def test_settings_that_would_let_others_in_are_refused(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        settings("ldap://127.0.0.1", **changed)


def test_encryption_may_be_given_up_in_so_many_words() -> None:
    for changed in ({"allow_plain": True}, {"start_tls": True}):
        assert settings(**{"servers": ["ldap://ldap.example.com"], **changed}).servers
