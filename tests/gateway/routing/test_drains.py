"""Drained engines: new statements go elsewhere, those on the engine finish, and all gateways know."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from sqlalchemy.exc import OperationalError

from engines.scripted import Script
from gateway.errors import UnknownEngine
from gateway.security.authentication import Anonymous, UsersFile, user_line
from gateway.security.principals import Role
from gateway.server.app import create_app
from metastore.records import QueryState
from metastore.store import Metastore
from tests.gateway.conftest import serving
from tests.gateway.scripted_gateway import PLAN, SMALL, ScriptedGateway, scripted_gateway
from tests.waiting import wait_until


@pytest.fixture
def scripted(tmp_path: Path) -> ScriptedGateway:
    return scripted_gateway(tmp_path / "home")


@pytest.fixture
def client(scripted: ScriptedGateway) -> Iterator[httpx.Client]:
    with serving(create_app(scripted.gateway)) as client:
        yield client


def answered_by(client: httpx.Client, sql: str = SMALL, **body: object) -> str:
    reply = client.post("/v1/queries", json={"sql": sql, "wait_s": 30.0, **body}).json()
    return str(reply["engine"] or reply["error"]["code"])


def engine_of(client: httpx.Client, name: str) -> dict[str, object]:
    return next(engine for engine in client.get("/v1/engines").json()["engines"] if engine["name"] == name)


def test_new_statements_go_elsewhere_until_the_engine_is_resumed(client: httpx.Client) -> None:
    assert answered_by(client) == "duckdb"
    assert client.post("/v1/engines/duckdb/drain").json() == {"drained": "duckdb"}
    assert answered_by(client, f"{SMALL} -- 2") == "spark"
    drained = engine_of(client, "duckdb")
    assert (drained["drained"], drained["alive"]) == (True, False)
    assert "drains it since" in str(drained["detail"])
    assert client.post("/v1/engines/duckdb/resume").json() == {"resumed": "duckdb"}
    assert answered_by(client, f"{SMALL} -- 3") == "duckdb"


def test_the_decision_names_who_drains_the_engine(client: httpx.Client) -> None:
    client.post("/v1/engines/duckdb/drain")
    decision = client.post("/v1/explain", json={"sql": SMALL}).json()["decision"]
    (reason,) = [reason["text"] for reason in decision["reasons"] if reason["code"] == "ENGINE_DOWN"]
    assert reason.startswith("duckdb is not available: anonymous drains it since 20")


def test_a_statement_that_insists_on_a_drained_engine_is_told_why(client: httpx.Client) -> None:
    client.post("/v1/engines/duckdb/drain")
    error = client.post("/v1/queries", json={"sql": SMALL, "engine": "duckdb", "wait_s": 30.0}).json()["error"]
    assert error["code"] == "NO_ENGINE_AVAILABLE"
    assert "drains it since" in error["message"]


def test_what_runs_on_the_engine_finishes_there(client: httpx.Client, scripted: ScriptedGateway) -> None:
    goes_on, rows = threading.Event(), pa.record_batch({"a": ["slow"]})
    scripted.fast.script("slow", Script((goes_on, rows), schema=rows.schema, plan=PLAN))
    query_id = client.post("/v1/queries", json={"sql": "SELECT 'slow' AS a", "wait_s": 0.0}).json()["id"]
    queries = scripted.gateway.metastore.queries
    wait_until(lambda: (record := queries.get(query_id)) is not None and record.state is QueryState.RUNNING, "it runs")
    client.post("/v1/engines/duckdb/drain")
    goes_on.set()
    wait_until(lambda: (record := queries.get(query_id)) is not None and record.state.ended, "it ends")
    record = queries.get(query_id)
    assert record is not None and (record.engine, record.state) == ("duckdb", QueryState.FINISHED)


def test_a_drain_outlives_the_gateway_and_reaches_the_others(scripted: ScriptedGateway, tmp_path: Path) -> None:
    scripted.gateway.drains.drain("duckdb", by="ann")
    scripted.gateway.drains.drain("duckdb", by="bob")
    other = scripted_gateway(tmp_path / "home").gateway
    assert other.engines["duckdb"].breaker.drained is None
    other.heartbeat.start()
    try:
        drained = other.engines["duckdb"].breaker.drained
        assert drained is not None and drained.startswith("ann drains it since ")
        assert other.engines["spark"].breaker.drained is None
    finally:
        other.heartbeat.stop()
        other.close()


def test_engines_that_are_not_there_cannot_be_drained(scripted: ScriptedGateway, client: httpx.Client) -> None:
    with pytest.raises(UnknownEngine, match="there are duckdb, spark"):
        scripted.gateway.drains.drain("presto", by="ann")
    assert client.post("/v1/engines/presto/resume").json()["error"]["code"] == "UNKNOWN_ENGINE"
    assert scripted.gateway.metastore.drained.list() == ()


def test_only_operators_drain(scripted: ScriptedGateway, tmp_path: Path) -> None:
    users = tmp_path / "users"
    logins = (("ann", Role.WRITER), ("op", Role.OPERATOR))
    users.write_text("\n".join(user_line(name, "p", role) for name, role in logins), encoding="utf-8")
    scripted.gateway.authenticator = UsersFile(users, anonymous=Anonymous.NEVER)
    with serving(create_app(scripted.gateway)) as client:
        assert client.post("/v1/engines/duckdb/drain", auth=("ann", "p")).status_code == 403
        assert "Drain duckdb" not in client.get("/dashboard", auth=("ann", "p")).text
        assert 'aria-label="Drain duckdb"' in client.get("/dashboard", auth=("op", "p")).text
        pressed = client.post("/dashboard/engines/duckdb/drain", auth=("op", "p"))
        assert pressed.headers["location"] == "/dashboard"
        page = client.get("/dashboard", auth=("op", "p")).text
        assert 'aria-label="Resume duckdb"' in page and "op drains it since" in page
        assert client.post("/dashboard/engines/duckdb/stop", auth=("op", "p")).status_code == 404
    assert [drained.engine for drained in scripted.gateway.metastore.drained.list()] == ["duckdb"]


def test_a_metastore_that_is_away_changes_no_drain(scripted: ScriptedGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.gateway.drains.drain("duckdb", by="ann")

    def away(self: Metastore) -> None:
        raise OperationalError("SELECT", None, ConnectionError("away"))

    monkeypatch.setattr(type(scripted.gateway.metastore.drained), "list", away)
    with pytest.raises(OperationalError):
        scripted.gateway.drains.refresh()
    assert scripted.gateway.engines["duckdb"].breaker.drained is not None
