"""What people and programs send by mistake or on purpose: each with its status, its code and its place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.http.errors import status_of, status_of_failed_query
from gateway.server.app import create_app
from sql.errors import AccessDenied
from tests.gateway.conftest import Scripted, serving

DEEP = "SELECT " + "(" * 1_000 + "1" + ")" * 1_000
DEEP_SUBQUERIES = "SELECT * FROM " + "(SELECT * FROM " * 1_000 + "books" + ")" * 1_000
DEEP_WITHOUT_BRACKETS = "SELECT " + "NOT " * 5_000 + "TRUE"
LONG_SUM = "SELECT " + " + ".join(["1"] * 10_000)
TEN_MEGABYTES = "SELECT '" + "x" * 10_000_000 + "'"


def refused(client: httpx.Client, sql: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    response = client.post("/v1/queries", json={"sql": sql, **fields})
    assert "Traceback" not in response.text
    return response.status_code, response.json()["error"]


@pytest.mark.parametrize(
    ("sql", "status", "code"),
    [
        ("", 400, "EMPTY_STATEMENT"),
        (" ;; -- nothing", 400, "EMPTY_STATEMENT"),
        ("SELECT 1; SELECT 2", 400, "MULTIPLE_STATEMENTS"),
        ("SELECT (((", 400, "SYNTAX_ERROR"),
        ("SELECT 'open", 400, "SYNTAX_ERROR"),
        ("SELEC id FROM books", 400, "SYNTAX_ERROR"),
        ("\x00SELECT 1", 400, "SYNTAX_ERROR"),
        ("SELECT * FROM boks", 400, "UNKNOWN_TABLE"),
        ("SELECT * FROM other.books", 400, "UNKNOWN_TABLE"),
        ("SELECT pric FROM books", 400, "UNKNOWN_COLUMN"),
        ("SELECT b.pric FROM books b", 400, "UNKNOWN_COLUMN"),
        (DEEP, 400, "STATEMENT_TOO_DEEP"),
        (DEEP_SUBQUERIES, 400, "STATEMENT_TOO_DEEP"),
        (DEEP_WITHOUT_BRACKETS, 400, "STATEMENT_TOO_DEEP"),
        (LONG_SUM, 400, "STATEMENT_TOO_DEEP"),
        (TEN_MEGABYTES, 413, "STATEMENT_TOO_LONG"),
        ("COPY books TO '/tmp/x.csv'", 403, "NOT_ALLOWED"),
        ("WITH x AS (COPY books TO '/tmp/x.csv') SELECT * FROM x", 403, "NOT_ALLOWED"),
        ("WITH x AS (INSERT INTO books VALUES (1)) SELECT * FROM x", 403, "NOT_ALLOWED"),
        ("ATTACH '/tmp/x.db' AS x", 403, "NOT_ALLOWED"),
        ("INSTALL httpfs", 403, "NOT_ALLOWED"),
        ("LOAD httpfs", 403, "NOT_ALLOWED"),
        ("PRAGMA database_list", 403, "NOT_ALLOWED"),
        ("SET threads = 8", 400, "NO_SESSION"),
        ("INSERT INTO books (id) VALUES (1)", 503, "NO_ENGINE_AVAILABLE"),
        ("CREATE TABLE x AS SELECT 1 AS a", 503, "NO_ENGINE_AVAILABLE"),
        ("CREATE TABLE books AS SELECT 1 AS a", 400, "TABLE_EXISTS"),
        ("UPDATE books SET id = 1", 403, "NOT_ALLOWED"),
        ("CREATE TABLE x (id INT) PARTITIONED BY (bucket(4, id))", 403, "NOT_ALLOWED"),
        ("CREATE TABLE x (id INT) USING iceberg PARTITIONED BY (bucket(0, id))", 403, "NOT_ALLOWED"),
        ("SELECT 1 INTO x", 403, "NOT_ALLOWED"),
        ("SELECT * FROM read_csv('/etc/passwd')", 403, "NOT_ALLOWED"),
        ("SELECT * FROM parquet.`/etc`", 403, "NOT_ALLOWED"),
        ("SELECT * FROM list_files('/etc')", 403, "NOT_ALLOWED"),
        ("SELECT java_method('java.lang.System', 'exit', 1)", 403, "NOT_ALLOWED"),
        ("SELECT reflect('java.lang.System', 'getenv')", 403, "NOT_ALLOWED"),
        ("SELECT getenv('HOME')", 403, "NOT_ALLOWED"),
        ("SELECT pg_sleep(100)", 403, "NOT_ALLOWED"),
        ("SELECT * FROM duckdb_settings()", 403, "NOT_ALLOWED"),
        ("SELECT ?", 403, "NOT_ALLOWED"),
        ("SELECT id FROM books FOR UPDATE", 403, "NOT_ALLOWED"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else str(value),
)
def test_statements(client: httpx.Client, sql: str, status: int, code: str) -> None:
    answered, error = refused(client, sql)
    assert (answered, error["code"]) == (status, code)
    assert error["message"]


@pytest.mark.parametrize("dialect", ["spark", "hive", "impala"])
@pytest.mark.parametrize(
    "sql",
    [
        "COPY books TO '/tmp/x.csv'",
        "WITH x AS (COPY books TO '/tmp/x.csv') SELECT * FROM x",
        "ATTACH '/tmp/x.db' AS x",
        "INSTALL httpfs",
        "PRAGMA database_list",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT java_method('java.lang.System', 'exit', 1)",
        "EXPORT DATABASE '/tmp/x'",
        "CALL something()",
    ],
)
def test_no_dialect_opens_a_door(client: httpx.Client, sql: str, dialect: str) -> None:
    assert refused(client, sql, dialect=dialect)[0] == 403


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("spark", """SELECT cast(1 AS `oid) AS a, (SELECT string_agg(sql,'') FROM duckdb_views()), (1`)"""),
        ("spark", """SELECT cast(1 AS `oid); COPY (SELECT 666 AS id) TO 'evil.parquet'; SELECT (1`)"""),
        ("hive", """SELECT cast(1 AS `oid); COPY (SELECT 1) TO 'x'; EXPLAIN (FORMAT JSON) SELECT (1`)"""),
        (
            "spark",
            "SELECT date_add('DAY AS a, (SELECT count(*) FROM duckdb_settings()) AS n, 1', 1, publish_date) FROM books",
        ),
        ("spark", "SELECT datediff('DAY, 1), (SELECT 1', publish_date, publish_date) FROM books"),
        ("spark", "SELECT extract('DAY FROM x), (SELECT 1' FROM publish_date) FROM books"),
        ("spark", "VALUES ((SELECT max(sql) FROM duckdb_views))"),
        ("spark", "VALUES ((SELECT max(x) FROM parquet.`/etc/p`))"),
        ("spark", "SELECT id FROM books UNION SELECT id FROM books ORDER BY (SELECT 1 FROM secrets)"),
        ("spark", "SELECT id FROM books UNION SELECT id FROM books LIMIT (SELECT 1 FROM secrets)"),
        ("spark", "SELECT * FROM books LATERAL VIEW explode((SELECT x FROM secrets)) t AS c"),
        ("spark", "SELECT * FROM ((SELECT 1) LIMIT (SELECT x FROM secrets)) q"),
    ],
)
def test_no_text_gets_past_the_allow_list(client: httpx.Client, dialect: str, sql: str) -> None:
    status, error = refused(client, sql, dialect=dialect)
    assert status in (400, 403, 503), error
    assert error["code"] in ("NOT_ALLOWED", "SYNTAX_ERROR", "UNKNOWN_TABLE", "NO_ENGINE_AVAILABLE")  # or it is Spark's


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "1," * 60_000 + "1",
        "SELECT x" + "[0]" * 1_500 + " FROM books",
        "SELECT CAST(1 AS " + "ARRAY<" * 400 + "INT" + ">" * 400 + ")",
        "SELECT " + ", ".join(f"id AS c{i}" for i in range(2_000)) + " FROM books",
        "SELECT " + ", ".join(f"id + {i}" for i in range(5_000)) + " FROM books",
    ],
    ids=["tokens", "indexes", "generic types", "columns", "nameless columns"],
)
def test_no_small_statement_costs_much(client: httpx.Client, sql: str) -> None:
    begun = time.monotonic()
    client.post("/v1/explain", json={"sql": sql})
    assert time.monotonic() - begun < 90  # minutes, before there were limits; other tests run beside it


def test_a_plan_that_folds_a_huge_constant_holds_nobody_up(client: httpx.Client) -> None:
    begun = time.monotonic()
    client.post("/v1/explain", json={"sql": "SELECT length(repeat('abcdefgh', 400000000)) FROM books"})
    assert time.monotonic() - begun < 20
    assert client.post("/v1/explain", json={"sql": "SELECT id FROM books"}).status_code == 200


def test_what_is_no_unicode(client: httpx.Client) -> None:
    response = client.post(
        "/v1/queries", content=b'{"sql": "SELECT \'\\ud800\'"}', headers={"Content-Type": "application/json"}
    )
    assert response.status_code in (400, 422), response.text


def test_a_path_in_place_of_a_table_is_no_table(client: httpx.Client) -> None:
    assert refused(client, "SELECT * FROM `/etc/passwd`")[1]["code"] == "UNKNOWN_TABLE"


@pytest.mark.parametrize(
    ("sql", "line", "column", "near"),
    [
        ("SELECT pric FROM books", 1, 8, "price"),
        ("SELECT id,\n       b.categry\nFROM books b", 2, 10, "category"),
        ("SELECT *\nFROM boks", 2, 6, "books"),
        ("WITH x AS (SELECT id AS number FROM books) SELECT numbr FROM x", 1, 51, "number"),
        ("SELECT id FROM books WHERE EXISTS (SELECT 1 FROM transactions t WHERE t.book = id)", 1, 73, "book_id"),
    ],
)
def test_unknown_names_come_with_their_place_and_the_nearest(
    client: httpx.Client, sql: str, line: int, column: int, near: str
) -> None:
    _, error = refused(client, sql)
    assert error["position"] == {"line": line, "column": column}
    assert near in error["message"]


def test_a_syntax_error_has_its_place(client: httpx.Client) -> None:
    _, error = refused(client, "SELECT id\nFROM books WHERE >")
    assert error["position"]["line"] == 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT b.price p FROM books b WHERE p.x IS NULL OR TRUE",
        "SELECT id AS k, count(*) AS c FROM books GROUP BY k HAVING c > 0 ORDER BY c",
        "SELECT * FROM books b WHERE EXISTS (SELECT 1 FROM transactions WHERE book_id = b.id AND price > 3)",
        "SELECT v FROM (VALUES (1), (2)) AS t(v)",
        "SELECT x.* FROM (SELECT * FROM books) x WHERE x.price > 1",
        "FROM books SELECT id",
        "SELECT default.books.id FROM default.books",
        "SELECT /*+ BROADCAST(b) */ b.id FROM books b",
        "SELECT id FROM BOOKS ORDER BY PRICE LIMIT 3;",
        "WITH A AS (SELECT 1 x) SELECT a.x FROM a",
        "WITH cte AS (SELECT id FROM books) SELECT CTE.ID FROM CTE",
        "SELECT date_add(publish_date, 3), extract(YEAR FROM publish_date), CAST(price AS DECIMAL(10, 2)) FROM books",
        "SELECT CAST(price AS STRING), date_trunc('MONTH', publish_date), INTERVAL '3' DAY + publish_date FROM books",
        "SELECT sum(price) OVER (ORDER BY price ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM books",
        "SELECT category FROM books GROUP BY ROLLUP (category) UNION ALL SELECT category FROM books",
    ],
)
def test_right_names_are_not_refused(client: httpx.Client, sql: str) -> None:
    response = client.post("/v1/explain", json={"sql": sql})
    assert response.status_code in (200, 503), response.text  # 503: right, but no engine here can run it


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"sql": 3},
        {"sql": None},
        {"sql": "SELECT 1", "wait_s": "soon"},
        {"sql": "SELECT 1", "wait_s": -1},
        {"sql": "SELECT 1", "max_rows": 1.5},
        {"sql": "SELECT 1", "max_rows": -1},
        {"sql": "SELECT 1", "timeout_s": 0},
        {"sql": "SELECT 1", "engine": 5},
        {"sql": "SELECT 1", "surprise": True},
        [],
        "SELECT 1",
    ],
)
def test_wrong_bodies(client: httpx.Client, body: object) -> None:
    response = client.post("/v1/queries", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (422, "INVALID_BODY")


def test_what_is_no_json(client: httpx.Client) -> None:
    response = client.post("/v1/queries", content=b"{", headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "INVALID_BODY")


def test_a_body_without_a_length_is_cut_off_too(client: httpx.Client) -> None:
    chunks = (b"x" * 100_000 for _ in range(200))
    response = client.post("/v1/queries", content=chunks, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "STATEMENT_TOO_LONG")


def test_unknown_dialects_and_engines(client: httpx.Client) -> None:
    for dialect in ("klingon", "trino", "duckdb", "ansi"):
        _, error = refused(client, "SELECT 1", dialect=dialect)
        assert error["code"] == "UNKNOWN_DIALECT"
        assert error["message"] == f"Unknown dialect {dialect}; known are spark, hive, impala."
    assert refused(client, "SELECT 1", engine="oracle")[1]["code"] == "UNKNOWN_ENGINE"


def test_refused_statements_are_on_record(client: httpx.Client) -> None:
    _, error = refused(client, "SELECT pric FROM books")
    record = client.get(f"/v1/queries/{error['query_id']}").json()
    assert (record["state"], record["error"]["code"]) == ("FAILED", "UNKNOWN_COLUMN")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/queries/none", 404, "NOT_FOUND"),
        ("DELETE", "/v1/queries/none", 404, "NOT_FOUND"),
        ("GET", "/v1/queries/none/result", 404, "NOT_FOUND"),
        ("GET", "/v1/queries/../../etc/passwd", 404, "NOT_FOUND"),
        ("GET", "/v1/queries/%2e%2e%2f%2e%2e%2fetc%2fpasswd/result", 404, "NOT_FOUND"),
        ("GET", "/v1/tables/none", 404, "NOT_FOUND"),
        ("GET", "/v1/stats/jobs/none", 404, "NOT_FOUND"),
        ("DELETE", "/v1/misestimates/none", 404, "NOT_FOUND"),
        ("GET", "/v1/nowhere", 404, "NOT_FOUND"),
        ("PUT", "/v1/queries", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/v1/queries?limit=many", 422, "INVALID_BODY"),
        ("GET", "/v1/queries?before=0.5", 422, "INVALID_BODY"),
        ("GET", "/v1/queries?before=2026-02-30", 422, "INVALID_BODY"),
        ("GET", "/v1/queries?before=0001-01-01T00:00:00%2B14:00", 422, "INVALID_BODY"),
        ("GET", "/v1/queries?before=9999-12-31T23:59:59-14:00", 422, "INVALID_BODY"),
    ],
)
def test_wrong_addresses(client: httpx.Client, method: str, path: str, status: int, code: str) -> None:
    response = client.request(method, path)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/queries", "GET, POST, HEAD, OPTIONS"),
        ("/v1/queries/none", "GET, DELETE, HEAD, OPTIONS"),
        ("/v1/explain", "POST, OPTIONS"),
        ("/cliservice", "POST, OPTIONS"),
        ("/dashboard", "GET, HEAD, OPTIONS"),
    ],
)
def test_the_methods_of_an_address(client: httpx.Client, path: str, methods: str) -> None:
    refused = client.put(path)
    assert (refused.status_code, refused.headers["Allow"]) == (405, methods)
    assert refused.json()["error"]["code"] == "METHOD_NOT_ALLOWED"
    told = client.options(path)
    assert (told.status_code, told.headers["Allow"], told.content) == (204, methods, b"")
    head = client.head(path)
    assert head.content == b""
    assert head.status_code == (client.get(path).status_code if "GET" in methods else 405)


def test_options_of_no_address(client: httpx.Client) -> None:
    refused = client.options("/v1/nowhere")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "NOT_FOUND")


def test_head_is_get_without_the_body(client: httpx.Client) -> None:
    asked = client.post("/v1/queries", json={"sql": "SELECT id FROM books", "max_rows": 0}).json()["id"]
    for path in ("/v1/tables", f"/v1/queries/{asked}", f"/v1/queries/{asked}/result?format=csv", "/livez", "/docs"):
        whole, head = client.get(path), client.head(path)
        assert head.content == b""
        assert (head.status_code, head.headers["content-type"]) == (200, whole.headers["content-type"])
        assert head.headers.get("content-length") == whole.headers.get("content-length")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "x", "location": "/nowhere/at/all"}, 400, "TABLE_UNREADABLE"),
        ({"name": "x; DROP", "location": "/srv"}, 422, "INVALID_BODY"),
        ({"name": "x"}, 422, "INVALID_BODY"),
    ],
)
def test_wrong_tables(client: httpx.Client, body: dict[str, str], status: int, code: str) -> None:
    response = client.post("/v1/tables", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


def test_what_is_no_plain_file_is_no_table(client: httpx.Client, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    for place in (tmp_path, tmp_path / "pipe.csv", tmp_path / "loop.csv"):
        response = client.post("/v1/tables", json={"name": "x", "location": str(place)})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "TABLE_UNREADABLE")


def test_tables_are_registered_under_the_roots_only(scripted: Callable[..., Scripted], bookstore: Path) -> None:
    house = scripted(roots=(bookstore / "books",))
    with serving(create_app(house.gateway)) as client:
        for place, status in (
            (bookstore / "books", 201),
            (f"file://{bookstore}/books", 201),
            (bookstore / "books" / ".." / "transactions", 403),
            (f"file://{bookstore}/transactions", 403),
            ("~", 403),
        ):
            assert client.post("/v1/tables", json={"name": "x", "location": str(place)}).status_code == status


def test_a_link_out_of_a_table_is_no_way_around_the_roots(
    scripted: Callable[..., Scripted], bookstore: Path, tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "part.parquet").symlink_to(next((bookstore / "books").glob("*.parquet")))
    house = scripted(roots=(tmp_path,))
    with serving(create_app(house.gateway)) as client:
        response = client.post("/v1/tables", json={"name": "x", "location": str(tmp_path / "x")})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "NOT_ALLOWED")
    assert "leads out of the table's folder" in response.json()["error"]["message"]


@pytest.mark.parametrize("options", [{"pathGlobFilter": "none"}, {"avroSchemaUrl": "/etc/hostname"}])
def test_options_of_a_reader_are_not_passed_on(client: httpx.Client, bookstore: Path, options: dict[str, str]) -> None:
    body = {"name": "x", "location": str(bookstore / "books"), "options": options}
    response = client.post("/v1/tables", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "TABLE_UNREADABLE")
    assert next(iter(options)) in response.json()["error"]["message"]


def test_statistics_of_an_unknown_table(client: httpx.Client) -> None:
    response = client.post("/v1/stats/jobs", json={"tables": ["boks"]})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "UNKNOWN_TABLE")
    assert "books" in response.json()["error"]["message"]


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z"])
def test_a_moment_beyond_the_calendar_is_wrong_wherever_it_comes(client: httpx.Client, moment: str) -> None:
    for path, body in (("replay", {"since": moment}), ("advise", {"since": moment})):
        told = client.post(f"/v1/{path}", json=body)
        assert (told.status_code, told.json()["error"]["code"]) == (422, "INVALID_BODY")
    told = client.post("/v1/rules/explain", json={"sql": "SELECT 1", "at": moment})
    assert (told.status_code, told.json()["error"]["code"]) == (422, "INVALID_BODY")
    assert client.get("/dashboard/queries", params={"before": moment}).status_code == 200


def test_what_is_no_longer_allowed_when_it_is_done_has_the_status_of_what_is_not_allowed() -> None:
    assert status_of_failed_query(AccessDenied.code) == status_of(AccessDenied.code) == 403
