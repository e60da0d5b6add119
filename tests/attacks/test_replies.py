"""What leaves the gateway is what its form says: JSON that every reader takes, CSV that no spreadsheet runs."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
from sqlalchemy import JSON, Text, cast, literal, select

from gateway.http.replies import ExactJSONResponse
from metastore.database.connection import make_engine, sqlite_url
from tests.attacks.doors import Served

MANY = 90  # tables of 5,000 rows each: more rows than a double has
FORMULAS = ("=1+1", "+1", "-1", "@x", "  =1", "\t=1", "\r=1")
PLAIN = ("a=1", "it's", "")


def strict(reply: httpx.Response) -> Any:
    """Read JSON as RFC 8259 has it."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(reply.content, parse_constant=refuse)


def test_infinite_numbers_in_rows_are_texts(duckdb_gateway: Served) -> None:
    sql = "SELECT CAST('Infinity' AS DOUBLE) * id AS a, CAST('NaN' AS DOUBLE) AS b FROM books WHERE id <= 2"
    with duckdb_gateway.http() as client:
        reply = client.post("/v1/queries", json={"sql": sql, "wait_s": 60})
        found = strict(reply)
        assert reply.status_code == 200, found
        assert found["rows"] == [["Infinity", "NaN"]] * 2
        assert strict(client.get(f"/v1/queries/{found['id']}/result"))["rows"] == [["Infinity", "NaN"]] * 2
        assert client.get(f"/dashboard/queries/{found['id']}").status_code == 200


def test_infinite_estimates_are_texts(duckdb_gateway: Served) -> None:
    tables = ", ".join(f"transactions t{number}" for number in range(MANY))
    with duckdb_gateway.http() as client:
        reply = client.post("/v1/explain", json={"sql": f"SELECT count(*) AS n FROM {tables}"})
        strict(reply)
        assert reply.status_code in (200, 400, 503), reply.text  # and no 500
        strict(client.get("/v1/queries"))


def test_replies_and_records_hold_infinite_numbers(tmp_path: Path) -> None:
    number = {"rows": [math.inf, -math.inf], "text": "Infinity"}
    assert json.loads(bytes(ExactJSONResponse(number).body)) == {"rows": ["Infinity", "-Infinity"], "text": "Infinity"}
    with make_engine(sqlite_url(tmp_path / "a.db")).connect() as connection:
        kept = connection.scalar(select(cast(literal(number, JSON), Text)))
    assert json.loads(str(kept)) == {"rows": ["inf", "-inf"], "text": "Infinity"}


@pytest.mark.parametrize("guard", [False, True])
def test_csv_for_spreadsheets_holds_no_formula(duckdb_gateway: Served, guard: bool) -> None:
    texts = (*FORMULAS, *PLAIN)
    rows = ", ".join(f"({number}, '{text.replace(chr(39), chr(39) * 2)}')" for number, text in enumerate(texts))
    sql = f"SELECT n, text AS `=name`, -n AS negative FROM (VALUES {rows}) AS t (n, text) ORDER BY n"
    with duckdb_gateway.http() as client:
        found = client.post("/v1/queries", json={"sql": sql, "wait_s": 60}).json()
        assert found["state"] == "FINISHED", found
        reply = client.get(f"/v1/queries/{found['id']}/result", params={"format": "csv", "guard": guard})
    head, *lines = csv.reader(io.StringIO(reply.content.decode(), newline=""))
    mark = "'" if guard else ""
    assert head[1] == f"{mark}=name"
    assert [line[1] for line in lines] == [*(mark + text for text in FORMULAS), *PLAIN]
    assert lines[1][2] == "-1"  # a number stays one
