"""START HERE: candidates with their forecasts in; a ranking out, with its price and every reason that had a say.

By the rule ``expected``, the order of engines with the least expected seconds is taken:

    E[fast first] = wait + P(fits) * seconds + (1 - P(fits)) * (seconds until it runs out of memory + E[the others])
    E[dependable] = wait + seconds

What a wrong guess costs is so weighed against what caution costs, whichever is dear on these engines. Engines that the
statement cannot run on, or where it ran out of memory before, are not in the ranking at all. What a routing rule
demands bends that order, or limits it.

It is long because everything that has a say in a ranking stands here, side by side.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace

from selector.decision import (
    Candidate,
    Decision,
    Demand,
    EngineEstimate,
    EnginePrice,
    NoEngine,
    Reason,
    ReasonCode,
    Remedy,
    RoutingPolicy,
    Rule,
    RuleAction,
)
from selector.estimate import UNKNOWN
from selector.forecast.experience import Forecast
from selector.forecast.history import SMALLEST_BYTES
from selector.wording import mebibytes, percent, seconds_of

LIKELY = 0.5  # to fit: where there is nowhere else to go now, less than that waits until there is
SMALLER = 0.5  # share of a limit that is looked at next, in search of one that is not enough
TURNING_SHARE = 1 / 128  # of a limit, to which the one is known from which an engine is tried
COMES_BACK = 2.0  # times that a statement is expected to be asked again


def decide(
    candidates: Sequence[Candidate],
    *,
    policy: RoutingPolicy,
    pinned: str | None = None,
    template: str = "",
    demand: Demand | None = None,
) -> Decision:
    """Rank the candidates by the policy's rule.

    A fast engine that is ruled out is not in the ranking at all: failing over INTO a place where the statement
    does not fit would only cost time. Where no dependable engine can ever run the statement, it may try. A pinned
    engine stands alone, and failover obeys that. template: of the statement, for what chance decides. demand: of a
    routing rule; what the client asks for by name goes before it. Raises NoEngine.
    """
    if pinned is not None:
        reason = Reason(ReasonCode.PINNED, f"The statement asked for {pinned}; it runs nowhere else.")
        return _alone(candidates, pinned, reason, policy)
    if demand is not None and demand.action is RuleAction.STRICT:
        return _alone(candidates, demand.engines[0], demand.reason, policy)
    if demand is not None:
        return _demanded(candidates, demand, policy, template)
    return _ranked(candidates, policy, template)


def _demanded(candidates: Sequence[Candidate], demand: Demand, policy: RoutingPolicy, template: str) -> Decision:
    """Rank the candidates that a routing rule leaves, with those before that it puts first."""
    only = demand.only
    allowed = [candidate for candidate in candidates if only is None or candidate.engine in only]
    first = [
        candidate
        for name in demand.first
        for candidate in allowed
        if candidate.engine == name and _goes_first(candidate, demand)
    ]
    try:
        decided = _ranked(allowed, policy, template)
    except NoEngine as none:
        if not first:
            raise NoEngine([demand.reason, *none.reasons], only=only) from none
        decided = _priced(first[0], allowed, policy, none.reasons)
    names = [candidate.engine for candidate in first]
    ranking = (*names, *(name for name in decided.ranking if name not in names))
    if ranking[0] != decided.engine:  # what is said of memory is then of the engine that it goes to
        chosen = next(candidate for candidate in allowed if candidate.engine == ranking[0])
        decided = _priced(chosen, allowed, policy, decided.reasons)
    reasons = [
        candidate for candidate in decided.reasons if only is None or candidate.code is not ReasonCode.NO_FAST_ENGINE
    ]
    return replace(decided, engine=ranking[0], ranking=ranking, reasons=(demand.reason, *reasons), remedy=None)


def _goes_first(candidate: Candidate, demand: Demand) -> bool:
    """Tell whether an engine that a rule names can go first. What is preferred has to fit; what is pinned is tried."""
    if _obstacles(candidate):
        return False
    fits = candidate.dependable or (not candidate.misestimates and (candidate.fits or 0.0) >= LIKELY)
    return fits or demand.action is RuleAction.PIN


def _ranked(candidates: Sequence[Candidate], policy: RoutingPolicy, template: str) -> Decision:
    """Rank the candidates by the policy's rule. Raises NoEngine."""
    fast = [candidate for candidate in candidates if not candidate.dependable]
    able = [engine for engine in candidates if engine.dependable and not _obstacles(engine)]
    able.sort(key=_seconds)
    choice = _Choice(fast, able, policy, template)
    reasons = [] if fast else [Reason(ReasonCode.NO_FAST_ENGINE, "No fast engine is configured.")]
    order = choice.order()
    for candidate in fast:
        reasons += choice.reasons(candidate, order)
    for candidate in candidates:
        if candidate.dependable:
            reasons += _obstacles(candidate)
    ranking = [*order, *able]
    if not ranking and all(engine.unsupported is not None for engine in candidates if engine.dependable):
        # A guess about memory only matters where there is somewhere else to go.
        ranking = [candidate for candidate in fast if not _obstacles(candidate)]
        if ranking:
            none = "can run it" if any(engine.dependable for engine in candidates) else "is there to run it"
            text = f"No dependable engine {none}, so that {ranking[0].engine} tries, whatever its memory may be."
            reasons.append(Reason(ReasonCode.UNSUPPORTED_FEATURE, text))
    if not ranking:
        raise NoEngine(reasons)
    weighed = _weighed(ranking[0], fast)
    estimate = weighed.estimate if weighed else UNKNOWN
    if estimate.learned is not None and estimate.learned.text:
        reasons.append(Reason(ReasonCode.LEARNED_FROM_RUNS, estimate.learned.text))
    reasons += [Reason(ReasonCode.STATISTICS_MISSING, gap) for gap in estimate.gaps]
    decision = _decision([engine.engine for engine in ranking], reasons, weighed, candidates, policy, choice)
    if weighed is None or not ranking[0].dependable:
        return decision
    return replace(decision, remedy=choice.remedy(weighed, decision.turning_bytes))


