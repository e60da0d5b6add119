"""Users of a provider at gateways of one PostgreSQL, as processes: each answers for what another one began."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from pyhive import hive  # type: ignore[import-untyped]  # it has no types, like the next one
from thrift.transport.THttpClient import THttpClient  # type: ignore[import-untyped]  # as above
from thrift.transport.TTransport import TTransportException  # type: ignore[import-untyped]  # as above

from gateway.drivers.flight.messages import pack
from gateway.drivers.flight.protocol.flight_sql_pb2 import CommandStatementQuery
from tests.gateway.security.identity.provider import ANN, AUDIENCE, OidcProvider
from tests.gateway.security.identity.slapd import free_port
from tests.gateway.server.test_any_gateway import Served
from tests.postgresql import postgresql
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e
GONE_WITHIN_S = 30.0
SQL, ANSWER = "SELECT 40 + 2 AS answer", 42


@pytest.fixture
def gateways(
    provider: OidcProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Served, Served]]:
    settings = {
        "ANONYMOUS": "never",
        "DEFAULT_ROLE": "reader",
        "GROUP_ROLES": '{"operators": "operator"}',
        "OIDC__ISSUER": provider.issuer,
        "OIDC__AUDIENCE": f'["{AUDIENCE}"]',
        "OIDC__USERNAME_CLAIM": "preferred_username",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"FUSION_AUTHENTICATION__{name}", value)
    with postgresql() as server, ExitStack() as stack:
        served = []
        for name in ("one", "other"):
            served.append(Served(tmp_path / name, server.url, hive=free_port(), flight=free_port()))
            stack.callback(served[-1].kill)
        yield served[0], served[1]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def driver(gateway: Served, token: str, session: Any = None) -> Any:
    """Connect over HTTP. session: handle of one that is there; None: a new one."""
    transport = THttpClient(f"{gateway.http.base_url}/cliservice")
    transport.setCustomHeaders({**bearer(token), "Connection": "close"})
    connection = hive.connect(thrift_transport=transport)
    if session is not None:
        connection._sessionHandle = session
    return connection


def pool_of(connection: Any) -> str:
    cursor = connection.cursor()
    cursor.execute("SET fusion.pool")
    return str(cursor.fetchall())


def test_a_token_is_its_user_at_every_gateway(gateways: tuple[Served, Served], provider: OidcProvider) -> None:
    one, other = gateways
    ann = provider.token({**ANN, "groups": ["operators"]})
    zoe = provider.token({**ANN, "preferred_username": "zoe", "groups": []})

    asked = httpx.post(
        f"{one.http.base_url}/v1/queries", json={"sql": SQL, "wait_s": 60}, headers=bearer(ann), timeout=90
    )
    query = asked.json()["id"]
    for token, status in ((ann, 200), (zoe, 403), ("", 401)):
        headers = bearer(token) if token else {}
        reply = httpx.get(f"{other.http.base_url}/v1/queries/{query}/result", headers=headers, timeout=60)
        assert reply.status_code == status, reply.text

    options, zoes = (
        flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())]) for token in (ann, zoe)
    )
    command = flight.FlightDescriptor.for_command(pack(CommandStatementQuery(query=SQL)))
    with (
        flight.connect(f"grpc://127.0.0.1:{one.flight_port}") as here,
        flight.connect(f"grpc://127.0.0.1:{other.flight_port}") as there,
    ):
        ticket = here.get_flight_info(command, options).endpoints[0].ticket
        assert there.do_get(ticket, options).read_all().column(0)[0].as_py() == ANSWER
        with pytest.raises(pa.ArrowKeyError, match="no such result"):
            there.do_get(ticket, zoes).read_all()

    session = driver(one, ann)
    session.cursor().execute("SET fusion.pool = reports")
    handle = session._sessionHandle
    assert "reports" in pool_of(driver(other, ann, handle))  # of the gateway that lives
    with pytest.raises(hive.OperationalError, match="no such session"):
        pool_of(driver(other, zoe, handle))
    one.kill()

    def goes_on() -> bool:
        try:
            return "reports" in pool_of(driver(other, ann, handle))
        except TTransportException:  # 503: it may live
            time.sleep(0.5)  # each attempt leaves a session behind
            return False

    wait_until(goes_on, "the session goes on elsewhere", GONE_WITHIN_S)
    with pytest.raises(hive.OperationalError, match="no such session"):
        pool_of(driver(other, zoe, handle))
    drained = httpx.post(f"{other.http.base_url}/v1/engines/duckdb/resume", headers=bearer(ann), timeout=60)
    assert drained.is_success
