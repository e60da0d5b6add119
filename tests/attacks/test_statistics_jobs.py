"""Statistics jobs hand Spark no text of a client: a job has no place for expressions or patterns, and makes none."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import statsproc
from gateway.http.models.statistics import StatisticsJobRequest
from metastore.records import JobRequest
from tests.attacks.doors import Served

EVIL = "((a+)+)+b"
BY_NAME = {"tables", "mode", "columns", "share", "partitions"}
TAKES_TEXT = {
    "sql",
    "expr",
    "selectExpr",
    "where",
    "filter",
    "rlike",
    "like",
    "ilike",
    "regexp_replace",
    "call_function",
}
ON_THE_COMMAND_LINE = {"bookstore.py", "ingest.py"}  # which no gateway starts


def test_a_job_names_what_the_catalog_has_and_nothing_else() -> None:
    assert {field.name for field in fields(JobRequest)} == BY_NAME
    assert set(StatisticsJobRequest.model_fields) <= BY_NAME


def test_jobs_tell_spark_columns_and_no_text() -> None:
    found = []
    for file in sorted(Path(*statsproc.__path__).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKES_TEXT:
                of = node.func.value
                if file.name not in ON_THE_COMMAND_LINE and not (isinstance(of, ast.Name) and of.id == "np"):
                    found.append(f"{file.name}:{node.lineno}")
    assert found == []


@pytest.mark.parametrize(
    "body",
    [
        {"tables": ["books"], "where": f"category RLIKE '{EVIL}'"},
        {"tables": [f"(SELECT * FROM books WHERE category RLIKE '{EVIL}')"]},
        {"tables": ["books"], "columns": [f"regexp_replace(category, '{EVIL}', '')"]},
    ],
    ids=["predicate", "query", "expression"],
)
def test_the_interface_takes_no_expression(duckdb_gateway: Served, body: dict[str, Any]) -> None:
    with duckdb_gateway.http() as client:
        before = client.get("/v1/stats/jobs").json()
        reply = client.post("/v1/stats/jobs", json=body)
        assert reply.is_client_error, reply.text
        assert client.get("/v1/stats/jobs").json() == before


def test_a_table_is_read_by_no_option_of_a_client_that_is_a_pattern(duckdb_gateway: Served, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with duckdb_gateway.http() as client:
        for option in ("pathGlobFilter", "lineSep", "timestampFormat", "delimiter"):
            body = {"name": "t", "location": str(tmp_path / "t"), "format": "csv", "options": {option: EVIL}}
            reply = client.post("/v1/tables", json=body)
            assert reply.is_client_error, reply.text
