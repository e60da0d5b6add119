"""What the pages show, prepared: every text is ready, so that templates only place it."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.dashboard.chart import MemoryChart
from gateway.http.models.engines import EngineModel
from gateway.presentation import timeline
from gateway.presentation.formatting import DASH, cardinality, distance, duration, exact, memory
from gateway.presentation.trees import branches
from gateway.presentation.waits import Wait, waits_for
from gateway.presentation.what_if import operator_notes, what_if
from gateway.presentation.wording import in_short
from gateway.routing.admission.values import Leased
from gateway.routing.engines import EngineRegistry
from metastore.records import Attempt, Misestimate, Position, QueryRecord, QueryState
from selector.decision import Decision, EnginePrice, Reason
from selector.wording import percent, seconds_of

SHORT_SQL_CHARACTERS = 160
SLOTS_DRAWN = 16
QUERY_ID = re.compile(r"\b(\d{8}_\d{6}_[0-9a-f]{10}(?:[0-9a-f]{2})?)\b")
WORD_AT = re.compile(r"\w+|\S|")

SYMBOLS: Mapping[QueryState, str] = {
    QueryState.QUEUED: "…",
    QueryState.RUNNING: "▶",
    QueryState.FINISHED: "✓",
    QueryState.FAILED: "✗",
    QueryState.CANCELLED: "■",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: as a distance to read, exactly to look up, and for machines."""

    text: str
    exact: str
    iso: str

    @classmethod
    def of(cls, moment: dt.datetime, now: dt.datetime) -> Moment:
        """Show a moment as seen from now."""
        return cls(distance(moment, now), exact(moment), moment.isoformat())


@dataclass(frozen=True, slots=True)
class StateBadge:
    """A state as a word and a symbol; style: the name of its colour."""

    word: str
    symbol: str
    style: str

    @classmethod
    def of(cls, state: QueryState) -> StateBadge:
        """Show a state."""
        return cls(state.value, SYMBOLS[state], state.value.lower())


@dataclass(frozen=True, slots=True)
class LeaseBox:
    """A lease as a part of its engine's memory; start, width: percent of the bar."""

    query_id: str
    text: str
    start: str
    width: str


@dataclass(frozen=True, slots=True)
class EngineCard:
    """An engine as it is now. slots: taken and free ones to draw, empty where they are too many.

    leased: memory of its budget, empty where that is not counted; leases: parts of it, the oldest first.
    """

    name: str
    kind: str
    alive: bool
    detail: str
    limit: str
    held: str
    slots: tuple[bool, ...]
    waiting: int
    leased: str
    leases: tuple[LeaseBox, ...]

    @classmethod
    def of(cls, engine: EngineModel, leases: Sequence[Leased]) -> EngineCard:
        """Show an engine. leases: of all engines."""
        capacity = engine.ledger["capacity_bytes"]
        slots, held = engine.ledger["slots"] or 0, engine.ledger["slots_held"] or 0
        return cls(
            name=engine.name,
            kind=engine.kind,
            alive=engine.alive,
            detail=engine.detail,
            limit=memory(engine.limit_bytes, absent="none: it spills to disk"),
            held=f"{held} of {slots}",
            slots=tuple(n < held for n in range(slots)) if slots <= SLOTS_DRAWN else (),
            waiting=engine.ledger["waiting"] or 0,
            leased=f"{memory(engine.ledger['bytes_held'])} of {memory(capacity)}" if capacity else "",
            leases=_boxes([each for each in leases if each.engine == engine.name], capacity) if capacity else (),
        )


def _boxes(leases: Sequence[Leased], capacity: int) -> tuple[LeaseBox, ...]:
    """Lay leases side by side."""
    ends = list(itertools.accumulate((each.memory_bytes or 0 for each in leases), initial=0))
    return tuple(
        LeaseBox(
            each.query_id,
            memory(each.memory_bytes),
            f"{100 * start / capacity:.2f}%",
            f"{100 * (each.memory_bytes or 0) / capacity:.2f}%",
        )
        for each, start in zip(leases, ends, strict=False)
    )


