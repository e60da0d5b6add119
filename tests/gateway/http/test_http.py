"""The REST interface over a real DuckDB and a real socket."""

from __future__ import annotations

import datetime as dt
import io
import json
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.gateway.conftest import BOOKS, TRANSACTIONS

CHEAP = "SELECT id, price FROM books WHERE price < 2 ORDER BY id"
CHEAP_BOOKS = 2 * BOOKS // 100


def run(client: httpx.Client, sql: str, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/queries", json={"sql": sql, **fields})
    assert response.status_code in (200, 202), response.text
    reply: dict[str, Any] = response.json()
    return reply


def test_a_query_tells_rows_decision_and_attempts(client: httpx.Client) -> None:
    reply = run(client, CHEAP)
    assert (reply["state"], reply["engine"], reply["error"]) == ("FINISHED", "duckdb", None)
    assert reply["columns"] == [{"name": "id", "type": "bigint"}, {"name": "price", "type": "double"}]
    assert len(reply["rows"]) == reply["row_count"] == CHEAP_BOOKS
    assert reply["rows"][:2] == [[1, 1.0], [100, 0.0]]
    assert not reply["truncated"]
    decision = reply["decision"]
    assert decision["ranking"] == ["duckdb"]
    assert "FITS" in [reason["code"] for reason in decision["reasons"]]
    assert decision["estimate"]["upper_bytes"] >= decision["estimate"]["peak_bytes"] > 0
    assert decision["estimate"]["operators"]
    assert decision["limit_bytes"] == 1 << 30
    (attempt,) = reply["attempts"]
    assert (attempt["ordinal"], attempt["engine"], attempt["state"], attempt["failure"]) == (
        1,
        "duckdb",
        "FINISHED",
        None,
    )
    assert attempt["peak_bytes"] > 0
    assert attempt["wall_s"] > 0


def test_max_rows_cuts_the_reply_and_not_the_result(client: httpx.Client) -> None:
    reply = run(client, CHEAP, max_rows=3)
    assert (len(reply["rows"]), reply["truncated"], reply["row_count"]) == (3, True, CHEAP_BOOKS)
    whole = client.get(f"/v1/queries/{reply['id']}/result").json()
    assert len(whole["rows"]) == CHEAP_BOOKS
    assert run(client, CHEAP, max_rows=0)["rows"] == []
    assert client.get(f"/v1/queries/{reply['id']}", params={"max_rows": 5}).json()["rows"] == whole["rows"][:5]


def test_results_come_in_every_format(client: httpx.Client) -> None:
    query_id = run(client, CHEAP)["id"]
    csv = client.get(f"/v1/queries/{query_id}/result", params={"format": "csv"})
    assert csv.headers["content-type"].startswith("text/csv")
    assert csv.text.splitlines()[:2] == ['"id","price"', "1,1"]
    arrow = client.get(f"/v1/queries/{query_id}/result", params={"format": "arrow"})
    table = pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all()
    assert (table.num_rows, table.schema.names) == (CHEAP_BOOKS, ["id", "price"])
    assert client.get(f"/v1/queries/{query_id}/result", params={"format": "xml"}).status_code == 422


def test_an_empty_result_keeps_its_columns(client: httpx.Client) -> None:
    reply = run(client, "SELECT id, category FROM books WHERE price < 0")
    assert (reply["rows"], [column["name"] for column in reply["columns"]]) == ([], ["id", "category"])
    result = f"/v1/queries/{reply['id']}/result"
    assert client.get(result, params={"format": "csv"}).text == '"id","category"\n'
    assert client.get(result).json()["rows"] == []


def test_wait_0_returns_at_once_and_the_query_goes_on(client: httpx.Client) -> None:
    response = client.post("/v1/queries", json={"sql": CHEAP, "wait_s": 0})
    assert response.status_code in (200, 202)
    query_id = response.json()["id"]
    give_up_s = time.monotonic() + 20
    while (reply := client.get(f"/v1/queries/{query_id}").json())["state"] != "FINISHED":
        assert reply["state"] in ("QUEUED", "RUNNING")
        assert time.monotonic() < give_up_s
        time.sleep(0.02)
    assert len(reply["rows"]) == CHEAP_BOOKS


SLOW = "SELECT count(*) FROM transactions a, transactions b, transactions c WHERE (a.id * b.id + c.id) % 7 = 3"


def test_a_running_query_can_be_seen_and_cancelled(client: httpx.Client) -> None:
    response = client.post("/v1/queries", json={"sql": SLOW, "wait_s": 0.5})
    assert (response.status_code, response.json()["state"]) == (202, "RUNNING")
    query_id = response.json()["id"]
    early = client.get(f"/v1/queries/{query_id}/result")
    assert (early.status_code, early.json()["error"]["code"]) == (409, "NOT_FINISHED")
    assert client.get("/livez").status_code == 200
    cancelled = client.delete(f"/v1/queries/{query_id}").json()
    assert (cancelled["state"], cancelled["error"]["code"]) == ("CANCELLED", "CANCELLED")
    assert client.delete(f"/v1/queries/{query_id}").json()["state"] == "CANCELLED"
    assert run(client, CHEAP)["state"] == "FINISHED"


def test_a_timeout_ends_a_query(client: httpx.Client) -> None:
    reply = run(client, SLOW, timeout_s=0.5)
    assert (reply["state"], reply["error"]["code"]) == ("FAILED", "DEADLINE_EXCEEDED")


def test_errors_of_data_are_the_statements_fault(client: httpx.Client) -> None:
    response = client.post("/v1/queries", json={"sql": "SELECT sum(9223372036854775807 - id) FROM books"})
    body = response.json()
    assert (response.status_code, body["error"]["code"], body["state"]) == (400, "STATEMENT_ERROR", "FAILED")
    assert body["attempts"][0]["failure"] == "STATEMENT_ERROR"


def test_explain_decides_and_runs_nothing(client: httpx.Client) -> None:
    before = client.get("/v1/queries").json()["queries"][0]["id"]
    reply = client.post("/v1/explain", json={"sql": CHEAP}).json()
    assert reply["decision"]["engine"] == "duckdb"
    assert "books" in reply["sql"]["duckdb"]
    assert client.get("/v1/queries").json()["queries"][0]["id"] == before
    assert run(client, CHEAP)["fingerprint"] == reply["fingerprint"]


def test_pinning_to_an_engine(client: httpx.Client) -> None:
    reply = run(client, CHEAP, engine="duckdb")
    assert [reason["code"] for reason in reply["decision"]["reasons"]] == ["PINNED"]


def test_settings_say_what_the_request_does_not(client: httpx.Client) -> None:
    in_impala = {"fusion.dialect": "impala"}
    assert run(client, 'SELECT "a" AS c', settings=in_impala)["dialect"] == "impala"
    assert run(client, "SELECT 'a' AS c", settings=in_impala, dialect="spark")["dialect"] == "spark"
    elsewhere = {"fusion.engine": "other"}
    refused = client.post("/v1/queries", json={"sql": CHEAP, "settings": elsewhere}).json()
    assert refused["error"]["code"] == "UNKNOWN_ENGINE"
    assert run(client, CHEAP, settings=elsewhere, engine="auto")["engine"] == "duckdb"


def test_queries_are_listed_newest_first(client: httpx.Client) -> None:
    first, second = run(client, CHEAP)["id"], run(client, CHEAP)["id"]
    listed = client.get("/v1/queries", params={"limit": 2}).json()["queries"]
    assert [query["id"] for query in listed] == [second, first]
    older = client.get("/v1/queries", params={"before": listed[0]["submitted_at"], "limit": 1}).json()["queries"]
    assert older[0]["id"] == first


def test_dialects(client: httpx.Client) -> None:
    assert run(client, "SELECT strleft(category, 2) AS c FROM books LIMIT 1", dialect="impala")["state"] == "FINISHED"
    assert run(client, "SELECT `id` FROM books LIMIT 1", dialect="hive")["state"] == "FINISHED"


def test_tables(client: httpx.Client, tmp_path: Path) -> None:
    names = [table["name"] for table in client.get("/v1/tables").json()["tables"]]
    assert {"books", "transactions"} <= set(names)
    books = client.get("/v1/tables/books").json()
    assert (books["rows"], books["format"], books["statistics"]) == (BOOKS, "parquet", None)
    assert {"name": "publish_date", "type": "date"} in books["columns"]
    assert "location" not in books
    folder = tmp_path / "people"
    folder.mkdir()
    (folder / "people.csv").write_text("name|age\nAda|36\nAlan|41\n", encoding="utf-8")
    body = {"name": "People", "location": str(folder), "options": {"delimiter": "|", "header": "true"}}
    response = client.post("/v1/tables", json=body)
    assert (response.status_code, response.json()["name"]) == (201, "people")
    assert run(client, "SELECT sum(age) FROM people")["rows"] == [[77]]


def test_every_type_reaches_json_exactly(client: httpx.Client, tmp_path: Path) -> None:
    moment = dt.datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=dt.UTC)
    values: dict[str, tuple[pa.DataType, Any, Any]] = {
        "flag": (pa.bool_(), True, True),
        "big": (pa.int64(), 2**63 - 1, 2**63 - 1),
        "real": (pa.float64(), 0.1, 0.1),
        "nan": (pa.float64(), float("nan"), "NaN"),
        "infinite": (pa.float64(), float("-inf"), "-Infinity"),
        "exact": (pa.decimal128(38, 10), Decimal("12345678901234567890.0000000001"), "12345678901234567890.0000000001"),
        "text": (pa.string(), "Ünïcödé ☃", "Ünïcödé ☃"),
        "raw": (pa.binary(), b"\x00\xff", "AP8="),
        "day": (pa.date32(), dt.date(1969, 12, 31), "1969-12-31"),
        "moment": (pa.timestamp("us", tz="UTC"), moment, "2024-02-29 12:30:00.123456+00:00"),
        "items": (pa.list_(pa.int32()), [1, 2], [1, 2]),
        "nothing": (pa.string(), None, None),
    }
    table = pa.table({name: pa.array([value], kind) for name, (kind, value, _) in values.items()})
    pq.write_table(table, tmp_path / "types.parquet")
    client.post("/v1/tables", json={"name": "types", "location": str(tmp_path / "types.parquet")}).raise_for_status()
    reply = run(client, "SELECT * FROM types")
    told = dict(zip([column["name"] for column in reply["columns"]], reply["rows"][0], strict=True))
    assert told == {name: shown for name, (_, _, shown) in values.items()}
    csv = client.get(f"/v1/queries/{reply['id']}/result", params={"format": "csv"}).text
    assert "12345678901234567890.0000000001" in csv


