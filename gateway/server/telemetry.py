"""OpenTelemetry's spans over OTLP, as its standard variables say (``OTEL_EXPORTER_OTLP_ENDPOINT`` and others)."""

from __future__ import annotations

import logging
import os
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING

from opentelemetry import trace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
SERVICE_NAME = "OTEL_SERVICE_NAME"
OURS = "fusion-sql-gateway"
OFF = "OTEL_SDK_DISABLED"
LAST_S = 3.0  # that a process which ends gives to what it has not sent yet


_sent: list[SpanProcessor] = []  # what a process has, which has one provider


def start() -> None:
    """Send spans where the variables say, if they say it; one that another program set up before stays in place."""
    endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), None)
    if endpoint is None or os.environ.get(OFF, "").lower() == "true":
        return
    if find_spec("opentelemetry.sdk") is None or find_spec("opentelemetry.exporter") is None:
        log.warning("no spans are sent: pip install fusion-sql-gateway[otel]")
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    os.environ.setdefault(SERVICE_NAME, OURS)
    provider = TracerProvider()
    _sent.append(BatchSpanProcessor(OTLPSpanExporter()))
    provider.add_span_processor(_sent[-1])
    trace.set_tracer_provider(provider)
    log.info("spans are sent to %s", endpoint.rpartition("@")[2])


def stop() -> None:
    """Send what is left: a signal that ends the process runs nothing of what is to be done at its end."""
    for processor in _sent:
        sending = threading.Thread(target=processor.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(LAST_S)
