"""A query that waits says so: for what, where, since when, at which place and how long it probably takes."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from engines.protocol import EngineKind
from engines.scripted import Script, ScriptedEngine
from gateway.cli.main import app
from gateway.planning.fairness import Requester
from gateway.presentation.formatting import in_short, ordinal
from gateway.presentation.waits import Wait, waits_for
from gateway.routing.admission.values import Need
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.app import create_app
from gateway.server.runtime import Gateway
from gateway.settings import PoolSettings
from gateway.statements.statement import WaitsFor
from tests.gateway.conftest import BY_MEMORY, LIMIT, SLOW, serving, settings_for
from tests.gateway.scripted_gateway import PLAN, ROWS

SOON_S = 10.0
HELD = "SELECT 'held' AS answer"


class House:
    """A gateway whose one slot of ``fast`` is held until ``end`` is set."""

    def __init__(
        self, gateway: Gateway, fast: ScriptedEngine, dependable: ScriptedEngine, client: httpx.Client
    ) -> None:
        self.gateway = gateway
        self.client = client
        self.end = threading.Event()
        for engine in (fast, dependable):
            engine.script("select", Script(steps=(ROWS,), plan=PLAN))
            engine.script("held", Script(steps=(self.end, ROWS), plan=PLAN))

    def send(self, sql: str, **settings: str) -> str:
        body = {"sql": sql, "wait_s": 0, "engine": "fast", "settings": settings}
        return str(self.client.post("/v1/queries", json=body).json()["id"])

    def get(self, query_id: str) -> Any:
        return self.client.get(f"/v1/queries/{query_id}").json()

    def until(self, query_id: str, condition: Callable[[Any], object]) -> Any:
        """Return a query once something holds of it."""
        until_s = time.monotonic() + SOON_S
        while not condition(reply := self.get(query_id)):
            assert time.monotonic() < until_s, reply
            time.sleep(0.01)
        return reply

    def hold(self) -> str:
        """Have a query that holds the slot."""
        query_id = self.send(HELD)
        self.until(query_id, lambda reply: reply["state"] == "RUNNING")
        return query_id


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    fast = ScriptedEngine("fast", slots=1)
    dependable = ScriptedEngine("dependable", kind=EngineKind.DEPENDABLE)
    engines = EngineRegistry([EngineEntry(fast, limit_bytes=LIMIT), EngineEntry(dependable, speed=SLOW)])
    settings = settings_for(tmp_path, routing=BY_MEMORY).model_copy(update={"pools": {"etl": PoolSettings(slots=1)}})
    gateway = wiring.assemble(settings, engines)
    with serving(create_app(gateway)) as client:
        house = House(gateway, fast, dependable, client)
        yield house
        house.end.set()


def test_a_query_is_queued_until_it_has_its_lease(house: House) -> None:
    holder = house.hold()
    assert house.get(holder)["waiting"] is None
    second, third = house.send("SELECT 2 AS two"), house.send("SELECT 3 AS three")
    told = house.until(third, lambda reply: reply["waiting"] and reply["waiting"]["place"] == 2 and reply["attempts"])
    waiting = told["waiting"]
    assert told["state"] == "QUEUED"
    assert [attempt["state"] for attempt in told["attempts"]] == ["QUEUED"]
    assert (waiting["engine"], waiting["pool"], waiting["needs"]) == ("fast", "default", "slot")
    assert waiting["memory_bytes"] > 0
    assert dt.datetime.fromisoformat(told["submitted_at"]) <= dt.datetime.fromisoformat(waiting["since"])
    assert waiting["expected_s"] > 0
    assert waiting["text"].startswith("waits for a slot of fast: 2nd in line, expected ")
    listed = {each["id"]: each for each in house.client.get("/v1/queries").json()["queries"]}
    assert listed[second]["waiting"]["place"] == 1
    assert listed[holder]["waiting"] is None
    assert (listed[holder]["state"], listed[third]["state"]) == ("RUNNING", "QUEUED")
    (lease,) = house.client.get("/v1/leases").json()["leases"]
    assert (lease["query_id"], lease["engine"], lease["pool"]) == (holder, "fast", "default")
    house.end.set()
    for query_id in (holder, second, third):
        ended = house.until(query_id, lambda reply: reply["state"] == "FINISHED")
        assert ended["waiting"] is None
    assert house.client.get("/v1/leases").json()["leases"] == []


def test_a_query_that_no_planner_is_free_for_says_so(house: House) -> None:
    with ThreadPoolExecutor(1) as threads, ExitStack() as places:
        for number in range(wiring.LEAST_PLANNERS):
            places.enter_context(house.gateway.planners.place(Requester(f"user {number}", time.monotonic() + SOON_S)))
        sent = threads.submit(house.send, "SELECT 2 AS two")

        def waiting() -> list[Any]:
            queries = house.client.get("/v1/queries").json()["queries"]
            return [each["waiting"] for each in queries if each["waiting"]]

        until_s = time.monotonic() + SOON_S
        while not (told := waiting()):
            assert time.monotonic() < until_s
            time.sleep(0.01)
        assert (told[0]["needs"], told[0]["engine"], told[0]["place"]) == ("planner", None, None)
        assert told[0]["text"] == "waits to be planned, behind other statements"
        places.close()
    assert house.until(sent.result(SOON_S), lambda reply: reply["state"] == "FINISHED")["waiting"] is None


def test_a_posted_query_that_waits_says_so_in_its_reply(house: House) -> None:
    house.hold()
    body = {"sql": "SELECT 1 AS one", "wait_s": 1.0, "engine": "fast"}
    reply = house.client.post("/v1/queries", json=body)
    assert reply.status_code == 202
    assert reply.json()["state"] == "QUEUED"
    assert reply.json()["waiting"]["place"] == 1


def test_a_query_that_is_cancelled_while_it_waits_waits_no_more(house: House) -> None:
    house.hold()
    query_id = house.send("SELECT 2 AS two")
    house.until(query_id, lambda reply: reply["waiting"])
    ended = house.client.delete(f"/v1/queries/{query_id}").json()
    assert (ended["state"], ended["waiting"]) == ("CANCELLED", None)


def test_usage_has_what_was_leased_and_who_waited(house: House) -> None:
    holder = house.hold()
    query_id = house.send("SELECT 2 AS two")
    house.until(query_id, lambda reply: reply["waiting"])
    house.end.set()
    house.until(query_id, lambda reply: reply["state"] == "FINISHED")
    house.until(holder, lambda reply: reply["state"] == "FINISHED")
    (usage,) = house.client.get("/v1/usage", params={"engine": "fast", "step_s": 3600}).json()["usage"]
    (interval,) = usage["intervals"]
    assert (usage["of"], usage["name"], usage["slots"]) == ("engine", "fast", 1)
    assert (interval["most"]["slots"], interval["most"]["waiting"]) == (1, 1)
    assert 0 < interval["mean"]["slots"] <= 1
    everything = house.client.get("/v1/usage").json()["usage"]
    assert [(each["of"], each["name"]) for each in everything] == [
        *(("engine", "fast"), ("engine", "dependable")),
        *(("pool", "default"), ("pool", "etl")),
    ]
    for params in ({"engine": "nothing"}, {"pool": "fast"}, {"engine": "fast", "pool": "nothing"}):
        assert house.client.get("/v1/usage", params=params).status_code == 404
    for wrong in ("0", "-1", "nan", "inf", "x"):
        assert house.client.get("/v1/usage", params={"step_s": wrong}).status_code == 422


def test_metrics_are_as_prometheus_reads_them(house: House) -> None:
    house.hold()
    query_id = house.send("SELECT 2 AS two")
    house.until(query_id, lambda reply: reply["waiting"])
    reply = house.client.get("/v1/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = reply.text.splitlines()
    assert 'fusion_engine_leased_slots{engine="fast"} 1' in lines
    assert 'fusion_engine_waiting{engine="fast"} 1' in lines
    assert 'fusion_pool_waiting{pool="etl"} 0' in lines
    assert 'fusion_lease_wait_seconds_count{engine="fast",pool="default"} 1' in lines
    house.end.set()
    house.until(query_id, lambda reply: reply["state"] == "FINISHED")
    lines = house.client.get("/v1/metrics").text.splitlines()
    assert 'fusion_lease_wait_seconds_bucket{engine="fast",pool="default",le="+Inf"} 2' in lines
    assert 'fusion_engine_waiting{engine="fast"} 0' in lines


def test_pages_show_who_waits_and_what_is_leased(house: House) -> None:
    holder = house.hold()
    query_id = house.send("SELECT 2 AS two")
    house.until(query_id, lambda reply: reply["waiting"])
    page = house.client.get("/dashboard").text
    assert "It waits for a slot of fast: 1st in line" in page
    assert f"<title>{holder}: " in page
    assert "1st, ~" in house.client.get("/dashboard/queries").text
    assert query_id in house.client.get("/dashboard/queries", params={"state": "QUEUED"}).text
    assert query_id not in house.client.get("/dashboard/queries", params={"state": "RUNNING"}).text
    assert "It waits for a slot of fast: 1st in line" in house.client.get(f"/dashboard/queries/{query_id}").text
    load = house.client.get("/dashboard/load")
    assert load.status_code == 200
    assert "The last hour of the engine fast" in load.text
    assert "<td>etl</td>" in load.text


def test_the_command_line_shows_who_waits(house: House) -> None:
    def fusion(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--url", str(house.client.base_url)])
        assert result.exit_code == 0, result.output
        return result.output

    holder = house.hold()
    query_id = house.send("SELECT 2 AS two")
    house.until(query_id, lambda reply: reply["waiting"])
    assert "QUEUED 1st, ~" in fusion("queries", "list")
    assert "waiting   waits for a slot of fast: 1st in line" in fusion("queries", "show", query_id)
    told = fusion("pools")
    assert "0 of 1" in told
    assert holder in told


NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("wait", "text"),
    [
        (
            Wait(Need.MEMORY, NOON, "duckdb", "etl", 512 << 20, 3, 4.0),
            "waits for 512 MiB of duckdb in pool etl: 3rd in line, expected 4.0 s",
        ),
        (
            Wait(Need.SLOT, NOON, "spark", "default", None, 1, 12.0),
            "waits for a slot of spark: 1st in line, expected 12 s",
        ),
        (
            Wait(Need.POOL_SLOT, NOON, "spark", "default", None, 1, 12.0),
            "waits for a slot of spark in pool default: 1st in line, expected 12 s",
        ),
        (
            Wait(Need.TURN, NOON, "duckdb", "default", 1, 2, 0.5),
            "waits for its turn on duckdb: 2nd in line, expected 0.50 s",
        ),
        (
            Wait(WaitsFor.FIRST_TRY, NOON, "duckdb"),
            "waits until another run of the same text has shown whether it fits into duckdb",
        ),
        (Wait(WaitsFor.ENGINE, NOON, None), "waits until an engine is available again"),
        (
            Wait(Need.PROCESSORS, NOON, "duckdb", "default", 1, 2, 0.5),
            "waits for processors of duckdb, which other statements keep busy: 2nd in line, expected 0.50 s",
        ),
    ],
)
def test_a_wait_in_words(wait: Wait, text: str) -> None:
    assert waits_for(wait) == text


def test_places_in_words() -> None:
    told = [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 1_001)]
    assert told == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th", "1,001st"]
    assert in_short(2, 4.0) == "2nd, ~4.0 s"
    assert in_short(None, None) == ""
