"""The timeline of a query in plain sentences: why its engine was chosen, what happened there, and what follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from engines.errors import MemoryExceeded
from gateway.errors import ERRORS
from gateway.presentation.formatting import counted, duration, memory
from metastore.records import Attempt, Misestimate, QueryRecord, QueryState
from selector.decision import Decision, ReasonCode, Rule
from selector.wording import percent, seconds_of

FAILURES: Mapping[str, str] = {code: error.how_failed for code, error in ERRORS.items() if error.how_failed is not None}

REFUSALS: Mapping[str, str] = {
    code: error.why_refused for code, error in ERRORS.items() if error.why_refused is not None
}

ELSEWHERE: Mapping[ReasonCode, str] = {
    ReasonCode.NO_ESTIMATE: "its memory could not be estimated, and guesses do not open the fast engine",
    ReasonCode.TOO_COMPLEX: "estimating its memory would have taken too long",
    ReasonCode.STATISTICS_MISSING: "statistics about its tables are missing",
    ReasonCode.LEARNED_FROM_RUNS: "earlier runs corrected its estimate",
    ReasonCode.MISESTIMATE_ON_RECORD: "the same statement ran out of memory on the fast engine before",
    ReasonCode.UNSUPPORTED_FEATURE: "the fast engine cannot run it",
    ReasonCode.DIALECT: "the fast engine might answer it differently",
    ReasonCode.ENGINE_DOWN: "the fast engine was not available at that moment",
    ReasonCode.NO_FAST_ENGINE: "no fast engine is configured",
    ReasonCode.WRITE: "it writes, which the fast engine never does",
    ReasonCode.PARTIAL_ACCESS: "its user may see a part of its tables alone",
}


WEIGHED: Mapping[ReasonCode, str] = {
    ReasonCode.FITS: "trying it first is what takes least on average",
    ReasonCode.WORTH_A_TRY: "trying it first takes least on average, though it may not fit",
    ReasonCode.EXCEEDS_LIMIT: "trying that first would take longer on average",
    ReasonCode.NOT_WORTH_THE_RISK: "the risk is not worth what it would save",
    ReasonCode.FASTER_ELSEWHERE: "there it would not be faster",
    ReasonCode.EXPLORATION: "it was worth finding out whether it fits there",
}


class Tone(StrEnum):
    """Colour of a step; its words say the same."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a query's life."""

    heading: str
    text: str
    tone: Tone = Tone.PLAIN
    code: str | None = None
    """Code of the reason or the error."""


def failed_over(record: QueryRecord) -> bool:
    """Tell whether an engine failed, and another one took over."""
    return len(record.attempts) > 1


def failure(attempt: Attempt) -> str:
    """Return how an attempt failed, as the end of a sentence that begins with the engine."""
    return FAILURES.get(attempt.failure or "", "failed")


def headline(record: QueryRecord) -> str:
    """Return the state of a query in one sentence."""
    before = " ".join(f"{attempt.engine} {failure(attempt)}." for attempt in record.attempts[:-1])
    last = record.attempts[-1] if record.attempts else None
    match record.state:
        case QueryState.QUEUED if last is not None:
            return f"{before} Waiting for {last.engine}.".strip()
        case QueryState.QUEUED:
            return "Waiting for its decision."
        case QueryState.RUNNING:
            running = last.engine if last is not None and not last.state.ended else record.engine
            return f"{before} {f'Running on {running} now' if running else 'About to run'}.".strip()
        case QueryState.FINISHED if before:
            return f"{before} {record.engine} answered instead, under the same query id."
        case QueryState.FINISHED if record.decision is not None and record.decision.is_cached:
            return f"Answered from the cache, with a result of {record.engine}'s."
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
    """Return the engine that was chosen, and why, in one sentence."""
    if decision.is_cached:
        return decision.reasons[0].text
    engine = decision.engine
    then = decision.ranking[1:]
    line = f" Next in line: {', then '.join(then)}." if then else ""
    if not decision.reasons:
        return f"It was sent to {engine}, the first engine that takes it.{line}"
    code = decision.reasons[0].code
    if code is ReasonCode.PINNED:
        return f"It was sent to {engine} because the client asked for it by name; it runs nowhere else."
    if code is ReasonCode.RULE:
        return f"It was sent to {engine}. {decision.reasons[0].text}{line}"
    why = _weighed(decision, code) or ELSEWHERE.get(code, code.value)
    return f"It was sent to {engine} because {why}.{line}"


