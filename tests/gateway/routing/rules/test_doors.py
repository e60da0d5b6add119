"""What clients say reaches rules through every door: drivers over HTTP, sessions, and the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from gateway.cli.main import app
from gateway.drivers.hs2.elsewhere.cancel import CONTENT_TYPE
from gateway.drivers.hs2.protocol.messages import (
    ExecuteRequest,
    OpenSessionReply,
    OpenSessionRequest,
    OperationReply,
    StatusCode,
)
from gateway.server.app import create_app
from gateway.statements.statement import Statement
from tests.gateway.conftest import serving
from tests.gateway.drivers.hs2.wire import call_bytes, reply_of
from tests.gateway.execution.test_coordinator import SQL
from tests.gateway.routing.rules.conftest import Build
from tests.gateway.routing.rules.test_dispatch import rule

RULES = (
    rule("secret", 'deny = "Ask HR."', 'table = "transactions"')
    + rule("etl", 'strict = "hive"', 'tag = "etl"')
    + rule("app", 'strict = "spark"', 'header = { X-App = "hue" }')
)


def executed(http: httpx.Client, session: object, sql: str, **headers: str) -> OperationReply:
    request = ExecuteRequest(session, sql)  # type: ignore[arg-type]
    message = call_bytes("ExecuteStatement", request)
    return reply_of(http.post("/cliservice", content=message, headers=headers).content, OperationReply)


def test_drivers_over_http_say_headers_and_tags(ruled: Build) -> None:
    house = ruled(RULES)
    with serving(create_app(house.gateway)) as http:
        http.headers["Content-Type"] = CONTENT_TYPE
        opening = call_bytes("OpenSession", OpenSessionRequest())
        session = reply_of(http.post("/cliservice", content=opening).content, OpenSessionReply).session

        def engine() -> str | None:
            return house.gateway.metastore.queries.search(limit=1)[0].engine

        executed(http, session, SQL, **{"X-App": "hue"})
        assert engine() == "spark"
        executed(http, session, SQL, **{"X-Fusion-Tags": "a, etl"})
        assert engine() == "hive"
        executed(http, session, SQL)
        assert engine() == "duckdb"
        executed(http, session, "SET fusion.tags=etl")
        executed(http, session, SQL)
        assert engine() == "hive"
        for sql in ("SHOW TABLES", "DESCRIBE transactions", "USE default", "SET"):
            assert executed(http, session, sql).status.code == StatusCode.SUCCESS, sql
        refused = executed(http, session, "SELECT id FROM transactions")
        assert (refused.status.code, refused.status.sqlstate) == (StatusCode.ERROR, "42501")
        assert "Ask HR." in (refused.status.message or "")


def test_flight_sql_says_headers_and_tags(ruled: Build) -> None:
    adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="the ADBC driver is not installed")
    from tests.gateway.drivers.flight.conftest import flight_port  # needs the extra, too

    house = ruled(RULES)

    def engine(**headers: str) -> str | None:
        options = {f"adbc.flight.sql.rpc.call_header.{name}": value for name, value in headers.items()}
        address = f"grpc://{server.address}"
        with adbc.connect(address, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(SQL)
        return house.gateway.metastore.queries.search(limit=1)[0].engine

    with flight_port(house.gateway) as server:
        assert engine() == "duckdb"
        assert engine(**{"x-app": "hue"}) == "spark"
        assert engine(**{"x-fusion-tags": "a, etl"}) == "hive"
        assert engine(**{"x-other": "hue"}) == "duckdb"
        with pytest.raises(Exception, match="at most 64 tags"):
            engine(**{"x-fusion-tags": "x" * 10_000})


def plain(text: str) -> str:
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())


def test_the_command_line_shows_reloads_and_tries_rules(ruled: Build) -> None:
    house = ruled(RULES)
    run = CliRunner().invoke
    with serving(create_app(house.gateway)) as http:
        url = ["--url", str(http.base_url)]
        shown = run(app, ["rules", "show", *url])
        assert shown.exit_code == 0, shown.output
        assert "deny: Ask HR." in plain(shown.output)
        found = run(app, ["rules", "explain", SQL, "--tag", "etl", *url])
        assert "rule: 'etl' (strict: hive)" in plain(found.output)
        assert "engine: hive (ranking: hive)" in plain(found.output)
        found = run(app, ["rules", "explain", "SELECT id FROM transactions", "--as", "ann", *url])
        assert "refused: RULE_DENIED: Ask HR." in plain(found.output)
        found = run(app, ["rules", "explain", SQL, "--header", "x-app=hue", "--json", *url])
        assert json.loads(found.stdout)["decision"]["engine"] == "spark"
        assert run(app, ["rules", "explain", SQL, "--header", "x-app", *url]).exit_code == 2
        assert run(app, ["rules", "explain", "SELEC 1", *url]).exit_code == 1
        house.file.write_text(RULES + "x = 1 2")
        reloaded = run(app, ["rules", "reload", *url])
        assert reloaded.exit_code == 1
        assert "the last valid rules stay active" in plain(reloaded.output)
        assert f"(at line {RULES.count(chr(10)) + 1}, column 7)" in plain(reloaded.output)
    assert not any(engine.asked for engine in house.engines.values())


def test_a_file_is_checked_without_a_gateway(ruled: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    house = ruled("")
    home = ["--home", str(house.file.parent)]
    house.file.write_text(rule("a", 'strict = "duckdb"'))
    monkeypatch.setenv("FUSION_DUCKDB__ENABLED", "true")
    checked = CliRunner().invoke(app, ["rules", "check", *home])
    assert checked.exit_code == 0, checked.output
    assert "1 rules, nothing is wrong" in plain(checked.output)
    other = house.file.with_name("other.toml")
    other.write_text(rule("a", 'strict = "duckbd"', 'usr = "ann"') + "[[rule]]\n")
    checked = CliRunner().invoke(app, ["rules", "check", str(other), *home])
    assert checked.exit_code == 1
    assert "rule 'a': match.usr: there is no such key; did you mean user" in plain(checked.output)
    assert "rule 2: the rule has no name" in plain(checked.output)
    assert CliRunner().invoke(app, ["rules", "check", "/nowhere/x.toml", *home]).exit_code == 1


DENIED = (
    rule("no ddl", 'deny = "No tables here."', 'kind = "ddl", tag = "guest"')
    + rule("no statistics", 'deny = "No statistics here."', 'kind = "statistics", tag = "guest"')
    + rule("secret", 'deny = "Ask HR."', 'table = "transactions"')
)
GUEST = {"X-Fusion-Tags": "guest"}
NIGHTLY = {"name": "nightly", "tables": ["books"], "cron": "0 3 * * *"}


def test_routes_ask_the_rules_that_statements_ask(ruled: Build, bookstore: Path) -> None:
    house = ruled(DENIED)
    registered = {"name": "more", "location": str(bookstore / "books")}
    secret = {"name": "transactions", "location": str(bookstore / "books")}
    with serving(create_app(house.gateway)) as http:

        def denied(method: str, path: str, body: object = None, **headers: str) -> str:
            reply = http.request(method, path, json=body, headers=headers)
            assert (reply.status_code, reply.json()["error"]["code"]) == (403, "RULE_DENIED"), reply.text
            message: str = reply.json()["error"]["message"]
            return message

        assert "No tables here." in denied("POST", "/v1/tables", registered, **GUEST)
        assert "No statistics here." in denied("POST", "/v1/stats/jobs", {"tables": ["books"]}, **GUEST)
        assert "No statistics here." in denied("POST", "/v1/stats/schedules", NIGHTLY, **GUEST)
        assert "Ask HR." in denied("POST", "/v1/tables", secret)
        assert "Ask HR." in denied("POST", "/v1/stats/jobs", {"tables": ["books", "Transactions"]})
        for tables in (["transactions"], ["TRANSACTIONS", "books"], ["*"]):
            assert "Ask HR." in denied("POST", "/v1/stats/schedules", {**NIGHTLY, "tables": tables})
        assert http.post("/v1/stats/schedules", json=NIGHTLY).status_code == 201
        changed = {"tables": ["transactions"]}
        assert "Ask HR." in denied("PATCH", "/v1/stats/schedules/nightly", changed)
        assert "No statistics here." in denied("POST", "/v1/stats/schedules/nightly/run", **GUEST)
        assert http.patch("/v1/stats/schedules/nightly", json={"paused": True}, headers=GUEST).status_code == 200
        assert [table["name"] for table in http.get("/v1/tables").json()["tables"]] == ["books", "transactions"]
        assert http.get("/v1/stats/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    "sql", ["CREATE TABLE x LIKE transactions", "CREATE TABLE IF NOT EXISTS x LIKE default.transactions", "EXPLAIN {}"]
)
def test_a_table_like_a_denied_one_is_denied(ruled: Build, sql: str) -> None:
    house = ruled(rule("secret", 'deny = "Ask HR."', 'table = "transactions", kind = ["ddl", "explain"]'))
    refused = house.ended(Statement(sql.format("CREATE TABLE x LIKE transactions")))
    assert refused.error is not None
    assert refused.error.code == "RULE_DENIED"