def decide_write(
    candidates: Sequence[Candidate], *, pinned: str | None = None, demand: Demand | None = None
) -> Decision:
    """Choose the engine that writes: the first dependable one that can. There is no other to fail over to.

    A write that was broken off may have happened in part, so that nobody may send it again unasked. demand: of a
    routing rule; what the client asks for by name goes before it. Raises NoEngine.
    """
    demand = demand if pinned is None else None
    ruled = [demand.reason] if demand else []
    first, only = (demand.first, demand.only) if demand else ((), None)
    obstacles: list[Reason] = []
    for candidate in sorted(candidates, key=lambda one: first.index(one.engine) if one.engine in first else len(first)):
        if not candidate.dependable or (pinned is not None and candidate.engine != pinned):
            continue
        if only is not None and candidate.engine not in only:
            continue
        why = _obstacles(candidate)
        if not why:
            reason = Reason(ReasonCode.WRITE, f"Writes run only on {candidate.engine}.")
            return Decision(candidate.engine, (candidate.engine,), (*ruled, reason), UNKNOWN, None)
        obstacles += why
    unable = pinned or (" and ".join(only) if only else "no engine that is configured")
    none = [Reason(ReasonCode.WRITE, f"{unable} {'do' if only and len(only) > 1 else 'does'} not write.")]
    raise NoEngine([*ruled, *(obstacles or none)], only=only)


def _weighed(chosen: Candidate, fast: Sequence[Candidate]) -> Candidate | None:
    """Return the fast engine that a decision is about: the one that was chosen, or else the first with an estimate."""
    if not chosen.dependable:
        return chosen
    estimated = (candidate for candidate in fast if candidate.estimate.known)
    return next(estimated, fast[0] if fast else None)


