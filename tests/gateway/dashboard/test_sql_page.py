"""The page to write statements on, and the one with the rows of a result."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from engines.scripted import Pause, Script
from gateway.dashboard import sql_page
from gateway.security.authentication import Anonymous, UsersFile, user_line
from gateway.security.principals import Role
from gateway.server.app import create_app
from tests.gateway.conftest import serving
from tests.gateway.scripted_gateway import PLAN, ScriptedGateway, scripted_gateway
from tests.waiting import wait_until

ANN, BOB = ("ann", "a"), ("bob", "b")
MANY = pa.RecordBatch.from_pydict({"n": list(range(250)), "text": [None, "<b>", *["x" * 900] * 248]})


@pytest.fixture
def scripted(tmp_path: Path) -> ScriptedGateway:
    return scripted_gateway(tmp_path / "home")


@pytest.fixture
def client(scripted: ScriptedGateway, tmp_path: Path) -> Iterator[httpx.Client]:
    users = tmp_path / "users"
    users.write_text("\n".join(user_line(*login, Role.READER) for login in (ANN, BOB)), encoding="utf-8")
    scripted.gateway.authenticator = UsersFile(users, anonymous=Anonymous.NEVER)
    scripted.fast.script("many", Script((MANY.slice(0, 130), MANY.slice(130)), plan=PLAN))
    scripted.fast.script("slow", Script((Pause.UNTIL_ENDED,), plan=PLAN))
    with serving(create_app(scripted.gateway)) as client:
        client.auth = ANN
        yield client


def sent(client: httpx.Client, sql: str, **form: str) -> str:
    """Run a statement and return the address of its rows once it has ended."""
    reply = client.post("/dashboard/sql", data={"sql": sql, "do": "run", **form})
    assert reply.status_code == 303, reply.text
    address = reply.headers["location"]
    wait_until(lambda: "data-refresh-s" not in client.get(address).text, "it ends")
    return str(address)


def test_a_statement_runs_and_its_rows_come_in_pages(client: httpx.Client) -> None:
    address = sent(client, "SELECT 'many' AS a")
    seen: list[str] = []
    following: str | None = address
    while following:
        text = client.get(following).text
        seen += re.findall(r"<tr><td>(\d+)</td>", text)
        more = re.search(r'<a href="([^"]*)" rel="next">', text)
        following = html.unescape(more.group(1)) if more else None
    assert seen, client.get(address).text
    assert seen == [str(number) for number in range(250)]
    first = client.get(address).text
    assert "<td>NULL</td>" in first and "<td>&lt;b&gt;</td>" in first and "<b>" not in first
    assert "x" * sql_page.LONGEST_CELL + "…" in first and "x" * (sql_page.LONGEST_CELL + 1) not in first
    assert "Rows before" in client.get(f"{address}?first=200").text
    assert client.get(f"{address}?first=-5").status_code == 200
    assert "Rows before" in client.get(f"{address}?first=99999999999").text
    assert 'href="/v1/queries/' in first and "result?format=csv" in first


def test_the_last_rows_are_in_files_only(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_page, "LAST_ROW", 200)
    address = sent(client, "SELECT 'many' AS a")
    last = client.get(f"{address}?first=100").text
    assert "More rows are in the files above" in last and 'rel="next"' not in last


def test_explaining_runs_nothing_and_keeps_the_text(client: httpx.Client, scripted: ScriptedGateway) -> None:
    reply = client.post("/dashboard/sql", data={"sql": "SELECT 'many' AS a", "do": "explain", "engine": "spark"})
    assert reply.status_code == 200
    assert "It was sent to spark because the client asked for it by name" in html.unescape(reply.text)
    assert "SELECT &#39;many&#39; AS a</textarea>" in reply.text
    assert '<option value="spark" selected>' in reply.text
    assert scripted.fast.asked == scripted.dependable.asked == []


def test_an_error_is_shown_at_its_place(client: httpx.Client) -> None:
    wrong = "SELECT a\nFROM nowhere"
    explained = client.post("/dashboard/sql", data={"sql": wrong, "do": "explain"})
    assert "At line 2, column 6" in explained.text and "<mark>nowhere</mark>" in explained.text
    rows = client.get(sent(client, wrong)).text
    assert "UNKNOWN_<wbr>TABLE" in rows and "<mark>nowhere</mark>" in rows


def test_history_is_the_users_own(client: httpx.Client) -> None:
    address = sent(client, "SELECT 'many' AS a")
    query_id = address.split("/")[3]
    page = client.get(f"/dashboard/sql?query={query_id}").text
    assert page.count("SELECT &#39;many&#39; AS a") == 2  # in the editor, and in the history
    for path in (f"/dashboard/sql?query={query_id}", "/dashboard/sql"):
        assert "many" not in client.get(path, auth=BOB).text
    refused = client.get(address, auth=BOB)
    assert (refused.status_code, "xxx" in refused.text) == (403, False)


def test_a_running_query_can_be_cancelled_where_its_rows_would_be(client: httpx.Client) -> None:
    address = client.post("/dashboard/sql", data={"sql": "SELECT 'slow' AS a", "do": "run"}).headers["location"]
    page = client.get(address).text
    assert ">Cancel</button>" in page and "data-refresh-s" in page
    assert client.post(address.replace("/rows", "/cancel")).status_code == 303
    wait_until(lambda: "Cancelled" in client.get(address).text, "it is cancelled")


@pytest.mark.parametrize(
    ("form", "status", "code"),
    [
        ({"sql": "x" * 300_000}, 303, ""),
        ({"sql": "SELECT 1", "dialect": "klingon"}, 303, ""),
        ({"sql": "SELECT 1", "engine": "nowhere"}, 400, "UNKNOWN_<wbr>ENGINE"),
        ({"sql": "SELECT 1", "database": "nowhere"}, 400, "UNKNOWN_<wbr>DATABASE"),
    ],
)
def test_what_the_form_cannot_send_is_refused(
    client: httpx.Client, form: dict[str, str], status: int, code: str
) -> None:
    reply = client.post("/dashboard/sql", data={**form, "do": "run"})
    assert reply.status_code == status
    assert code in reply.text


def test_a_setting_takes_the_page_away(client: httpx.Client, scripted: ScriptedGateway) -> None:
    address = sent(client, "SELECT 'many' AS a")
    settings = scripted.gateway.settings
    server = settings.server.model_copy(update={"sql_page": False})
    scripted.gateway.settings = settings.model_copy(update={"server": server})
    for path in ("/dashboard/sql", address):
        assert client.get(path).status_code == 404
    assert client.post("/dashboard/sql", data={"sql": "SELECT 1", "do": "run"}).status_code == 404
    assert "/dashboard/sql" not in client.get("/dashboard").text
    assert "/rows" not in client.get(address.removesuffix("/rows")).text


def test_pages_of_other_sites_run_nothing(client: httpx.Client, scripted: ScriptedGateway) -> None:
    form = {"sql": "SELECT 'many' AS a", "do": "run"}
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post("/dashboard/sql", data=form, headers=headers).status_code == 403
    assert client.post("/dashboard/sql", data=form, auth=httpx.BasicAuth("eve", "no")).status_code == 401
    assert scripted.fast.asked == []
