"""Real clients with tokens of a real provider, at every door."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import httpx
import pyarrow.flight as flight
import pytest
from adbc_driver_flightsql import DatabaseOptions
from impala import dbapi as impyla  # type: ignore[import-untyped]  # it has no types, like the next ones
from impala.error import HiveServer2Error, HttpError  # type: ignore[import-untyped]  # as above
from pyhive import hive  # type: ignore[import-untyped]  # as above
from thrift.transport.THttpClient import THttpClient  # type: ignore[import-untyped]  # as above
from thrift.transport.TTransport import TTransportException  # type: ignore[import-untyped]  # as above

from gateway.drivers.flight.messages import pack
from gateway.drivers.flight.protocol.flight_sql_pb2 import CommandStatementQuery
from gateway.security.authentication import Anonymous, user_line
from gateway.security.identity.settings import OidcSettings
from gateway.security.principals import Role
from gateway.settings import AuthenticationSettings
from tests.gateway.drivers.flight.conftest import flight_port
from tests.gateway.drivers.hs2.conftest import Drivers
from tests.gateway.drivers.hs2.conftest import scripted as scripted_drivers
from tests.gateway.drivers.hs2.test_beeline import command as beeline
from tests.gateway.drivers.hs2.test_beeline import url as beeline_url
from tests.gateway.security.identity.provider import ANN, AUDIENCE, OidcProvider, running

pytestmark = pytest.mark.e2e
SQL = "SELECT 42 AS answer"
ANSWER = 42
FLOOD = 100
JOES = ("right", "wrong")  # passwords
SHORT_S, WITHIN_S = 4, 10.0
EXPIRED, NOT_OURS = "The login has expired|The token has expired", "its audience"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway with all doors, and the provider of its users."""

    drivers: Drivers
    flight: str
    provider: OidcProvider

    @property
    def url(self) -> str:
        return f"http://{self.drivers.host}:{self.drivers.http_port}"


@contextmanager
def gateway_of(provider: OidcProvider, home: Path) -> Iterator[Gateway]:
    users = home.parent / "users"
    users.write_text(user_line("joe", JOES[0]), encoding="utf-8")
    authentication = AuthenticationSettings(
        users_file=users,
        anonymous=Anonymous.NEVER,
        default_role=Role.READER,
        group_roles={"analysts": Role.WRITER, "operators": Role.OPERATOR},
        oidc=OidcSettings(
            issuer=provider.issuer,
            audience=(AUDIENCE,),
            username_claim="preferred_username",
            clock_skew_s=0.0,
            keys_refresh_s=10.0,
        ),
    )
    with scripted_drivers(home, authentication=authentication) as drivers, flight_port(drivers.gateway) as server:
        yield Gateway(drivers, server.address, provider)


@pytest.fixture(scope="module")
def gateway(provider_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running(provider_folder) as provider:
        with gateway_of(provider, tmp_path_factory.mktemp("gateway") / "home") as served:
            yield served


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def over_http(gateway: Gateway, token: str) -> int:
    reply = httpx.post(f"{gateway.url}/v1/queries", json={"sql": SQL, "wait_s": 30}, headers=bearer(token))
    if not reply.is_success:
        raise PermissionError(reply.json()["error"]["code"], reply.json()["error"]["message"])
    return int(reply.json()["rows"][0][0])


def over_basic(gateway: Gateway, token: str) -> int:
    reply = httpx.post(f"{gateway.url}/v1/queries", json={"sql": SQL, "wait_s": 30}, auth=("token", token))
    if not reply.is_success:
        raise PermissionError(reply.json()["error"]["code"], reply.json()["error"]["message"])
    return int(reply.json()["rows"][0][0])


def impyla_connection(gateway: Gateway, token: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the missing TLS
        return impyla.connect(
            host=gateway.drivers.host,
            port=gateway.drivers.http_port,
            use_http_transport=True,
            http_path="cliservice",
            auth_mechanism="JWT",
            jwt=token,
            timeout=30,
        )


def by_impyla(gateway: Gateway, token: str) -> int:
    connection = impyla_connection(gateway, token)
    try:
        cursor = connection.cursor()
        cursor.execute(SQL)
        answer = int(cursor.fetchall()[0][0])
        cursor.close()
        return answer
    finally:
        with suppress(AttributeError):  # impyla's, after a refusal
            connection.close()


def by_pyhive(gateway: Gateway, token: str) -> int:
    connection = hive.connect(gateway.drivers.host, gateway.drivers.port, username="token", password=token, auth="LDAP")
    with closing(connection), closing(connection.cursor()) as cursor:
        cursor.execute(SQL)
        return int(cursor.fetchall()[0][0])


def by_adbc(gateway: Gateway, token: str) -> int:
    options = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"}
    with adbc.connect(f"grpc://{gateway.flight}", db_kwargs=options, autocommit=True) as connection:
        with connection.cursor() as cursor:
            cursor.execute(SQL)
            row = cursor.fetchone()
            assert row is not None
            return int(row[0])


def by_adbc_password(gateway: Gateway, token: str) -> int:
    options = {"username": "ann", "password": token}
    with adbc.connect(f"grpc://{gateway.flight}", db_kwargs=options, autocommit=True) as connection:
        with connection.cursor() as cursor:
            cursor.execute(SQL)
            row = cursor.fetchone()
            assert row is not None
            return int(row[0])


def by_pyarrow(gateway: Gateway, token: str) -> int:
    """Send the token with each call, as a client does that keeps no session."""
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=30)
    with flight.connect(f"grpc://{gateway.flight}") as client:
        command = pack(CommandStatementQuery(query=SQL))
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command), options)
        table = client.do_get(info.endpoints[0].ticket, options).read_all()
        return int(table.column(0)[0].as_py())


