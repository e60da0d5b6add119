"""A statement goes where there are words of its meaning: through HTTP, over real and scripted engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from gateway.server.app import create_app
from tests.gateway.conftest import Scripted, serving


def explained(scripted: Callable[..., Scripted], sql: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    with serving(create_app(scripted().gateway)) as client:
        response = client.post("/v1/explain", json={"sql": sql, **fields})
        return response.status_code, response.json()


def test_a_statement_that_is_not_portable_goes_to_spark(scripted: Callable[..., Scripted]) -> None:
    status, body = explained(scripted, "SELECT initcap(category) FROM books")
    assert (status, body["decision"]["engine"]) == (200, "dependable")
    reason = body["decision"]["reasons"][0]
    assert (reason["code"], "initcap" in reason["text"]) == ("DIALECT", True)


def test_who_insists_on_the_fast_engine_is_told_why_not(scripted: Callable[..., Scripted]) -> None:
    status, body = explained(scripted, "SELECT initcap(category) FROM books", engine="fast")
    assert status == 503
    assert "initcap" in body["error"]["message"]


def test_a_hint_pins_the_engine(scripted: Callable[..., Scripted]) -> None:
    status, body = explained(scripted, "SELECT /*+ ENGINE(dependable) */ id FROM books")
    assert (status, body["decision"]["ranking"]) == (200, ["dependable"])
    status, body = explained(scripted, "SELECT /*+ ENGINE(oracle) */ id FROM books")
    assert (status, body["error"]["code"]) == (403, "NOT_ALLOWED")


def test_duckdb_gives_up_over_a_value_that_only_spark_may_judge(client: httpx.Client) -> None:
    record = client.post("/v1/queries", json={"sql": "SELECT 10 / (id - 1) AS x FROM books", "wait_s": 60}).json()
    assert record["error"]["code"] == "STATEMENT_ERROR"  # which fails over where there is another engine
    assert "Division by zero" in record["error"]["message"]


def test_duckdb_answers_with_sparks_types_and_names(client: httpx.Client) -> None:
    sql = "SELECT count(*) AS N, sum(quantity) / 2 AS half, year(max(transaction_date)) AS Last FROM transactions"
    record = client.post("/v1/queries", json={"sql": sql, "wait_s": 60}).json()
    assert [(column["name"], column["type"]) for column in record["columns"]] == [
        ("N", "bigint"),
        ("half", "double"),
        ("Last", "int"),
    ]