class _Choice:
    """The fast engines that a statement may run on, and what trying them first is expected to cost.

    fast: all of them, whether they may run it or not. able: dependable ones that can, the quickest first.
    """

    def __init__(
        self, fast: Sequence[Candidate], able: Sequence[Candidate], policy: RoutingPolicy, template: str
    ) -> None:
        self._fast = fast
        self._able = able
        self._policy = policy
        self._template = template
        self.elsewhere_s = _seconds(able[0]) if able else math.inf

    def order(self) -> list[Candidate]:
        """Return the fast engines to try before the dependable ones, in that order."""
        usable = [candidate for candidate in self._fast if self._usable(candidate)]
        match self._policy.rule:
            case Rule.PAPER:
                return [candidate for candidate in usable if self._fits_by_the_paper(candidate)]
            case Rule.SAFE:
                return [candidate for candidate in usable if 1.0 - (candidate.fits or 0.0) <= self._policy.safe_miss]
            case _ if not self._able:
                likely = [candidate for candidate in usable if (candidate.fits or 0.0) >= LIKELY]
                return sorted(likely, key=lambda candidate: -(candidate.fits or 0.0))
            case _:
                order = self._cheapest(usable)[1]
                return order or [candidate for candidate in usable if self._is_worth_a_try(candidate)][:1]

    def first_s(self, candidate: Candidate) -> float | None:
        """Return the seconds that are expected if this engine is tried first; None of one that may not be."""
        if candidate.dependable:
            return _seconds(candidate) if candidate in self._able else None
        if not self._usable(candidate):
            return None
        others = [other for other in self._fast if other is not candidate and self._usable(other)]
        first_s = self._tried(candidate, self._cheapest(others)[0])
        return first_s if math.isfinite(first_s) else None

    def reasons(self, candidate: Candidate, order: Sequence[Candidate]) -> list[Reason]:
        """Say why a fast engine is in the order, or is not."""
        reasons = _obstacles(candidate)
        if candidate.misestimates:
            query = candidate.misestimates[-1]
            text = f"It ran out of memory on {candidate.engine} with the same limit and statistics, or was about to"
            reasons.append(Reason(ReasonCode.MISESTIMATE_ON_RECORD, f"{text} (query {query})."))
        fits = candidate.fits
        if fits is None:
            if candidate.estimate.too_complex is not None:
                text = f"Its memory was not estimated: {candidate.estimate.too_complex}"
                reasons.append(Reason(ReasonCode.TOO_COMPLEX, text))
            elif not reasons:
                reasons.append(Reason(ReasonCode.NO_ESTIMATE, "Its memory could not be estimated."))
            return reasons
        if reasons:
            return reasons
        code, conclusion = self._conclusion(candidate, fits, candidate in order)
        return [Reason(code, f"{conclusion} {self._numbers(candidate, fits)}")]

    def lease(self, candidate: Candidate) -> tuple[int | None, bool]:
        """Return the bytes to lease, and whether the whole limit is worth a try should they be too few.

        That is so where it then takes less time, on average, than going elsewhere at once. Where by the forecast it
        cannot have been too few, the forecast is wrong, and whether the statement fits is anybody's guess.
        """
        limit, forecast = candidate.limit_bytes, candidate.forecast
        if limit is None:
            return None, False
        lease = candidate.lease_bytes
        if lease is None or forecast is None or forecast.peak is None:
            return limit, False
        above = 1.0 - forecast.peak.below(lease)
        fits = (forecast.peak.below(limit) - forecast.peak.below(lease)) / above if above > 0.0 else LIKELY
        if not math.isfinite(self.elsewhere_s):
            return lease, lease < limit
        again_s = fits * forecast.seconds + (1.0 - fits) * (self._miss_s(forecast) + self.elsewhere_s)
        return lease, lease < limit and again_s < self.elsewhere_s

    def remedy(self, candidate: Candidate, turning: int | None) -> Remedy:
        """Return what would let a statement into a fast engine. turning: the least limit from which it is tried."""
        blocked = [reason.code for reason in _obstacles(candidate)]
        limit = candidate.limit_bytes
        if limit is None:
            missed = [ReasonCode.MISESTIMATE_ON_RECORD] if candidate.misestimates else []
            return Remedy(candidate.engine, blocked=(*blocked, *missed) or (ReasonCode.FASTER_ELSEWHERE,))
        if candidate.fits is None:
            return Remedy(candidate.engine, blocked=(*blocked, ReasonCode.NO_ESTIMATE))
        if turning is None:
            return Remedy(candidate.engine, blocked=(*blocked, ReasonCode.FASTER_ELSEWHERE))
        needed = max(turning, (candidate.missed_bytes or 0) + 1 if candidate.misestimates else 0)
        return Remedy(candidate.engine, limit_bytes=needed if needed > limit else None, blocked=tuple(blocked))

    def turning_bytes(self, candidate: Candidate) -> int | None:
        """Return the least limit from which a fast engine is tried; None where no limit decides about it.

        It is found to within ``TURNING_SHARE``, from above: every statement waits for this. Exploration does not
        count: it is no matter of the limit.
        """
        limit, peak = candidate.limit_bytes, candidate.forecast.peak if candidate.forecast else None
        if limit is None or peak is None:
            return None
        if self._policy.rule is Rule.PAPER:
            return candidate.estimate.paper_bytes

        def is_enough(some_bytes: int) -> bool:
            return peak.below(some_bytes) >= self._enough(candidate, some_bytes)

        most = peak.quantile(1.0)  # everything fits
        if not is_enough(max(limit, most)):
            return None
        least = min(limit, most) if is_enough(limit) else limit
        most = max(least, most)
        while is_enough(least):
            if least <= SMALLEST_BYTES:
                return 0
            most, least = least, int(SMALLER * least)
        while most - least > 1 + int(TURNING_SHARE * least):
            middle = (least + most) // 2
            least, most = (least, middle) if is_enough(middle) else (middle, most)
        return most

    def _usable(self, candidate: Candidate) -> bool:
        return not _obstacles(candidate) and not candidate.misestimates and candidate.fits is not None

    @staticmethod
    def _fits_by_the_paper(candidate: Candidate) -> bool:
        paper_bytes = candidate.estimate.paper_bytes
        return paper_bytes is not None and paper_bytes <= (candidate.limit_bytes or math.inf)

    def _cheapest(self, fast: Sequence[Candidate]) -> tuple[float, list[Candidate]]:
        """Return the least expected seconds, and the fast engines that are tried for them."""
        best: tuple[float, list[Candidate]] = self.elsewhere_s, []
        for candidate in fast:
            rest_s, rest = self._cheapest([other for other in fast if other is not candidate])
            tried_s = self._tried(candidate, rest_s)
            if tried_s < best[0] or (tried_s == best[0] and not best[1]):
                best = tried_s, [candidate, *rest]
        return best

    def _tried(self, candidate: Candidate, rest_s: float) -> float:
        """Return the seconds that are expected if an engine is tried, and then what takes rest_s."""
        forecast, fits = candidate.forecast, candidate.fits or 0.0
        assert forecast is not None
        missed = (1 - fits) * (self._miss_s(forecast) + rest_s) if fits < 1.0 else 0.0
        return candidate.wait_s + candidate.held_s + fits * forecast.seconds + missed

    def _miss_s(self, forecast: Forecast) -> float:
        return forecast.miss_s + self._policy.miss_price_s

    def _is_worth_a_try(self, candidate: Candidate) -> bool:
        """Tell whether finding out pays: if the statement comes back, or because caution has cost as much already.

        The second is ski rental: who tries once caution has cost a random share of the price, at most all of it, pays
        no more than e / (e - 1) of what one who knows would, on average. The share is the template's, so that an
        explanation and a run agree.
        """
        forecast, fits = candidate.forecast, candidate.fits
        if not self._policy.explore or forecast is None or fits is None:
            return False
        premium_s = self._tried(candidate, self.elsewhere_s) - self.elsewhere_s
        saved_s = fits * (self.elsewhere_s - candidate.wait_s - candidate.held_s - forecast.seconds)
        return saved_s * (COMES_BACK + forecast.elsewhere / self._share()) >= premium_s

    def _share(self) -> float:
        digest = hashlib.blake2b(f"{self._policy.seed}/{self._template}".encode(), digest_size=8).digest()
        return math.log1p((1 + int.from_bytes(digest)) / 2**64 * (math.e - 1))

    def _enough(self, candidate: Candidate, limit_bytes: int) -> float:
        """Return the probability of fitting into a limit at which it is tried; above 1 where none is enough."""
        if self._policy.rule is Rule.SAFE:
            return 1.0 - self._policy.safe_miss
        forecast = candidate.forecast
        assert forecast is not None
        if not self._able:
            return LIKELY
        miss_s = forecast.miss_s_with(limit_bytes, candidate.limit_bytes or limit_bytes) + self._policy.miss_price_s
        paid = candidate.wait_s + candidate.held_s + miss_s
        saved = miss_s + self.elsewhere_s - forecast.seconds
        return paid / saved if saved > 0.0 else math.inf

    def _conclusion(self, candidate: Candidate, fits: float, is_tried: bool) -> tuple[ReasonCode, str]:
        engine, elsewhere = candidate.engine, self._able[0].engine if self._able else "elsewhere"
        if is_tried and self._policy.rule is Rule.EXPECTED and self._able:
            forecast = candidate.forecast
            if forecast and (self.first_s(candidate) or 0.0) > self.elsewhere_s:
                ran = _ran_elsewhere(forecast)
                text = f"Tried on {engine} to find out whether it fits ({percent(fits)}); its template {ran}:"
                return ReasonCode.EXPLORATION, text
        if is_tried:
            if fits < LIKELY and self._policy.rule is Rule.EXPECTED:
                text = f"Worth a try on {engine}, though it probably does not fit ({percent(fits)} that it does):"
                return ReasonCode.WORTH_A_TRY, text
            return ReasonCode.FITS, f"Tried on {engine} first, where it probably fits ({percent(fits)}):"
        if self._policy.rule is Rule.PAPER:
            if candidate.estimate.paper_bytes is None:
                return ReasonCode.NO_ESTIMATE, f"The paper's formula says nothing about it on {engine}:"
            paper_peak = mebibytes(candidate.estimate.paper_bytes)
            return (
                ReasonCode.EXCEEDS_LIMIT,
                f"By the paper's formula it takes {paper_peak} and does not fit into {engine}:",
            )
        if fits < LIKELY:
            return ReasonCode.EXCEEDS_LIMIT, f"It probably does not fit into {engine} ({percent(fits)} that it does):"
        expected = self._policy.rule is Rule.EXPECTED
        if expected and candidate.forecast and candidate.forecast.seconds >= self.elsewhere_s:
            return ReasonCode.FASTER_ELSEWHERE, f"{elsewhere} is expected to be faster than {engine}:"
        return (
            ReasonCode.NOT_WORTH_THE_RISK,
            f"It probably fits into {engine} ({percent(fits)}), but a miss costs too much:",
        )

    def _numbers(self, candidate: Candidate, fits: float) -> str:
        """Write all that was weighed."""
        forecast, estimate = candidate.forecast, candidate.estimate
        assert forecast is not None
        parts = []
        if candidate.limit_bytes is not None:
            parts.append(
                f"expected peak {mebibytes(estimate.peak_bytes or 0)}, 95 % of such statements below "
                f"{mebibytes(estimate.upper_bytes or 0)}, limit {mebibytes(candidate.limit_bytes)}"
            )
        parts.append(f"{seconds_of(forecast.seconds)} on {candidate.engine}")
        if self._able:
            parts[-1] += f" or {seconds_of(_seconds(self._able[0]))} on {self._able[0].engine}"
        parts.append(f"{seconds_of(self._miss_s(forecast))} for a miss")
        first_s = self.first_s(candidate)
        if first_s is not None and self._able:
            without = seconds_of(self.elsewhere_s)
            parts.append(f"on average {seconds_of(first_s)} with {candidate.engine} first, {without} without")
        if candidate.wait_s:
            parts.append(f"{seconds_of(candidate.wait_s)} until a slot is free there")
        return "; ".join(parts) + "."


