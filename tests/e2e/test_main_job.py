"""The main job on real parts: the paper's queries on both engines, a real failover, real kills."""

from __future__ import annotations

import io
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gateway.cli.demo.paper_queries import PAPER_QUERIES, SURPRISE_QUERY
from tests.e2e.conftest import RealGateway
from tests.engines.processes import ends_within

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

# Little memory, and time: a second for every hundred million pairs, some more on Spark.
LONG = (
    "SELECT count(*) AS n FROM (SELECT id FROM books WHERE id <= {side}) a "
    "CROSS JOIN (SELECT id FROM books WHERE id <= {side}) b WHERE (a.id * b.id) % 7 = 3"
)


def rows(gateway: RealGateway, sql: str, engine: str) -> Counter[tuple[Any, ...]]:
    reply = gateway.query(sql, engine=engine, max_rows=0)
    assert reply["state"] == "FINISHED", reply["error"]
    result = gateway.http.get(f"/v1/queries/{reply['id']}/result", params={"format": "arrow"})
    table = pa.ipc.open_stream(io.BytesIO(result.content)).read_all()
    assert table.num_rows == reply["row_count"]
    columns = [column.to_pylist() for column in table.columns]
    return Counter(zip(*columns, strict=True))


@pytest.mark.parametrize("name", PAPER_QUERIES)
def test_both_engines_give_the_same_rows(gateway: RealGateway, name: str) -> None:
    sql = PAPER_QUERIES[name]
    if "SELECT *" in sql:
        # Which ten rows a LIMIT without an order keeps is nobody's promise: the join itself is compared instead, over
        # as many books as fit into DuckDB's limit here.
        sql = sql.removesuffix(" LIMIT 10").removesuffix(")") + " AND books.id <= 80000)"
    fast, dependable = (rows(gateway, sql, engine) for engine in ("duckdb", "spark"))
    assert fast
    assert fast == dependable


def test_a_real_out_of_memory_fails_over_once_and_never_again(gateway: RealGateway) -> None:
    first = gateway.query(SURPRISE_QUERY)
    assert [(a["engine"], a["failure"]) for a in first["attempts"]] == [("duckdb", "MEMORY_EXCEEDED"), ("spark", None)]
    assert (first["state"], first["row_count"]) == ("FINISHED", 10)
    assert first["decision"]["estimate"]["upper_bytes"] < first["decision"]["limit_bytes"]
    again = gateway.query(SURPRISE_QUERY)
    assert [(a["engine"], a["failure"]) for a in again["attempts"]] == [("spark", None)]
    assert again["decision"]["reasons"][0]["code"] == "MISESTIMATE_ON_RECORD"
    assert again["rows"] == first["rows"]
    (misestimate,) = gateway.http.get("/v1/misestimates").json()["misestimates"]
    assert misestimate["query_id"] == first["id"]
    assert misestimate["statistics_version"] == "books@1,transactions@1"


def test_a_killed_duckdb_worker_costs_no_query(gateway: RealGateway) -> None:
    sql = LONG.format(side=14_000)
    query_id = gateway.submit(sql)
    _wait_until(lambda: _attempt_engines(gateway, query_id) == ["duckdb"])
    time.sleep(0.2)
    for pid in gateway.processes("engines.duckdb.worker.worker"):
        os.kill(pid, signal.SIGKILL)
    reply = gateway.ended(query_id, within_s=200)
    assert reply["state"] == "FINISHED", reply["error"]
    assert [(a["engine"], a["failure"]) for a in reply["attempts"]] == [
        ("duckdb", "ENGINE_UNAVAILABLE"),
        ("spark", None),
    ]
    small = gateway.query("SELECT count(*) FROM books WHERE price < 31")
    assert small["engine"] == "duckdb"
    _wait_until(lambda: len(gateway.processes("engines.duckdb.worker.worker")) >= 2)


def test_a_killed_spark_costs_no_query(gateway: RealGateway) -> None:
    assert gateway.query("SELECT count(*) FROM books", engine="spark")["state"] == "FINISHED"
    query_id = gateway.submit(LONG.format(side=10_000), engine="spark")
    _wait_until(lambda: _attempt_engines(gateway, query_id) == ["spark"])
    time.sleep(0.5)
    (java,) = gateway.processes("org.apache.spark.deploy.SparkSubmit")
    os.kill(java, signal.SIGKILL)
    reply = gateway.ended(query_id, within_s=300)
    assert reply["state"] == "FINISHED", reply["error"]
    assert [(a["engine"], a["failure"]) for a in reply["attempts"]] == [
        ("spark", "ENGINE_UNAVAILABLE"),
        ("spark", None),
    ]
    assert gateway.query("SELECT count(*) AS n FROM books", engine="spark")["state"] == "FINISHED"


def test_a_killed_gateway_leaves_no_query_running_no_file_and_no_process(
    serve: Callable[[Path], RealGateway], bookstore: Path, tmp_path: Path
) -> None:
    first = serve(tmp_path / "home")
    first.http.post("/v1/tables", json={"name": "books", "location": str(bookstore / "books")}).raise_for_status()
    finished = first.query("SELECT id FROM books WHERE price < 20 ORDER BY id", engine="duckdb", max_rows=3)
    running = first.submit(LONG.format(side=100_000), engine="duckdb")
    _wait_until(lambda: _attempt_engines(first, running) == ["duckdb"])
    orphan = tmp_path / "home" / "results" / f"{running}.part"
    orphan.write_bytes(b"half a result")
    descendants = first.processes("")
    assert descendants
    first.process.kill()
    first.process.wait()
    assert all(ends_within(pid, 15) for pid in descendants)

    second = serve(tmp_path / "home")
    assert not orphan.exists()

    def failures() -> list[str | None]:
        return [attempt["failure"] for attempt in second.http.get(f"/v1/queries/{running}").json()["attempts"]]

    _wait_until(lambda: failures() == ["GATEWAY_LOST", None])  # it runs again
    assert second.http.delete(f"/v1/queries/{running}").json()["state"] == "CANCELLED"
    kept = {file.name for file in (tmp_path / "home" / "results").iterdir()}
    assert kept == {f"{finished['id']}.arrow"}
    assert second.http.get(f"/v1/queries/{finished['id']}", params={"max_rows": 3}).json()["rows"] == finished["rows"]


def _attempt_engines(gateway: RealGateway, query_id: str) -> list[str]:
    return [attempt["engine"] for attempt in gateway.http.get(f"/v1/queries/{query_id}").json()["attempts"]]


def _wait_until(happened: Callable[[], bool], within_s: float = 60.0) -> None:
    give_up_s = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < give_up_s
        time.sleep(0.05)