Ask = Callable[[Gateway, str], int]
DOORS: list[Ask] = [
    *(over_http, over_basic, by_impyla, by_pyhive, by_adbc, by_adbc_password, by_pyarrow),
]
REFUSALS = (
    *(PermissionError, HttpError, HiveServer2Error, TTransportException, adbc_driver_manager.Error),
    flight.FlightUnauthenticatedError,
)


@pytest.mark.parametrize("ask", DOORS)
def test_a_token_lets_its_user_in(gateway: Gateway, ask: Ask) -> None:
    assert ask(gateway, gateway.provider.token()) == ANSWER

    record = gateway.drivers.last_query()
    assert (record.user, record.authenticated) == ("ann", True)


@pytest.mark.parametrize("way", ["SASL", "http"])
def test_beeline_sends_a_token_as_its_password(gateway: Gateway, way: str) -> None:
    login = {"joe": "token", "any": gateway.provider.token()}
    words = beeline(beeline_url(gateway.drivers, way), "--outputformat=csv2", "-e", SQL)
    ended = subprocess.run([login.get(word, word) for word in words], capture_output=True, text=True, timeout=120)
    assert f"answer\n{ANSWER}\n" in ended.stdout
    assert gateway.drivers.last_query().user == "ann"


def test_the_command_sends_its_token(gateway: Gateway) -> None:
    def said(token: str) -> str:
        environment = {**os.environ, "FUSION_URL": gateway.url, "FUSION_TOKEN": token}
        command = [str(Path(sys.executable).with_name("fusion")), "query", SQL]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        return ended.stdout + ended.stderr

    assert str(ANSWER) in said(gateway.provider.token())
    assert "AUTHENTICATION_FAILED: The token is refused: it is not a signed JWT" in said("nonsense")


@pytest.mark.parametrize("ask", DOORS)
def test_a_token_for_another_service_lets_nobody_in(gateway: Gateway, ask: Ask) -> None:
    with pytest.raises(REFUSALS) as refused:
        ask(gateway, gateway.provider.token(audience="https://mail.example"))
    assert NOT_OURS in str(refused.value) or isinstance(refused.value, HttpError)  # whose text is the status alone


@pytest.mark.parametrize("ask", [ask for ask in DOORS if ask is not by_adbc_password])  # which names another user
def test_a_token_of_a_name_in_the_users_file_is_refused(gateway: Gateway, ask: Ask) -> None:
    with pytest.raises(REFUSALS) as refused:
        ask(gateway, gateway.provider.token({"preferred_username": "joe"}))
    assert "users file" in str(refused.value) or isinstance(refused.value, HttpError)


def test_passwords_of_the_users_file_work_beside_tokens(gateway: Gateway) -> None:
    statuses = [httpx.get(f"{gateway.url}/v1/queries", auth=("joe", password)).status_code for password in JOES]
    assert statuses == [200, 401]
    options = {"username": "joe", "password": JOES[0]}
    with adbc.connect(f"grpc://{gateway.flight}", db_kwargs=options, autocommit=True) as connection:
        with connection.cursor() as cursor:
            cursor.execute(SQL)
            assert cursor.fetchone() == (ANSWER,)
    host, port = gateway.drivers.host, gateway.drivers.port
    with closing(hive.connect(host, port, username="joe", password=JOES[0], auth="LDAP")):
        pass
    with pytest.raises(TTransportException, match="is wrong"):
        hive.connect(host, port, username="joe", password=JOES[1], auth="LDAP")


