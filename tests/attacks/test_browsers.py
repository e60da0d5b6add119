"""Pages of others: names that lead to this machine, requests from elsewhere, and what our own pages may load."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway.security import web
from gateway.security.web import SECURITY_HEADERS, BrowserRules, machine_names
from tests.attacks.doors import Served

PAGES = (
    "/",
    "/docs",
    "/openapi.json",
    "/dashboard",
    "/v1/queries",
    "/v1/tables",
    "/readyz",
    "/dashboard/none",
    "/none",
)
OUTSIDE = re.compile(r"(?:src|href|action)=[\"']?(?:https?:)?//", re.IGNORECASE)
STATEMENT = {"sql": "SELECT 1", "wait_s": 30}


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8650",
        "localhost.evil.example",
        "evillocalhost",
        "127.1.evil.example",
        "localhost:1@evil.example",
        "[::1]@evil.example",
    ],
)
def test_a_page_that_took_our_address_is_refused(duckdb_gateway: Served, host: str) -> None:
    with duckdb_gateway.http() as client:
        headers = {"Host": host}
        replies = [client.get(page, headers=headers) for page in PAGES]
        replies.append(client.post("/v1/queries", json=STATEMENT, headers=headers))
        thrift = {**headers, "Content-Type": "application/x-thrift"}
        replies.append(client.post("/cliservice", content=b"\x80", headers=thrift))
        assert {reply.status_code for reply in replies} == {421}
        assert {reply.json()["error"]["code"] for reply in replies} == {"UNKNOWN_HOST"}
        assert client.get("/livez", headers=headers).is_success  # tells nothing


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "localhost.", "dev.localhost", "[::1]:8650", "192.0.2.7:80"]
)
def test_our_own_names_and_addresses_are_taken(duckdb_gateway: Served, host: str) -> None:
    with duckdb_gateway.http() as client:
        assert client.get("/v1/tables", headers={"Host": host}).is_success


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Origin": "file://"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
    ids=str,
)
def test_a_page_elsewhere_changes_nothing(duckdb_gateway: Served, headers: dict[str, str]) -> None:
    with duckdb_gateway.http() as client:
        before = client.get("/v1/queries").json()["queries"][:1]
        replies = [
            client.post("/v1/queries", json=STATEMENT, headers=headers),
            client.post(
                "/v1/queries", content=b'{"sql": "SELECT 1"}', headers={**headers, "Content-Type": "text/plain"}
            ),
            client.post("/v1/tables", json={"name": "a", "location": "/"}, headers=headers),
            client.delete("/v1/queries/none", headers=headers),
            client.patch("/v1/stats/schedules/none", json={}, headers=headers),
            client.post("/cliservice", content=b"\x80", headers={**headers, "Content-Type": "application/x-thrift"}),
        ]
        assert {reply.status_code for reply in replies} == {403}
        assert {reply.json()["error"]["code"] for reply in replies} == {"CROSS_SITE_REQUEST"}
        assert client.get("/v1/queries").json()["queries"][:1] == before


def test_our_own_page_and_programs_may(duckdb_gateway: Served) -> None:
    with duckdb_gateway.http() as client:
        own = {"Origin": duckdb_gateway.url, "Sec-Fetch-Site": "same-origin"}
        for headers in (own, {}, {"Sec-Fetch-Site": "none"}):
            assert client.post("/v1/queries", json=STATEMENT, headers=headers).is_success


@pytest.mark.parametrize("page", PAGES)
def test_every_reply_binds_browsers(duckdb_gateway: Served, page: str) -> None:
    with duckdb_gateway.http() as client:
        reply = client.get(page)
    assert SECURITY_HEADERS.keys() <= {name.title() for name in reply.headers} | set(SECURITY_HEADERS)
    for name in SECURITY_HEADERS:
        assert name in reply.headers, name
    assert "frame-ancestors 'none'" in reply.headers["Content-Security-Policy"]
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert not OUTSIDE.search(reply.text)
    assert "server" not in reply.headers


def test_the_description_of_the_interface_needs_no_script(duckdb_gateway: Served) -> None:
    with duckdb_gateway.http() as client:
        text = client.get("/docs").text
    assert "<script" not in text
    assert "POST /v1/queries" in text
    assert "max_rows" in text


@pytest.mark.parametrize("page", [page for page in PAGES if page != "/readyz"])
def test_every_page_is_behind_the_login(closed: Served, page: str) -> None:
    if page == "/none":
        return
    assert httpx.get(f"{closed.url}{page}").status_code == 401
    assert httpx.get(f"{closed.url}{page}", auth=("joe", "right")).status_code in (200, 307, 404)


def test_names_and_origins_of_the_settings_are_taken(closed: Served) -> None:
    with closed.http("joe", "right") as client:
        assert client.get("/v1/tables", headers={"Host": "SQL.example:443"}).is_success
        told = {"Host": "sql.example", "Origin": "https://notebook.example", "Sec-Fetch-Site": "cross-site"}
        assert client.post("/v1/explain", json={"sql": "SELECT 1"}, headers=told).status_code != 421
        assert client.post("/v1/explain", json={"sql": "SELECT 1"}, headers=told).status_code != 403


@pytest.fixture
def unknown_names() -> Iterator[None]:
    """Have the machine's names asked for anew."""
    machine_names.cache_clear()
    yield
    machine_names.cache_clear()


@pytest.mark.usefixtures("unknown_names")
@pytest.mark.parametrize(
    ("told", "called", "taken"),
    [
        ("box.corp.example", "BOX.corp.example:8650", True),
        ("box.corp.example", "box", True),
        ("box.corp.example", "box.local", True),
        ("box.corp.example", "corp.example", False),
        ("box.corp.example", "box.corp.example.evil.example", False),
        ("evil.example", "evil.example", False),  # a name server does not name others
        ("box", "box.corp.example", False),
    ],
)
def test_the_full_name_of_the_machine_is_its_own(
    monkeypatch: pytest.MonkeyPatch, told: str, called: str, taken: bool
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    monkeypatch.setattr(socket, "getfqdn", lambda: told)
    refusal = BrowserRules(machine_names()).refusal("GET", [(b"host", called.encode())])
    assert (refusal is None) is taken


@pytest.mark.usefixtures("unknown_names")
def test_nobody_waits_for_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    monkeypatch.setattr(socket, "getfqdn", lambda: str(answered.wait(60)))
    monkeypatch.setattr(web, "LOOKUP_S", 0.01)
    try:
        assert machine_names() == {"box", "box.local"}
    finally:
        answered.set()


def test_a_header_that_comes_twice_is_refused() -> None:
    twice = BrowserRules([]).refusal("GET", [(b"host", b"localhost"), (b"host", b"evil.example")])
    assert twice is not None
    assert twice.code == "BAD_REQUEST"


def test_any_name_where_that_is_wanted(tmp_path: Path) -> None:
    assert BrowserRules(["*"]).refusal("GET", [(b"host", b"anything")]) is None
