"""OpenTelemetry's spans over OTLP, as its standard variables say (``OTEL_EXPORTER_OTLP_ENDPOINT`` and others)."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace import ProxyTracerProvider

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
OURS = "http/protobuf"
SERVICE = "fusion-sql-gateway"
LAST_S = 3.0  # that a process which ends gives to what it has not sent yet

_sending: list[SpanProcessor] = []  # what a process has, which has one provider


def start() -> None:
    """Send spans where the variables say, if they say it; what another program set up before stays in place."""
    endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), None)
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    is_off = is_off or os.environ.get("OTEL_TRACES_EXPORTER", "").lower() == "none"
    if endpoint is None or is_off or not isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
        return
    protocol = next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), OURS)
    if protocol != OURS:
        log.warning("no spans are sent: the protocol is %s, and this sends %s alone", protocol, OURS)
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("no spans are sent: pip install fusion-sql-gateway[otel]")
        return
    resource = Resource.create()
    is_named = not str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
    provider = TracerProvider(resource=resource if is_named else resource.merge(Resource({SERVICE_NAME: SERVICE})))
    _sending.append(BatchSpanProcessor(OTLPSpanExporter()))
    provider.add_span_processor(_sending[-1])
    trace.set_tracer_provider(provider)
    log.info("spans are sent to %s", endpoint.rpartition("@")[2])


def stop() -> None:
    """Send what is left: a signal that ends the process runs nothing of what is to be done at its end."""
    for processor in _sending:
        sending = threading.Thread(target=processor.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(LAST_S)
