"""The address that impala-shell prints of a query: it leads to the query's page."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from gateway.drivers.hs2.impala import PingReply
from gateway.drivers.hs2.protocol.messages import ExecuteRequest, OperationReply, SessionRequest
from gateway.security.authentication import Anonymous, user_line
from gateway.server.serve import reachable
from gateway.settings import AuthenticationSettings
from gateway.statements.statement import new_query_id, number_of, query_of
from tests.gateway.drivers.hs2.conftest import Drivers
from tests.gateway.drivers.hs2.wire import Client

pytestmark = pytest.mark.e2e


def printed(webserver: str | None, number: bytes) -> str:
    """Return the address as impala-shell's ``get_query_id_str`` and its shell put it together."""
    return f"{webserver}/query_plan?query_id={number[7::-1].hex()}:{number[16:7:-1].hex()}"


def ask(drivers: Drivers, password: str = "any") -> str:  # noqa: S107
    """Run a statement and return the address that is printed of it."""
    drivers.gateway.hs2.page_url = f"http://{drivers.host}:{drivers.http_port}"
    with Client(drivers, password=password) as client:
        session = client.open_session()
        webserver = client.ask("PingImpalaHS2Service", SessionRequest(session), PingReply).webserver
        operation = client.ask("ExecuteStatement", ExecuteRequest(session, "SELECT 1"), OperationReply).operation
        assert operation is not None
        assert operation.identifier is not None
        assert operation.identifier.guid is not None
        return printed(webserver, operation.identifier.guid)


def test_the_address_leads_to_the_page_of_the_query(drivers: Drivers) -> None:
    page = httpx.get(ask(drivers), follow_redirects=True)
    record = drivers.last_query()
    assert (page.status_code, page.url.path) == (200, f"/dashboard/queries/{record.id}")
    assert record.id in page.text


def test_the_page_asks_for_a_login_where_one_is_needed(
    serve: Callable[..., Drivers], tmp_path_factory: pytest.TempPathFactory
) -> None:
    users = tmp_path_factory.mktemp("users") / "users"
    users.write_text(user_line("joe", "right"), encoding="utf-8")
    drivers = serve(authentication=AuthenticationSettings(users_file=users, anonymous=Anonymous.NEVER))
    address = ask(drivers, password="right")
    refused = httpx.get(address, follow_redirects=True)
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].startswith("Basic ")
    assert httpx.get(address, auth=("joe", "right"), follow_redirects=True).status_code == 200


@pytest.mark.parametrize(
    "number",
    [
        "",
        "none",
        "1",
        "1:",
        ":",
        "-1:2",
        f"{1 << 64:x}:0",
        "0x1:é",
        "1:2:3",
        "../../x",
        "%2f%2fexample.org",
        "9" * 5_000,
    ],
)
def test_no_number_of_a_query(drivers: Drivers, number: str) -> None:
    address = f"http://{drivers.host}:{drivers.http_port}/query_plan"
    missing = httpx.get(address, params={"query_id": number}, follow_redirects=True)
    assert missing.status_code == 404


@pytest.mark.parametrize("number", [bytes(16), b"\xff" * 16])
def test_a_number_that_is_no_querys_leads_to_no_page(drivers: Drivers, number: bytes) -> None:
    missing = httpx.get(printed(f"http://{drivers.host}:{drivers.http_port}", number), follow_redirects=True)
    assert (missing.status_code, missing.headers["content-type"]) == (404, "text/html; charset=utf-8")


@pytest.mark.parametrize("query_id", ["20261231_235959_0000000000", "00010101_000000_ffffffff00"])
def test_an_id_is_found_by_its_number(query_id: str) -> None:
    assert query_of(number_of(query_id)) == query_id


def test_a_new_id_is_found_by_its_number() -> None:
    query_id = new_query_id()
    assert query_of(number_of(query_id)) == query_id


@pytest.mark.parametrize(
    ("url", "told"),
    [("http://127.0.0.1:8650", "http://127.0.0.1:8650"), ("https://[fe80::1]:1", "https://[fe80::1]:1")],
)
def test_an_address_that_others_can_follow_is_told_as_it_is(url: str, told: str) -> None:
    assert reachable(url) == told


@pytest.mark.parametrize("url", ["http://0.0.0.0:8650", "http://[::]:8650"])
def test_of_all_interfaces_the_machine_is_told_by_its_name(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Gateway")
    assert reachable(url) == "http://gateway:8650"
