"""Statements as OpenTelemetry's spans."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

import pytest
from opentelemetry import context, trace

pytest.importorskip("opentelemetry.sdk", reason="its SDK is not installed: pip install fusion-sql-gateway[otel]")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import ProxyTracerProvider, StatusCode

from gateway.statements.spans import ATTEMPTS, CPU_S, ENGINE, ERROR, QUERY_ID, STATE, StatementSpan
from gateway.statements.stages import Stage, StageClock
from metastore.records import QueryRecord, QueryState
from sql.errors import Failure

NAP_S = 0.01
VALUE = "4711"
NS = 1_000_000_000
CLOCKS_APART_NS = NS // 1_000  # two clocks are read one after the other


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def record(*, error: Failure | None = None) -> QueryRecord:
    return QueryRecord(
        id="20260131_235959_1a2b3c4d5e",
        sql=f"SELECT {VALUE}",
        dialect="spark",
        user="ann",
        requested_engine="auto",
        state=QueryState.FAILED if error else QueryState.FINISHED,
        submitted_at=dt.datetime.now(dt.UTC),
        engine="duckdb",
        error=error,
    )


def measured(*stages: Stage) -> StageClock:
    clock = StageClock()
    for stage in stages:
        time.sleep(NAP_S)
        clock.end(stage)
    return clock


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_stages_lie_within_their_statement_and_that_within_the_request(told: InMemorySpanExporter) -> None:
    tracer = trace.get_tracer("test")
    before_ns = time.time_ns()
    with tracer.start_as_current_span("request") as request:
        span, clock = StatementSpan(), measured(Stage.READ, Stage.RUN)
    span.tell(clock, record())
    after_ns = time.time_ns()
    clock.parts.clear()
    time.sleep(NAP_S)
    clock.end(Stage.REPLY)
    span.tell(clock, record())
    found = by_name(told)
    assert found.keys() == {"request", "statement", "statement.read", "statement.run", "statement.reply"}
    statement = found["statement"]
    assert statement.parent == request.get_span_context()
    for name in ("statement.read", "statement.run", "statement.reply"):
        assert found[name].parent == statement.get_span_context()
    read, run, reply = (found[f"statement.{stage}"] for stage in (Stage.READ, Stage.RUN, Stage.REPLY))
    moments = [statement.start_time, read.start_time, read.end_time, run.start_time, run.end_time, statement.end_time]
    times_ns = [moment or 0 for moment in moments]
    assert times_ns == sorted(times_ns)
    assert before_ns - CLOCKS_APART_NS <= times_ns[0] < times_ns[-1] <= after_ns + CLOCKS_APART_NS
    assert (read.end_time or 0) - (read.start_time or 0) >= NAP_S * NS
    assert (reply.start_time or 0) >= times_ns[-1] - CLOCKS_APART_NS
    assert read.attributes is not None and 0.0 <= float(str(read.attributes[CPU_S])) < NAP_S


def test_a_statement_says_where_it_went_and_nothing_of_its_text(told: InMemorySpanExporter) -> None:
    StatementSpan().tell(measured(Stage.READ), record())
    StatementSpan().tell(measured(Stage.READ), record(error=Failure("SYNTAX_ERROR", f"near {VALUE}")))
    well, failed = (span for span in told.get_finished_spans() if span.name == "statement")
    assert well.attributes == {QUERY_ID: record().id, STATE: "FINISHED", ENGINE: "duckdb", ATTEMPTS: 0}
    assert failed.attributes is not None and failed.attributes[ERROR] == "SYNTAX_ERROR"
    assert (well.status.status_code, failed.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert not any(VALUE in span.to_json() for span in told.get_finished_spans())


def test_without_anybody_who_hears_of_them_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = ProxyTracerProvider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", None)
    monkeypatch.setattr(context, "get_current", None)
    StatementSpan().tell(measured(Stage.READ), record())
