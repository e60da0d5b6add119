"""What belongs to one user stays so, whoever else comes through whichever door; who is gone is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from gateway.security.authentication import user_line
from gateway.security.principals import Role
from tests.attacks.conftest import DUCKDB
from tests.attacks.doors import Door, Refused, Served, served

PASSWORD = "right"  # noqa: S105 - of a gateway of the test's own
DENIED = "42501"
WITHIN_S = 10.0
ROLES = {"alice": None, "bob": Role.WRITER, "carol": Role.READER, "olga": Role.OPERATOR, "root": Role.ADMIN}
SECRET = "hunter2"  # noqa: S105
KEPT, LATE = "what_its_user_alone_may_see", "sent_too_late"
ON_OTHERS = [
    "DROP TABLE alices",
    "DROP TABLE IF EXISTS Default.ALICES PURGE",
    "DROP VIEW alices_view",
    "CREATE OR REPLACE VIEW alices_view AS SELECT 1 AS a",
    "INSERT INTO alices SELECT * FROM alices",
    "INSERT OVERWRITE alices SELECT * FROM alices",
    "DROP STATS alices",
    "ALTER TABLE alices SET TBLPROPERTIES ('numRows' = '1')",
    "ALTER TABLE alices SET COLUMN STATS id ('numDVs' = '1')",
    "ALTER TABLE alices SET OWNER USER bob",
    "ALTER VIEW alices_view SET OWNER USER bob",
    "CREATE OR REPLACE TABLE alices (a int)",
    "CREATE OR REPLACE TABLE alices AS SELECT 1 AS a",
    "TRUNCATE TABLE alices",
    "ALTER TABLE alices RENAME TO bobs",
    "ALTER TABLE alices ADD COLUMNS (more int)",
    "ALTER TABLE alices UNSET TBLPROPERTIES ('a')",
    "ALTER VIEW alices_view AS SELECT 1 AS a",
    "COMMENT ON COLUMN alices.id IS 'mine'",
    "FROM alices INSERT INTO alices SELECT * INSERT OVERWRITE alices SELECT *",
]
FOR_WRITERS = [
    "CREATE VIEW carols AS SELECT 1 AS a",
    "CREATE TABLE carols (a int)",
    "CREATE TABLE carols AS SELECT 1 AS a",
    "COMPUTE STATS alices",
    "COMPUTE INCREMENTAL STATS alices",
    "REFRESH alices",
    "INVALIDATE METADATA",
    *ON_OTHERS,
]


def write_users(file: Path, *names: str, password: str = PASSWORD) -> None:
    lines = [user_line(name, password, ROLES.get(name, Role.WRITER)) for name in names]
    written = file.with_suffix(".new")
    written.write_text("\n".join(lines) + "\n", encoding="utf-8")
    written.rename(file)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("users") / "users"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, bookstore: Path, users: Path) -> Iterator[Served]:
    """Serve a gateway with users, where alice owns a table and a view."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    write_users(users, *ROLES)
    home = tmp_path_factory.mktemp("owned") / "home"
    with served(
        home,
        duckdb=DUCKDB,
        spark={"enabled": False},
        authentication={"users_file": str(users), "anonymous": "loopback"},
        catalog={"roots": [str(bookstore)]},
    ) as gateway:
        gateway.register("alices", bookstore / "books", "alice", PASSWORD)
        gateway.ask(Door.HTTP, "CREATE VIEW alices_view AS SELECT id FROM alices", user="alice", password=PASSWORD)
        yield gateway


def refused(gateway: Served, door: Door, sql: str, user: str) -> str:
    with pytest.raises(Refused) as caught:
        gateway.ask(door, sql, user=user, password=PASSWORD)
    assert caught.value.code in (None, "ACCESS_DENIED"), caught.value
    assert caught.value.sqlstate in (None, DENIED), caught.value
    return caught.value.message


def test_a_writer_changes_nothing_of_anothers(shared: Served, door: Door) -> None:
    for sql in ON_OTHERS:
        told = refused(shared, door, sql, "bob")
        assert "belongs to alice" in told, sql
        assert "Ask alice, or" in told, sql


def test_a_reader_writes_nothing(shared: Served, door: Door) -> None:
    for sql in FOR_WRITERS:
        assert "takes the role writer. Ask an administrator (root)." in refused(shared, door, sql, "carol"), sql


def test_a_reader_reads(shared: Served, door: Door) -> None:
    assert shared.ask(door, "SELECT min(id) FROM alices_view", user="carol", password=PASSWORD) == [(1,)]
    told = shared.ask(door, "DESCRIBE EXTENDED alices", user="carol", password=PASSWORD)
    assert ("Owner", "alice", "") in told


