"""Real clients with tokens of service accounts, at every door, and at several gateways of one PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pyarrow.flight as flight
import pytest
from pyhive import hive  # type: ignore[import-untyped]  # it has no types, like the next one
from thrift.transport.TTransport import TTransportException  # type: ignore[import-untyped]  # as above

from gateway.security.authentication import Anonymous, user_line
from gateway.security.principals import Role
from gateway.settings import AuthenticationSettings
from tests.gateway.drivers.flight.conftest import flight_port
from tests.gateway.drivers.hs2.conftest import scripted as scripted_drivers
from tests.gateway.security.identity.slapd import free_port
from tests.gateway.security.identity.test_doors import (
    ANSWER,
    DOORS,
    REFUSALS,
    SQL,
    Ask,
    Gateway,
    bearer,
    by_adbc_password,
)
from tests.gateway.server.test_any_gateway import Served
from tests.postgresql import postgresql
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e
ROOT = ("root", "right")
ROUTE = "/v1/service-accounts"
ACCOUNT_DOORS = [ask for ask in DOORS if ask is not by_adbc_password]
GONE_WITHIN_S = 1.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("gateway") / "home"
    users = home.parent / "users"
    users.write_text(f"{user_line(*ROOT, Role.ADMIN)}\n{user_line('joe', 'right', Role.OPERATOR)}\n", encoding="utf-8")
    authentication = AuthenticationSettings(users_file=users, anonymous=Anonymous.NEVER, default_role=Role.READER)
    with scripted_drivers(home, authentication=authentication) as drivers, flight_port(drivers.gateway) as server:
        yield Gateway(drivers, server.address, None)  # type: ignore[arg-type]  # no provider is needed


def added(url: str, name: str, **more: Any) -> str:
    reply = httpx.post(f"{url}{ROUTE}", json={"name": name, **more}, auth=ROOT, timeout=30)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["token"])


def revoke(url: str, name: str) -> None:
    assert httpx.delete(f"{url}{ROUTE}/{name}", auth=ROOT, timeout=30).is_success


@pytest.mark.parametrize("ask", ACCOUNT_DOORS)
def test_a_token_comes_in_at_every_door_until_it_is_revoked(gateway: Gateway, ask: Ask) -> None:
    name = f"etl_{ask.__name__}"
    token = added(gateway.url, name)
    assert ask(gateway, token) == ANSWER
    record = gateway.drivers.last_query()
    assert (record.user, record.authenticated) == (name, True)
    revoke(gateway.url, name)
    with pytest.raises(REFUSALS):
        ask(gateway, token)


def test_sessions_of_drivers_end_with_their_token(gateway: Gateway) -> None:
    token = added(gateway.url, "sessions")
    host, port = gateway.drivers.host, gateway.drivers.port
    with closing(hive.connect(host, port, username="token", password=token, auth="LDAP")) as connection:
        cursor = connection.cursor()
        cursor.execute(SQL)
        with flight.connect(f"grpc://{gateway.flight}") as client:
            own = flight.FlightCallOptions(headers=[client.authenticate_basic_token("token", token)], timeout=30)
            assert list(client.list_flights(options=own)) == []
            revoke(gateway.url, "sessions")
            with pytest.raises(flight.FlightUnauthenticatedError):
                list(client.list_flights(options=own))
        with pytest.raises(hive.OperationalError):
            cursor.execute(SQL)
        wait_until(lambda: gateway.drivers.gateway.session_counts["hiveserver2"]() == 0, "the sessions are closed")
        connection._transport.close()
        connection.close = lambda: None


def test_only_administrators_have_to_do_with_accounts(gateway: Gateway) -> None:
    added(gateway.url, "mine")
    for auth in (("joe", "right"), None):
        status = 403 if auth else 401
        answers = (
            httpx.get(f"{gateway.url}{ROUTE}", auth=auth),
            httpx.post(f"{gateway.url}{ROUTE}", json={"name": "more"}, auth=auth),
            httpx.post(f"{gateway.url}{ROUTE}/mine/rotate", json={}, auth=auth),
            httpx.delete(f"{gateway.url}{ROUTE}/mine", auth=auth),
        )
        assert [answer.status_code for answer in answers] == [status] * 4
    by_token = added(gateway.url, "administrator", role="admin")
    shown = httpx.get(f"{gateway.url}{ROUTE}", headers=bearer(by_token))
    assert {"mine", "administrator"} <= {account["name"] for account in shown.json()["service_accounts"]}
    assert "token" not in shown.text.replace(by_token, "")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "joe"}, 409, "NAME_IN_USE"),
        ({"name": "twice"}, 409, "NAME_IN_USE"),
        ({"name": "token"}, 422, "INVALID_BODY"),
        ({"name": "a:b"}, 422, "INVALID_BODY"),
        ({"name": "late", "expires_s": 1.0}, 422, "INVALID_BODY"),
        ({"name": "late", "expires_s": 1e9}, 422, "INVALID_BODY"),
        ({"name": "late", "role": "king"}, 422, "INVALID_BODY"),
    ],
)
def test_accounts_that_cannot_be(gateway: Gateway, body: dict[str, Any], status: int, code: str) -> None:
    httpx.post(f"{gateway.url}{ROUTE}", json={"name": "twice"}, auth=ROOT)
    reply = httpx.post(f"{gateway.url}{ROUTE}", json=body, auth=ROOT)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)


def test_the_command_line(gateway: Gateway) -> None:
    def fusion(*words: str, token: str = "") -> str:
        login = {"FUSION_TOKEN": token} if token else {"FUSION_USER": ROOT[0], "FUSION_PASSWORD": ROOT[1]}
        command = [str(Path(sys.executable).with_name("fusion")), *words]
        environment = {**os.environ, "FUSION_URL": gateway.url, **login}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    account = ("service-account", "add", "loader", "--role", "writer", "--groups", "a, b", "--expires", "5d")
    first = fusion(*account).strip()
    assert str(ANSWER) in fusion("query", SQL, token=first)
    shown = fusion("service-account", "list")
    assert "loader" in shown
    assert "rotate" in shown  # within 14 days
    second = fusion("service-account", "rotate", "loader", "--overlap", "1h").strip()
    for token in (first, second):
        assert str(ANSWER) in fusion("query", SQL, token=token)
    listed = json.loads(fusion("service-account", "list", "--json"))["service_accounts"]
    (loader,) = [account for account in listed if account["name"] == "loader"]
    assert (loader["role"], loader["groups"], loader["created_by"]) == ("writer", ["a", "b"], "root")
    fusion("service-account", "revoke", "loader")
    for token in (first, second):
        assert httpx.get(f"{gateway.url}/v1/queries", headers=bearer(token)).status_code == 401


@pytest.fixture
def gateways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Served, Served]]:
    users = tmp_path / "users"
    users.write_text(user_line(*ROOT, Role.ADMIN), encoding="utf-8")
    monkeypatch.setenv("FUSION_AUTHENTICATION__USERS_FILE", str(users))
    monkeypatch.setenv("FUSION_AUTHENTICATION__ANONYMOUS", "never")
    monkeypatch.setenv("FUSION_CATALOG__ROOTS", json.dumps([str(tmp_path)]))
    with postgresql() as server, ExitStack() as stack:
        served = []
        for name in ("one", "other"):
            served.append(Served(tmp_path / name, server.url, hive=free_port(), flight=free_port()))
            stack.callback(served[-1].kill)
        yield served[0], served[1]


def test_a_token_counts_and_ends_at_all_gateways(gateways: tuple[Served, Served]) -> None:
    one, other = gateways
    address = str(one.http.base_url)
    token = added(address, "etl")
    asked = httpx.post(
        f"{other.http.base_url}/v1/queries", json={"sql": SQL, "wait_s": 60}, headers=bearer(token), timeout=90
    )
    assert asked.json()["rows"] == [[ANSWER]]
    result = f"{address}/v1/queries/{asked.json()['id']}/result"
    assert httpx.get(result, headers=bearer(token), timeout=60).is_success  # by way of the other one

    connection = hive.connect("127.0.0.1", other.hive_port, username="token", password=token, auth="LDAP")
    cursor = connection.cursor()
    cursor.execute(SQL)
    revoke(address, "etl")

    def is_refused() -> bool:
        return httpx.get(f"{other.http.base_url}/v1/queries", headers=bearer(token)).status_code == 401

    wait_until(is_refused, "the other gateway knows of it", GONE_WITHIN_S)
    with pytest.raises((hive.OperationalError, TTransportException)):
        cursor.execute(SQL)
    connection._transport.close()
