"""Real clients with tickets of a real KDC: HiveServer2's port, and HTTP by SPNEGO."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.cli.setup.doctor import examine
from gateway.security.authentication import Anonymous, user_line
from gateway.security.identity.settings import KerberosSettings, LdapSettings
from gateway.security.principals import Role
from gateway.server.startup import KeytabInvalid
from gateway.settings import AuthenticationSettings, load
from tests.gateway.drivers.hs2.conftest import Drivers
from tests.gateway.drivers.hs2.conftest import scripted as scripted_drivers
from tests.gateway.drivers.hs2.test_beeline import command as beeline
from tests.gateway.security.identity.kdc import HOST, OTHER_REALM, REALM, SKEW_S, Kdc, kdc_in
from tests.gateway.security.identity.slapd import GROUPS, PEOPLE, SERVICE, SERVICES, slapd_in
from tests.waiting import wait_until

NEEDED = (
    "gssapi is not installed: apt-get install gcc libkrb5-dev krb5-kdc krb5-admin-server krb5-user; pip install gssapi"
)
gssapi = pytest.importorskip("gssapi", reason=NEEDED)
pytestmark = pytest.mark.e2e
SQL, ANSWER = "SELECT 42 AS answer", 42
JOES = "right"  # password in the users file
LIFE_S, WITHIN_S = 3, 15.0
FLOOD = 60
BAD = 3  # status of SASL
get, post = partial(httpx.get, timeout=60.0), partial(httpx.post, timeout=60.0)
QOPS = ("auth", "auth-int", "auth-conf")


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """Run a realm; the gateway, which is in this process, uses its configuration."""
    folder = tmp_path_factory.mktemp("kdc")
    with kdc_in(folder / REALM) as served, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(served.config))
        patch.setenv("KRB5RCACHENAME", f"file2:{folder / 'replays'}")
        yield served


@pytest.fixture
def strict(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the gateway's library forgive little; it reads its configuration at each login."""
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.strict_config))


@contextmanager
def gateway_of(kdc: Kdc, home: Path, ldap: LdapSettings | None = None, **kerberos: Any) -> Iterator[Drivers]:
    users = home.parent / "users"
    users.write_text(user_line("joe", JOES), encoding="utf-8")
    names = {"keytab": kdc.keytab, "principal": f"hive/{HOST}", "http_principal": f"HTTP/{HOST}@{kdc.realm}"}
    authentication = AuthenticationSettings(
        users_file=users,
        anonymous=Anonymous.NEVER,
        default_role=Role.READER,
        group_roles={"company": Role.OPERATOR},
        kerberos=KerberosSettings.model_validate({**names, **kerberos}),
        ldap=ldap or LdapSettings(),
    )
    with scripted_drivers(home, authentication=authentication) as drivers:
        yield drivers


