"""A real gateway sends its spans over OTLP to a receiver that is there, and works where none is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from gateway.cli.client import running_address
from tests.waiting import wait_until

pytest.importorskip("opentelemetry.sdk", reason="its SDK is not installed: pip install fusion-sql-gateway[otel]")
pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

hive = pytest.importorskip("pyhive.hive", reason="needs the extra hive")

pytestmark = pytest.mark.e2e

SECRET = 4711
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
STARTED_WITHIN_S = 60.0


class Receiver(ThreadingHTTPServer):
    """Takes spans. requests: as they came."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def spans(self) -> list[tuple[str, Span]]:
        """Each span, with the name of its service."""
        found = []
        for body in self.requests:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                told = {each.key: each.value.string_value for each in resource.resource.attributes}
                found += [(told["service.name"], span) for scope in resource.scope_spans for span in scope.spans]
        return found


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.requests.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, daemon=True)
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


@contextmanager
def serving(home: Path, endpoint: str) -> Iterator[httpx.Client]:
    home.mkdir()
    command = [str(Path(sys.executable).with_name("fusion")), "serve", "--home", str(home), "--port", "0"]
    environment = {
        **os.environ,
        "FUSION_SPARK__ENABLED": "false",
        "FUSION_HS2__PORT": "0",
        "FUSION_FLIGHT__ENABLED": "false",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
    }
    with (home / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_until(
            lambda: running_address(home) is not None or process.poll() is not None, "it starts", STARTED_WITHIN_S
        )
        url = running_address(home)
        assert url is not None, (home / "serve.log").read_text()
        with httpx.Client(base_url=url, timeout=60) as client:
            yield client
    finally:
        process.terminate()
        process.wait(timeout=60)


def told(spans: list[tuple[str, Span]], name: str) -> list[Span]:
    return [span for _, span in spans if span.name == name]


def test_a_statement_is_a_part_of_its_callers_trace(tmp_path: Path, receiver: Receiver) -> None:
    sql, home = f"SELECT {SECRET} AS n", tmp_path / "home"
    with serving(home, f"http://127.0.0.1:{receiver.server_port}") as client:
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
        reply = client.post("/v1/queries", json={"sql": sql}, headers=headers).json()
        client.post("/v1/queries", json={"sql": f"SELECT nothing_{SECRET}"})
        host, _, port = _drivers(home).rpartition(":")
        with hive.connect(host, int(port)) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            assert cursor.fetchall() == [(SECRET,)]
    spans = receiver.spans  # all have come: it sends what is left as it ends
    assert {service for service, _ in spans} == {"fusion-sql-gateway"}
    statements = told(spans, "statement")
    (statement,) = [span for span in statements if text_of(span, "fusion.query_id") == reply["id"]]
    assert statement.trace_id.hex() == TRACE
    (request,) = [span for _, span in spans if span.span_id == statement.parent_span_id]
    assert request.parent_span_id.hex() == CALLER
    stages = {span.name for _, span in spans if span.parent_span_id == statement.span_id}
    assert stages >= {f"statement.{stage}" for stage in ("start", "read", "decide", "admit", "run", "record", "reply")}
    (failed,) = [span for span in statements if span.status.code == Status.STATUS_CODE_ERROR]
    assert failed.status.message == text_of(failed, "error.type") != ""
    assert [text_of(span, "fusion.state") for span in statements if not span.parent_span_id][-1:] == ["FINISHED"]
    assert not any(str(SECRET).encode() in body for body in receiver.requests)


def test_nobody_who_hears_of_spans_is_no_reason_to_fail(tmp_path: Path) -> None:
    with serving(tmp_path / "home", "http://127.0.0.1:9") as client:
        reply = client.post("/v1/queries", json={"sql": "SELECT 1 AS n"}).json()
        assert reply["rows"] == [[1]]


def text_of(span: Span, name: str) -> str:
    return next((each.value.string_value for each in span.attributes if each.key == name), "")


def _drivers(home: Path) -> str:
    found = json.loads((home / "gateway.json").read_text())["drivers"]
    assert isinstance(found, str)
    return found
