"""Candidates, an estimate and history in; a ranking out, with every reason that had a say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from selector.estimate import UNKNOWN, MemoryEstimate

MIB = 1 << 20


class ReasonCode(StrEnum):
    """Stable names of reasons, for programs and for the documentation."""

    FITS = "FITS"
    EXCEEDS_LIMIT = "EXCEEDS_LIMIT"
    NO_ESTIMATE = "NO_ESTIMATE"
    TOO_COMPLEX = "TOO_COMPLEX"
    LOW_CONFIDENCE = "LOW_CONFIDENCE"
    STATISTICS_MISSING = "STATISTICS_MISSING"
    LEARNED_FROM_RUNS = "LEARNED_FROM_RUNS"
    MISESTIMATE_ON_RECORD = "MISESTIMATE_ON_RECORD"
    PINNED = "PINNED"
    UNSUPPORTED_FEATURE = "UNSUPPORTED_FEATURE"
    DIALECT = "DIALECT"
    ENGINE_DOWN = "ENGINE_DOWN"
    NO_FAST_ENGINE = "NO_FAST_ENGINE"
    WRITE = "WRITE"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. text: a sentence for people."""

    code: ReasonCode
    text: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine as seen now.

    limit_bytes: memory that one statement may take there; None where the engine spills instead of failing.
    down: why it is not available, None if it is. unsupported: why it cannot run this statement.
    no_equivalent: what of it would mean something else there.
    estimate: what the statement takes there, of a fast engine.
    misestimates: query ids of runs of this statement that ran out of memory there, under these statistics and
        this limit. missed_bytes: the largest limit of those runs.
    """

    engine: str
    dependable: bool
    limit_bytes: int | None = None
    down: str | None = None
    unsupported: str | None = None
    no_equivalent: str | None = None
    estimate: MemoryEstimate = UNKNOWN
    misestimates: tuple[str, ...] = ()
    missed_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RoutingPolicy:
    """What to do with guesses. minimum_confidence: below it an estimate does not open the fast engine."""

    minimum_confidence: float = 0.3


@dataclass(frozen=True, slots=True)
class Remedy:
    """What would let a statement into the fast engine that it is kept out of: all of it together.

    limit_bytes: that it would have to give one statement, at least; None where the limit is not in the way.
    confidence: that the estimate would have to have, at least; None where it has enough.
    blocked: what neither of them lifts.
    """

    engine: str
    limit_bytes: int | None = None
    confidence: float | None = None
    blocked: tuple[ReasonCode, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineEstimate:
    """What a statement takes on one fast engine, and what that gives one statement."""

    engine: str
    estimate: MemoryEstimate
    limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a statement goes.

    ranking: engines in the order in which they are tried; the first is ``engine``.
    estimate, limit_bytes: of the fast engine that the statement goes to, or that was considered first; estimated_for is
        its name. others: the same of the other fast engines.
    remedy: of that engine, where no fast one is in the ranking; None for a pinned statement.
    """

    engine: str
    ranking: tuple[str, ...]
    reasons: tuple[Reason, ...]
    estimate: MemoryEstimate
    limit_bytes: int | None
    remedy: Remedy | None = None
    estimated_for: str | None = None
    others: tuple[EngineEstimate, ...] = ()

    @property
    def codes(self) -> str:
        """The codes of the reasons, with commas between them."""
        return ", ".join(dict.fromkeys(reason.code.value for reason in self.reasons))

    def on(self, engine: str) -> EngineEstimate | None:
        """Return what was expected of an engine; None of a dependable one, and of one that was not considered."""
        if engine == self.estimated_for:
            return EngineEstimate(engine, self.estimate, self.limit_bytes)
        return next((each for each in self.others if each.engine == engine), None)


