"""Buttons of the pages: what they do, who may press them, and who may not send what they send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from engines.scripted import Pause, Script
from gateway.security.authentication import Anonymous, UsersFile, user_line
from gateway.security.principals import Role
from gateway.server.app import create_app
from metastore.records import AfterMisestimate, Cron, QueryState, Staleness
from tests.gateway.conftest import serving
from tests.gateway.scripted_gateway import PLAN, SMALL, TOO_BIG, ScriptedGateway, scripted_gateway
from tests.waiting import wait_until

ANN, BOB, OPERATOR = ("ann", "a"), ("bob", "b"), ("op", "c")
ACTIONS = (
    *("queries/q/cancel", "queries/q/again", "queries/q/forget", "parity/q/release", "compute", "schedules"),
    *("schedules/s/change", "schedules/s/remove", "engines/duckdb/drain"),
)


@pytest.fixture
def scripted(tmp_path: Path) -> ScriptedGateway:
    return scripted_gateway(tmp_path / "home")


@pytest.fixture
def client(scripted: ScriptedGateway, tmp_path: Path) -> Iterator[httpx.Client]:
    users = tmp_path / "users"
    roles = zip((ANN, BOB, OPERATOR), (Role.READER, Role.READER, Role.OPERATOR), strict=True)
    users.write_text("\n".join(user_line(*login, role) for login, role in roles), encoding="utf-8")
    scripted.gateway.authenticator = UsersFile(users, anonymous=Anonymous.NEVER)
    with serving(create_app(scripted.gateway)) as client:
        yield client


def asked(client: httpx.Client, sql: str, login: tuple[str, str], wait_s: float = 30.0) -> str:
    return str(client.post("/v1/queries", json={"sql": sql, "wait_s": wait_s}, auth=login).json()["id"])


def press(client: httpx.Client, action: str, login: tuple[str, str], **form: str) -> httpx.Response:
    return client.post(f"/dashboard/{action}", data=form, auth=login)


def test_a_query_is_cancelled_by_its_user_and_by_no_other(client: httpx.Client, scripted: ScriptedGateway) -> None:
    scripted.fast.script("slow", Script((Pause.UNTIL_ENDED,), plan=PLAN))
    query_id = asked(client, "SELECT 'slow' AS a", ANN, wait_s=0.0)
    page = client.get(f"/dashboard/queries/{query_id}", auth=ANN).text
    assert ">Cancel</button>" in page and ">Run again</button>" not in page
    assert ">Cancel</button>" not in client.get(f"/dashboard/queries/{query_id}", auth=BOB).text
    refused = press(client, f"queries/{query_id}/cancel", BOB)
    assert refused.status_code == 403
    assert "This was not done" in refused.text and "ACCESS_<wbr>DENIED" in refused.text
    done = press(client, f"queries/{query_id}/cancel", ANN)
    assert (done.status_code, done.headers["location"]) == (303, f"/dashboard/queries/{query_id}")
    queries = scripted.gateway.metastore.queries
    wait_until(lambda: (found := queries.get(query_id)) is not None and found.state is QueryState.CANCELLED, "it ends")


def test_a_statement_runs_again_as_who_asks(client: httpx.Client, scripted: ScriptedGateway) -> None:
    query_id = asked(client, SMALL, ANN)
    assert press(client, f"queries/{query_id}/again", BOB).status_code == 403
    again = press(client, f"queries/{query_id}/again", OPERATOR, engine="spark")
    new_id = again.headers["location"].rpartition("/")[2]
    assert again.status_code == 303 and new_id != query_id
    queries = scripted.gateway.metastore.queries
    wait_until(lambda: (found := queries.get(new_id)) is not None and found.state.ended, "it ends")
    record = queries.get(new_id)
    assert record is not None
    assert (record.user, record.sql, record.engine, record.state) == ("op", SMALL, "spark", QueryState.FINISHED)
    wrong = press(client, f"queries/{query_id}/again", ANN, engine="nowhere")
    assert (wrong.status_code, "UNKNOWN_<wbr>ENGINE" in wrong.text) == (400, True)


def test_a_page_offers_what_its_reader_may_do(client: httpx.Client) -> None:
    query_id = asked(client, TOO_BIG, ANN)
    own, others, all_ = (
        client.get(f"/dashboard/queries/{query_id}", auth=login).text for login in (ANN, BOB, OPERATOR)
    )
    assert ">Run again</button>" in own and "curl " in own and "Forget" not in own
    assert "</form>" not in others and "curl " not in others and "too big" not in others
    assert ">Run again</button>" in all_ and ">Forget the misestimate</button>" in all_
    assert press(client, f"queries/{query_id}/forget", ANN).status_code == 403
    assert press(client, f"queries/{query_id}/forget", OPERATOR).status_code == 303
    assert "Forget" not in client.get(f"/dashboard/queries/{query_id}", auth=OPERATOR).text


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_press_no_button(client: httpx.Client, action: str, headers: dict[str, str]) -> None:
    refused = client.post(f"/dashboard/{action}", data={}, auth=OPERATOR, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "CROSS_SITE_REQUEST")


@pytest.mark.parametrize("action", ACTIONS)
def test_nobody_presses_a_button_without_a_login(client: httpx.Client, action: str) -> None:
    assert client.post(f"/dashboard/{action}", data={}).status_code == 401


@pytest.mark.parametrize(
    ("action", "form", "status", "told"),
    [
        ("compute", {"table": "nowhere"}, 400, "UNKNOWN_<wbr>TABLE"),
        ("compute", {}, 400, "UNKNOWN_<wbr>TABLE"),
        ("schedules", {"name": "x", "cron": "at night"}, 400, "INVALID_<wbr>SCHEDULE"),
        ("schedules", {"name": "x" * 5_000, "cron": "0 3 * * *"}, 422, "INVALID_<wbr>BODY"),
        ("schedules/none/pause", {}, 404, "NOT_<wbr>FOUND"),
        ("schedules/none/explode", {}, 404, "no such action"),
        ("queries/none/cancel", {}, 404, "no such query"),
        ("parity/none/release", {}, 404, "no open case"),
        ("engines/nowhere/drain", {}, 400, "UNKNOWN_<wbr>ENGINE"),
        ("schedules/none/change", {"cron": "0 3 * * *"}, 404, "NOT_<wbr>FOUND"),
        ("compute", {"table": "<script>alert(1)</script>"}, 400, "&lt;script&gt;"),
    ],
)
def test_a_refusal_is_a_page(client: httpx.Client, action: str, form: dict[str, str], status: int, told: str) -> None:
    reply = press(client, action, OPERATOR, **form)
    assert (reply.status_code, reply.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert "This was not done" in reply.text and told in reply.text
    assert "<script>alert" not in reply.text


@pytest.mark.parametrize("body", [b"\xff\xfe=1", b"table=" + b"x" * 20_000])
def test_a_form_that_is_none_is_refused(client: httpx.Client, body: bytes) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/dashboard/compute", content=body, auth=OPERATOR, headers=kind).status_code in (400, 413, 422)


def test_schedules_are_added_paused_and_resumed(client: httpx.Client, scripted: ScriptedGateway) -> None:
    assert press(client, "schedules", BOB, name="n", cron="0 3 * * *").status_code == 403
    assert press(client, "schedules", OPERATOR, name="nightly", cron="0 3 * * *").status_code == 303
    schedules = scripted.gateway.metastore.schedules
    for change, paused in (("pause", True), ("resume", False)):
        assert press(client, f"schedules/nightly/{change}", OPERATOR).headers["location"] == "/dashboard/statistics"
        assert [schedule.paused for schedule in schedules.list()] == [paused]
    assert "</form>" not in client.get("/dashboard/statistics", auth=BOB).text


def test_schedules_are_changed_and_removed(client: httpx.Client, scripted: ScriptedGateway) -> None:
    press(client, "schedules", OPERATOR, name="nightly", cron="0 3 * * *", time_zone="Europe/Berlin")
    page = client.get("/dashboard/statistics", auth=OPERATOR).text
    assert 'value="0 3 * * *"' in page and 'value="Europe/Berlin"' in page
    schedules = scripted.gateway.metastore.schedules
    changed = press(client, "schedules/nightly/change", OPERATOR, cron="0 4 * * *", tables="", time_zone="UTC")
    assert changed.headers["location"] == "/dashboard/statistics"
    assert [schedule.trigger for schedule in schedules.list()] == [Cron("0 4 * * *", "UTC")]
    assert press(client, "schedules/nightly/change", OPERATOR, cron="never").status_code == 400
    assert press(client, "schedules/nightly/change", OPERATOR, stale_files="0.1", stale_days="7").status_code == 303
    assert [schedule.trigger for schedule in schedules.list()] == [Staleness(0.1, 7.0)]
    assert press(client, "schedules/nightly/remove", BOB).status_code == 403
    assert press(client, "schedules/nightly/remove", OPERATOR).status_code == 303
    assert schedules.list() == ()


def test_a_schedule_after_staleness_or_misestimates_is_added(client: httpx.Client, scripted: ScriptedGateway) -> None:
    assert press(client, "schedules", OPERATOR, name="fresh", stale_files="0.1").status_code == 303
    assert press(client, "schedules", OPERATOR, name="learn", after_misestimate="on").status_code == 303
    triggers = [schedule.trigger for schedule in scripted.gateway.metastore.schedules.list()]
    assert triggers == [Staleness(0.1, None), AfterMisestimate()]
    unclear = press(client, "schedules", OPERATOR, name="both", cron="0 3 * * *", stale_files="0.1")
    assert unclear.status_code == 400 and "runs for one reason" in unclear.text
    no_number = press(client, "schedules", OPERATOR, name="x", stale_files="many")
    assert no_number.status_code == 422 and "stale_files" in no_number.text