def test_nobody_without_a_login_owns_or_writes_anything(shared: Served, door: Door) -> None:
    for name in (None, "root2"):
        with pytest.raises(Refused, match="takes the role writer"):
            shared.ask(door, "DROP VIEW alices_view", user=name)


def test_owners_and_administrators_may(shared: Served, door: Door) -> None:
    for user in ("alice", "root"):
        shared.ask(door, "CREATE OR REPLACE VIEW alices_view AS SELECT id FROM alices", user=user, password=PASSWORD)
    shared.ask(door, "ALTER VIEW alices_view SET OWNER USER bob", user="alice", password=PASSWORD)
    shared.ask(door, "ALTER VIEW alices_view SET OWNER USER alice", user="bob", password=PASSWORD)
    assert "belongs to alice" in refused(shared, door, "DROP VIEW alices_view", "bob")


def test_a_table_is_not_taken_over_by_its_files(shared: Served, bookstore: Path) -> None:
    """Who registers another's folder could overwrite it through a table of their own."""
    for name, place in (("alices", "transactions"), ("mine", "books"), ("mine", "books/part-0.parquet"), ("mine", ".")):
        with pytest.raises(Refused, match="belongs to alice") as caught:
            shared.register(name, bookstore / place, "bob", PASSWORD)
        assert caught.value.code == "ACCESS_DENIED"
    with pytest.raises(Refused, match="takes the role writer"):
        shared.register("mine", bookstore / "transactions", "carol", PASSWORD)


def test_schedules_and_jobs_have_owners(shared: Served) -> None:
    with (
        shared.http("alice", PASSWORD) as alice,
        shared.http("bob", PASSWORD) as bob,
        shared.http("olga", PASSWORD) as op,
    ):
        body = {"name": "nightly", "tables": ["alices"], "cron": "0 3 * * *"}
        made = alice.post("/v1/stats/schedules", json=body)
        assert (made.status_code, made.json()["owner"]) == (201, "alice")
        path = "/v1/stats/schedules/nightly"
        for reply in (bob.delete(path), bob.patch(path, json={"paused": True}), bob.post(f"{path}/run")):
            assert (reply.status_code, reply.json()["error"]["code"]) == (403, "ACCESS_DENIED")
        assert op.patch(path, json={"paused": True}).json()["paused"]
        assert bob.delete("/v1/misestimates/none").json()["error"]["code"] == "ACCESS_DENIED"
        with shared.http("carol", PASSWORD) as carol:
            denied = [
                carol.post("/v1/stats/schedules", json={**body, "name": "other"}),
                carol.post("/v1/stats/jobs", json={"tables": ["alices"]}),
                carol.post("/v1/stats/keys", json={"statements": ["SELECT 1"]}),
            ]
            assert {reply.json()["error"]["code"] for reply in denied} == {"ACCESS_DENIED"}
        assert alice.delete(path).is_success


def test_others_see_a_statement_without_its_values(shared: Served, door: Door) -> None:
    sql = f"SELECT id, '{SECRET}' AS s /* {SECRET} */ FROM alices WHERE isbn = \"{SECRET}\" AND id > 424242"
    shared.ask(door, sql, user="alice", password=PASSWORD)
    with shared.http("alice", PASSWORD) as client:
        found = [each for each in client.get("/v1/queries").json()["queries"] if SECRET in each["sql"]]
    query_id = found[0]["id"]
    pages = (
        "/v1/queries",
        f"/v1/queries/{query_id}",
        "/dashboard/queries",
        f"/dashboard/queries/{query_id}",
        "/v1/misestimates",
    )
    for user, sees in (("alice", True), ("olga", True), ("bob", False)):
        with shared.http(user, PASSWORD) as client:
            for page in pages[:-1]:
                shown = client.get(page).text
                assert ((SECRET in shown), ("424242" in shown)) == (sees, sees), (user, page)
    with shared.http("bob", PASSWORD) as client:
        assert "isbn = ?" in client.get(f"/v1/queries/{query_id}").json()["sql"]
        assert SECRET not in client.get(pages[-1]).text


def test_an_error_tells_others_nothing(shared: Served) -> None:
    with pytest.raises(Refused):
        shared.ask(Door.HTTP, f"SELECT '{SECRET}' FROM alices WHERE '{SECRET}", user="alice", password=PASSWORD)
    with shared.http("bob", PASSWORD) as client:
        for page in ("/v1/queries", "/dashboard", "/dashboard/queries", "/dashboard/templates", "/v1/parity"):
            assert SECRET not in client.get(page).text
        for search in ("/v1/queries", "/dashboard/queries"):
            assert "alice" not in client.get(search, params={"text": SECRET}).text


