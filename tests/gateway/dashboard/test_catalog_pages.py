"""Pages to browse tables and views: by database, with their columns, partitions, and a sample of rows."""

from __future__ import annotations

import datetime as dt
import html
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.security.authentication import Anonymous, UsersFile, user_line
from gateway.security.principals import Role
from gateway.server.app import create_app
from metastore.records import JobRequest, JobState, StatisticsJob, TableProgress
from tests.gateway.conftest import serving
from tests.gateway.scripted_gateway import ScriptedGateway, scripted_gateway

READER, WRITER = ("ann", "a"), ("bob", "b")
NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def scripted(tmp_path: Path) -> ScriptedGateway:
    return scripted_gateway(tmp_path / "home")


@pytest.fixture
def client(scripted: ScriptedGateway, tmp_path: Path) -> Iterator[httpx.Client]:
    users = tmp_path / "users"
    logins = zip((READER, WRITER), (Role.READER, Role.WRITER), strict=True)
    users.write_text("\n".join(user_line(*login, role) for login, role in logins), encoding="utf-8")
    scripted.gateway.authenticator = UsersFile(users, anonymous=Anonymous.NEVER)
    folder = tmp_path / "visits"
    for day, rows in (("2026-01-01", 3), ("2026-01-02", 5)):
        (folder / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"page": ["x"] * rows}), folder / f"day={day}" / "part.parquet")
    with serving(create_app(scripted.gateway)) as client:
        client.auth = WRITER
        run(client, "CREATE DATABASE web")
        added = client.post("/v1/tables", json={"name": "web.visits", "location": str(folder)})
        assert added.status_code == 201, added.text
        run(client, "CREATE VIEW web.recent AS SELECT page FROM web.visits")
        yield client


def run(client: httpx.Client, sql: str) -> None:
    reply = client.post("/v1/queries", json={"sql": sql, "wait_s": 30.0}).json()
    assert reply["state"] == "FINISHED", reply


def read(client: httpx.Client, path: str) -> str:
    reply = client.get(path)
    assert reply.status_code == 200, reply.text
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", reply.text)))


def test_tables_and_views_are_listed_by_database(client: httpx.Client) -> None:
    everything = read(client, "/dashboard/tables")
    assert "Database all default" in everything and "web.visits 8" in everything and "web.recent 1 column" in everything
    assert "web.visits" not in read(client, "/dashboard/tables?database=default")
    only = read(client, "/dashboard/tables?database=web")
    assert "web.visits" in only and "web.recent" in only


def test_a_table_shows_its_columns_and_partitions(client: httpx.Client) -> None:
    page = read(client, "/dashboard/statistics/web.visits")
    assert page.partition("Without statistics:")[2].split()[:4] == ["page", "string,", "day", "string."]
    assert "Partitions by day Values Files Size day = 2026-01-01 1" in page and "day = 2026-01-02 1" in page


def test_a_sample_of_rows_is_a_statement_of_the_reader(client: httpx.Client, scripted: ScriptedGateway) -> None:
    page = client.get("/dashboard/statistics/web.visits").text
    sql = re.search(r'name="sql" value="([^"]*)"', page)
    assert sql is not None
    statement = html.unescape(sql[1])
    assert statement == "SELECT * FROM `web`.`visits` LIMIT 100"
    sent = client.post("/dashboard/sql", data={"sql": statement})
    assert sent.status_code == 303 and sent.headers["location"].endswith("/rows")
    record = scripted.gateway.metastore.queries.get(sent.headers["location"].split("/")[-2])
    assert record is not None and (record.sql, record.user) == (statement, "bob")


def test_buttons_are_for_those_who_may_press_them(client: httpx.Client) -> None:
    own, other = "/dashboard/statistics/web.visits", "/dashboard/tables"
    assert ">Compute statistics</button>" in client.get(own).text and ">Compute</button>" in client.get(other).text
    client.auth = READER
    assert ">Compute statistics</button>" not in client.get(own).text
    assert ">Sample of rows</button>" in client.get(own).text
    assert ">Compute</button>" not in client.get(other).text


def test_a_job_moves_a_bar_on_the_page_of_its_table(client: httpx.Client, scripted: ScriptedGateway) -> None:
    jobs = scripted.gateway.metastore.jobs
    jobs.create(StatisticsJob("live", JobRequest(("web.visits",)), JobState.QUEUED, NOW))
    jobs.progressed("live", TableProgress("web.visits", JobState.RUNNING, 1, 2), at=NOW)
    page = client.get("/dashboard/statistics/web.visits").text
    assert '<progress max="2" value="1" aria-label="Files of web.visits">1 of 2 files</progress>' in page
    assert 'data-refresh-s="2"' in page and "disabled" in page
    jobs.ended("live", at=NOW, error="enough")
    ended = client.get("/dashboard/statistics/web.visits").text
    assert "<progress" not in ended and "data-refresh-s" not in ended