@pytest.fixture(scope="module")
def gateway(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    with gateway_of(kdc, tmp_path_factory.mktemp("gateway") / "home") as served:
        yield served


class Refused(Exception):
    """The gateway refused a login; the message is its reply."""


def context(cache: Path, service: str = "hive", mechanism: str = "1.2.840.113554.1.2.2") -> Any:
    """Return a client's context of GSSAPI."""
    return gssapi.SecurityContext(
        name=gssapi.Name(f"{service}@{HOST}", gssapi.NameType.hostbased_service),
        creds=gssapi.Credentials(usage="initiate", store={"ccache": str(cache)}),
        mech=gssapi.OID.from_int_seq(mechanism),
        usage="initiate",
    )


def spnego(cache: Path, service: str = "HTTP") -> Any:
    return context(cache, service, "1.3.6.1.5.5.2")


def negotiate(message: bytes) -> dict[str, str]:
    return {"Authorization": f"Negotiate {b64encode(message).decode()}"}


def url(gateway: Drivers) -> str:
    return f"http://{HOST}:{gateway.http_port}"


# ---------------------------------------------------------------------- clients


def asked(connection: Any) -> int:
    with closing(connection), closing(connection.cursor()) as cursor:
        cursor.execute(SQL)
        return int(cursor.fetchall()[0][0])


def over_http(gateway: Drivers, cache: Path) -> int:
    """Send SPNEGO, and check that the gateway proves who it is."""
    client = spnego(cache)
    body = {"sql": SQL, "wait_s": 30}
    reply = post(f"{url(gateway)}/v1/queries", json=body, headers=negotiate(client.step()))
    if not reply.is_success:
        raise Refused(reply.json()["error"]["message"])
    client.step(_decoded(reply.headers["WWW-Authenticate"]))
    assert client.complete
    return int(reply.json()["rows"][0][0])


def by_curl(gateway: Drivers, cache: Path) -> int:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed: apt-get install curl")
    body = json.dumps({"sql": SQL, "wait_s": 30})
    command = [curl, "-sS", "--negotiate", "-u", ":", "-H", "Content-Type: application/json", "-d", body]
    environment = {**os.environ, "KRB5CCNAME": str(cache)}
    ended = subprocess.run(
        [*command, f"{url(gateway)}/v1/queries"], capture_output=True, text=True, env=environment, timeout=60
    )
    reply = json.loads(ended.stdout)
    if reply.get("error"):
        raise Refused(reply["error"]["message"])
    return int(reply["rows"][0][0])


def by_impyla(gateway: Drivers, cache: Path) -> int:
    pytest.importorskip("kerberos", reason="impyla logs in with the package kerberos: pip install kerberos")
    from impala import dbapi  # type: ignore[import-untyped]  # it has no types

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", str(cache))
        return asked(
            dbapi.connect(HOST, gateway.port, auth_mechanism="GSSAPI", kerberos_service_name="hive", timeout=30)
        )


def by_pyhive(gateway: Drivers, cache: Path) -> int:
    pytest.importorskip("kerberos", reason="PyHive logs in with the package kerberos: pip install kerberos")
    from pyhive import hive  # type: ignore[import-untyped]  # it has no types

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", str(cache))
        return asked(hive.connect(HOST, gateway.port, auth="KERBEROS", kerberos_service_name="hive"))


def sasl_connection(gateway: Drivers, cache: Path, qop: int = 1, most: int = 0xFFFF, acting: str = "") -> Any:
    """Connect PyHive over a transport that logs in by GSSAPI here. Raises Refused."""
    from pyhive import hive

    transport = SaslTransport(gateway, qop, most, acting)
    try:
        transport.log_in(context(cache))
    except BaseException:
        transport.close()
        raise
    return hive.connect(thrift_transport=transport)


def by_gssapi(gateway: Drivers, cache: Path) -> int:
    return asked(sasl_connection(gateway, cache))


class SaslTransport:
    """A Thrift transport of frames, after a login by GSSAPI as RFC 4752 has it."""

    def __init__(self, gateway: Drivers, qop: int, most: int, acting: str) -> None:
        self._socket = socket.create_connection((gateway.host, gateway.port), timeout=30)
        self._file = self._socket.makefile("rb")
        self._qop, self._most, self._acting = qop, most, acting
        self._context: Any = None
        self._out, self._in = b"", b""
        self.largest = 0

    def send(self, status: int, text: bytes) -> None:
        self._socket.sendall(struct.pack(">BI", status, len(text)) + text)

    def receive(self) -> bytes:
        head = self._file.read(5)
        if len(head) < 5:
            raise Refused("closed")
        status, length = struct.unpack(">BI", head)
        text = self._file.read(length)
        if status == BAD:
            raise Refused(text.decode())
        return bytes(text)

    def log_in(self, client: Any) -> None:
        self.send(1, b"GSSAPI")
        message = client.step()
        while not client.complete:
            self.send(2, message)
            message = client.step(self.receive()) or b""
        self.send(2, message)
        offer = client.unwrap(self.receive()).message
        assert len(offer) == 4
        choice = bytes([self._qop]) + self._most.to_bytes(3, "big") + self._acting.encode()
        self.send(2, client.wrap(choice, False).message)
        self.receive()
        self._context = client

    def isOpen(self) -> bool:
        return True

    def open(self) -> None:
        pass

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def write(self, data: bytes) -> None:
        self._out += data

    def flush(self) -> None:
        data, self._out = self._out, b""
        if self._qop > 1:
            data = self._context.wrap(data, self._qop == 4).message
        self._socket.sendall(struct.pack(">I", len(data)) + data)

    def readAll(self, count: int) -> bytes:
        while len(self._in) < count:
            data = self._file.read(struct.unpack(">I", self._file.read(4))[0])
            self.largest = max(self.largest, len(data))
            if self._qop > 1:
                unwrapped = self._context.unwrap(data)
                assert unwrapped.encrypted is (self._qop == 4)
                data = unwrapped.message
            self._in += data
        data, self._in = self._in[:count], self._in[count:]
        return data

    read = readAll


def _decoded(header: str) -> bytes:
    from base64 import b64decode

    return b64decode(header.removeprefix("Negotiate "))


Ask = Callable[[Drivers, Path], int]
DOORS: list[Ask] = [over_http, by_curl, by_impyla, by_pyhive, by_gssapi]
OWN: list[Ask] = [over_http, by_gssapi]  # whose refusals have the gateway's words


# ---------------------------------------------------------------------- logins


@pytest.mark.parametrize("ask", DOORS)
def test_a_ticket_lets_its_user_in(gateway: Drivers, kdc: Kdc, ask: Ask) -> None:
    assert ask(gateway, kdc.ticket("ann")) == ANSWER

    record = gateway.last_query()
    assert (record.user, record.authenticated) == ("ann", True)


def by_beeline(gateway: Drivers, cache: Path, config: Path, more: str = "") -> str:
    """Run Beeline with the ticket of kinit; returns all that it printed."""
    port = gateway.http_port if "http" in more else gateway.port
    address = f"jdbc:hive2://{HOST}:{port}/default;principal=hive/{HOST}@{REALM}{more}"
    words = beeline(address, "--outputformat=csv2", "-e", SQL)
    login = cache.with_suffix(".jaas")
    entry = f'com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true ticketCache="{cache}"'
    login.write_text(f"com.sun.security.jgss.initiate {{\n {entry};\n}};\n", encoding="utf-8")
    options = [
        f"-Djava.security.krb5.conf={config}",
        f"-Djava.security.auth.login.config={login}",
        "-Djavax.security.auth.useSubjectCredsOnly=false",
    ]
    ended = subprocess.run([words[0], *options, *words[1:]], capture_output=True, text=True, timeout=120)
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("way", ["binary", "http"])
def test_beeline_logs_in_with_the_ticket_of_kinit(gateway: Drivers, kdc: Kdc, way: str) -> None:
    more = ";transportMode=http;httpPath=cliservice" if way == "http" else ""
    assert f"answer\n{ANSWER}\n" in by_beeline(gateway, kdc.ticket("ann"), kdc.config, more)
    assert gateway.last_query().user == "ann"


@pytest.mark.parametrize("qop", QOPS)
def test_messages_are_protected_as_configured(kdc: Kdc, tmp_path: Path, qop: str) -> None:
    most = 4_096
    with gateway_of(kdc, tmp_path / "home", qop=qop) as gateway:
        connection = sasl_connection(gateway, kdc.ticket("ann"), 1 << QOPS.index(qop), most)
        with closing(connection), closing(connection.cursor()) as cursor:
            cursor.execute("SELECT 'many rows'")
            rows = cursor.fetchall()
            assert [row[0] for row in rows] == list(range(len(rows)))
            assert len(rows) > 1_000
            if qop != "auth":
                assert connection._transport.largest <= most  # replies are larger than that
        if qop != "auth":
            printed = by_beeline(gateway, kdc.ticket("ann"), kdc.config, f";sasl.qop={qop}")
            assert f"answer\n{ANSWER}\n" in printed
        with pytest.raises(Refused, match=f"protects connections with {qop}"):
            sasl_connection(gateway, kdc.ticket("ann"), 2 if qop == "auth" else 1)


def test_a_message_that_was_changed_ends_the_connection(kdc: Kdc, tmp_path: Path) -> None:
    with gateway_of(kdc, tmp_path / "home", qop="auth-conf") as gateway:
        for forge in (lambda _: b"plain", lambda own: own.wrap(b"only signed", False).message):
            transport = sasl_connection(gateway, kdc.ticket("ann"), 4)._transport
            message = forge(transport._context)
            transport._socket.sendall(struct.pack(">I", len(message)) + message)
            assert transport._file.read() == b""
            transport.close()
        assert asked(sasl_connection(gateway, kdc.ticket("ann"), 4)) == ANSWER


def test_names_of_principals_become_users(kdc: Kdc, tmp_path: Path) -> None:
    with gateway_of(kdc, tmp_path / "home", services=["etl"]) as gateway:
        for principal, user in {"Zoe": "zoe", "etl/worker": "etl"}.items():
            assert over_http(gateway, kdc.ticket(principal)) == ANSWER
            assert gateway.last_query().user == user


@pytest.mark.parametrize("ask", OWN)
def test_principals_that_are_no_users_are_refused(gateway: Drivers, kdc: Kdc, ask: Ask) -> None:
    with pytest.raises(Refused, match="etl/worker is a service or an administrator"):
        ask(gateway, kdc.ticket("etl/worker"))
    with pytest.raises(Refused, match="joe is in the gateway's users file, too"):
        ask(gateway, kdc.ticket("joe"))


def test_nobody_acts_for_another_user(gateway: Drivers, kdc: Kdc) -> None:
    for own in ("ann", f"ann@{REALM}"):
        assert asked(sasl_connection(gateway, kdc.ticket("ann"), acting=own)) == ANSWER
    with pytest.raises(Refused, match="ann cannot act for joe"):
        sasl_connection(gateway, kdc.ticket("ann"), acting="joe")


def test_passwords_work_beside_tickets(gateway: Drivers) -> None:
    statuses = [get(f"{url(gateway)}/v1/queries", auth=("joe", word)).status_code for word in (JOES, "wrong")]
    assert statuses == [200, 401]


def test_a_browser_is_asked_for_a_ticket_or_a_password(gateway: Drivers, kdc: Kdc) -> None:
    challenges = get(f"{url(gateway)}/dashboard").headers.get_list("WWW-Authenticate")
    assert [challenge.partition(" ")[0] for challenge in challenges] == ["Basic", "Negotiate"]
    page = get(f"{url(gateway)}/dashboard", headers=negotiate(spnego(kdc.ticket("ann")).step()), follow_redirects=False)
    assert page.status_code < 400
    refused = get(f"{url(gateway)}/dashboard", headers=negotiate(b"nonsense"))  # it falls back to a password
    assert [header.partition(" ")[0] for header in refused.headers.get_list("WWW-Authenticate")] == ["Basic"]


def test_groups_are_those_of_the_directory(kdc: Kdc, tmp_path: Path) -> None:
    with slapd_in(tmp_path / "slapd") as slapd:
        ldap = LdapSettings(
            servers=(slapd.plain,), user_base=PEOPLE, group_base=GROUPS, bind_dn=SERVICE, bind_password=SERVICES
        )
        with gateway_of(kdc, tmp_path / "home", ldap) as gateway:

            def resume(cache: Path) -> int:
                headers = negotiate(spnego(cache).step())
                return post(f"{url(gateway)}/v1/engines/duckdb/resume", headers=headers).status_code

            assert resume(kdc.ticket("ann")) in (200, 204)  # analysts are in data, and that is in company
            assert resume(kdc.ticket("Zoe")) == 403  # the directory does not have her
            slapd.process.kill()
            slapd.process.wait()
            assert over_http(gateway, kdc.ticket("ann", cache="again")) == ANSWER  # groups are remembered
            kdc.admin('addprinc -pw "new here" eve')
            with pytest.raises(Refused, match="directory does not answer"):
                over_http(gateway, kdc.ticket("eve", "new here"))


# ---------------------------------------------------------------------- time, keys, the KDC


@pytest.mark.usefixtures("strict")
def test_a_session_ends_with_its_ticket(gateway: Drivers, kdc: Kdc) -> None:
    connection = sasl_connection(gateway, kdc.ticket("ann", life=f"{LIFE_S}s"))
    sessions = gateway.gateway.session_counts["hiveserver2"]
    cursor = connection.cursor()
    cursor.execute(SQL)
    assert sessions() == 1
    wait_until(lambda: sessions() == 0, within_s=LIFE_S + SKEW_S + WITHIN_S)  # without a call of the client
    from pyhive import hive

    with pytest.raises(hive.OperationalError, match="no such"):
        cursor.execute(SQL)
    connection._transport.close()


def answer(gateway: Drivers, door: str, message: bytes) -> str:
    """Send the first message of a login; returns the words of its refusal, empty where it is accepted."""
    if door == "http":
        reply = get(f"{url(gateway)}/v1/queries", headers=negotiate(message))
        assert reply.status_code in (200, 401, 431)
        return "" if reply.is_success else f"{reply.json()['error']['code']}: {reply.json()['error']['message']}"
    transport = SaslTransport(gateway, 1, 0, "")
    try:
        transport.send(1, b"GSSAPI")
        transport.send(2, message)
        transport.receive()
    except (Refused, OSError) as refused:
        return str(refused) or "closed"
    finally:
        transport.close()
    return ""


def first_message(door: str, cache: Path, service: str = "") -> bytes:
    client = spnego(cache, service or "HTTP") if door == "http" else context(cache, service or "hive")
    return bytes(client.step())


EACH_DOOR = pytest.mark.parametrize("door", ["http", "binary"])


@pytest.mark.usefixtures("strict")
@EACH_DOOR
def test_a_ticket_that_has_expired_is_refused(gateway: Drivers, kdc: Kdc, door: str) -> None:
    message = first_message(door, kdc.ticket("ann", life=f"{LIFE_S}s"))
    time.sleep(LIFE_S + SKEW_S + 1.5)  # longer than the ticket and the difference of clocks that is forgiven
    refused = answer(gateway, door, message)
    assert "The Kerberos ticket has expired; get a new one (kinit)." in refused
    assert door == "binary" or refused.startswith("LOGIN_EXPIRED")


@pytest.mark.usefixtures("strict")
@EACH_DOOR
def test_clocks_that_differ_too_much_are_told(gateway: Drivers, kdc: Kdc, door: str) -> None:
    message = first_message(door, kdc.ticket("ann"))
    time.sleep(SKEW_S + 1.5)
    assert "the clocks of client and gateway differ too much" in answer(gateway, door, message)


@EACH_DOOR
def test_a_message_counts_once(gateway: Drivers, kdc: Kdc, door: str) -> None:
    message = first_message(door, kdc.ticket("ann"))
    assert answer(gateway, door, message) == ""
    assert "its message came before (a replay)" in answer(gateway, door, message)


@EACH_DOOR
def test_a_ticket_for_another_service_is_refused(gateway: Drivers, kdc: Kdc, door: str) -> None:
    cache, wanted = kdc.ticket("ann"), "HTTP" if door == "http" else "hive"
    other = answer(gateway, door, first_message(door, cache, "host"))
    assert f"it is for the service host/{HOST}@{REALM}; ask for {wanted}/{HOST}" in other
    kdc.admin(f"addprinc -randkey nfs/{HOST}")  # of which the gateway has no key
    assert "not among the gateway's (another service" in answer(gateway, door, first_message(door, cache, "nfs"))


@EACH_DOOR
def test_messages_that_are_none_are_refused_and_hold_nobody_up(gateway: Drivers, kdc: Kdc, door: str) -> None:
    real = first_message(door, kdc.ticket("ann"))
    bad = [b"x", b"NTLMSSP\0" + bytes(40), real[:60], real[:-1], real[:-9] + bytes(9), os.urandom(5_000)]
    with ThreadPoolExecutor(FLOOD) as pool:
        flood = [pool.submit(answer, gateway, door, bad[number % len(bad)]) for number in range(FLOOD)]
        silent = [socket.create_connection((gateway.host, gateway.port)) for _ in range(8)]
        for connection in silent:  # which begin a login, and wait
            connection.sendall(struct.pack(">BI", 1, 6) + b"GSSAPI" + struct.pack(">BI", 2, 60_000))
        assert over_http(gateway, kdc.ticket("ann")) == by_gssapi(gateway, kdc.ticket("ann")) == ANSWER
        assert all("refused" in each.result() for each in flood)
        for connection in silent:
            connection.close()


def test_huge_messages_are_refused_before_they_are_read(gateway: Drivers) -> None:
    with socket.create_connection((gateway.host, gateway.port), timeout=30) as connection:
        connection.sendall(struct.pack(">BI", 1, 6) + b"GSSAPI" + struct.pack(">BI", 2, 1 << 31))
        assert b"too long" in connection.makefile("rb").read()
    large = get(f"{url(gateway)}/v1/queries", headers=negotiate(bytes(36_000)))  # Windows' largest tickets are read
    assert large.json()["error"]["message"].startswith("The Kerberos ticket is refused")
    with suppress(httpx.TransportError):  # the server closes while the client is still sending
        reply = get(f"{url(gateway)}/v1/queries", headers=negotiate(bytes(200_000)))
        assert reply.status_code in (400, 401, 431)
    headers = {"Authorization": "Negotiate"}
    assert get(f"{url(gateway)}/v1/queries", headers=headers).status_code == 401


def test_a_login_that_does_not_end_is_ended(gateway: Drivers, kdc: Kdc) -> None:
    """A client repeats its last message after the context is complete, where an empty one is awaited."""
    transport = SaslTransport(gateway, 1, 0, "")
    client = context(kdc.ticket("ann"))
    message = client.step()
    transport.send(1, b"GSSAPI")
    transport.send(2, message)
    transport.receive()
    transport.send(2, message)
    with pytest.raises(Refused, match="after the last one"):
        transport.receive()
    transport.close()


def test_users_log_in_while_the_kdc_is_down(gateway: Drivers, kdc: Kdc) -> None:
    cache = kdc.ticket("ann")
    for ask in (over_http, by_gssapi):  # their clients get tickets for the services
        assert ask(gateway, cache) == ANSWER
    kdc.stop()
    try:
        assert over_http(gateway, cache) == by_gssapi(gateway, cache) == ANSWER
    finally:
        kdc.start()


def test_old_tickets_go_on_with_new_keys(gateway: Drivers, kdc: Kdc) -> None:
    cache = kdc.ticket("ann")
    assert by_gssapi(gateway, cache) == ANSWER
    kdc.admin(f"ktadd -k {kdc.keytab} hive/{HOST}")  # a new version of the key, beside the old one
    assert by_gssapi(gateway, cache) == by_gssapi(gateway, kdc.ticket("ann")) == ANSWER


def test_a_key_that_the_keytab_does_not_have_is_told(kdc: Kdc, tmp_path: Path) -> None:
    keytab = tmp_path / "keytab"
    shutil.copy(kdc.keytab, keytab)
    with gateway_of(kdc, tmp_path / "home", keytab=keytab) as gateway:
        kdc.admin(f"ktadd -k {kdc.keytab} hive/{HOST}")
        assert "its key is not among the gateway's" in answer(
            gateway, "binary", first_message("binary", kdc.ticket("ann"))
        )
        shutil.copy(kdc.keytab, keytab)  # no restart is needed
        assert by_gssapi(gateway, kdc.ticket("ann")) == ANSWER
        keytab.unlink()
        assert "administrator finds the reason in the log" in answer(gateway, "binary", b"any")


def test_realms_are_trusted_by_name(kdc: Kdc, tmp_path: Path) -> None:
    """The other realm's users get tickets for the gateway through a key that both realms have."""
    with kdc_in(tmp_path / "other", OTHER_REALM) as other:
        for realm in (kdc, other):
            realm.admin(f'addprinc -pw "between realms" krbtgt/{REALM}@{OTHER_REALM}')
        both = f"[realms]\n {OTHER_REALM} = {{\n kdc = 127.0.0.1:{other.port}\n }}\n"
        kdc.config.write_text(f"{kdc.config.read_text(encoding='utf-8')}{both}", encoding="utf-8")
        other.config.write_text(kdc.config.read_text(encoding="utf-8"), encoding="utf-8")
        with gateway_of(kdc, tmp_path / "home") as gateway:
            with pytest.raises(Refused, match=f"its realm {OTHER_REALM} is not trusted"):
                by_gssapi(gateway, other.ticket("ann"))
        with gateway_of(kdc, tmp_path / "home2", realms=[REALM, OTHER_REALM]) as gateway:
            assert by_gssapi(gateway, other.ticket("ann")) == by_gssapi(gateway, kdc.ticket("ann")) == ANSWER


# ---------------------------------------------------------------------- settings


def test_a_gateway_without_its_keys_does_not_start(kdc: Kdc, tmp_path: Path) -> None:
    with pytest.raises(KeytabInvalid, match="no usable key of nfs/elsewhere"):
        with gateway_of(kdc, tmp_path / "home", principal="nfs/elsewhere"):
            pass
    with gateway_of(kdc, tmp_path / "home2", principal="") as gateway:
        assert over_http(gateway, kdc.ticket("ann")) == ANSWER
        with pytest.raises(Refused, match="this door takes no tickets"):
            by_gssapi(gateway, kdc.ticket("ann"))


def test_the_doctor_looks_at_the_keytab(kdc: Kdc, tmp_path: Path) -> None:
    keytab = tmp_path / "keytab"
    shutil.copy(kdc.keytab, keytab)

    def results(mode: int) -> dict[str, bool]:
        keytab.chmod(mode)
        names = {"principal": f"hive/{HOST}", "http_principal": "HTTP/elsewhere"}
        authentication = AuthenticationSettings(kerberos=KerberosSettings(keytab=keytab, **names))
        results = examine(load(tmp_path / "home", authentication=authentication))
        return {result.detail: result.good for result in results if "keytab" in result.detail}

    of_all, of_owner = results(0o644), results(0o600)
    assert any("can be read by other users" in text for text in of_all)
    assert not any("can be read by other users" in text for text in of_owner)
    assert {text.partition(":")[0]: ok for text, ok in of_owner.items()} == {
        f"{keytab} has a key of hive/{HOST}": True,
        f"{keytab}, HTTP/elsewhere": False,
    }
