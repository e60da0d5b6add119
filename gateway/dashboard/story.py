"""A query's life in plain sentences: why it went where it went, what happened there, what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from engines.errors import (
    DeadlineExceeded,
    EngineBusy,
    EngineFault,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
    UnsupportedFeature,
)
from gateway.coordinator import GATEWAY_STOPPED
from gateway.dashboard.figures import counted, duration, memory
from gateway.security.policy import AccessDenied
from gateway.sql.errors import (
    EmptyStatement,
    MultipleStatements,
    NotAllowed,
    SqlError,
    StatementTooComplex,
    StatementTooDeep,
    StatementTooLong,
    SyntaxInvalid,
    TableExists,
    TableInMotion,
    TableUnreadable,
    UnknownColumn,
    UnknownDatabase,
    UnknownDialect,
    UnknownPartition,
    UnknownProperty,
    UnknownTable,
    UnknownVariable,
    ValueOutOfRange,
)
from gateway.views import NO_SESSION, TABLE_EXISTS
from gateway.writing import WRITE_FAILED
from metastore.records import Attempt, Misestimate, QueryRecord, QueryState
from selector.decide import Decision, ReasonCode

FAILURES: Mapping[str, str] = {
    MemoryExceeded.code: "ran out of memory",
    EngineBusy.code: "had no free slot",
    EngineUnavailable.code: "could not be reached or was lost",
    UnsupportedFeature.code: "cannot run this statement",
    StatementError.code: "found the statement or its data wrong",
    DeadlineExceeded.code: "ran out of time",
    StatementCancelled.code: "was told to stop",
    EngineFault.code: "failed in a way that is not recognised",
    "RESULT_TOO_LARGE": "gave a result that is larger than the gateway keeps",
    "RESULT_STORE_FULL": "gave a result that the gateway had no room for",
    GATEWAY_STOPPED.code: "was interrupted when the gateway stopped",
    "STATISTICS_FAILED": "could not compute the statistics",
    "JOB_RUNNING": "found the statistics being computed already",
    "NOTHING_TO_AMEND": "knew nothing that the value could stand beside",
    "TABLE_UNREADABLE": "could not read the table's files",
    UnknownTable.code: "found the table gone",
    UnknownPartition.code: "found no such partition",
    NO_SESSION: "has no session here that could keep it",
    TABLE_EXISTS: "found a table or view of that name already",
    WRITE_FAILED: "could not put the rows into the table, which is as it was",
}

REFUSALS: Mapping[str, str] = {
    SqlError.code: "it is wrong",
    EmptyStatement.code: "it is empty",
    MultipleStatements.code: "it is more than one statement",
    StatementTooLong.code: "it is too long",
    StatementTooDeep.code: "it is nested too deep",
    StatementTooComplex.code: "planning it would take too much time or memory",
    TableUnreadable.code: "what is stored of a table or view that it names cannot be used",
    UnknownVariable.code: "it names a variable that its session has not set",
    UnknownDialect.code: "its dialect is not known",
    SyntaxInvalid.code: "it cannot be parsed",
    UnknownTable.code: "it names a table that is not registered",
    UnknownDatabase.code: "it names a database that is not there",
    TableExists.code: "it makes what is there already",
    UnknownColumn.code: "it names a column that is not there",
    UnknownPartition.code: "it names a partition that is not there",
    UnknownProperty.code: "it sets a property that cannot be set",
    ValueOutOfRange.code: "it holds a value that makes no sense in its place",
    NotAllowed.code: "it does what is not allowed here",
    AccessDenied.code: "its user may not do that",
    TableInMotion.code: "others were registering its table anew at the same time",
}

ELSEWHERE: Mapping[ReasonCode, str] = {
    ReasonCode.NO_ESTIMATE: "its memory could not be estimated, and guesses do not open the fast engine",
    ReasonCode.TOO_COMPLEX: "estimating its memory would have taken too long",
    ReasonCode.STATISTICS_MISSING: "statistics about its tables are missing",
    ReasonCode.LEARNED_FROM_RUNS: "earlier runs corrected its estimate",
    ReasonCode.MISESTIMATE_ON_RECORD: "the same statement ran out of memory on the fast engine before",
    ReasonCode.UNSUPPORTED_FEATURE: "the fast engine cannot run it",
    ReasonCode.DIALECT: "the fast engine might answer it differently",
    ReasonCode.ENGINE_DOWN: "the fast engine took no work at that moment",
    ReasonCode.NO_FAST_ENGINE: "no fast engine is configured",
    ReasonCode.WRITE: "it writes, which the fast engine never does",
}


class Tone(StrEnum):
    """How a step looks; its words say the same."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a query's life. code: the stable name of what happened, where there is one."""

    heading: str
    text: str
    tone: Tone = Tone.PLAIN
    code: str | None = None


def failed_over(record: QueryRecord) -> bool:
    """Tell whether an engine failed and another one took over."""
    return len(record.attempts) > 1


