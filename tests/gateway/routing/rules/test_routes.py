"""Rules over HTTP: headers and tags of clients, the routes that show, reload and try rules, and who may use them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.security.principals import Role
from gateway.server.app import create_app
from tests.gateway.conftest import serving
from tests.gateway.execution.test_coordinator import SQL
from tests.gateway.routing.rules.conftest import Build, Ruled
from tests.gateway.routing.rules.test_dispatch import rule

RULES = (
    '[groups]\nanalysts = ["ann"]\n'
    + rule("etl", 'strict = "hive"', 'tag = "etl"')
    + rule("airflow", 'strict = "spark"', 'header = { X-App = "airflow*" }')
    + rule("analysts", 'deny = "Use the copy."', 'group = "analysts", table = "transactions"')
    + rule("readers", 'allow = ["impala"]', 'group = "reader"')
)


@pytest.fixture
def client(ruled: Build) -> Iterator[tuple[Ruled, httpx.Client]]:
    house = ruled(RULES)
    with serving(create_app(house.gateway)) as client:
        yield house, client


def engine_of(reply: httpx.Response) -> str:
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return str(found["engine"] if "engine" in found else found["decision"]["engine"])


@pytest.mark.parametrize("route", ["/v1/queries", "/v1/explain"])
@pytest.mark.parametrize(
    ("told", "engine"),
    [
        ({"headers": {"X-Fusion-Tags": "nightly, etl"}}, "hive"),
        ({"settings": {"fusion.tags": "etl"}}, "hive"),
        ({"headers": {"x-app": "airflow/2.9"}}, "spark"),
        ({"headers": {"X-App": "dbt"}}, "duckdb"),
        ({}, "duckdb"),
    ],
)
def test_headers_and_tags_count_where_it_runs_and_where_it_is_explained(
    client: tuple[Ruled, httpx.Client], route: str, told: dict[str, Any], engine: str
) -> None:
    reply = client[1].post(
        route, json={"sql": SQL, "settings": told.get("settings", {})}, headers=told.get("headers", {})
    )
    assert engine_of(reply) == engine


def test_a_denied_statement_is_a_403_that_names_the_rule(client: tuple[Ruled, httpx.Client]) -> None:
    house, http = client
    house.write(rule("closed", 'deny = "Closed until noon."'))
    for route in ("/v1/queries", "/v1/explain"):
        reply = http.post(route, json={"sql": SQL})
        assert reply.status_code == 403
        assert reply.json()["error"]["code"] == "RULE_DENIED"
        assert "Closed until noon." in reply.json()["error"]["message"]
        assert "'closed'" in reply.json()["error"]["message"]
    house.write(rule("apart", 'strict = "hive"'))
    reply = http.post("/v1/queries", json={"sql": SQL, "engine": "impala"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "RULE_FORBIDS_ENGINE")


def test_tags_that_are_too_many_or_too_long_are_refused(client: tuple[Ruled, httpx.Client]) -> None:
    for tags in (",".join(map(str, range(65))), "x" * 129):
        assert client[1].post("/v1/queries", json={"sql": SQL}, headers={"X-Fusion-Tags": tags}).status_code == 400
        reply = client[1].post("/v1/queries", json={"sql": SQL, "settings": {"fusion.tags": tags}})
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "INVALID_SETTING")


def test_rules_are_shown_with_their_hits(client: tuple[Ruled, httpx.Client]) -> None:
    http = client[1]
    http.post("/v1/queries", json={"sql": SQL}, headers={"X-Fusion-Tags": "etl"})
    http.post("/v1/explain", json={"sql": SQL}, headers={"X-Fusion-Tags": "etl"})
    shown = http.get("/v1/rules").json()
    assert [(each["name"], each["hits"]) for each in shown["rules"]] == [
        ("etl", 1),
        ("airflow", 0),
        ("analysts", 0),
        ("readers", 0),
    ]
    assert shown["rules"][2]["match"] == ["group: analysts", "table: transactions"]
    assert shown["rules"][2]["says"] == "deny: Use the copy."
    assert shown["groups"] == {"analysts": ["ann"]}
    assert any("'etl' restricts by what a client says" in warning for warning in shown["warnings"])


def test_the_page_shows_rules_their_hits_and_what_is_wrong(client: tuple[Ruled, httpx.Client]) -> None:
    house, http = client
    assert ">Rules</a>" in http.get("/dashboard").text
    house.write(rule("<b>", 'strict = "hive"', 'tag = "etl"') + rule("rest", 'deny = "No <i>way</i>."'))
    http.post("/v1/queries", json={"sql": SQL}, headers={"X-Fusion-Tags": "etl"})
    page = http.get("/dashboard/rules").text
    assert "<strong>&lt;b&gt;</strong>" in page
    assert "tag: etl" in page
    assert "deny: No &lt;i&gt;way&lt;/i&gt;." in page
    assert 'data-label="Decided" class="number">1</td>' in page
    assert "every statement" in page
    assert "The file is wrong" not in page
    house.write("[[rule]]\n")
    page = http.get("/dashboard/rules").text
    assert "rule 1: the rule has no name" in page
    assert "every statement" in page  # those of before
    house.write("")
    assert "There are no rules" in http.get("/dashboard/rules").text


def test_a_wrong_file_is_told_with_its_key_and_the_last_rules_stay_active(
    client: tuple[Ruled, httpx.Client],
) -> None:
    house, http = client
    house.file.write_text(RULES + '[[rule]]\nname = "new"\nmtch = { tag = "x" }\ndeny = "No."\n')
    reloaded = http.post("/v1/rules/reload").json()
    (problem,) = reloaded["problems"]
    assert problem == "rule 'new': mtch: there is no such key; did you mean match?"
    assert [each["name"] for each in reloaded["rules"]] == ["etl", "airflow", "analysts", "readers"]
    assert engine_of(http.post("/v1/queries", json={"sql": SQL}, headers={"X-Fusion-Tags": "etl"})) == "hive"
    house.file.write_text(rule("all", 'strict = "impala"'))
    assert http.post("/v1/rules/reload").json()["problems"] == []
    assert engine_of(http.post("/v1/queries", json={"sql": SQL})) == "impala"


def tried(http: httpx.Client, sql: str, **fields: Any) -> dict[str, Any]:
    reply = http.post("/v1/rules/explain", json={"sql": sql, **fields})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_rules_are_tried_as_somebody_else_without_running_anything(client: tuple[Ruled, httpx.Client]) -> None:
    house, http = client
    found = tried(http, SQL, tags=["etl"])
    assert (found["rule"], found["decision"]["engine"], found["error"]) == ("etl", "hive", None)
    assert (found["kinds"], found["tables"]) == (["select"], ["books"])
    found = tried(http, "SELECT id FROM transactions", user="ann")
    assert (found["rule"], found["decision"], found["error"]["code"]) == ("analysts", None, "RULE_DENIED")
    assert tried(http, SQL, user="bob", role="reader")["decision"]["ranking"] == ["impala"]
    assert tried(http, SQL, user="bob", role="writer")["rule"] is None
    assert tried(http, SQL, headers={"X-App": "airflow"})["decision"]["engine"] == "spark"
    assert tried(http, "CREATE TABLE x AS SELECT id FROM books", tags=["etl"])["decision"]["engine"] == "hive"
    found = tried(http, "SHOW TABLES", tags=["etl"])
    assert (found["rule"], found["decision"], found["kinds"]) == (None, None, ["show"])
    house.write(rule("alone", 'strict = "hive"'))
    house.gateway.engines["hive"].engine.close()
    found = tried(http, SQL)
    assert (found["rule"], found["error"]["code"]) == ("alone", "NO_ENGINE_AVAILABLE")
    assert not any(engine.asked for engine in house.engines.values())


def test_only_operators_see_rules_and_try_them_as_others(ruled: Build) -> None:
    house = ruled(RULES, users={"olga": Role.OPERATOR, "rob": Role.READER, "ann": Role.READER})
    with serving(create_app(house.gateway)) as http:
        for name, status in (("olga", 200), ("rob", 403)):
            login = (name, name)
            assert http.get("/v1/rules", auth=login).status_code == status
            assert ("<strong>etl</strong>" in http.get("/dashboard/rules", auth=login).text) == (status == 200)
            assert http.post("/v1/rules/reload", auth=login).status_code == status
            body = {"sql": SQL, "user": "ann"}
            assert http.post("/v1/rules/explain", json=body, auth=login).status_code == status
        own = http.post("/v1/rules/explain", json={"sql": SQL}, auth=("rob", "rob")).json()
        assert own["rule"] == "readers"
        found = http.post("/v1/rules/explain", json={"sql": SQL, "user": "rob"}, auth=("olga", "olga")).json()
        assert found["rule"] == "readers"  # the role is the one of the users file