def test_a_refused_token_is_challenged_as_one(gateway: Gateway) -> None:
    for token, code in (("x.y.z", "AUTHENTICATION_FAILED"), (gateway.provider.token(ttl_s=1), "LOGIN_EXPIRED")):
        time.sleep(1.2 if code == "LOGIN_EXPIRED" else 0)
        reply = httpx.get(f"{gateway.url}/v1/queries", headers={"Authorization": f"Bearer {token}"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (401, code)
        assert reply.headers["WWW-Authenticate"].startswith("Bearer ")
    assert httpx.get(f"{gateway.url}/v1/queries").headers["WWW-Authenticate"].startswith("Basic ")


def test_groups_give_roles(gateway: Gateway) -> None:
    def resume(groups: list[str]) -> int:
        token = gateway.provider.token({**ANN, "groups": groups})
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.post(f"{gateway.url}/v1/engines/duckdb/resume", headers=headers).status_code

    codes = {tuple(groups): resume(groups) for groups in ([], ["analysts"], ["analysts", "operators"])}
    assert codes[()] == codes["analysts",] == 403
    assert codes["analysts", "operators"] in (200, 204)


def test_a_session_ends_with_its_token(gateway: Gateway) -> None:
    token = gateway.provider.token(ttl_s=SHORT_S)
    over_binary = hive.connect(
        gateway.drivers.host, gateway.drivers.port, username="token", password=token, auth="LDAP"
    )
    with flight.connect(f"grpc://{gateway.flight}") as client:
        own = flight.FlightCallOptions(headers=[client.authenticate_basic_token("token", token)], timeout=WITHIN_S)
        assert list(client.list_flights(options=own)) == []
        cursor = over_binary.cursor()
        cursor.execute(SQL)
        sessions = gateway.drivers.gateway.session_counts
        assert sessions["hiveserver2"]() == 1

        time.sleep(SHORT_S)
        until_s = time.monotonic() + WITHIN_S
        while sessions["hiveserver2"]():  # without a call of the client
            assert time.monotonic() < until_s
            time.sleep(0.05)
        with pytest.raises(hive.OperationalError, match="no such"):
            cursor.execute(SQL)
        over_binary._transport.close()
        with pytest.raises(flight.FlightUnauthenticatedError, match="log in again"):
            list(client.list_flights(options=own))


def test_a_session_goes_on_with_a_newer_token(gateway: Gateway) -> None:
    transport = THttpClient(f"{gateway.url}/cliservice")

    def send(token: str) -> None:
        transport.setCustomHeaders({"Authorization": f"Bearer {token}"})

    send(gateway.provider.token(ttl_s=SHORT_S))
    cursor = hive.connect(thrift_transport=transport).cursor()
    cursor.execute("SET fusion.pool = reports")
    send(gateway.provider.token(ttl_s=600))
    cursor.execute(SQL)
    time.sleep(SHORT_S + 1.0)
    cursor.execute("SET fusion.pool")
    assert "reports" in str(cursor.fetchall())  # the same session
    send(gateway.provider.token({**ANN, "preferred_username": "zoe"}))
    with pytest.raises(hive.OperationalError, match="no such"):  # it is not zoe's
        cursor.execute(SQL)
    transport.close()


def test_strange_keys_hold_nobody_up(provider_folder: Path, tmp_path: Path) -> None:
    """A flood of tokens under keys that do not exist, while the provider is slow."""
    with running(provider_folder) as provider, gateway_of(provider, tmp_path / "home") as gateway:
        _, claims, signature = provider.token().split(".")
        provider.control(delay_s=1.0)
        provider.requests()

        def strange(number: int) -> int:
            named = urlsafe_b64encode(f'{{"alg": "RS256", "kid": "{number}"}}'.encode()).decode().rstrip("=")
            token = f"{named}.{claims}.{signature}"
            return httpx.get(f"{gateway.url}/v1/queries", headers=bearer(token), timeout=30).status_code

        with ThreadPoolExecutor(FLOOD) as pool:
            flood = [pool.submit(strange, number) for number in range(FLOOD)]
            while provider.requests() == [] and not all(each.done() for each in flood):
                time.sleep(0.01)
            began_s = time.monotonic()
            assert httpx.get(f"{gateway.url}/v1/queries", auth=("joe", JOES[0])).is_success
            assert httpx.get(f"{gateway.url}/readyz").is_success
            waited_s = time.monotonic() - began_s
            assert {each.result() for each in flood} <= {401, 503}
        assert waited_s < WITHIN_S
        provider.control(delay_s=0.0)
        assert len([path for path in provider.requests() if path == "/jwks"]) <= 1
        assert over_http(gateway, provider.token()) == ANSWER


@pytest.mark.parametrize("ask", DOORS)
def test_a_provider_that_is_down_is_no_wrong_login(provider_folder: Path, tmp_path: Path, ask: Ask) -> None:
    with running(provider_folder) as provider:
        token = provider.token()
    with gateway_of(provider, tmp_path / "home") as gateway:
        unavailable = (*REFUSALS, flight.FlightUnavailableError)
        with pytest.raises(unavailable) as refused:
            ask(gateway, token)
        assert "identity provider does not answer" in str(refused.value) or isinstance(refused.value, HttpError)
        reply = httpx.get(f"{gateway.url}/v1/queries", headers={"Authorization": f"Bearer {token}"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "IDENTITY_PROVIDER_UNAVAILABLE")
        assert reply.headers["Retry-After"]
        assert httpx.get(f"{gateway.url}/v1/queries", auth=("joe", "right")).is_success