def test_engines_and_health(client: httpx.Client) -> None:
    (engine,) = client.get("/v1/engines").json()["engines"]
    assert (engine["name"], engine["kind"], engine["alive"]) == ("duckdb", "fast", True)
    assert engine["ledger"]["slots"] == 8
    assert client.get("/livez").json() == {"status": "alive"}
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["engines"]) == (200, {"duckdb": "ok"})


def test_the_documentation_of_the_interface_is_served(client: httpx.Client) -> None:
    assert client.get("/docs").status_code == 200
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/queries", "/v1/explain", "/v1/tables", "/v1/stats/jobs", "/v1/misestimates", "/v1/engines"} <= set(
        paths
    )


def test_clients_that_wait_do_not_starve_the_others(client: httpx.Client) -> None:
    ids = []
    for _ in range(45):  # more than the server has threads
        reply = client.post("/v1/queries", json={"sql": SLOW, "wait_s": 0}).json()
        ids.append(reply["id"])
    begun = time.monotonic()
    assert client.get("/livez").status_code == 200
    assert client.get("/v1/tables").status_code == 200
    assert time.monotonic() - begun < 5
    with ThreadPoolExecutor(len(ids)) as pool:
        states = list(pool.map(lambda query_id: client.delete(f"/v1/queries/{query_id}").json()["state"], ids))
    assert set(states) == {"CANCELLED"}
    assert run(client, "SELECT count(*) FROM transactions")["rows"] == [[TRANSACTIONS]]


