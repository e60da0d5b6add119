"""Texts of the pages about engines and queries, ready for the templates."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.protocol import OperatorActual
from gateway.dashboard.drawings.chart import MemoryChart
from gateway.dashboard.drawings.phases import phase_bars
from gateway.dashboard.drawings.plan import PlanTree, plan_lines
from gateway.http.models.engines import EngineModel
from gateway.http.services import Services
from gateway.presentation import timeline
from gateway.presentation.disclosure import may_see
from gateway.presentation.formatting import DASH, cardinality, distance, duration, exact, in_short, memory
from gateway.presentation.trees import branches
from gateway.presentation.waits import Wait, waits_for
from gateway.presentation.what_if import operator_notes, what_if
from gateway.routing.admission.values import Leased
from gateway.routing.engines import EngineRegistry
from gateway.security.policy import Action, Owned
from gateway.security.principals import Principal
from metastore.records import Attempt, JobState, Misestimate, QueryRecord, QueryState
from selector.decision import Reason
from sql.errors import Position

SHORT_SQL_CHARACTERS = 160
QUERY_ID = re.compile(r"\b(\d{8}_\d{6}_[0-9a-f]{10}(?:[0-9a-f]{2})?)\b")
WORD_AT = re.compile(r"\w+|\S|")

SYMBOLS: Mapping[str, str] = {"QUEUED": "…", "RUNNING": "▶", "FINISHED": "✓", "FAILED": "✗", "CANCELLED": "■"}


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: relative for reading, exact for a tooltip, ISO 8601 for machines."""

    text: str
    exact: str
    iso: str

    @classmethod
    def of(cls, moment: dt.datetime, now: dt.datetime) -> Moment:
        """Show a moment as seen from now."""
        return cls(distance(moment, now), exact(moment), moment.isoformat())


@dataclass(frozen=True, slots=True)
class StateBadge:
    """A state as a word, a symbol, and the CSS class of its colour."""

    word: str
    symbol: str
    style: str

    @classmethod
    def of(cls, state: QueryState | JobState) -> StateBadge:
        """Show a state of a query, an attempt, a job or one of its tables."""
        return cls(state.value, SYMBOLS[state.value], state.value.lower())


def lease_boxes(leases: Sequence[Leased], engine: EngineModel) -> Iterator[tuple[Leased, str, str]]:
    """Yield an engine's leases with their beginnings and widths in percent of its memory, the oldest first."""
    own, capacity = [lease for lease in leases if lease.engine == engine.name], engine.ledger["capacity_bytes"]
    starts = itertools.accumulate((lease.memory_bytes or 0 for lease in own), initial=0)
    for lease, start in zip(own, starts, strict=False):
        if capacity:
            yield lease, f"{100 * start / capacity:.2f}%", f"{100 * (lease.memory_bytes or 0) / capacity:.2f}%"


@dataclass(frozen=True, slots=True)
class QueryRow:
    """One line of the list. failures: codes of failed attempts."""

    id: str
    user: str
    pool: str
    state: StateBadge
    submitted: Moment
    sql: str
    attempts: tuple[tuple[str, StateBadge], ...]
    failures: tuple[str, ...]
    code: str
    why: str
    estimated: str
    limit: str
    measured: str
    rows: str
    took: str
    live: bool
    place: str
    wait: str

    @classmethod
    def of(cls, record: QueryRecord, now: dt.datetime, wait: Wait | None) -> QueryRow:
        """Show a query in a line."""
        decision = record.decision
        code, why = _leading(record)
        peaks = [attempt.peak_bytes for attempt in record.attempts if attempt.peak_bytes is not None]
        return cls(
            id=record.id,
            user=record.user,
            pool=record.summary.pool if record.summary else "",
            state=StateBadge.of(record.state),
            submitted=Moment.of(record.submitted_at, now),
            sql=shortened(record.sql),
            attempts=tuple((attempt.engine, StateBadge.of(attempt.state)) for attempt in record.attempts),
            failures=tuple(attempt.failure for attempt in record.attempts if attempt.failure),
            code=code,
            why=why,
            estimated=memory(decision.estimate.peak_bytes) if decision else DASH,
            limit=memory(decision.limit_bytes, absent=DASH) if decision else DASH,
            measured=memory(peaks[0] if peaks else None, absent=DASH),
            rows=cardinality(record.rows, absent=DASH),
            took=duration(_seconds(record, now)),
            live=not record.state.ended,
            place=(in_short(wait.place, wait.expected_s) or "waits") if wait is not None else "",
            wait=waits_for(wait) if wait is not None else "",
        )


@dataclass(frozen=True, slots=True)
class ReasonLine:
    """A reason. parts: pieces of its text; True: the id of a query, which becomes a link."""

    code: str
    parts: tuple[tuple[str, bool], ...]

    @classmethod
    def of(cls, reason: Reason) -> ReasonLine:
        """Show a reason."""
        pieces = QUERY_ID.split(reason.text)
        return cls(reason.code.value, tuple((piece, n % 2 == 1) for n, piece in enumerate(pieces) if piece))