def _weighed(decision: Decision, code: ReasonCode) -> str | None:
    """Return the prices that decided, if they did."""
    considered = decision.price(decision.estimated_for or "")
    elsewhere = next((price for price in decision.prices if price.engine != decision.estimated_for), None)
    if considered is None or considered.fits is None or code not in WEIGHED:
        return WEIGHED.get(code)
    fits = f"it fits into {considered.engine} with a probability of {percent(considered.fits)}"
    expected = f"{fits} (expected peak {memory(decision.estimate.peak_bytes)}, limit {memory(decision.limit_bytes)})"
    if elsewhere is None:
        return expected
    if decision.rule is not Rule.EXPECTED:
        return f"{expected}, and the policy {decision.rule} decides"
    here_s, there_s, miss_s = map(seconds_of, (considered.seconds, elsewhere.seconds, considered.miss_s))
    costs = f"takes {here_s} there and {there_s} on {elsewhere.engine}, and a miss costs {miss_s}"
    return f"{expected}, {costs}: {WEIGHED[code]}"


def steps(record: QueryRecord, misestimates: Sequence[Misestimate]) -> tuple[Step, ...]:
    """Return the steps of a query in order. misestimates: those on record of its statement now."""
    timeline: list[Step] = []
    decision = record.decision
    if decision is not None:
        code = decision.reasons[0].code.value if decision.reasons else None
        heading, tone = f"Sent to {decision.engine}", Tone.PLAIN
        if decision.is_cached:
            heading, tone = "Answered from the cache", Tone.GOOD
        timeline.append(Step(heading, decision_sentence(decision), tone, code))
    timeline += [_attempt(record, attempt) for attempt in record.attempts]
    missed = next((attempt for attempt in record.attempts if attempt.failure == MemoryExceeded.code), None)
    if missed is not None:
        timeline.append(_next_time(record, missed, misestimates))
    return tuple(timeline)


def _attempt(record: QueryRecord, attempt: Attempt) -> Step:
    engine = attempt.engine
    match attempt.state:
        case QueryState.FINISHED:
            rows = counted(attempt.rows, "row") if attempt.rows is not None else "its rows"
            again = " ran it again under the same query id and" if attempt.ordinal > 1 else ""
            text = f"{engine}{again} returned {rows} in {duration(attempt.wall_s)}."
            if len(record.attempts) > 1:
                text += " The client saw one query and one answer."
            return Step(f"{engine} answered", text, Tone.GOOD)
        case QueryState.QUEUED:
            return Step(f"It waits for {engine}", "It begins once it has its lease.")
        case QueryState.RUNNING:
            return Step(f"{engine} is running it", "No row leaves the gateway before the attempt has succeeded.")
        case _:
            after = f" after {duration(attempt.wall_s)}" if attempt.wall_s is not None else ""
            peak = f", at {memory(attempt.peak_bytes)}" if attempt.peak_bytes is not None else ""
            text = f"{engine} {failure(attempt)}{after}{peak}."
            if attempt is not record.attempts[-1]:
                text += " No row of it had reached the client."
            return Step(f"{engine} {failure(attempt)}", text, Tone.BAD, attempt.failure)


def _next_time(record: QueryRecord, missed: Attempt, misestimates: Sequence[Misestimate]) -> Step:
    if not any(misestimate.engine == missed.engine for misestimate in misestimates):
        text = f"The miss is no longer on record: the next run may try {missed.engine} again."
        return Step("Next time", text, Tone.NOTE)
    others = [attempt for attempt in record.attempts if attempt.engine != missed.engine]
    later = [attempt.engine for attempt in others if attempt.ordinal > missed.ordinal]
    where = f"straight to {later[0]}" if later else f"past {missed.engine}"
    text = f"The miss is on record. While statistics and limit stay as they are, the same statement goes {where}."
    return Step("Next time", text, Tone.NOTE, ReasonCode.MISESTIMATE_ON_RECORD.value)
