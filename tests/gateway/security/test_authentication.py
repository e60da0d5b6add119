"""Logins that are wrong, many at once, and a users file that is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import httpx
import pytest

from engines.scripted import Pause, Script
from gateway.errors import AuthenticationFailed
from gateway.security.authentication import WRONG, Anonymous, Login, Secret, UsersFile, UsersFileInvalid, user_line
from gateway.security.lockout import FREE_FAILURES
from gateway.server.app import create_app
from tests.gateway.conftest import hashing_held, serving
from tests.gateway.scripted_gateway import PLAN, ROWS, scripted_gateway

FLOOD = 60  # more than the threads that answer requests
WITHIN_S = 10.0


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """Return a file of users, with one."""
    file = tmp_path / "users"
    file.write_text(user_line("joe", "right"), encoding="utf-8")
    return file


@pytest.fixture
def address(tmp_path: Path, users: Path) -> Iterator[str]:
    """Serve a gateway that lets nobody in but joe."""
    gateway = scripted_gateway(tmp_path / "home").gateway
    gateway.authenticator = UsersFile(users, anonymous=Anonymous.NEVER)
    with serving(create_app(gateway)) as client:
        yield str(client.base_url)


@pytest.mark.parametrize("path", ["/v1/queries", "/cliservice"])
def test_a_flood_of_wrong_logins_holds_nobody_up(address: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert httpx.get(f"{address}/v1/queries", auth=("joe", "right")).is_success

    with httpx.Client(limits=httpx.Limits(max_connections=None), timeout=WITHIN_S) as client:

        def wrong(number: int) -> int:
            return client.post(f"{address}{path}", content=b"", auth=("joe", f"wrong {number}")).status_code

        with ThreadPoolExecutor(FLOOD) as pool, hashing_held(monkeypatch):
            flood = [pool.submit(wrong, number) for number in range(FLOOD)]
            until_s = time.monotonic() + WITHIN_S
            while sum(each.done() for each in flood) < FLOOD - FREE_FAILURES:
                assert time.monotonic() < until_s, "they wait for each other"
                time.sleep(0.01)
            assert client.get(f"{address}/readyz").is_success
            assert client.get(f"{address}/v1/queries", auth=("joe", "right")).is_success
            assert sum(each.done() for each in flood) == FLOOD - FREE_FAILURES
        assert {each.result() for each in flood} == {401}


def test_a_login_beyond_those_that_wait_is_refused_at_once(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authenticator = UsersFile(users, anonymous=Anonymous.NEVER)
    assert authenticator.authenticate(Login("joe", "right", "")).name == "joe"

    asked = FREE_FAILURES + 1
    with ThreadPoolExecutor(asked) as pool, hashing_held(monkeypatch):
        logins = [pool.submit(authenticator.authenticate, Login("joe", f"wrong {n}", "")) for n in range(asked)]
        refused, waiting = wait(logins, timeout=WITHIN_S, return_when=FIRST_COMPLETED)
        assert ["Too many wrong passwords" in str(each.exception()) for each in refused] == [True]
        known = authenticator.recognise(Login("joe", "right", ""))
        assert known is not None and known.name == "joe"
        assert authenticator.recognise(Login("joe", "wrong", "")) is None
    assert all(str(each.exception()) == WRONG for each in waiting)
    with pytest.raises(AuthenticationFailed, match=r"Try again in \d+ s"):
        authenticator.authenticate(Login("joe", "wrong", ""))
    with pytest.raises(AuthenticationFailed, match="is wrong"):
        authenticator.authenticate(Login("joe", "wrong", "192.0.2.1"))


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param(lambda line: line.replace(":scrypt:", ":scrypt:?"), id="salt"),
        pytest.param(lambda line: f"{line[:-4]}???=", id="hash"),
        pytest.param(lambda line: line[:-8], id="cut off"),
        pytest.param(lambda line: line.replace("scrypt", "bcrypt"), id="another scheme"),
        pytest.param(lambda line: f"joe:scrypt::{line.rpartition(':')[2]}", id="no salt"),
        pytest.param(lambda line: line.removeprefix("joe"), id="no name"),
        pytest.param(lambda line: f"{line}é", id="a sign that base64 has not"),
    ],
)
def test_a_line_that_no_login_would_fit_is_told_when_it_is_read(users: Path, spoilt: Callable[[str], str]) -> None:
    users.write_text(f"{user_line('ann', 'x')}\n{spoilt(user_line('joe', 'right'))}\n", encoding="utf-8")

    with pytest.raises(UsersFileInvalid, match=r"Line 2 of the users file is not name:scrypt:salt:hash"):
        UsersFile(users, anonymous=Anonymous.NEVER)


def test_what_is_kept_of_a_password_reads_as_it_was_written() -> None:
    kept = Secret.of("right")

    assert Secret.read(str(kept)) == kept
    assert kept.fits("right")
    assert not kept.fits("left")


def test_who_has_a_password_has_queries_of_their_own(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("\n".join(user_line(name, "right") for name in ("ann", "joe", "olga")), encoding="utf-8")
    scripted = scripted_gateway(tmp_path / "home")
    scripted.fast.script("slow", Script(steps=(ROWS, Pause.UNTIL_ENDED), plan=PLAN))
    gateway = scripted.gateway
    gateway.authenticator = UsersFile(users, anonymous=Anonymous.LOOPBACK, operators={"olga", "eve"})
    with serving(create_app(gateway)) as client:

        def sent(sql: str, wait_s: float, user: str | None) -> str:
            auth = (user, "right") if user else httpx.USE_CLIENT_DEFAULT
            answer = client.post("/v1/queries", json={"sql": sql, "wait_s": wait_s}, auth=auth)
            return str(answer.json()["id"])

        def answers(query_id: str, user: str) -> tuple[bool, int, int]:
            """Return whether rows are shown, and the statuses of their download and of a cancel."""
            auth = (user, "right")
            shown = client.get(f"/v1/queries/{query_id}", auth=auth).json()
            assert shown["decision"]["engine"] == "duckdb"
            fetched = client.get(f"/v1/queries/{query_id}/result", auth=auth)
            cancelled = client.delete(f"/v1/queries/{query_id}", auth=auth)
            return shown["rows"] is not None, fetched.status_code, cancelled.status_code

        done = sent("SELECT 1 AS a", 30, "joe")
        assert answers(done, "ann") == answers(done, "eve") == (False, 403, 403)  # nobody proves to be eve
        assert answers(done, "joe") == answers(done, "olga") == (True, 200, 200)
        running = sent("SELECT 2 AS slow", 0, "joe")
        refused = client.delete(f"/v1/queries/{running}", auth=("ann", "right"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "NOT_YOUR_QUERY")
        assert client.delete(f"/v1/queries/{running}", auth=("joe", "right")).json()["state"] == "CANCELLED"
        assert answers(sent("SELECT 3 AS a", 30, None), "ann") == (True, 200, 200)