def test_json_stays_json(client: httpx.Client) -> None:
    text = client.get(f"/v1/queries/{run(client, CHEAP)['id']}/result").text
    assert json.loads(text)["columns"][0] == {"name": "id", "type": "bigint"}


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("DATE'9999-12-31' + INTERVAL '1' DAY", "+10000-01-01"),
        ("date_add(DATE'0001-01-01', -339)", "0000-01-28"),
        ("date_add(DATE'0001-01-01', -704)", "-0001-01-28"),
        ("date_add(DATE'9999-12-31', 300000000)", "+831372-02-06"),
        ("TIMESTAMP'9999-12-31 23:59:59.5' + INTERVAL '1' SECOND", "+10000-01-01 00:00:00.500000+00:00"),
    ],
)
def test_years_that_python_has_not_are_answered_everywhere(client: httpx.Client, sql: str, text: str) -> None:
    reply = run(client, f"SELECT {sql} AS d")
    assert (reply["attempts"][0]["engine"], reply["rows"]) == ("duckdb", [[text]])
    address = f"/v1/queries/{reply['id']}"
    assert client.get(address).json()["rows"] == [[text]]
    assert client.get(f"{address}/result").json()["rows"] == [[text]]
    assert client.get(f"{address}/result", params={"format": "csv"}).text.splitlines()[1][1:-1] in text.replace(
        "+00:00", "Z"
    )
