"""What is decided about, how, and what comes of it: values alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from selector.estimate import UNKNOWN, MemoryEstimate
from selector.forecast.history import Expectation

if TYPE_CHECKING:
    from selector.forecast.experience import Forecast


class ReasonCode(StrEnum):
    """Stable names of reasons, for programs and for the documentation."""

    FITS = "FITS"
    WORTH_A_TRY = "WORTH_A_TRY"
    EXCEEDS_LIMIT = "EXCEEDS_LIMIT"
    NOT_WORTH_THE_RISK = "NOT_WORTH_THE_RISK"
    FASTER_ELSEWHERE = "FASTER_ELSEWHERE"
    EXPLORATION = "EXPLORATION"
    NO_ESTIMATE = "NO_ESTIMATE"
    TOO_COMPLEX = "TOO_COMPLEX"
    STATISTICS_MISSING = "STATISTICS_MISSING"
    LEARNED_FROM_RUNS = "LEARNED_FROM_RUNS"
    MISESTIMATE_ON_RECORD = "MISESTIMATE_ON_RECORD"
    PINNED = "PINNED"
    RULE = "RULE"
    UNSUPPORTED_FEATURE = "UNSUPPORTED_FEATURE"
    DIALECT = "DIALECT"
    ENGINE_DOWN = "ENGINE_DOWN"
    NO_FAST_ENGINE = "NO_FAST_ENGINE"
    WRITE = "WRITE"
    CACHED = "CACHED"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. text: a sentence for people."""

    code: ReasonCode
    text: str


class Rule(StrEnum):
    """What decides between engines that can all run a statement."""

    EXPECTED = "expected"
    """The least expected seconds, running out of memory included."""

    SAFE = "safe"
    """The fast engine only where running out of memory is improbable."""

    PAPER = "paper"
    """The fast engine where the paper's Eqs. (4) and (5) say that it fits."""


class RuleAction(StrEnum):
    """What a routing rule says of engines."""

    ALLOW = "allow"
    """It runs on these alone."""

    PREFER = "prefer"
    """Those of these in which it probably fits are tried first, in this order; the others come after them."""

    PIN = "pin"
    """This one is tried first, whatever is expected of it; the others come after it."""

    STRICT = "strict"
    """It runs here and nowhere else."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a routing rule demands of a ranking. rule: its name. engines: of PIN and STRICT, one."""

    rule: str
    action: RuleAction
    engines: tuple[str, ...]

    @property
    def only(self) -> tuple[str, ...] | None:
        """The engines that the statement may run on, None for all."""
        return self.engines if self.action in (RuleAction.ALLOW, RuleAction.STRICT) else None

    @property
    def first(self) -> tuple[str, ...]:
        """The engines that go before the others."""
        return self.engines if self.action in (RuleAction.PREFER, RuleAction.PIN) else ()

    @property
    def reason(self) -> Reason:
        """The same as a reason."""
        names = " or ".join(self.engines)
        says = {
            RuleAction.ALLOW: f"lets it run on {names} alone",
            RuleAction.PREFER: f"prefers {', then '.join(self.engines)}",
            RuleAction.PIN: f"has {names} tried first",
            RuleAction.STRICT: f"has it run on {names} and nowhere else",
        }
        return Reason(ReasonCode.RULE, f"The routing rule '{self.rule}' {says[self.action]}.")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine as seen now.

    limit_bytes: memory that one statement may take there; None where the engine spills instead of failing.
    threads: that would work for it, which the estimate is for; None where nothing is estimated.
    down: why it is not available, None if it is. unsupported: why it cannot run this statement.
    no_equivalent: what of it would mean something else there.
    forecast: what the statement takes there; None of one that cannot run it.
    wait_s: until a slot is free. held_s: seconds that others wait longer because it is taken.
    misestimates: query ids of runs of this statement that ran out of memory there, on the same ground.
    missed_bytes: the largest limit of those runs. lease_bytes: that it would be leased; None: the limit.
    """

    engine: str
    dependable: bool
    limit_bytes: int | None = None
    down: str | None = None
    unsupported: str | None = None
    no_equivalent: str | None = None
    forecast: Forecast | None = None
    wait_s: float = 0.0
    held_s: float = 0.0
    misestimates: tuple[str, ...] = ()
    missed_bytes: int | None = None
    lease_bytes: int | None = None
    threads: int | None = None

    @property
    def estimate(self) -> MemoryEstimate:
        """What the statement takes there, as runs corrected it."""
        return self.forecast.estimate if self.forecast else UNKNOWN

    @property
    def fits(self) -> float | None:
        """Probability that the statement's peak is not above the limit; None where nothing is known of it."""
        if self.limit_bytes is None:
            return 1.0
        peak = self.forecast.peak if self.forecast else None
        return peak.below(self.limit_bytes) if peak else None