@dataclass(frozen=True, slots=True)
class MarkedSql:
    """A statement with the word at its error marked; all parts may be empty."""

    before: str
    marked: str
    after: str

    @classmethod
    def of(cls, sql: str, position: Position | None) -> MarkedSql:
        """Show a statement; the word at the position is marked."""
        if position is None:
            return cls(sql, "", "")
        lines = sql.split("\n")
        if not 1 <= position.line <= len(lines):
            return cls(sql, "", "")
        start = sum(len(line) + 1 for line in lines[: position.line - 1]) + position.column - 1
        word = WORD_AT.match(sql, min(start, len(sql)))
        end = word.end() if word else start
        return cls(sql[:start], sql[start:end], sql[end:])


def query_parts(
    record: QueryRecord,
    *,
    wait: Wait | None,
    misestimates: Sequence[Misestimate],
    result_kept: bool,
    engines: EngineRegistry,
    now: dt.datetime,
) -> dict[str, Any]:
    """Return the parts of a query's page. misestimates: those on record of its statement."""
    decision = record.decision
    lines = plan_lines(decision, record.attempts) if decision is not None else ()
    chart = None
    if decision is not None and not decision.is_cached:
        spilling = frozenset(entry.name for entry in engines.values() if entry.limit_bytes is None)
        chart = MemoryChart.of(decision, record.attempts, spilling=spilling)
    return {
        "query": record,
        "now": now,
        "live": not record.state.ended,
        "headline": timeline.headline(record) if wait is None else f"It {waits_for(wait)}.",
        "steps": timeline.steps(record, misestimates),
        "facts": _facts(record, now),
        "sql": MarkedSql.of(record.sql, record.error.position if record.error else None),
        "reasons": [ReasonLine.of(reason) for reason in decision.reasons] if decision else (),
        "what_if": what_if(decision) if decision else (),
        "chart": chart,
        "phases": phase_bars(record, now),
        "plan": PlanTree.of(lines) if lines else None,
        "plan_lines": list(zip(branches([line.part.depth for line in lines]), lines, strict=True)),
        "is_measured": any(line.measured_rows is not None for line in lines),
        "notes": operator_notes(decision.estimate) if decision else (),
        "outcome": _outcome,
        "tree": _tree,
        "result_kept": result_kept,
    }


def allowed_on(record: QueryRecord, user: Principal, gateway: Services) -> Mapping[str, bool]:
    """Return what a user may do with a query, by names of actions."""
    policy, subject = gateway.policy, Owned("query", record.id, record.owner)
    return {
        "cancel": not record.state.ended and policy.allows(user, Action.USE_QUERY, subject),
        "again": record.state.ended and may_see(record, user, policy),
        "forget": policy.allows(user, Action.FORGET_MISESTIMATE),
    }


def _outcome(attempt: Attempt) -> str:
    """Return the state of an attempt, as the end of a sentence that begins with the engine."""
    match attempt.state:
        case QueryState.FINISHED:
            return "answered"
        case QueryState.QUEUED:
            return "has no free memory or slot for it yet"
        case QueryState.RUNNING:
            return "is running it"
        case _:
            return timeline.failure(attempt)


def _tree(operators: Sequence[OperatorActual]) -> Iterator[tuple[str, OperatorActual]]:
    """Return operators with the lines of the tree, to their left."""
    return zip(branches([operator.depth for operator in operators]), operators, strict=True)


def shortened(sql: str) -> str:
    """Return the start of a statement in one line."""
    words = " ".join(sql[: SHORT_SQL_CHARACTERS * 10].split())
    whole = len(words) <= SHORT_SQL_CHARACTERS and len(sql) <= SHORT_SQL_CHARACTERS * 10
    return words if whole else words[: SHORT_SQL_CHARACTERS - 1].rstrip() + "…"


def _seconds(record: QueryRecord, now: dt.datetime) -> float:
    """Return the seconds from submission to the end, or to now."""
    return ((record.finished_at or now) - record.submitted_at).total_seconds()


def _leading(record: QueryRecord) -> tuple[str, str]:
    """Return code and text of a query's first reason, or of the error that came before a decision."""
    if record.decision is not None and record.decision.reasons:
        reason = record.decision.reasons[0]
        return reason.code.value, reason.text
    return (record.error.code, record.error.message) if record.error else ("", "")


def _facts(record: QueryRecord, now: dt.datetime) -> tuple[tuple[str, str], ...]:
    so_far = "" if record.state.ended else " so far"
    return (
        ("Took", f"{duration(_seconds(record, now))}{so_far}"),
        ("Rows", cardinality(record.rows, absent=DASH)),
        ("User", record.user),
        ("Dialect", record.dialect),
        ("Engine asked for", record.requested_engine),
        ("Statistics", record.statistics_version or DASH),
        ("Fingerprint", record.fingerprint or DASH),
    )