# ---------------------------------------------------------------------- who is gone


@pytest.mark.parametrize("change", ["removed", "another password"])
def test_a_session_ends_with_its_user(shared: Served, users: Path, door: Door, change: str) -> None:
    name = "dave"
    write_users(users, *ROLES, name)
    query_id = _sent_over_http(shared, name)
    if door is Door.HTTP:
        assert httpx.get(f"{shared.url}/v1/queries", auth=(name, PASSWORD)).is_success
        _change(users, change, name)
        answer = httpx.get(f"{shared.url}/v1/queries/{query_id}/result", auth=(name, PASSWORD))
        assert answer.status_code in (401, 403)
    elif door is not Door.FLIGHT:  # its driver cannot close what is gone; its tokens are tried below
        connection = shared.connect(door, name, PASSWORD)
        with closing(connection._transport):
            cursor = connection.cursor()
            cursor.execute("SELECT 1")
            assert [tuple(row) for row in cursor.fetchall()] == [(1,)]
            _change(users, change, name)
            with pytest.raises(Exception):  # noqa: B017 - PyHive reads a 401 as a message
                cursor.execute(f"SELECT 1 AS {LATE}")
            with shared.http("olga", PASSWORD) as client:
                assert LATE not in client.get("/v1/queries").text
    else:
        _change(users, change, name)
    for user, password in (("bob", PASSWORD), (name, ""), ("", "")):  # the last two come without a login
        fetched = httpx.get(f"{shared.url}/v1/queries/{query_id}/result", auth=(user, password) if user else None)
        assert fetched.status_code in (401, 403), (user, fetched.text)
        assert KEPT not in fetched.text


def _change(users: Path, change: str, name: str) -> None:
    if change == "removed":
        write_users(users, *ROLES)
    else:
        write_users(users, *ROLES)
        lines = users.read_text(encoding="utf-8") + user_line(name, "new", Role.WRITER) + "\n"
        users.write_text(lines, encoding="utf-8")


def _sent_over_http(shared: Served, name: str) -> str:
    reply = httpx.post(
        f"{shared.url}/v1/queries",
        json={"sql": f"SELECT '{KEPT}' AS a", "wait_s": 60},
        auth=(name, PASSWORD),
        timeout=90,
    )
    return str(reply.json()["id"])


@pytest.mark.parametrize("change", ["removed", "another password"])
def test_a_bearer_token_ends_with_its_user(shared: Served, users: Path, change: str) -> None:
    flight = pytest.importorskip("pyarrow.flight")
    write_users(users, *ROLES, "erin")
    with flight.connect(f"grpc://{shared.flight}") as client:
        token = client.authenticate_basic_token("erin", PASSWORD)
        options = flight.FlightCallOptions(headers=[token])
        assert list(client.list_actions(options))
        _change(users, change, "erin")
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.list_actions(options))


# ---------------------------------------------------------------------- logins


def login_status(url: str, user: str, password: str, source: str = "127.0.0.1") -> tuple[int, str]:
    transport = httpx.HTTPTransport(local_address=source)
    with httpx.Client(transport=transport, timeout=30) as client:
        reply = client.get(f"{url}/v1/engines", auth=(user, password))
    return reply.status_code, reply.json().get("error", {}).get("message", "")


def test_guessing_locks_the_guesser_out_and_not_the_owner(shared: Served) -> None:
    """All of 127.0.0.0/8 is this machine, so that one test has many addresses."""
    told = [login_status(shared.url, "alice", f"guess {n}", "127.0.0.66")[1] for n in range(8)]
    assert any("Try again in" in message for message in told)
    assert "Try again in" in login_status(shared.url, "alice", PASSWORD + "!", "127.0.0.66")[1]
    assert login_status(shared.url, "alice", PASSWORD, "127.0.0.67")[0] == 200
    assert login_status(shared.url, "bob", PASSWORD, "127.0.0.66")[0] == 200
    log = shared.log
    assert "login of 'alice' from 127.0.0.66 failed" in log
    assert "guess 1" not in log


def test_the_same_wrong_password_again_is_no_guess(shared: Served) -> None:
    """A client that was not told of a new password locks nobody out."""
    for _ in range(12):
        assert (
            login_status(shared.url, "carol", "an old one", "127.0.0.71")[1]
            == "The user name or the password is wrong."
        )
    assert login_status(shared.url, "carol", PASSWORD, "127.0.0.71")[0] == 200