class NoEngine(Exception):
    """No candidate can take the statement. reasons: why, one each."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        super().__init__("; ".join(reason.text for reason in reasons) or "no engine is configured")
        self.reasons = tuple(reasons)


def decide(candidates: Sequence[Candidate], *, policy: RoutingPolicy, pinned: str | None = None) -> Decision:
    """Rank the candidates: fast ones that the statement fits into first, then the dependable ones.

    A fast engine that is ruled out is not in the ranking at all: failing over INTO a place where the statement
    does not fit would only cost time. Where no dependable engine can ever run the statement, it may try. A pinned
    engine stands alone, and failover obeys that.
    """
    if pinned is not None:
        return _pinned(candidates, pinned)
    reasons: list[Reason] = []
    fast = [candidate for candidate in candidates if not candidate.dependable]
    dependable = [candidate for candidate in candidates if candidate.dependable]
    if not fast:
        reasons.append(Reason(ReasonCode.NO_FAST_ENGINE, "No fast engine is configured."))
    ranking: list[Candidate] = []
    for candidate in fast:
        fits, why = _fits(candidate, candidate.estimate, policy)
        reasons += why
        if fits:
            ranking.append(candidate)
    for candidate in dependable:
        why = _obstacles(candidate)
        reasons += why
        if not why:
            ranking.append(candidate)
    if not ranking and dependable and all(candidate.unsupported is not None for candidate in dependable):
        # A guess about memory only matters where there is somewhere else to go.
        ranking = [candidate for candidate in fast if not _obstacles(candidate)]
        if ranking:
            text = f"No dependable engine can run it, so that {ranking[0].engine} tries, whatever its memory may be."
            reasons.append(Reason(ReasonCode.UNSUPPORTED_FEATURE, text))
    if not ranking:
        raise NoEngine(reasons)
    weighed = _weighed(ranking[0], fast)
    estimate = weighed.estimate if weighed else UNKNOWN
    if estimate.learned is not None:
        reasons.append(Reason(ReasonCode.LEARNED_FROM_RUNS, estimate.learned.text))
    reasons += [Reason(ReasonCode.STATISTICS_MISSING, gap) for gap in estimate.gaps]
    remedy = _remedy(weighed, estimate, policy) if weighed and ranking[0].dependable else None
    return _decision([candidate.engine for candidate in ranking], reasons, weighed, fast, remedy)


def decide_write(candidates: Sequence[Candidate], *, pinned: str | None = None) -> Decision:
    """Choose the engine that writes: the first dependable one that can. There is no other to fail over to.

    A write that was broken off may have happened in part, so that nobody may send it again unasked. Raises NoEngine.
    """
    obstacles: list[Reason] = []
    for candidate in candidates:
        if not candidate.dependable or (pinned is not None and candidate.engine != pinned):
            continue
        why = _obstacles(candidate)
        if not why:
            reason = Reason(ReasonCode.WRITE, f"It writes: that is {candidate.engine}'s, and it runs nowhere else.")
            return Decision(candidate.engine, (candidate.engine,), (reason,), UNKNOWN, None)
        obstacles += why
    raise NoEngine(
        obstacles or [Reason(ReasonCode.WRITE, f"{pinned or 'no engine that is configured'} does not write.")]
    )


def _weighed(chosen: Candidate, fast: Sequence[Candidate]) -> Candidate | None:
    """Return the fast engine that a decision is about: the one that was chosen, or else the first with an estimate."""
    if not chosen.dependable:
        return chosen
    known = (candidate for candidate in fast if candidate.estimate.known)
    return next(known, fast[0] if fast else None)


def _decision(
    ranking: Sequence[str],
    reasons: Sequence[Reason],
    weighed: Candidate | None,
    fast: Sequence[Candidate],
    remedy: Remedy | None = None,
) -> Decision:
    return Decision(
        ranking[0],
        tuple(ranking),
        tuple(reasons),
        weighed.estimate if weighed else UNKNOWN,
        weighed.limit_bytes if weighed else None,
        remedy,
        estimated_for=weighed.engine if weighed else None,
        others=tuple(EngineEstimate(c.engine, c.estimate, c.limit_bytes) for c in fast if c is not weighed),
    )


def _pinned(candidates: Sequence[Candidate], name: str) -> Decision:
    candidate = next(candidate for candidate in candidates if candidate.engine == name)
    obstacles = _obstacles(candidate)
    if obstacles:
        raise NoEngine(obstacles)
    reason = Reason(ReasonCode.PINNED, f"The statement asked for {name}; it runs nowhere else.")
    fast = [candidate for candidate in candidates if not candidate.dependable]
    return _decision([name], [reason], _weighed(candidate, fast), fast)


def _obstacles(candidate: Candidate) -> list[Reason]:
    obstacles = []
    if candidate.down is not None:
        obstacles.append(Reason(ReasonCode.ENGINE_DOWN, f"{candidate.engine} is not available: {candidate.down}."))
    if candidate.unsupported is not None:
        text = f"{candidate.engine} cannot run it: {candidate.unsupported}"
        obstacles.append(Reason(ReasonCode.UNSUPPORTED_FEATURE, text))
    if candidate.no_equivalent is not None:
        text = f"{candidate.engine} is not known to answer as Spark does: {candidate.no_equivalent}"
        obstacles.append(Reason(ReasonCode.DIALECT, text))
    return obstacles


def _fits(candidate: Candidate, estimate: MemoryEstimate, policy: RoutingPolicy) -> tuple[bool, list[Reason]]:
    reasons = _obstacles(candidate)
    usable = not reasons
    if candidate.misestimates:
        text = (
            f"It ran out of memory on {candidate.engine} before under the same statistics and limit "
            f"(query {candidate.misestimates[-1]})."
        )
        reasons.append(Reason(ReasonCode.MISESTIMATE_ON_RECORD, text))
    if candidate.limit_bytes is None:
        return not reasons, reasons
    if estimate.peak_bytes is None or estimate.upper_bytes is None:
        if estimate.too_complex is not None:
            reasons.append(Reason(ReasonCode.TOO_COMPLEX, f"Its memory was not estimated: {estimate.too_complex}"))
        elif not reasons:
            reasons.append(Reason(ReasonCode.NO_ESTIMATE, "Its memory could not be estimated."))
        return False, reasons
    text = (
        f"estimated peak {mebibytes(estimate.peak_bytes)}, at most {mebibytes(estimate.upper_bytes)}, of the "
        f"{mebibytes(candidate.limit_bytes)} that {candidate.engine} gives one statement."
    )
    if estimate.upper_bytes > candidate.limit_bytes:
        return False, [*reasons, Reason(ReasonCode.EXCEEDS_LIMIT, f"Does not fit: {text}")]
    if estimate.confidence < policy.minimum_confidence:
        low = f"confidence {estimate.confidence:.2f} is below {policy.minimum_confidence:.2f}; {text}"
        return False, [*reasons, Reason(ReasonCode.LOW_CONFIDENCE, f"Too uncertain: {low}")]
    if not usable:
        return False, reasons
    conclusion = "By the estimate it would fit" if reasons else "Fits"
    return not reasons, [*reasons, Reason(ReasonCode.FITS, f"{conclusion}: {text}")]


def _remedy(candidate: Candidate, estimate: MemoryEstimate, policy: RoutingPolicy) -> Remedy:
    blocked = [reason.code for reason in _obstacles(candidate)]
    if candidate.limit_bytes is None:
        missed = [ReasonCode.MISESTIMATE_ON_RECORD] if candidate.misestimates else []
        return Remedy(candidate.engine, blocked=(*blocked, *missed))
    if estimate.upper_bytes is None:
        return Remedy(candidate.engine, blocked=(*blocked, ReasonCode.NO_ESTIMATE))
    needed = max(estimate.upper_bytes, (candidate.missed_bytes or 0) + 1 if candidate.misestimates else 0)
    return Remedy(
        engine=candidate.engine,
        limit_bytes=needed if needed > candidate.limit_bytes else None,
        confidence=policy.minimum_confidence if estimate.confidence < policy.minimum_confidence else None,
        blocked=tuple(blocked),
    )


def mebibytes(count: int) -> str:
    """Write bytes for people."""
    return f"{count / MIB:,.0f} MiB" if count >= 10 * MIB else f"{count / MIB:,.1f} MiB"