def failure(attempt: Attempt) -> str:
    """Say in words how an attempt failed: the end of a sentence that begins with the engine."""
    return FAILURES.get(attempt.failure or "", "failed")


def headline(record: QueryRecord) -> str:
    """Say in one sentence what became of a query."""
    before = _before(record.attempts[:-1])
    last = record.attempts[-1] if record.attempts else None
    match record.state:
        case QueryState.QUEUED:
            return "Waiting for its decision."
        case QueryState.RUNNING:
            return f"{before} Running on {record.engine} now.".strip()
        case QueryState.FINISHED if before:
            return f"{before} {record.engine} answered instead, under the same query id."
        case QueryState.FINISHED:
            return f"Answered by {record.engine}."
        case QueryState.CANCELLED:
            return f"{before} Cancelled{f' while on {last.engine}' if last else ''}.".strip()
        case _ if last is None:
            why = REFUSALS.get(record.error.code) if record.error else None
            return f"Refused before any engine was tried{f': {why}' if why else ''}."
        case _:
            return f"{before} {last.engine} {failure(last)}.".strip()


def decision_sentence(decision: Decision) -> str:
    """Say in one sentence where a statement was sent and why."""
    engine, estimate, limit = decision.engine, decision.estimate, memory(decision.limit_bytes)
    then = decision.ranking[1:]
    line = f" Next in line: {', then '.join(then)}." if then else ""
    if not decision.reasons:
        return f"It was sent to {engine}, the first engine that takes it.{line}"
    code = decision.reasons[0].code
    if code is ReasonCode.PINNED:
        return f"It was sent to {engine} because the client asked for it by name; it runs nowhere else."
    if code is ReasonCode.FITS:
        fits = f"the estimated peak of {memory(estimate.peak_bytes)} (at most {memory(estimate.upper_bytes)}) fits"
        return f"It was sent to {engine} because {fits} into the {limit} that one statement may take there.{line}"
    if code is ReasonCode.EXCEEDS_LIMIT:
        why = f"it may take {memory(estimate.upper_bytes)}, more than the {limit} that the fast engine gives"
    elif code is ReasonCode.LOW_CONFIDENCE:
        why = f"the estimate is too uncertain for the fast engine (confidence {estimate.confidence:.2f})"
    else:
        why = ELSEWHERE.get(code, code.value)
    return f"It was sent to {engine} because {why}.{line}"


def steps(record: QueryRecord, lessons: Sequence[Misestimate]) -> tuple[Step, ...]:
    """Tell a query's life in order. lessons: what is on record about its statement now."""
    told: list[Step] = []
    decision = record.decision
    if decision is not None:
        code = decision.reasons[0].code.value if decision.reasons else None
        told.append(Step(f"Sent to {decision.engine}", decision_sentence(decision), Tone.PLAIN, code))
    for attempt in record.attempts:
        told.append(_attempt(record, attempt))
    missed = next((a for a in record.attempts if a.failure == MemoryExceeded.code), None)
    if missed is not None:
        told.append(_next_time(record, missed, lessons))
    return tuple(told)


def _attempt(record: QueryRecord, attempt: Attempt) -> Step:
    engine = attempt.engine
    match attempt.state:
        case QueryState.FINISHED:
            rows = counted(attempt.rows, "row") if attempt.rows is not None else "its rows"
            again = " ran it again under the same query id and" if attempt.ordinal > 1 else ""
            text = f"{engine}{again} returned {rows} in {duration(attempt.wall_s)}."
            if attempt.ordinal > 1:
                text += " The client saw one query and one answer."
            return Step(f"{engine} answered", text, Tone.GOOD)
        case QueryState.RUNNING | QueryState.QUEUED:
            return Step(f"{engine} is running it", "No row leaves the gateway before the attempt has succeeded.")
        case _:
            after = f" after {duration(attempt.wall_s)}" if attempt.wall_s is not None else ""
            peak = f", at {memory(attempt.peak_bytes)}" if attempt.peak_bytes is not None else ""
            text = f"{engine} {failure(attempt)}{after}{peak}."
            if attempt.ordinal < len(record.attempts):
                text += " No row of it had reached the client."
            return Step(f"{engine} {failure(attempt)}", text, Tone.BAD, attempt.failure)


def _next_time(record: QueryRecord, missed: Attempt, lessons: Sequence[Misestimate]) -> Step:
    if not any(lesson.engine == missed.engine for lesson in lessons):
        text = f"The miss is no longer on record: the next run may try {missed.engine} again."
        return Step("Next time", text, Tone.NOTE)
    later = [attempt.engine for attempt in record.attempts if attempt.ordinal > missed.ordinal]
    where = f"straight to {later[0]}" if later else f"past {missed.engine}"
    text = f"The miss is on record. While statistics and limit stay as they are, the same statement goes {where}."
    return Step("Next time", text, Tone.NOTE, ReasonCode.MISESTIMATE_ON_RECORD.value)


def _before(attempts: Sequence[Attempt]) -> str:
    return " ".join(f"{attempt.engine} {failure(attempt)}." for attempt in attempts)
