"""Replays and advice over HTTP: a gateway that ran statements, of which some did not fit, and what it says of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.scripted import Script
from gateway.security.principals import Role
from gateway.server.app import create_app
from selector.statistics import TableStatistics
from selector.wording import MIB
from tests.gateway.conftest import BOOKS, serving
from tests.gateway.recorded_history import LIMIT, SLOTS, STATEMENTS, House, gateway_of, lived


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, bookstore: Path) -> Iterator[House]:
    with lived(tmp_path_factory.mktemp("home"), bookstore) as house:
        yield house


def load_of(reply: dict[str, Any], engine: str, moment: str = "after") -> dict[str, Any]:
    return next((each for each in reply[moment]["engines"] if each["engine"] == engine), {"statements": 0})


def misses(replies: list[dict[str, Any]]) -> int:
    return sum(attempt["failure"] is not None for reply in replies for attempt in reply["attempts"])


def test_under_its_own_settings_history_repeats_itself(house: House) -> None:
    again = house.replay()
    assert again["statements"] == again["own_repeated"] == STATEMENTS
    assert (again["changed"], again["fixed"], again["changes"]) == (0, 0, [])
    assert 0 < misses(house.replies) == again["before"]["misses"] == again["after"]["misses"]
    assert 0 < load_of(again, "slow")["statements"] < STATEMENTS
    went = [reply["decision"]["engine"] for reply in house.replies]
    assert load_of(again, "fast")["statements"] == went.count("fast")
    wall_s = [attempt["wall_s"] - attempt["waited_s"] for reply in house.replies for attempt in reply["attempts"]]
    assert again["before"]["busy_s"] == pytest.approx(sum(wall_s))
    assert again["after"]["busy_s"] == pytest.approx(sum(wall_s), rel=0.15)
    assert again["after"]["client_s"] == pytest.approx(again["before"]["client_s"], rel=0.15)


def test_another_limit_changes_who_does_what(house: House) -> None:
    larger = house.replay(settings={"fast.memory_limit": "1GiB"})
    smaller = house.replay(settings={"fast.memory_limit": "16MiB"})
    as_it_was = load_of(larger, "fast", "before")["statements"]
    assert load_of(larger, "fast")["statements"] > as_it_was > load_of(smaller, "fast")["statements"]
    assert larger["after"]["misses"] < larger["before"]["misses"]
    assert larger["changed"] >= len(larger["changes"]) > 0
    change = larger["changes"][0]
    assert (change["engine_before"], change["engine_after"]) == ("slow", "fast")
    assert change["sql"] in [reply["sql"] for reply in house.replies]
    assert change["reasons"][0]["code"] == "FITS"
    assert larger["own_repeated"] == STATEMENTS


def test_it_is_told_of_how_many_runs_say_how_they_would_go(house: House) -> None:
    smaller = house.replay(settings={"fast.memory_limit": "16MiB"}, sample=STATEMENTS)
    went_there = {reply["fingerprint"] for reply in house.replies if reply["attempts"][-1]["engine"] == "slow"}
    of = {reply["id"]: reply["fingerprint"] for reply in house.replies}
    assert len(smaller["sample"]) == smaller["changed"] > 0
    assert smaller["measured"] == sum(each["is_measured"] for each in smaller["sample"])
    for each in smaller["sample"]:
        assert each["is_measured"] == (of[each["query_id"]] in went_there)


def test_policies_are_obeyed(house: House) -> None:
    safe = house.replay(policy="safe")
    assert safe["after"]["misses"] < safe["before"]["misses"]
    assert house.replay(settings={"routing.policy": "safe"})["after"] == safe["after"]
    dear = house.replay(settings={"routing.miss_price_s": "34"})
    assert dear["after"]["misses"] < dear["before"]["misses"]


def test_money_is_paid_for_the_hours_that_engines_work(house: House) -> None:
    paid = house.replay(prices={"fast": 3_600.0, "slow": 7_200.0})
    by_engine = {each["engine"]: each for each in paid["before"]["engines"]}
    assert by_engine["fast"]["money"] == pytest.approx(by_engine["fast"]["busy_s"])
    assert by_engine["slow"]["money"] == pytest.approx(2 * by_engine["slow"]["busy_s"])
    assert paid["before"]["money"] == pytest.approx(sum(each["money"] for each in by_engine.values()))
    assert house.replay()["before"]["money"] is None


def test_only_what_is_asked_for_is_replayed_and_the_rest_is_known_by_then(house: House) -> None:
    since = house.replies[STATEMENTS // 2]["submitted_at"]
    half = house.replay(since=since)
    assert half["statements"] == half["own_repeated"] == STATEMENTS - STATEMENTS // 2
    assert not half["is_capped"]
    newest = house.replay(limit=10)
    assert newest["statements"] == newest["own_repeated"] == 10
    assert newest["is_capped"]
    nothing = house.replay(since=dt.datetime.now(dt.UTC).isoformat())
    assert (nothing["statements"], nothing["since"], nothing["after"]["busy_s"]) == (0, None, 0.0)


def test_todays_statistics(house: House) -> None:
    today = house.replay(statistics="current")
    distinct = len({reply["fingerprint"] for reply in house.replies})
    assert (today["estimated_anew"], today["not_estimated"]) == (distinct, 0)
    assert today["changed"] == 0  # they are those of then


def test_clients_at_once_and_statistics_that_say_something_else(tmp_path: Path, bookstore: Path) -> None:
    clients = 8
    with lived(tmp_path, bookstore, clients=clients) as house:
        as_it_was = house.replay()
        assert as_it_was["own_repeated"] >= STATEMENTS - clients  # who was first of those at work at once?
        assert as_it_was["after"]["busy_s"] == pytest.approx(as_it_was["before"]["busy_s"], rel=0.15)
        distinct = len({reply["fingerprint"] for reply in house.replies})

        house.fast.script("books", Script(plan=f"takes {2 * LIMIT // MIB} MiB"))
        grown = TableStatistics("books", version=0, rows=10 * BOOKS, bytes=1_000)
        house.gateway.metastore.statistics.publish(grown, at=dt.datetime.now(dt.UTC))
        today = house.replay(statistics="current", policy="safe")
        assert (today["estimated_anew"], today["not_estimated"]) == (distinct, 0)
        assert load_of(today, "fast")["statements"] == 0
        assert load_of(house.replay(policy="safe"), "fast")["statements"] > 0
        assert today["own_repeated"] == as_it_was["own_repeated"]  # that is by what was expected then

        house.gateway.metastore.catalog.remove("books")
        gone = house.replay(statistics="current", policy="safe")
        assert (gone["estimated_anew"], gone["not_estimated"]) == (0, distinct)
        assert gone["after"] == house.replay(policy="safe")["after"]


def test_a_sample_is_drawn_by_chance_and_the_same_again(house: House) -> None:
    asked = {"settings": {"fast.memory_limit": "16MiB"}, "sample": 5}
    first, again, other = (house.replay(**asked, seed=seed)["sample"] for seed in (0, 0, 1))
    assert len(first) == 5
    assert first == again != other
    every = house.replay(**asked | {"sample": STATEMENTS})["sample"]
    assert all(each in every for each in first + other)
    assert all(each["engine_after"] != each["engine_before"] for each in every)


def test_advice_weighs_limits_and_workers(house: House) -> None:
    advice = house.ask("advise", memory_bytes=4 * LIMIT)
    (fast,) = advice["engines"]
    assert (fast["engine"], advice["statements"]) == ("fast", STATEMENTS)
    assert all(each["memory_bytes"] == each["limit_bytes"] * each["workers"] <= 4 * LIMIT for each in fast["options"])
    (recorded,) = [each for each in fast["options"] if each["is_recorded"]]
    assert (recorded["limit_bytes"], recorded["workers"]) == (LIMIT, SLOTS)
    (best,) = [each for each in fast["options"] if each["is_best"]]
    assert best["load"]["client_s"] <= recorded["load"]["client_s"] * 1.01
    assert {each["workers"] for each in fast["options"]} == {1, 2, 3, 4}
    within = house.ask("advise")["engines"][0]
    assert within["memory_bytes"] == SLOTS * LIMIT


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ({"settings": {"duckdb.memory_limit": "1GiB"}}, 400, "INVALID_SETTING"),
        ({"settings": {"slow.memory_limit": "1GiB"}}, 400, "INVALID_SETTING"),  # it has none
        ({"settings": {"fast.memory_limit": "much"}}, 400, "INVALID_SETTING"),
        ({"settings": {"fast.memory_limit": "0"}}, 400, "INVALID_SETTING"),
        ({"settings": {"fast.workers": "0"}}, 400, "INVALID_SETTING"),
        ({"settings": {"fast.workers": "9" * 5_000}}, 400, "INVALID_SETTING"),
        ({"settings": {"routing.policy": "brave"}}, 400, "INVALID_SETTING"),
        ({"settings": {"routing.safe_miss": "1.5"}}, 400, "INVALID_SETTING"),
        ({"settings": {"routing.pools": "{}"}}, 400, "INVALID_SETTING"),
        ({"settings": {"limits.queries": "1"}}, 400, "INVALID_SETTING"),
        ({"prices": {"spork": 1.0}}, 400, "UNKNOWN_ENGINE"),
        ({"prices": {"fast": -1.0}}, 422, "INVALID_BODY"),
        ({"policy": "brave"}, 422, "INVALID_BODY"),
        ({"since": "yesterday"}, 422, "INVALID_BODY"),
        ({"limit": 0}, 422, "INVALID_BODY"),
        ({"limits": 1}, 422, "INVALID_BODY"),
    ],
    ids=str,
)
@pytest.mark.parametrize("route", ["replay", "advise"])
def test_what_makes_no_sense_is_refused(
    house: House, route: str, asked: dict[str, Any], status: int, code: str
) -> None:
    reply = house.client.post(f"/v1/{route}", json=asked)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)


def test_a_setting_that_is_nearly_one_is_told(house: House) -> None:
    reply = house.client.post("/v1/replay", json={"settings": {"fast.memory_limits": "1GiB"}})
    assert "fast.memory_limit" in reply.json()["error"]["message"]


@pytest.mark.parametrize("route", ["replay", "advise"])
def test_it_takes_an_operator(tmp_path: Path, bookstore: Path, route: str) -> None:
    gateway, _ = gateway_of(tmp_path, bookstore, Role.WRITER)
    with serving(create_app(gateway)) as client:
        reply = client.post(f"/v1/{route}", json={})
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "ACCESS_DENIED")