@dataclass(frozen=True, slots=True)
class RoutingPolicy:
    """How to decide.

    safe_miss: the largest probability of running out of memory, by the rule ``safe``.
    miss_price_s: what a statement that runs out of memory costs beside its own seconds, such as others' memory.
    lease_by_estimate: whether a statement is leased what it is likely to need instead of the whole limit.
    explore: whether a template that always ran elsewhere is tried once caution has cost as much as a try would.
    seed: of the thresholds of such tries.
    """

    rule: Rule = Rule.EXPECTED
    safe_miss: float = 0.05
    miss_price_s: float = 0.0
    explore: bool = True
    seed: int = 0
    lease_by_estimate: bool = True


@dataclass(frozen=True, slots=True)
class Remedy:
    """What would let a statement into the fast engine that it is kept out of: all of it together.

    limit_bytes: that it would have to give one statement, at least; None where the limit is not in the way.
    blocked: what no limit lifts.
    """

    engine: str
    limit_bytes: int | None = None
    blocked: tuple[ReasonCode, ...] = ()


@dataclass(frozen=True, slots=True)
class EnginePrice:
    """What a statement is expected to cost on one engine, in seconds.

    fits: probability that it fits, None where nothing is known. seconds: if it does; model_s: by its work alone.
    miss_s: until it runs out of memory, if it does. wait_s: until a slot is free. held_s: that others wait longer.
    first_s: expected in all if this engine is tried first, and the others after it; None of one that may not run it.
    model_bytes: its peak by the memory model alone, None where nothing is known.
    lease_bytes: of memory, None of an engine that spills. whole_pays: whether it is tried again with the whole limit,
    if that lease was too small.
    """

    engine: str
    fits: float | None
    seconds: float
    model_s: float
    miss_s: float
    wait_s: float
    held_s: float
    first_s: float | None
    model_bytes: int | None = None
    lease_bytes: int | None = None
    whole_pays: bool = False


@dataclass(frozen=True, slots=True)
class EngineEstimate:
    """What a statement takes on one fast engine, and what that gives one statement.

    threads: that work for it there, None where that is not known.
    """

    engine: str
    estimate: MemoryEstimate
    limit_bytes: int | None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a statement goes.

    ranking: engines in the order in which they are tried; the first is ``engine``.
    estimate, limit_bytes, threads: of the fast engine that the statement goes to, or that was considered first;
        estimated_for is its name. others: the same of the other fast engines.
    remedy: of that engine, where no fast one is in the ranking; None for a pinned statement.
    strict: it runs on the engine and nowhere else, because its client or a routing rule says so. matched: the name of
        the routing rule that it met, None where it met none.
    rule: that decided. prices: of all engines that were considered. turning_bytes: the least limit with which that
        engine is tried; None where no limit decides.
    """

    engine: str
    ranking: tuple[str, ...]
    reasons: tuple[Reason, ...]
    estimate: MemoryEstimate
    limit_bytes: int | None
    remedy: Remedy | None = None
    estimated_for: str | None = None
    others: tuple[EngineEstimate, ...] = ()
    rule: Rule = Rule.EXPECTED
    prices: tuple[EnginePrice, ...] = ()
    turning_bytes: int | None = None
    strict: bool = False
    matched: str | None = None
    threads: int | None = None

    @property
    def is_cached(self) -> bool:
        """Whether the result of an earlier run on the engine is the answer, so that none was asked."""
        return any(reason.code is ReasonCode.CACHED for reason in self.reasons)

    @property
    def codes(self) -> str:
        """The codes of the reasons, with commas between them."""
        return ", ".join(dict.fromkeys(reason.code.value for reason in self.reasons))

    def on(self, engine: str) -> EngineEstimate | None:
        """Return what was expected of an engine; None of a dependable one, and of one that was not considered."""
        if engine == self.estimated_for:
            return EngineEstimate(engine, self.estimate, self.limit_bytes, self.threads)
        return next((each for each in self.others if each.engine == engine), None)

    def price(self, engine: str) -> EnginePrice | None:
        """Return what was expected to be paid on an engine; None where it was not considered."""
        return next((each for each in self.prices if each.engine == engine), None)

    def expectation(self, engine: str) -> Expectation:
        """Return what the models alone expected of an engine, which runs are held against."""
        considered, price = self.on(engine), self.price(engine)
        model_s, model_bytes = (price.model_s, price.model_bytes) if price else (None, None)
        if considered is None:
            return Expectation(seconds=model_s)
        if model_bytes is None:  # as in decisions of before, and where there is no forecast
            model_bytes = (considered.estimate.learned or considered.estimate).peak_bytes
        return Expectation(model_bytes, considered.estimate.uncertainty, considered.limit_bytes, model_s)


class NoEngine(Exception):
    """No candidate can take the statement. reasons: why, one each.

    only: engines that it may run on; None for all. matched: as of Decision.
    """

    matched: str | None = None

    def __init__(self, reasons: Sequence[Reason], *, only: tuple[str, ...] | None = None) -> None:
        super().__init__("; ".join(reason.text for reason in reasons) or "no engine is configured")
        self.reasons = tuple(reasons)
        self.only = only
