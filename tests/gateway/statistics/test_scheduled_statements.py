"""Scheduled statements over a real gateway: they run in turn as their owner, and none runs twice."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.scripted import Pause, Script
from gateway.errors import JobRunning
from gateway.security.authentication import user_line
from gateway.security.principals import Principal, Role
from gateway.server.app import create_app
from gateway.settings import AuthenticationSettings
from metastore.discovery.inspection import inspect
from metastore.records import Cron, QueryRecord, QueryState, Schedule
from sql.errors import AccessDenied
from tests.gateway.conftest import serving
from tests.gateway.scripted_gateway import PLAN, ROWS, ScriptedGateway, scripted_gateway
from tests.waiting import wait_until

ROUTE = "/v1/stats/schedules"
NIGHTLY = Cron("0 3 1 1 *")  # no test waits for it
PASSWORD = "of everybody"  # noqa: S105 - of users that this test makes
USERS = {"alice": Role.WRITER, "bob": Role.WRITER, "olga": Role.OPERATOR}
ALICE, OLGA = (Principal(name, USERS[name], authenticated=True) for name in ("alice", "olga"))


def of(*statements: str, name: str = "tidy") -> Schedule:
    return Schedule(name, (), NIGHTLY, dt.datetime.now(dt.UTC), statements=statements)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    file = tmp_path / "users"
    write_users(file, USERS)
    return file


def write_users(file: Path, users: dict[str, Role]) -> None:
    written = file.with_suffix(".new")
    written.write_text("".join(f"{user_line(name, PASSWORD, role)}\n" for name, role in users.items()), "utf-8")
    written.rename(file)


@pytest.fixture
def open_gateway(
    tmp_path: Path, users: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], ScriptedGateway]]:
    monkeypatch.setattr("gateway.statistics.schedule_runner.TAKE_OVER_EVERY_S", 0.2)
    monkeypatch.setattr("gateway.statistics.scheduled_runs.END_NOTICED_WITHIN", dt.timedelta(seconds=0.5))
    opened: list[ScriptedGateway] = []

    def build() -> ScriptedGateway:
        login = AuthenticationSettings(users_file=users, anonymous="never")
        built = scripted_gateway(tmp_path / "home", authentication=login)
        built.gateway.start()
        opened.append(built)
        return built

    yield build
    for built in opened:
        built.gateway.close()


def ended(built: ScriptedGateway, name: str = "tidy") -> Schedule:
    """Wait until a schedule's run has ended."""
    schedules = built.gateway.metastore.schedules

    def is_over() -> bool:
        schedule = schedules.get(name)
        return schedule is not None and schedule.last_run_at is not None and not schedule.running

    wait_until(is_over)
    schedule = schedules.get(name)
    assert schedule is not None
    return schedule


def has_failed(built: ScriptedGateway, *, times: int) -> bool:
    schedule = built.gateway.schedules.get("tidy")
    return schedule.failures == times and not schedule.running


def queries(built: ScriptedGateway) -> list[QueryRecord]:
    """Return all statements on record, the oldest first."""
    return list(built.gateway.metastore.queries.search(descending=False, limit=99))


def test_statements_run_in_turn_as_their_owner(open_gateway: Callable[[], ScriptedGateway]) -> None:
    built = open_gateway()
    built.gateway.schedules.add(of("SELECT 1", "CREATE VIEW ones AS SELECT 1 AS one", "SELECT one FROM ones"), by=ALICE)
    assert built.gateway.schedules.run("tidy", by=OLGA) is None
    schedule = ended(built)
    assert (schedule.last_error, schedule.failures) == (None, 0)
    ran = queries(built)
    assert [query.sql for query in ran] == list(schedule.statements)
    assert {(query.user, query.state) for query in ran} == {("alice", QueryState.FINISHED)}
    assert schedule.last_query_id == ran[-1].id
    assert "ones" in built.gateway.catalog.current().views
    assert schedule.next_run_at is not None and schedule.next_run_at > dt.datetime.now(dt.UTC)


def test_the_first_that_fails_is_the_last_and_is_not_repeated(open_gateway: Callable[[], ScriptedGateway]) -> None:
    built = open_gateway()
    for failures in (1, 2):
        if failures == 1:
            built.gateway.schedules.add(of("SELECT 1", "SELECT x FROM nowhere", "SELECT 3"), by=ALICE)
        built.gateway.schedules.run("tidy", by=ALICE)
        wait_until(partial(has_failed, built, times=failures))
    schedule = ended(built)
    assert "UNKNOWN_TABLE" in (schedule.last_error or "")
    assert schedule.retries == 0
    assert [query.sql for query in queries(built) if query.state is QueryState.FINISHED] == ["SELECT 1"] * 2
    assert "SELECT 3" not in {query.sql for query in queries(built)}


@pytest.mark.parametrize(("left", "code"), [({}, "AUTHENTICATION_FAILED"), ({"alice": Role.READER}, "ACCESS_DENIED")])
def test_the_owner_has_the_rights_of_now(
    open_gateway: Callable[[], ScriptedGateway], users: Path, left: dict[str, Role], code: str
) -> None:
    built = open_gateway()
    built.gateway.schedules.add(of("CREATE VIEW ones AS SELECT 1 AS one"), by=ALICE)
    write_users(users, {"olga": Role.OPERATOR} | left)
    built.gateway.schedules.run("tidy", by=OLGA)
    assert code in (ended(built).last_error or "")
    assert not built.gateway.catalog.current().views


