"""Impala's additions to HiveServer2, which impala-shell and impyla use.

``summary`` and ``profile`` show our decision and attempts in the places of Impala's fragments.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass

from engines.protocol import OperatorActual
from gateway import PRODUCT
from gateway.drivers.hs2 import timeline
from gateway.drivers.hs2.operations import QueryOperation
from gateway.drivers.hs2.protocol.messages import (
    LogReply,
    OperationRequest,
    Reply,
    SessionHandle,
    SessionRequest,
)
from gateway.drivers.hs2.protocol.thrift import BOOL, I32, I64, TEXT, Struct, field, list_of, map_of, struct_of
from gateway.drivers.hs2.registry import Peer
from gateway.drivers.hs2.service import Service
from gateway.errors import NotOffered
from gateway.presentation.disclosure import shown_to_its_user
from gateway.presentation.formatting import duration
from gateway.presentation.waits import Wait, waits_for
from gateway.statements.statement import ID_BYTES, Admitted, Run, query_of
from metastore.records import Attempt, QueryRecord, QueryState
from sql.dialects.names import IMPALA

TEXT_FORMAT = 0
PAGE = "/query_plan"  # address that impala-shell prints for watching a query, followed by the query's number
NANOSECONDS = 1_000_000_000
UNKNOWN = -1
WHOLE_TABLE = ""  # in place of a partition's name
EXECUTION_STATES = {
    QueryState.QUEUED: 2,
    QueryState.RUNNING: 3,
    QueryState.FINISHED: 4,
    QueryState.CANCELLED: 5,
    QueryState.FAILED: 6,
}


@dataclass(slots=True)
class PingReply(Reply):
    """Name and pages of the server. timestamp: in seconds; impala-shell fails on anything but a number."""

    version: str | None = field(2, TEXT)
    webserver: str | None = field(3, TEXT)
    timestamp: int | None = field(4, I64)


@dataclass(slots=True)
class Written(Struct):
    """Rows that a statement wrote. rows: by partition."""

    rows: dict[str, int] | None = field(1, map_of(TEXT, I64))


@dataclass(slots=True)
class CloseReply(Reply):
    """An operation was closed. result: of a write; without it impala-shell reports a failure."""

    result: Written | None = field(2, struct_of(Written))


@dataclass(slots=True)
class SummaryRequest(OperationRequest):
    """Ask for the summary of a run."""

    session: SessionHandle | None = field(2, struct_of(SessionHandle))


@dataclass(slots=True)
class ProfileRequest(SummaryRequest):
    """Ask for the profile of a run. format: 0 is text."""

    format: int = field(3, I32, TEXT_FORMAT)


@dataclass(slots=True)
class Stats(Struct):
    """Measurements of one step; -1: not known."""

    latency_ns: int | None = field(1, I64)
    cpu_ns: int | None = field(2, I64)
    rows: int | None = field(3, I64)
    memory_bytes: int | None = field(4, I64)


@dataclass(slots=True)
class Step(Struct):
    """A line of the summary; children follow their parent, the last one first, as the shell draws them."""

    node_id: int | None = field(1, I32)
    fragment: int | None = field(2, I32)
    label: str | None = field(3, TEXT)
    detail: str | None = field(4, TEXT)
    children: int | None = field(5, I32)
    estimated: Stats | None = field(6, struct_of(Stats))
    measured: list[Stats] | None = field(7, list_of(struct_of(Stats)))
    is_broadcast: bool | None = field(8, BOOL)
    hosts: int | None = field(9, I32)


@dataclass(slots=True)
class Summary(Struct):
    """The lines of a run. exchanges: empty, but the shell requires the field. queued: its wait in words."""

    state: int | None = field(1, I32)
    steps: list[Step] | None = field(3, list_of(struct_of(Step)))
    exchanges: dict[int, int] | None = field(4, map_of(I32, I32))
    errors: list[str] | None = field(5, list_of(TEXT))
    is_queued: bool | None = field(7, BOOL)
    queued: str | None = field(8, TEXT)


@dataclass(slots=True)
class SummaryReply(Reply):
    """The summary of a run."""

    summary: Summary | None = field(2, struct_of(Summary))


@dataclass(slots=True)
class ProfileReply(Reply):
    """The profile of a run as a text."""

    profile: str | None = field(2, TEXT)


class ImpalaCalls:
    """Impala's calls, over the same sessions and operations."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def ping(self, request: SessionRequest, peer: Peer) -> PingReply:
        """Return the name of the server and the address of its pages; only impala-shell calls this."""
        session = self._service.registry.session(request.session, peer)
        session.is_impala_shell = True
        if session.dialect_is_open:
            session.dialect_is_open = False
            session.session.presume_dialect(IMPALA)
        return PingReply(version=PRODUCT, webserver=self._service.page_url, timestamp=int(time.time()))

    def get_log(self, request: OperationRequest, peer: Peer) -> LogReply:
        """Return new lines of the log; for impala-shell, failed attempts.

        Other clients with Impala's dialect get the progress of the query and all lines so far, as Impala does.
        """
        session, operation = self._service.registry.operation(request.operation, peer)
        if session.is_impala_shell and isinstance(operation, QueryOperation):
            return LogReply(log="\n".join(timeline.failures(operation.run.record)))
        if session.session.dialect == IMPALA and isinstance(operation, QueryOperation):
            lines = [timeline.completion(operation.run.record), *operation.log_lines(rewind=True)]
            return LogReply(log="\n".join(lines))
        return LogReply(log="\n".join(operation.log_lines(rewind=False)))

    def close(self, request: OperationRequest, peer: Peer) -> CloseReply:
        """Close an operation, and return the number of rows that it wrote."""
        _, operation = self._service.registry.operation(request.operation, peer)
        written = operation.rows_written() if isinstance(operation, QueryOperation) else None
        self._service.registry.close_operation(operation)
        return CloseReply(result=None if written is None else Written({WHOLE_TABLE: written}))

    def get_summary(self, request: SummaryRequest, peer: Peer) -> SummaryReply:
        """Return a line per attempt, and below it its engine's operators."""
        operation = self._ended(request, peer)
        run = operation.run
        return SummaryReply(summary=summary(shown_to_its_user(run.record), run.state, operation.wait()))

    def get_profile(self, request: ProfileRequest, peer: Peer) -> ProfileReply:
        """Return decision, attempts and operators as a text."""
        if request.format != TEXT_FORMAT:
            raise NotOffered("Profiles are available as text only.")
        operation = self._ended(request, peer)
        return ProfileReply(profile=profile(operation.run, operation.wait()))

    def _ended(self, request: SummaryRequest, peer: Peer) -> QueryOperation:
        operation = self._service.registry.ended_operation(request.operation, request.session, peer)
        if not isinstance(operation, QueryOperation):
            raise NotOffered("Only statements have a summary and a profile.")
        return operation


