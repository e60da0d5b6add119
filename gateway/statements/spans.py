"""Statements as OpenTelemetry's spans: one for each, within it one for each stretch of its stages and each attempt.

Who hears of them is settled where the process starts (``server/telemetry.py``); until then nothing is made. A span says
where a statement went and how it ended, and nothing of its text.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, Status, StatusCode

from gateway.statements.stages import StageClock
from metastore.records import Attempt, QueryRecord

STATEMENT, ATTEMPT = "statement", "statement.attempt"
QUERY_ID, STATE, ENGINE, ATTEMPTS, ROWS, CPU_S, PEAK_BYTES = (
    f"fusion.{name}" for name in ("query_id", "state", "engine", "attempts", "rows", "cpu_s", "peak_bytes")
)
ERROR = "error.type"
_NS = 1_000_000_000


class StatementSpan:
    """OpenTelemetry span of one statement. Made on submission, within the span of the request if there is one."""

    __slots__ = ("_around", "_within")

    def __init__(self) -> None:
        self._around: Context | None = context.get_current() if _is_heard() else None
        self._within: Context | None = None

    def tell(self, clock: StageClock, record: QueryRecord) -> None:
        """Send the stage times of a statement since the last call; first the statement's own span."""
        if not (clock.parts and _is_heard()):
            return
        tracer, since_ns = trace.get_tracer("fusion"), time.time_ns() - time.perf_counter_ns()
        stretches = [
            (part, since_ns + round(part.begun_s * _NS), since_ns + round((part.begun_s + part.time.wall_s) * _NS))
            for part in clock.parts
        ]
        statement = None
        if self._within is None:
            attributes = dict(_attributes(record))
            statement = tracer.start_span(STATEMENT, self._around, start_time=stretches[0][1], attributes=attributes)
            self._within = trace.set_span_in_context(statement, self._around)
            if record.error is not None:
                statement.set_status(Status(StatusCode.ERROR, record.error.code))
            for attempt in record.attempts:
                begun = round(attempt.started_at.timestamp() * _NS)
                span = tracer.start_span(ATTEMPT, self._within, start_time=begun, attributes=dict(_of_attempt(attempt)))
                if attempt.failure is not None:
                    span.set_status(Status(StatusCode.ERROR, attempt.failure))
                span.end(begun + round((attempt.wall_s or 0.0) * _NS))
        for part, begun_ns, ended_ns in stretches:
            name, cpu = f"{STATEMENT}.{part.stage}", {CPU_S: part.time.cpu_s}
            tracer.start_span(name, self._within, start_time=begun_ns, attributes=cpu).end(ended_ns)
        if statement is not None:
            statement.end(stretches[-1][2])


def _is_heard() -> bool:
    return not isinstance(trace.get_tracer_provider(), ProxyTracerProvider | NoOpTracerProvider)


def _of_attempt(attempt: Attempt) -> Iterator[tuple[str, str | int]]:
    yield ENGINE, attempt.engine
    yield STATE, attempt.state.value
    if attempt.peak_bytes is not None:
        yield PEAK_BYTES, attempt.peak_bytes
    if attempt.failure is not None:
        yield ERROR, attempt.failure


def _attributes(record: QueryRecord) -> Iterator[tuple[str, str | int]]:
    yield QUERY_ID, record.id
    yield STATE, record.state.value
    yield ATTEMPTS, len(record.attempts)
    if record.engine is not None:
        yield ENGINE, record.engine
    if record.rows is not None:
        yield ROWS, record.rows
    if record.error is not None:
        yield ERROR, record.error.code
