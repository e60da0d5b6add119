"""dbt: the project orchard/ from debug to docs, twice over, with what changed between.

CLIENTS_DBT: the adapter, spark (method thrift) or impala.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from asking import ask

ADAPTER = os.environ["CLIENTS_DBT"]
SCHEMA = os.environ.get("CLIENTS_DBT_SCHEMA", f"orchard_{ADAPTER}")
RUN_WITHIN_S = 600
FOLDER = Path(os.environ["CLIENTS_FOLDER"])
PORT = os.environ["CLIENTS_PORT"]
PROFILES: dict[str, dict[str, Any]] = {
    "spark": {"type": "spark", "method": "thrift", "user": "joe"},
    "impala": {"type": "impala", "auth_type": "insecure", "use_http_transport": False, "use_ssl": False},
}
MODELS = [
    "stg_harvests",
    "yield_by_kind",
    "harvest_log",
    "kilos_by_year",
    *(["tree_totals"] if ADAPTER == "spark" else []),
]
TESTS = [
    "unique_stg_harvests_harvest_id",
    "not_null_stg_harvests_harvest_id",
    "relationships_stg_harvests_tree_id__tree_id__ref_trees_",
    "not_null_yield_by_kind_kind",
    "accepted_values_yield_by_kind_kind__quince__medlar__mulberry",
    "unique_harvest_log_harvest_id",
    "no_kilos_are_lost",
]
ROUNDS = ["first", "again"]
STEPS = ["seed", "run", "test", *(["snapshot"] if ADAPTER == "spark" else [])]
only_spark = pytest.mark.skipif(ADAPTER != "spark", reason="the adapter neither merges nor takes snapshots")


@functools.cache
def project(round: str) -> Path:
    """Return the project's folder; in the second round a harvest came in and a tree turned out to be another kind."""
    folder = FOLDER / "project"
    if round == "first":
        shutil.copytree(Path(__file__).parent / "orchard", folder)
        profile = {"host": "127.0.0.1", "port": int(PORT), "schema": SCHEMA, "threads": 4, **PROFILES[ADAPTER]}
        profiles = {"orchard": {"target": "gateway", "outputs": {"gateway": profile}}}
        (folder / "profiles.yml").write_text(json.dumps(profiles), encoding="utf-8")  # JSON is YAML
        return folder
    project("first")
    with (folder / "seeds" / "harvests.csv").open("a", encoding="utf-8") as harvests:
        harvests.write("6,4,2025-07-01 06:00:00,2.40\n")
    trees = folder / "seeds" / "trees.csv"
    trees.write_text(trees.read_text(encoding="utf-8").replace("3,quince", "3,medlar"), encoding="utf-8")
    return folder


@functools.cache
def step(command: str, round: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Run a step of a round once, after all that come before it."""
    steps = [(step, each) for each in ROUNDS for step in STEPS]
    place = steps.index((command, round))
    if place:
        step(*steps[place - 1])
    return dbt(command, round)


@functools.cache
def dbt(command: str, round: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Run a command of dbt once; returns what it printed, and how each node ended, by name."""
    folder = project(round)
    results = folder / "target" / "run_results.json"
    results.unlink(missing_ok=True)
    words = ["dbt", "--no-use-colors", *command.split(), "--profiles-dir", str(folder), "--project-dir", str(folder)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=RUN_WITHIN_S)
    printed = (done.stdout + done.stderr).rpartition("Encountered an error:")[2]
    if not results.exists():
        return printed, {}
    rows = json.loads(results.read_text(encoding="utf-8"))["results"]
    return printed, {row["unique_id"].split(".")[2]: row for row in rows}


def holds(command: str, round: str, node: str) -> None:
    """Assert that a node ended well."""
    printed, nodes = step(command, round) if command in STEPS else dbt(command, round)
    assert node in nodes, printed[-600:]
    assert nodes[node]["status"] in ("success", "pass"), nodes[node]["message"]


def test_debug() -> None:
    printed, _ = dbt("debug", "first")
    assert "All checks passed!" in printed, printed[-600:]
    assert "Failed to fetch permissions" not in printed


@pytest.mark.parametrize("round", ROUNDS)
class TestRound:
    """Seed, run, test and take a snapshot, in this order, twice."""

    @pytest.mark.parametrize("seed", ["trees", "harvests"])
    def test_seed(self, round: str, seed: str) -> None:
        holds("seed", round, seed)

    @pytest.mark.parametrize("model", MODELS)
    def test_run(self, round: str, model: str) -> None:
        holds("run", round, model)

    @pytest.mark.parametrize("test", TESTS)
    def test_test(self, round: str, test: str) -> None:
        _, nodes = step("test", round)
        (name,) = [node for node in nodes if node.startswith(test)] or [test]
        holds("test", round, name)

    @only_spark
    def test_snapshot(self, round: str) -> None:
        holds("snapshot", round, "tree_history")


def test_an_append_has_every_harvest_once() -> None:
    assert ask(f"SELECT count(*), count(DISTINCT harvest_id) FROM {SCHEMA}.harvest_log") == [[6, 6]]


def test_insert_overwrite_replaced_the_years_it_wrote() -> None:
    rows = ask(f"SELECT picked_year, count(*) FROM {SCHEMA}.kilos_by_year GROUP BY picked_year ORDER BY picked_year")
    assert rows == [[2023, 2], [2024, 3], [2025, 1]]


def test_a_table_is_made_anew() -> None:
    rows = ask(f"SELECT kind, harvests FROM {SCHEMA}.yield_by_kind ORDER BY kind")
    assert rows == [["medlar", 2], ["mulberry", 2], ["quince", 2]]


@only_spark
def test_a_merge_updated_and_inserted() -> None:
    rows = ask(f"SELECT tree_id, harvests FROM {SCHEMA}.tree_totals ORDER BY tree_id")
    assert rows == [[1, 2], [2, 1], [3, 1], [4, 2]]


@only_spark
def test_a_snapshot_keeps_both_kinds() -> None:
    rows = ask(f"SELECT kind, dbt_valid_to IS NULL FROM {SCHEMA}.tree_history WHERE tree_id = 3 ORDER BY 2")
    assert rows == [["quince", False], ["medlar", True]]


def test_a_full_refresh() -> None:
    holds("run --full-refresh", "again", "harvest_log")
    holds("run --full-refresh", "again", "kilos_by_year")


def test_show() -> None:
    printed, _ = dbt("show --select yield_by_kind", "again")
    assert "mulberry" in printed, printed[-600:]


def test_build() -> None:
    _, nodes = dbt("build", "again")
    assert {name: row["message"] for name, row in nodes.items() if row["status"] not in ("success", "pass")} == {}
    assert nodes


@pytest.mark.parametrize("relation", ["trees", "harvests", *MODELS])
def test_docs_generate(relation: str) -> None:
    printed, _ = dbt("docs generate", "again")
    path = project("again") / "target" / "catalog.json"
    assert path.exists(), printed[-600:]
    catalog = json.loads(path.read_text(encoding="utf-8"))
    assert not catalog["errors"], catalog["errors"]
    found = {name.split(".")[2]: row for name, row in catalog["nodes"].items()}
    assert relation in found, sorted(found)
    expected = [row[0] for row in ask(f"DESCRIBE {SCHEMA}.{relation}") if row[0] and not row[0].startswith("#")]
    assert list(found[relation]["columns"]) == list(dict.fromkeys(expected))
    assert all(column["type"] for column in found[relation]["columns"].values())
