"""Whether spans are sent, as OpenTelemetry's variables say."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("opentelemetry.sdk", reason="its SDK is not installed: pip install fusion-sql-gateway[otel]")

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:secret@127.0.0.1:9"}
START = """
import logging, sys
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
from opentelemetry import trace
from gateway.server import telemetry
telemetry.start()
provider = trace.get_tracer_provider()
print(type(provider).__name__, getattr(provider, "resource", None) and provider.resource.attributes["service.name"])
"""
NO_EXPORTER = "import sys; sys.modules['opentelemetry.exporter.otlp.proto.http.trace_exporter'] = None\n"
OTHERS = (
    "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider; "
    "trace.set_tracer_provider(TracerProvider())\n"
)


def started(before: str = "", **variables: str) -> str:
    """Start it in a process of its own, which has one provider; returns what it says."""
    found = subprocess.run(
        [sys.executable, "-c", before + START], env=variables, capture_output=True, text=True, timeout=60, check=True
    )
    return found.stdout.strip()


def test_they_are_sent_where_an_endpoint_is_named_and_without_its_password() -> None:
    assert started() == "ProxyTracerProvider None"
    assert started(**ENDPOINT) == "spans are sent to 127.0.0.1:9\nTracerProvider fusion-sql-gateway"


@pytest.mark.parametrize("named", [{"OTEL_SERVICE_NAME": "mine"}, {"OTEL_RESOURCE_ATTRIBUTES": "service.name=mine"}])
def test_the_service_is_called_as_its_operator_calls_it(named: dict[str, str]) -> None:
    assert started(**ENDPOINT, **named).endswith("TracerProvider mine")


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_they_can_be_turned_off(off: dict[str, str]) -> None:
    assert started(**ENDPOINT, **off) == "ProxyTracerProvider None"


def test_another_protocol_is_no_reason_to_speak_this_one() -> None:
    told = started(**ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    assert told.splitlines() == [
        "no spans are sent: the protocol is grpc, and this sends http/protobuf alone",
        "ProxyTracerProvider None",
    ]


def test_without_its_exporter_the_gateway_starts() -> None:
    assert started(NO_EXPORTER, **ENDPOINT) == (
        "no spans are sent: pip install fusion-sql-gateway[otel]\nProxyTracerProvider None"
    )


def test_what_another_program_set_up_stays() -> None:
    assert started(NO_EXPORTER + OTHERS, **ENDPOINT).startswith("TracerProvider unknown_service")
