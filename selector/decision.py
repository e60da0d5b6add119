"""Values of a decision: candidates, the policy, a routing rule's demand, and the ranking with its reasons."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from selector.estimate import UNKNOWN, MemoryEstimate
from selector.forecast.history import Expectation

if TYPE_CHECKING:
    from selector.forecast.experience import Forecast


WITHHELD = "(withheld: it tells of rows or columns that the user may not see)"


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
    PARTIAL_ACCESS = "PARTIAL_ACCESS"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. text: a sentence for people."""

    code: ReasonCode
    text: str


class Rule(StrEnum):
    """Criterion by which one of several able engines is chosen."""

    EXPECTED = "expected"
    """The least expected seconds, running out of memory included."""

    SAFE = "safe"
    """The fast engine only where running out of memory is improbable."""

    PAPER = "paper"
    """The fast engine where the paper's Eqs. (4) and (5) say that it fits."""


class RuleAction(StrEnum):
    """Effect of a routing rule on the engines that it names."""

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
    """A routing rule's effect on a ranking. rule: its name. engines: one alone for PIN and STRICT."""

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
        """Expected memory there, as runs corrected it."""
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
    """Settings of the decision.

    safe_miss: largest probability of running out of memory that the rule ``safe`` accepts.
    miss_price_s: seconds added for each out-of-memory, for its cost to other statements.
    lease_by_estimate: lease the memory that a statement is likely to need, not the whole limit.
    explore: try a template that always ran elsewhere once caution has cost as much as a try.
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
    """All changes that together would let a statement run on the fast engine.

    limit_bytes: smallest sufficient limit for one statement; None where the limit is not in the way.
    blocked: reasons that no limit removes.
    """

    engine: str
    limit_bytes: int | None = None
    blocked: tuple[ReasonCode, ...] = ()


@dataclass(frozen=True, slots=True)
class EnginePrice:
    """Expected cost of a statement on one engine, in seconds.

    fits: probability that it fits; None: unknown.
    seconds: run time if it fits. model_s: the same by its work alone, without what runs corrected.
    miss_s: time until it runs out of memory, if it does.
    wait_s: time until a slot is free. held_s: additional waiting of other statements.
    first_s: expected total if this engine is tried first; None: it may not run the statement.
    model_bytes: peak by the memory model alone; None: unknown.
    lease_bytes: memory that is leased; None: the engine spills.
    whole_pays: a retry with the whole limit pays if the lease was too small.
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
    """Memory that a statement takes on one fast engine, and the engine's limit for one statement.

    threads: used by the statement; None: unknown.
    """

    engine: str
    estimate: MemoryEstimate
    limit_bytes: int | None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class TableRead:
    """Files of one table that a statement reads.

    snapshot: Delta's version, Iceberg's snapshot id, or the fingerprint of the list of a plain table's files.
    manifest: name of the stored list of the files.
    """

    snapshot: str
    files: int
    bytes: int
    manifest: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Engines for a statement, in the order in which they are tried, with every reason.

    ranking: all engines to try; the first is ``engine``.
    estimate, limit_bytes, threads: of the fast engine ``estimated_for``: the chosen one, or else the first considered.
    others: the same of the other fast engines.
    remedy: for ``estimated_for``, where no fast engine is in the ranking; None for a pinned statement.
    strict: the client or a routing rule allows no other engine.
    matched: name of the routing rule that applied; None: no rule did.
    rule: criterion of the choice.
    prices: of all engines that were considered.
    turning_bytes: smallest limit with which ``estimated_for`` is tried; None: no limit decides.
    reads: files that the statement reads, by names of tables.
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
    reads: Mapping[str, TableRead] = field(default_factory=dict)

    @property
    def snapshots(self) -> Mapping[str, str]:
        """Ids of the snapshots that the statement reads, by names of tables."""
        return {name: read.snapshot for name, read in self.reads.items()}

    @property
    def is_cached(self) -> bool:
        """Tell whether the result of an earlier run on the engine is the answer, so that none was asked."""
        return any(reason.code is ReasonCode.CACHED for reason in self.reasons)

    @property
    def is_of_parts(self) -> bool:
        """Tell whether the statement's user may see a part of its tables alone."""
        return any(reason.code is ReasonCode.PARTIAL_ACCESS for reason in self.reasons)

    def of_parts(self, names: Collection[str]) -> Decision:
        """Return the decision with the reason why it is not shown whole. names: tables that the user sees in part."""
        if not names:
            return self
        reason = Reason(ReasonCode.PARTIAL_ACCESS, f"Its user may see a part of {', '.join(sorted(names))} alone.")
        return replace(self, reasons=(*self.reasons, reason))

    def without_expectations(self) -> Decision:
        """Return the decision without anything that statistics or sizes of tables tell."""
        return replace(
            self,
            reasons=tuple(replace(reason, text=WITHHELD) for reason in self.reasons),
            estimate=MemoryEstimate(None, None),
            remedy=None,
            others=(),
            prices=(),
            turning_bytes=None,
            reads={},
        )

    @property
    def codes(self) -> str:
        """The codes of the reasons, with commas between them."""
        return ", ".join(dict.fromkeys(reason.code.value for reason in self.reasons))

    def on(self, engine: str) -> EngineEstimate | None:
        """Return what was expected of an engine; None of a dependable one, and of one that was not considered."""
        if engine == self.estimated_for:
            return EngineEstimate(engine, self.estimate, self.limit_bytes, self.threads)
        return next((other for other in self.others if other.engine == engine), None)

    def price(self, engine: str) -> EnginePrice | None:
        """Return what was expected to be paid on an engine; None where it was not considered."""
        return next((price for price in self.prices if price.engine == engine), None)

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
