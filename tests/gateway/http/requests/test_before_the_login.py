"""Nothing of a request is read before its sender is known, and bodies have one budget over all connections."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from gateway.errors import BodiesFull
from gateway.execution.coordinator import Coordinator
from gateway.http.requests.bodies import BodyBudget, largest_body
from gateway.security.authentication import Anonymous, UsersFile, user_line
from gateway.server.app import create_app
from tests.gateway.conftest import MIB, Scripted, serving

ANN, BOB = ("ann", "correct"), ("bob", "horse")
STATEMENT_BYTES = 1 * MIB
LARGEST = largest_body(STATEMENT_BYTES)


@pytest.fixture
def served(scripted: Callable[..., Scripted], tmp_path: Path) -> Iterator[httpx.Client]:
    """Serve a gateway that nobody may use without a login, with room for two of the longest bodies."""
    gateway = scripted(statement=STATEMENT_BYTES, bodies=2 * LARGEST).gateway
    users = tmp_path / "users"
    users.write_text("\n".join(user_line(*user) for user in (ANN, BOB)), encoding="utf-8")
    gateway.authenticator = UsersFile(users, anonymous=Anonymous.NEVER)
    with serving(create_app(gateway)) as client:
        yield client


def head_of(client: httpx.Client, path: str, length: int, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {client.base_url.host}", f"Content-Length: {length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def login(user: tuple[str, str]) -> str:
    return "Authorization: " + httpx.BasicAuth(*user)._auth_header


def connected(client: httpx.Client) -> socket.socket:
    assert client.base_url.port is not None
    return socket.create_connection((client.base_url.host, client.base_url.port), timeout=30)


def status_of(connection: socket.socket) -> int:
    answer = b""
    while b"\r\n" not in answer:
        piece = connection.recv(4_096)
        assert piece, "the connection was closed"
        answer += piece
    return int(answer.split()[1])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/queries",
        "/v1/explain",
        "/v1/tables",
        "/v1/stats/keys",
        "/v1/replay",
        "/cliservice",
        "/dashboard",
        "/nowhere",
    ],
)
def test_who_is_nobody_is_told_before_a_byte_of_the_body(served: httpx.Client, path: str) -> None:
    with closing(connected(served)) as connection:
        connection.sendall(head_of(served, path, LARGEST, "Content-Type: application/json"))
        assert status_of(connection) == 401


def test_health_needs_no_login(served: httpx.Client) -> None:
    assert served.get("/livez").status_code == 200
    assert served.get("/readyz").status_code == 200


def test_a_body_without_room_is_refused_before_it_comes(served: httpx.Client) -> None:
    with ExitStack() as held:
        opened = [held.enter_context(closing(connected(served))) for _ in range(2)]
        for connection, user in zip(opened, (ANN, BOB), strict=True):
            connection.sendall(head_of(served, "/v1/queries", LARGEST, login(user), "Expect: 100-continue"))
            assert status_of(connection) == 100, "there is room for this body"
        reply = served.post("/v1/explain", json={"sql": "SELECT 1"}, auth=ANN)
        assert reply.status_code == 503
        assert reply.json()["error"]["code"] == "BODIES_FULL"
        assert int(reply.headers["retry-after"]) > 0
        assert served.get("/v1/tables", auth=ANN).status_code == 200
    while served.post("/v1/explain", json={"sql": "SELECT 1"}, auth=ANN).status_code == 503:
        pass  # until the connections are seen to be closed


def test_one_user_does_not_take_all_room() -> None:
    budget = BodyBudget(100)
    budget.take("ann", 40)
    with pytest.raises(BodiesFull, match="your requests"):
        budget.take("ann", 20)
    budget.take("bob", 60)
    with pytest.raises(BodiesFull, match="all memory"):
        budget.take("eve", 1)
    budget.give_back("bob", 60)
    budget.take("eve", 50)
    budget.give_back("ann", 40)
    budget.give_back("eve", 50)
    assert budget.held_bytes == 0


def test_a_body_that_does_not_say_its_length_counts_as_it_comes(served: httpx.Client) -> None:
    for path in ("/v1/queries", "/v1/explain", "/v1/rules/reload", "/v1/tables"):
        pieces = (b"x" * 65_536 for _ in range(LARGEST // 65_536 + 2))
        reply = served.post(path, content=pieces, auth=ANN, headers={"content-type": "application/json"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (413, "STATEMENT_TOO_LONG")
    assert served.post("/v1/explain", content=iter([b'{"sql":"SELECT 1"}']), auth=ANN).status_code == 422


def test_long_bodies_are_parsed_in_a_planner(served: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    long = json.dumps({"sql": "SELECT 1 AS one", "settings": {f"s{n}": "" for n in range(300_000)}}).encode()
    reply = served.post("/v1/queries", content=long, headers={"content-type": "application/json"}, auth=ANN)
    assert reply.status_code == 422
    assert "300,000 entries" in reply.json()["error"]["message"]
    statement = "SELECT 1 AS one -- " + "x" * 50_000
    assert served.post("/v1/queries", json={"sql": statement}, auth=ANN).json()["sql"] == statement
    monkeypatch.setattr(Coordinator, "read", lambda *_: "it was read in a planner")
    for path, model in (("/v1/queries", long), ("/v1/explain", long), ("/v1/tables", long), ("/v1/replay", long)):
        told = served.post(path, content=model, headers={"content-type": "application/json"}, auth=ANN).json()
        assert told["error"]["message"] == "it was read in a planner"
