"""``fusion replay`` and ``fusion advise`` as people type them, over a gateway with a past."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import terminal
from gateway.cli.main import app
from tests.gateway.recorded_history import STATEMENTS, House, lived

Fusion = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def house(home: Path, bookstore: Path) -> Iterator[House]:
    with lived(home, bookstore) as house:
        (home / "gateway.json").write_text(json.dumps({"url": str(house.client.base_url)}), encoding="utf-8")
        yield house


@pytest.fixture
def fusion(house: House, home: Path, monkeypatch: pytest.MonkeyPatch) -> Fusion:
    monkeypatch.setattr(terminal.out, "width", 200)

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*words, "--home", str(home)])
        return done.exit_code, " ".join(done.output.split())

    return run


def told(fusion: Fusion, *words: str) -> Any:
    code, said = fusion(*words, "--json")
    assert code == 0, said
    return json.loads(said)


def test_a_replay_says_what_would_change(fusion: Fusion) -> None:
    code, said = fusion("replay", "--since", "1h", "--set", "fast.memory_limit=1GiB", "--price", "fast=0.5")
    assert code == 0, said
    counted = re.match(r"(\d+) statements from 20", said)
    assert counted is not None
    assert int(counted[1]) >= STATEMENTS  # those that another test runs are on record, too
    assert f"the replay repeats {counted[1]} of {counted[1]} choices" in said
    assert re.search(r"\b\d+ statements would go elsewhere", said)
    assert re.search(r"out of memory: \d+ times -> \d+(\.\d)? expected", said)
    assert "would cost" in said
    assert "SELECT id FROM books WHERE id < 1000" in said


def test_a_replay_of_what_was_changes_nothing(fusion: Fusion) -> None:
    code, said = fusion("replay")
    assert (code, said.endswith("no statement would go elsewhere")) == (0, True)
    assert "cost" not in said


def test_nothing_is_replayed_where_nothing_is_on_record(fusion: Fusion) -> None:
    assert fusion("replay", "--since", "0m") == (0, "no statement that was decided about is on record")
    assert fusion("advise", "--since", "2999-01-01") == (0, "no statement that was decided about is on record")


def test_options_reach_the_gateway(fusion: Fusion) -> None:
    words = ("--policy", "safe", "--set", "fast.workers=3", "--set", "routing.miss_price_s=34", "--limit", "10")
    reply = told(fusion, "replay", *words, "--statistics", "current", "--price", "fast=0.5", "--price", "slow=2")
    assert (reply["statements"], reply["is_capped"]) == (10, True)
    assert reply["estimated_anew"] > 0
    assert {each["engine"]: each["money"] is not None for each in reply["before"]["engines"]} == {
        "fast": True,
        "slow": True,
    }


def test_a_sample_runs_and_is_compared(fusion: Fusion, house: House) -> None:
    before = len(house.client.get("/v1/queries", params={"limit": 1_000}).json()["queries"])
    less = ("--set", "fast.memory_limit=16MiB", "--policy", "safe")  # by which nothing is tried to find out
    reply = told(fusion, "replay", *less, "--run", "3", "--limit", str(STATEMENTS))
    assert len(reply["runs"]) == 3
    for ran in reply["runs"]:
        assert (ran["engine"], ran["error"], ran["measured_misses"]) == ("slow", None, 0)
        assert ran["measured_s"] > 0.0
        record = house.client.get(f"/v1/queries/{ran['run_id']}").json()
        assert (record["requested_engine"], record["sql"]) == ("slow", ran["sql"])
    after = len(house.client.get("/v1/queries", params={"limit": 1_000}).json()["queries"])
    assert after == before + 3
    code, said = fusion("replay", *less, "--run", "2")
    assert code == 0, said
    assert re.search(r"2 statements ran: \S+ s predicted, \S+ s measured; out of memory 0 predicted, 0 measured", said)


def test_advice_marks_what_is_configured_and_what_costs_the_least(fusion: Fusion) -> None:
    code, said = fusion("advise", "--memory", "1GiB")
    assert code == 0, said
    assert "fast, within 1,024 MiB:" in said
    assert said.count("as configured") == 1
    assert said.count("costs the least") == 1
    best = re.search(r"least: a limit of ([\d,.]+ MiB) with (\d+) workers?$", said)
    assert best is not None
    (option,) = [
        each for each in told(fusion, "advise", "--memory", "1GiB")["engines"][0]["options"] if each["is_best"]
    ]
    assert best[2] == str(option["workers"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("replay", "--since", "yesterday"), "--since yesterday"),
        (("replay", "--since", "999999d"), "--since 999999d"),
        (("replay", "--set", "fast.memory_limit"), "give it as name=value"),
        (("replay", "--set", "fast.memory=1GiB"), "INVALID_SETTING"),
        (("replay", "--policy", "brave"), "INVALID_BODY"),
        (("replay", "--statistics", "old"), "INVALID_BODY"),
        (("replay", "--price", "fast=much"), "much is no number"),
        (("advise", "--memory", "much"), "--memory much"),
        (("advise", "--price", "spork=1"), "UNKNOWN_ENGINE"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_told(fusion: Fusion, words: tuple[str, ...], message: str) -> None:
    code, said = fusion(*words)
    assert code == 1
    assert message in said
