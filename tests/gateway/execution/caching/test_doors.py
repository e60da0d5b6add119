"""What clients of each door see of cached results: HTTP, HiveServer2, Flight SQL, the command line, pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from gateway.cli.main import app
from metastore.records import QueryRecord
from tests.gateway.drivers.flight.conftest import flight_port
from tests.gateway.drivers.hs2.conftest import Drivers, driving
from tests.gateway.execution.caching.conftest import House, gateway_at, settled

SQL = "SELECT id, value FROM t ORDER BY id"
ON = {"fusion.cache": "on"}
ROWS = {1: 10, 2: 20}


@dataclass(frozen=True, slots=True)
class Open:
    """A gateway with its doors."""

    house: House
    drivers: Drivers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.drivers.http_port}"

    @property
    def last(self) -> QueryRecord:
        return self.drivers.last_query()

    def post(self, sql: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/queries", json={"sql": sql, "wait_s": 30, **body}, timeout=60)

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", params=parameters, timeout=60).raise_for_status()


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    folder = tmp_path_factory.mktemp("doors")
    gateway = gateway_at(folder)
    with driving(gateway) as drivers:
        house = House(gateway, folder)
        house.make("t", ROWS)
        settled()
        yield Open(house, drivers)


def is_cached(record: QueryRecord) -> bool:
    return record.decision is not None and record.decision.is_cached


def test_http(doors: Open) -> None:
    text = f"{SQL} LIMIT 50"
    uses = [doors.post(text, settings=settings) for settings in ({}, ON, ON)]
    assert [reply.headers["X-Fusion-Cache"] for reply in uses] == ["bypass", "miss", "hit"]
    plain, ran, answered = (reply.json() for reply in uses)
    assert plain["rows"] == ran["rows"] == answered["rows"] == [[1, 10], [2, 20]]
    assert answered["columns"] == ran["columns"]
    assert [reason["code"] for reason in answered["decision"]["reasons"]] == ["CACHED"]
    assert ran["id"] in answered["decision"]["reasons"][0]["text"]
    assert (answered["state"], answered["engine"], answered["attempts"]) == ("FINISHED", "duckdb", [])
    later = doors.get(f"/v1/queries/{answered['id']}").json()
    assert (later["rows"], later["decision"]) == (answered["rows"], answered["decision"])
    assert doors.get(f"/v1/queries/{answered['id']}/result", format="csv").text.split() == [
        '"id","value"',
        "1,10",
        "2,20",
    ]
    assert doors.post("SHOW TABLES", settings=ON).headers["X-Fusion-Cache"] == "bypass"
    wrong = doors.post(SQL, settings={"fusion.cache": "often"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "INVALID_SETTING")


def test_large_rows_over_http(doors: Open) -> None:
    text = "SELECT a.id, repeat('x', 40000) AS text FROM t a CROSS JOIN t b ORDER BY 1"
    ran, answered = (doors.post(text, settings=ON) for _ in range(2))
    assert answered.headers["X-Fusion-Cache"] == "hit"
    assert answered.json()["rows"] == ran.json()["rows"] and len(answered.content) > 160_000


def test_pages_metrics_and_the_route(doors: Open) -> None:
    text = f"{SQL} LIMIT 60"
    ran, answered = (doors.post(text, settings=ON).json() for _ in range(2))
    page = doors.get(f"/dashboard/queries/{answered['id']}").text
    assert "Answered from the cache" in page and "CACHED" in page
    assert f'/dashboard/queries/{ran["id"]}"' in page  # whose result it is
    usage = doors.get("/v1/cache").json()
    assert usage["hits"] > 0 and usage["misses"] > 0 and 0 < usage["bytes"] <= usage["limit_bytes"]
    assert usage["hit_rate"] == pytest.approx(usage["hits"] / (usage["hits"] + usage["misses"]))
    metrics = dict(re.findall(r"^(fusion_cache_\S+) (\S+)$", doors.get("/v1/metrics").text, re.MULTILINE))
    assert metrics["fusion_cache_hits_total"] == str(usage["hits"])
    assert metrics["fusion_cache_results"] == str(usage["entries"])
    assert metrics['fusion_cache_removals_total{why="evicted"}'] == "0"
    load = doors.get("/dashboard/load").text
    assert "Cached results" in load and f'<td class="number">{usage["hits"]:,}</td>' in load
    assert "CACHED" in doors.get("/dashboard/queries").text


def test_the_command_line(doors: Open) -> None:
    options = ["--url", doors.url, "--set", "fusion.cache=on"]
    told = [CliRunner().invoke(app, ["query", f"{SQL} LIMIT 70", *options]) for _ in range(2)]
    assert [each.exit_code for each in told] == [0, 0]
    assert told[0].stdout == told[1].stdout
    assert "CACHED: The result of" in told[1].output
    listed = CliRunner().invoke(app, ["queries", "list", "--url", doors.url, "--limit", "2"]).output
    assert "duckdb (cached)" in listed
    assert "CACHED" in CliRunner().invoke(app, ["queries", "show", doors.last.id, "--url", doors.url]).output


def test_hive_server(doors: Open) -> None:
    hive = pytest.importorskip("pyhive.hive")
    with closing(hive.connect(doors.drivers.host, doors.drivers.port, username="ann")) as connection:
        cursor, logs = connection.cursor(), []
        cursor.execute("SET fusion.cache = on")
        for _ in range(2):
            cursor.execute(f"{SQL} LIMIT 80")
            logs.append("\n".join(cursor.fetch_logs()))
            assert cursor.fetchall() == [(1, 10), (2, 20)]
        assert "routed to duckdb" in logs[0]
        assert "answered from the cache: a result of duckdb's" in logs[1] and "CACHED: The result of" in logs[1]
        assert is_cached(doors.last)
        cursor.close()  # which deletes the rows of its own query, and nobody else's
    answered = doors.post(f"{SQL} LIMIT 80", settings=ON)
    assert answered.headers["X-Fusion-Cache"] == "hit" and len(answered.json()["rows"]) == 2


def test_flight_sql(doors: Open) -> None:
    adbc = pytest.importorskip("adbc_driver_flightsql.dbapi")
    with flight_port(doors.house.gateway) as server:
        with adbc.connect(f"grpc://{server.address}", autocommit=True) as connection, connection.cursor() as cursor:
            found = []
            for text in ("SET fusion.cache = on", f"{SQL} LIMIT 90", f"{SQL} LIMIT 90"):
                cursor.execute(text)
                found.append(cursor.fetch_arrow_table().to_pydict())
    assert found[1] == found[2] == {"id": [1, 2], "value": [10, 20]}
    assert is_cached(doors.last)
