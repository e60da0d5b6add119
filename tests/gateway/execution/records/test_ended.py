"""A query that has ended has a summary, one line in the log, and one in the audit file."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry import trace

from engines.errors import MemoryExceeded
from engines.protocol import Actuals
from engines.scripted import Script
from gateway.security.audit import AuditFile, JsonLines
from gateway.security.principals import Principal, Role
from gateway.server.app import create_app
from gateway.statements.spans import ATTEMPTS, ENGINE, ERROR, PEAK_BYTES, QUERY_ID
from gateway.statements.statement import Statement
from metastore.records import QueryRecord, QueryState
from tests.gateway.conftest import Scripted, serving
from tests.gateway.scripted_gateway import (
    PLAN,
    RAN_OUT_AT_BYTES,
    ROWS,
    SMALL,
    ScriptedGateway,
    scripted_gateway,
    too_big,
)

JOE = Principal("joe", Role.READER, authenticated=True, address="10.0.0.7")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[ScriptedGateway]:
    built = scripted_gateway(tmp_path / "home")
    yield built
    built.gateway.close()


def ended(house: ScriptedGateway, sql: str, **fields: object) -> QueryRecord:
    statement = Statement(sql=sql, **fields)  # type: ignore[arg-type]
    return house.gateway.coordinator.start(statement).done.result(timeout=30)


def test_a_failed_over_query_ran_where_it_would_have_run_alone(house: ScriptedGateway) -> None:
    record = ended(house, too_big())
    summary = record.summary
    assert summary is not None
    assert (summary.pool, summary.reason, summary.attempts, summary.ran_out) == ("default", "FITS", 2, True)
    assert summary.peak_bytes == RAN_OUT_AT_BYTES
    assert summary.within_bound is False
    assert summary.alone is not None
    assert (summary.alone.engine, summary.alone.measured) == ("spark", True)
    assert summary.alone.seconds == record.attempts[1].run_s
    assert house.gateway.metastore.queries.get(record.id) == record


def test_a_fast_answer_would_have_taken_what_was_expected(house: ScriptedGateway) -> None:
    house.fast.script("select", Script(steps=(ROWS,), actuals=Actuals(peak_bytes=1 << 20), plan=PLAN))
    record = ended(house, SMALL)
    assert record.summary is not None and record.decision is not None
    price = record.decision.price("spark")
    alone = record.summary.alone
    assert price is not None and alone is not None
    assert (alone.engine, alone.seconds, alone.measured) == ("spark", price.seconds, False)
    assert record.summary.within_bound is True


def test_refusals_and_commands_are_summarised_without_an_engine(house: ScriptedGateway) -> None:
    refused = ended(house, "SELECT * FROM nowhere")
    assert refused.summary is not None
    assert (refused.summary.reason, refused.summary.attempts, refused.summary.alone) == ("UNKNOWN_TABLE", 0, None)
    command = ended(house, "SHOW TABLES")
    assert command.summary is not None
    assert (command.summary.reason, command.summary.alone) == (None, None)


def test_a_query_that_failed_where_nothing_else_follows_saves_nothing(house: ScriptedGateway) -> None:
    house.fast.script("alone", Script(before=(MemoryExceeded("full"),)))
    record = ended(house, "SELECT 'alone' AS a", engine="duckdb")
    assert record.state is QueryState.FAILED
    assert record.summary is not None and record.summary.alone is None


def test_a_failed_over_query_is_one_line_of_json_and_one_of_the_audit(
    house: ScriptedGateway, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit = AuditFile(tmp_path / "audit.log", size_bytes=1 << 20, earlier=1)
    try:
        with caplog.at_level(logging.INFO, "fusion.query"):
            record = ended(house, too_big(), principal=JOE)
            refused = ended(house, "SELECT * FROM nowhere", principal=JOE)
    finally:
        audit.close()
    lines = [json.loads(JsonLines(3).format(line)) for line in caplog.records if line.name == "fusion.query"]
    assert [line["query_id"] for line in lines] == [record.id, refused.id]
    line = lines[0]
    assert (line["event"], line["user"], line["pool"], line["state"]) == ("query", "joe", "default", "FINISHED")
    assert (line["engine"], line["reason"], line["process"]) == ("spark", "FITS", 3)
    assert [attempt["failure"] for attempt in line["attempts"]] == ["MEMORY_EXCEEDED", None]
    assert "too big" not in json.dumps(lines), "no text of a statement is in the log"

    kept = [json.loads(text) for text in (tmp_path / "audit.log").read_text().splitlines()]
    statements = [entry for entry in kept if entry["event"] == "statement"]
    assert [(entry["query_id"], entry["allowed"], entry["error"]) for entry in statements] == [
        (record.id, True, None),
        (refused.id, True, "UNKNOWN_TABLE"),
    ]
    assert (statements[0]["user"], statements[0]["address"], statements[0]["sql"]) == ("joe", "10.0.0.7", record.sql)
    assert (tmp_path / "audit.log").stat().st_mode & 0o077 == 0


def test_a_failed_over_query_is_one_trace(house: ScriptedGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="its SDK is an extra: fusion-sql-gateway[otel]")
    export = pytest.importorskip("opentelemetry.sdk.trace.export", reason="see above")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter", reason="see above")
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    record = ended(house, too_big())
    provider.shutdown()

    spans = exporter.get_finished_spans()
    (statement,) = (span for span in spans if span.name == "statement")
    assert statement.attributes[QUERY_ID] == record.id
    assert (statement.attributes[ATTEMPTS], statement.attributes[ENGINE]) == (2, "spark")
    assert {span.context.trace_id for span in spans} == {statement.context.trace_id}
    attempts = [span for span in spans if span.name == "statement.attempt"]
    assert [span.attributes[ENGINE] for span in attempts] == ["duckdb", "spark"]
    assert [span.attributes.get(ERROR) for span in attempts] == ["MEMORY_EXCEEDED", None]
    assert attempts[0].attributes[PEAK_BYTES] == RAN_OUT_AT_BYTES
    assert all(span.parent == statement.context for span in attempts)


def test_metrics_count_what_has_ended(scripted: Callable[..., Scripted]) -> None:
    made = scripted()
    made.fast.script("select", Script(steps=(ROWS,)))
    made.dependable.script("select", Script(steps=(ROWS,)))
    with serving(create_app(made.gateway)) as client:
        reply = client.post("/v1/queries", json={"sql": "SELECT count(*) AS n FROM books"}).json()
        client.post("/v1/queries", json={"sql": "SELECT 1 FROM nowhere"})
        text = client.get("/v1/metrics").text
    engine, reason = reply["engine"], reply["decision"]["reasons"][0]["code"]
    assert f'fusion_queries_total{{engine="{engine}",state="FINISHED",reason="{reason}"}} 1' in text
    assert 'fusion_queries_total{engine="",state="FAILED",reason="UNKNOWN_TABLE"} 1' in text
    assert f'fusion_query_seconds_count{{engine="{engine}"}} 1' in text
    assert 'fusion_query_seconds_bucket{engine="",le="+Inf"} 1' in text
    assert f'fusion_engine_seconds_total{{engine="{engine}"}}' in text
    assert 'fusion_engine_up{engine="fast"} 1' in text
    assert 'fusion_sessions{protocol="hiveserver2"} 0' in text