def _ran_elsewhere(forecast: Forecast) -> str:
    times = f"{forecast.elsewhere} time{'s' if forecast.elsewhere > 1 else ''}"
    return f"ran elsewhere {times}" if forecast.elsewhere else "is new here"


def _seconds(candidate: Candidate) -> float:
    """Return what a dependable engine is expected to take, with the wait for it."""
    seconds = candidate.forecast.seconds if candidate.forecast else 0.0
    return candidate.wait_s + candidate.held_s + seconds


def _decision(
    ranking: Sequence[str],
    reasons: Sequence[Reason],
    weighed: Candidate | None,
    candidates: Sequence[Candidate],
    policy: RoutingPolicy,
    choice: _Choice,
) -> Decision:
    fast = [candidate for candidate in candidates if not candidate.dependable]
    prices = [
        EnginePrice(
            candidate.engine,
            candidate.fits,
            candidate.forecast.seconds,
            candidate.forecast.model_s,
            candidate.forecast.miss_s + policy.miss_price_s,
            candidate.wait_s,
            candidate.held_s,
            choice.first_s(candidate),
            candidate.forecast.peak.model_bytes if candidate.forecast.peak else None,
            *choice.lease(candidate),
        )
        for candidate in candidates
        if candidate.forecast is not None
    ]
    return Decision(
        ranking[0],
        tuple(ranking),
        tuple(reasons),
        weighed.estimate if weighed else UNKNOWN,
        weighed.limit_bytes if weighed else None,
        estimated_for=weighed.engine if weighed else None,
        others=tuple(EngineEstimate(c.engine, c.estimate, c.limit_bytes, c.threads) for c in fast if c is not weighed),
        rule=policy.rule,
        prices=tuple(prices),
        turning_bytes=choice.turning_bytes(weighed) if weighed else None,
        threads=weighed.threads if weighed else None,
    )


def _alone(candidates: Sequence[Candidate], name: str, reason: Reason, policy: RoutingPolicy) -> Decision:
    """Return the decision for an engine that was named, outside of which the statement never runs. Raises NoEngine."""
    candidate = next(candidate for candidate in candidates if candidate.engine == name)
    obstacles = _obstacles(candidate)
    if obstacles:
        ruled = [reason] if reason.code is ReasonCode.RULE else []
        raise NoEngine([*ruled, *obstacles], only=(name,))
    return replace(_priced(candidate, candidates, policy, [reason]), strict=True)


def _priced(
    candidate: Candidate, candidates: Sequence[Candidate], policy: RoutingPolicy, reasons: Sequence[Reason]
) -> Decision:
    """Return the decision for one engine, with the prices of all."""
    fast = [other for other in candidates if not other.dependable]
    able = sorted((other for other in candidates if other.dependable and not _obstacles(other)), key=_seconds)
    choice = _Choice(fast, able, policy, "")
    return _decision([candidate.engine], reasons, _weighed(candidate, fast), candidates, policy, choice)


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