def test_nothing_is_sent_again_after_its_gateway_has_ended(open_gateway: Callable[[], ScriptedGateway]) -> None:
    built = open_gateway()
    for engine in (built.fast, built.dependable):
        engine.script("slow", Script(steps=(Pause.UNTIL_ENDED, ROWS), plan=PLAN))
    built.gateway.schedules.add(of("SELECT 'slow' AS answer", "SELECT 2"), by=ALICE)
    built.gateway.schedules.run("tidy", by=ALICE)
    wait_until(lambda: bool(queries(built)) and queries(built)[0].state is QueryState.RUNNING)
    with pytest.raises(JobRunning):
        built.gateway.schedules.run("tidy", by=ALICE)
    built.gateway.close()
    again = open_gateway()
    schedule = ended(again)
    assert schedule.last_error is not None
    assert f"query {schedule.last_query_id} was its last one" in schedule.last_error
    assert [query.sql for query in queries(again)] == ["SELECT 'slow' AS answer"]


def test_a_lake_table_is_tidied(open_gateway: Callable[[], ScriptedGateway], tmp_path: Path) -> None:
    deltalake = pytest.importorskip(
        "deltalake", reason="delta-rs is not installed: pip install fusion-sql-gateway[lake]"
    )
    built = open_gateway()
    folder = tmp_path / "orders"
    for number in range(5):
        deltalake.write_deltalake(folder, pa.table({"id": [number]}), mode="append")
    built.gateway.metastore.catalog.put(inspect("orders", folder), at=dt.datetime.now(dt.UTC), owner="alice")
    built.gateway.schedules.add(of("OPTIMIZE orders", "VACUUM orders DRY RUN"), by=ALICE)
    built.gateway.schedules.run("tidy", by=ALICE)
    assert ended(built).last_error is None
    table = deltalake.DeltaTable(folder)
    assert (len(table.file_uris()), table.to_pyarrow_table().num_rows) == (1, 5)


def test_nobodys_statements_have_a_writers_rights(tmp_path: Path) -> None:
    built = scripted_gateway(tmp_path / "open")
    built.gateway.start()
    try:
        built.gateway.schedules.add(of("SELECT 1", "CREATE ROLE everything"))
        built.gateway.schedules.run("tidy")
        assert "ACCESS_DENIED" in (ended(built).last_error or "")
        assert queries(built)[0].state is QueryState.FINISHED
    finally:
        built.gateway.close()


def test_only_the_owner_changes_statements(open_gateway: Callable[[], ScriptedGateway]) -> None:
    schedules = open_gateway().gateway.schedules
    added = schedules.add(of("SELECT 1"), by=ALICE)
    later = schedules.change(replace(added, trigger=Cron("0 4 1 1 *")), by=OLGA)
    with pytest.raises(AccessDenied, match="run as alice, who alone may change them"):
        schedules.change(replace(later, statements=("DROP TABLE orders",)), by=OLGA)
    assert schedules.change(replace(later, statements=("SELECT 2",)), by=ALICE).statements == ("SELECT 2",)


# ---------------------------------------------------------------------- HTTP


def test_schedules_of_statements_over_http(open_gateway: Callable[[], ScriptedGateway], tmp_path: Path) -> None:
    built = open_gateway()
    folder = tmp_path / "books"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "part-0.parquet")
    built.gateway.metastore.catalog.put(inspect("books", folder), at=dt.datetime.now(dt.UTC), owner="alice")
    with serving(create_app(built.gateway)) as client:

        def send(method: str, path: str = "", user: str = "alice", **body: Any) -> httpx.Response:
            return client.request(method, f"{ROUTE}{path}", auth=(user, PASSWORD), json=body or None)

        wanted: dict[str, Any] = {"name": "tidy", "cron": "0 3 1 1 *"}
        refused: dict[str, dict[str, list[str]]] = {
            "SYNTAX_ERROR": {"statements": ["SELECT 1", "SELEC 1"]},
            "UNKNOWN_TABLE": {"statements": ["SELECT x FROM nowhere"]},
            "INVALID_SCHEDULE": {"statements": ["SELECT 1"], "tables": ["*"]},
        }
        for code, body in refused.items():
            reply = send("POST", **(wanted | body))
            assert (reply.status_code, reply.json()["error"]["code"]) == (400, code), reply.text
        stale = send("POST", name="tidy", stale_days=1.0, statements=["SELECT 1"])
        assert "by the clock alone" in stale.json()["error"]["message"]
        denied = send("POST", user="bob", **wanted, statements=["DROP TABLE books"])
        assert (denied.status_code, denied.json()["error"]["code"]) == (403, "ACCESS_DENIED")

        added = send("POST", **wanted, statements=["SELECT id FROM books"]).json()
        assert (added["statements"], added["tables"], added["owner"]) == (["SELECT id FROM books"], [], "alice")
        assert [len(send("GET", user=user).json()["schedules"]) for user in ("alice", "olga", "bob")] == [1, 1, 0]
        assert send("POST", "/tidy/run", user="bob").status_code == 404
        assert send("POST", "/tidy/run").json()["statements"] == added["statements"]
        done = ended(built)
        assert done.last_error is None
        page = client.get("/dashboard/statistics", auth=("olga", PASSWORD)).text
        assert "SELECT id FROM books; of alice" in page
        assert f"/dashboard/queries/{done.last_query_id}" in page
        assert "SELECT id FROM books" not in client.get("/dashboard/statistics", auth=("bob", PASSWORD)).text
