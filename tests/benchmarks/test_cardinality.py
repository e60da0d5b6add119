from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from benchmarks.cardinality import PERCENTILES

ROOT = Path(__file__).parents[2]
CUSTOMERS, ORDERS = 200, 20_000
LARGE = "SELECT * FROM orders WHERE amount >= 9000"
JOINED = "SELECT count(*) FROM orders o JOIN customers c ON o.customer = c.id WHERE c.region = 'r1'"
UNKNOWN = "SELECT nothing FROM orders"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Give a folder with a table as text, one as Parquet, and a folder that is no table."""
    folder = tmp_path / "data"
    (folder / "orders").mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.sql(f"SELECT i AS id, 'r' || i % 4 AS region FROM range({CUSTOMERS}) t(i)").write_csv(
            str(folder / "customers.csv")
        )
        orders = f"SELECT i AS id, i % {CUSTOMERS} AS customer, i % 10000 AS amount FROM range({ORDERS}) t(i)"
        connection.sql(orders).write_parquet(str(folder / "orders" / "0.parquet"))
    (folder / "empty").mkdir()
    return folder


def _run(data: Path, queries: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.cardinality", "--data", str(data), "--queries", str(queries)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.spark
def test_the_claim_on_anyones_tables(data: Path, tmp_path: Path) -> None:
    queries = tmp_path / "queries.json"
    asked = [{"sql": f"{LARGE};", "true": ORDERS // 10}, {"sql": JOINED, "true": ORDERS // 4}]
    queries.write_text(json.dumps([*asked, {"sql": UNKNOWN, "true": 1}]))
    ran = _run(data, queries)
    assert ran.returncode == 0, ran.stderr
    assert "empty is no table" in ran.stderr
    assert f"not planned: {UNKNOWN}: Binder Error" in ran.stderr
    assert "q-errors of 2 of 3 statements" in ran.stdout
    last = json.loads(ran.stdout.splitlines()[-1])
    assert (last["claim"], last["holds"], last["targets"]) == ("cardinality", True, {})
    found = last["figures"]
    assert {f"{whose}q{p}" for p in PERCENTILES for whose in ("", "engine_")} < set(found)
    assert 1.0 <= found["q50"] <= found["q99"] < 1.01  # of a count the rows below it, not its one row
    assert found["mape"] < 1.0
    assert found["engine_q99"] > found["q99"]
    assert found["upper_covers_percent"] == 100.0
    assert found["ms_per_estimate"] > 0.0


@pytest.mark.parametrize("content", ["nonsense", '[{"sql": "SELECT 1"}]'])
def test_statements_that_cannot_be_read(data: Path, tmp_path: Path, content: str) -> None:
    queries = tmp_path / "queries.json"
    queries.write_text(content)
    ran = _run(data, queries)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f'error: {queries} is no JSON list of {{"sql", "true"}}'