def query_shown(number: str) -> str | None:
    """Parse the number of a query as Impala prints it, two little-endian halves; None: it is not one."""
    low, _, high = number.partition(":")
    try:
        halves = [int(half, 16).to_bytes(ID_BYTES // 2, "little") for half in (low, high)]
    except (ValueError, OverflowError):
        return None
    return query_of(b"".join(halves))


def summary(record: QueryRecord, state: QueryState, wait: Wait | None) -> Summary:
    """Return the lines of a run: the query, its attempts, their operators. state: of now."""
    decision = record.decision
    expected = Stats(rows=UNKNOWN, memory_bytes=UNKNOWN)
    if decision is not None and decision.estimate.peak_bytes is not None:
        expected.memory_bytes = decision.estimate.peak_bytes
    elapsed_ns = round(timeline.elapsed_s(record) * NANOSECONDS)
    whole = Stats(
        elapsed_ns, 0, record.rows or 0, max((attempt.peak_bytes or 0 for attempt in record.attempts), default=0)
    )
    steps = [_step(0, "QUERY", state.value, len(record.attempts), expected, whole)]
    for attempt in record.attempts:
        steps += _attempt(len(steps), attempt, expected)
    queued = None if wait is None else waits_for(wait)
    return Summary(EXECUTION_STATES[state], steps, {}, timeline.failures(record), wait is not None, queued)


def _attempt(number: int, attempt: Attempt, expected: Stats) -> list[Step]:
    operators = attempt.actuals.operators if attempt.actuals is not None else ()
    took = Stats(round((attempt.wall_s or 0) * NANOSECONDS), 0, attempt.rows or 0, attempt.peak_bytes or 0)
    label = f"{number:02}:ATTEMPT {attempt.ordinal}"
    detail = f"{attempt.engine}: {attempt.failure or attempt.state.value}"
    roots = sum(operator.depth == 0 for operator in operators)
    steps = [_step(number, label, detail, roots, expected, took)]
    unknown = Stats(rows=UNKNOWN, memory_bytes=UNKNOWN)
    for place, operator in enumerate(operators):
        number += 1
        children = _children(operators, place)
        rows = Stats(0, 0, operator.rows, 0)
        steps.append(_step(number, f"{number:02}:{operator.name.upper()}", "", children, unknown, rows))
    return steps


def _children(operators: tuple[OperatorActual, ...], place: int) -> int:
    """Return the number of an operator's children; they follow it, up to one that is not below it."""
    depth, count = operators[place].depth, 0
    for operator in operators[place + 1 :]:
        if operator.depth <= depth:
            break
        count += operator.depth == depth + 1
    return count


def _step(number: int, label: str, detail: str, children: int, expected: Stats, took: Stats) -> Step:
    return Step(number, 0, label, detail, children, expected, [took], False, 1)


def profile(run: Run, wait: Wait | None) -> str:
    """Return decision, admissions, attempts and operators as a text, with Impala's indentation."""
    record = shown_to_its_user(run.record)
    lines = [
        f"Query (id={record.id}):",
        "  Summary:",
        f"    Query State: {run.state.value}",
        f"    User: {record.user}",
        f"    Start Time: {_time(record.submitted_at)}",
        f"    End Time: {_time(record.finished_at)}",
        f"    Duration: {duration(timeline.elapsed_s(record))}",
        f"    Sql Statement: {' '.join(record.sql.split())}",
        "  Decision:",
    ]
    if record.decision is not None:
        lines.append(f"    Engine: {record.decision.engine} ({timeline.decided(record.decision)})")
        lines += [f"    {reason.code.value}: {reason.text}" for reason in record.decision.reasons]
    lines += [f"    Admission result: {_admission_result(admitted)}" for admitted in run.admitted]
    if wait is not None:
        lines += ["    Admission result: Queued", f"    Latest admission queue reason: {waits_for(wait)}"]
    lines.append("  Attempts:")
    for attempt in record.attempts:
        lines.append(f"    {timeline.attempted(attempt)}")
        if attempt.message:
            lines.append(f"      {attempt.message}")
        for operator in attempt.actuals.operators if attempt.actuals is not None else ():
            lines.append(f"      {'  ' * operator.depth}{operator.name}: {operator.rows:,} rows")
    return "\n".join(lines) + "\n"


def _admission_result(admitted: Admitted) -> str:
    """Return a lease in the words of Impala's profiles."""
    how = "Admitted (queued)" if timeline.waited(admitted) else "Admitted immediately"
    return f"{how}; {timeline.admission(admitted)}"


def _time(at: dt.datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" if at is not None else ""