@dataclass(frozen=True, slots=True)
class QueryRow:
    """One line of the list. failures: codes of the attempts that failed."""

    id: str
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
        """Show a query in a line. wait: what it waits for."""
        decision = record.decision
        code, why = _leading(record)
        peaks = [attempt.peak_bytes for attempt in record.attempts if attempt.peak_bytes is not None]
        return cls(
            id=record.id,
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
    """A reason; parts: its text with the ids of queries in it, which become links."""

    code: str
    parts: tuple[tuple[str, bool], ...]

    @classmethod
    def of(cls, reason: Reason) -> ReasonLine:
        """Show a reason."""
        pieces = QUERY_ID.split(reason.text)
        return cls(reason.code.value, tuple((piece, n % 2 == 1) for n, piece in enumerate(pieces) if piece))


@dataclass(frozen=True, slots=True)
class PriceLine:
    """What an engine was expected to cost. chosen: whether it was tried first."""

    engine: str
    fits: str
    seconds: str
    miss: str
    wait: str
    first: str
    chosen: bool

    @classmethod
    def of(cls, price: EnginePrice, decision: Decision) -> PriceLine:
        """Show an engine's price."""
        return cls(
            engine=price.engine,
            fits=_fits(price, decision),
            seconds=seconds_of(price.seconds),
            miss=seconds_of(price.miss_s) if decision.on(price.engine) else DASH,
            wait=seconds_of(price.wait_s + price.held_s),
            first=DASH if price.first_s is None else seconds_of(price.first_s),
            chosen=price.engine == decision.engine,
        )


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """An operator of the plan; branch: the lines that draw the tree to its left."""

    branch: str
    name: str
    rows: str
    engine_rows: str
    held: str
    basis: str
    upper_rows: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActualLine:
    """An operator as an engine counted it while it ran."""

    branch: str
    name: str
    rows: str


@dataclass(frozen=True, slots=True)
class AttemptEntry:
    """One try, in the timeline."""

    ordinal: int
    engine: str
    state: StateBadge
    started: Moment
    took: str
    outcome: str
    code: str | None
    message: str | None
    rows: str
    peak: str
    actuals: tuple[ActualLine, ...]

    @classmethod
    def of(cls, attempt: Attempt, now: dt.datetime) -> AttemptEntry:
        """Show an attempt."""
        match attempt.state:
            case QueryState.FINISHED:
                outcome = "answered"
            case QueryState.QUEUED:
                outcome = "has no room for it yet"
            case QueryState.RUNNING:
                outcome = "is running it"
            case _:
                outcome = timeline.failure(attempt)
        operators = attempt.actuals.operators if attempt.actuals else ()
        running = (now - attempt.started_at).total_seconds() if not attempt.state.ended else None
        return cls(
            ordinal=attempt.ordinal,
            engine=attempt.engine,
            state=StateBadge.of(attempt.state),
            started=Moment.of(attempt.started_at, now),
            took=duration(attempt.wall_s) if running is None else f"{duration(running)} so far",
            outcome=outcome,
            code=attempt.failure,
            message=attempt.message,
            rows=cardinality(attempt.rows, absent=DASH),
            peak=memory(attempt.peak_bytes, absent="not measured"),
            actuals=tuple(
                ActualLine(branch, operator.name, cardinality(operator.rows))
                for branch, operator in zip(branches([o.depth for o in operators]), operators, strict=True)
            ),
        )


@dataclass(frozen=True, slots=True)
class MarkedSql:
    """A statement with the place of its error between two texts that may be empty."""

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
        found = WORD_AT.match(sql, min(start, len(sql)))
        end = found.end() if found else start
        return cls(sql[:start], sql[start:end], sql[end:])


@dataclass(frozen=True, slots=True)
class ErrorBox:
    """Why a query failed."""

    code: str
    message: str
    place: str


@dataclass(frozen=True, slots=True)
class QueryPage:
    """Everything about one query. live: something may still happen to it."""

    id: str
    state: StateBadge
    live: bool
    headline: str
    steps: tuple[timeline.Step, ...]
    facts: tuple[tuple[str, str], ...]
    submitted: Moment
    sql: MarkedSql
    error: ErrorBox | None
    reasons: tuple[ReasonLine, ...]
    what_if: tuple[str, ...]
    prices: tuple[PriceLine, ...]
    policy: str
    confidence: str
    chart: MemoryChart | None
    operators: tuple[OperatorLine, ...]
    attempts: tuple[AttemptEntry, ...]
    has_result: bool
    result_gone: bool

    @classmethod
    def of(
        cls,
        record: QueryRecord,
        *,
        wait: Wait | None,
        misestimates: Sequence[Misestimate],
        result_kept: bool,
        engines: EngineRegistry,
        now: dt.datetime,
    ) -> QueryPage:
        """Show a query. misestimates: what is on record about its statement. result_kept: its rows can be fetched."""
        decision = record.decision
        finished = record.state is QueryState.FINISHED
        position = record.error.position if record.error else None
        return cls(
            id=record.id,
            state=StateBadge.of(record.state),
            live=not record.state.ended,
            headline=timeline.headline(record) if wait is None else f"It {waits_for(wait)}.",
            steps=timeline.steps(record, misestimates),
            facts=_facts(record, now),
            submitted=Moment.of(record.submitted_at, now),
            sql=MarkedSql.of(record.sql, position),
            error=_error(record),
            reasons=tuple(ReasonLine.of(reason) for reason in decision.reasons) if decision else (),
            what_if=what_if(decision) if decision else (),
            prices=tuple(PriceLine.of(price, decision) for price in decision.prices) if decision else (),
            policy=decision.rule.value if decision else "",
            confidence=f"{decision.estimate.confidence:.2f}" if decision else "",
            chart=MemoryChart.of(decision, record.attempts, spilling=_spilling(engines))
            if decision and not decision.is_cached
            else None,
            operators=_operators(decision) if decision else (),
            attempts=tuple(AttemptEntry.of(attempt, now) for attempt in record.attempts),
            has_result=finished and result_kept,
            result_gone=finished and not result_kept,
        )


def shortened(sql: str) -> str:
    """Return the start of a statement in one line."""
    words = " ".join(sql[: SHORT_SQL_CHARACTERS * 10].split())
    whole = len(words) <= SHORT_SQL_CHARACTERS and len(sql) <= SHORT_SQL_CHARACTERS * 10
    return words if whole else words[: SHORT_SQL_CHARACTERS - 1].rstrip() + "…"


def _seconds(record: QueryRecord, now: dt.datetime) -> float:
    """Return how long a query took, from submission to its end; to now where it has not ended."""
    return ((record.finished_at or now) - record.submitted_at).total_seconds()


def _leading(record: QueryRecord) -> tuple[str, str]:
    """Return code and text of what says most about a query: its first reason, or the error that came before it."""
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


def _error(record: QueryRecord) -> ErrorBox | None:
    if record.error is None:
        return None
    position = record.error.position
    place = f"line {position.line}, column {position.column}" if position else ""
    return ErrorBox(record.error.code, record.error.message, place)


def _operators(decision: Decision) -> tuple[OperatorLine, ...]:
    parts = decision.estimate.operators
    drawn = branches([part.depth for part in parts])
    return tuple(
        OperatorLine(
            branch=branch,
            name=part.operator,
            rows=cardinality(part.rows),
            engine_rows=cardinality(part.engine_rows),
            held=memory(part.held_bytes),
            basis=part.basis,
            upper_rows=cardinality(part.upper_rows),
            notes=notes,
        )
        for branch, part, notes in zip(drawn, parts, operator_notes(decision.estimate), strict=True)
    )


def _spilling(engines: EngineRegistry) -> frozenset[str]:
    return frozenset(entry.name for entry in engines.values() if entry.limit_bytes is None)


def _fits(price: EnginePrice, decision: Decision) -> str:
    """Say how probably a statement fits into an engine."""
    if decision.on(price.engine) is None:
        return "spills"
    return DASH if price.fits is None else percent(price.fits)
