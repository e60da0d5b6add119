"""Decisions are arithmetic over forecasts: what is tried first, why, and what would change that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from selector.decide import COMES_BACK, LIKELY, decide
from selector.decision import (
    Candidate,
    Decision,
    EngineEstimate,
    NoEngine,
    ReasonCode,
    Remedy,
    RoutingPolicy,
    Rule,
)
from selector.estimate import UNKNOWN, Learned, MemoryEstimate
from selector.forecast.distribution import ErrorDistribution
from selector.forecast.experience import Forecast, PeakForecast
from selector.wording import MIB

LIMIT = 1024 * MIB
DEVIATION = 0.3
FAST_S, SLOW_S, MISS_S = 1.0, 20.0, 1.0
SHAPE = ErrorDistribution.of_shape().scaled(0.0, DEVIATION)
EXPECTED = RoutingPolicy()
SAFE = RoutingPolicy(rule=Rule.SAFE)
PAPER = RoutingPolicy(rule=Rule.PAPER)
SMALL, MIDDLE, EVEN, LARGE, HUGE = 100 * MIB, 900 * MIB, LIMIT - 20 * MIB, 2 * LIMIT, 100 * LIMIT


def forecast(
    peak_bytes: int | None = SMALL,
    *,
    seconds: float = FAST_S,
    miss_s: float = MISS_S,
    elsewhere: int = 0,
    paper_bytes: int | None = None,
    **estimate: Any,
) -> Forecast:
    """Return what is expected on a fast engine; its peak is unknown where it is None."""
    if peak_bytes is None:
        return Forecast(replace(UNKNOWN, **estimate), None, seconds, seconds, miss_s, elsewhere)
    peak = PeakForecast(peak_bytes, SHAPE)
    known = MemoryEstimate(peak.quantile(0.5), peak.quantile(0.95), paper_bytes=paper_bytes, **estimate)
    return Forecast(known, peak, seconds, seconds, miss_s, elsewhere)


def fast(
    peak_bytes: int | None = SMALL, *, engine: str = "duckdb", limit: int | None = LIMIT, **fields: Any
) -> Candidate:
    names = Candidate.__dataclass_fields__
    own = {name: fields.pop(name) for name in list(fields) if name in names}
    return Candidate(engine, dependable=False, limit_bytes=limit, forecast=forecast(peak_bytes, **fields), **own)


def spark(seconds: float = SLOW_S, **fields: Any) -> Candidate:
    return Candidate("spark", dependable=True, forecast=forecast(None, seconds=seconds), **fields)


def decided(*candidates: Candidate, policy: RoutingPolicy = EXPECTED, **fields: Any) -> Decision:
    return decide(candidates, policy=policy, **fields)


def codes(decision: Decision) -> list[ReasonCode]:
    return [reason.code for reason in decision.reasons]


def chance_of(candidate: Candidate) -> float:
    assert candidate.fits is not None
    return candidate.fits


def test_what_fits_runs_fast_with_the_dependable_engine_behind_it() -> None:
    decision = decided(fast(), spark())
    assert decision.ranking == ("duckdb", "spark")
    assert codes(decision) == [ReasonCode.FITS]
    assert (decision.limit_bytes, decision.rule) == (LIMIT, Rule.EXPECTED)
    text = decision.reasons[0].text
    assert "Tried on duckdb first, where it probably fits (more than 99 %)" in text
    for number in ("expected peak 100 MiB", "limit 1,024 MiB", "1.0 s on duckdb or 20 s on spark", "1.0 s for a miss"):
        assert number in text


def test_what_cannot_fit_runs_on_the_dependable_engine_alone() -> None:
    decision = decided(fast(HUGE), spark())
    assert decision.ranking == ("spark",)
    assert codes(decision) == [ReasonCode.EXCEEDS_LIMIT]
    assert "It probably does not fit into duckdb (less than 1 % that it does)" in decision.reasons[0].text


def test_expected_seconds_are_what_the_formula_says() -> None:
    here = fast(MIDDLE, wait_s=0.5, held_s=0.25)
    there = spark(wait_s=2.0, held_s=1.0)
    decision = decided(here, there, policy=RoutingPolicy(miss_price_s=3.0))
    here_price, there_price = decision.price("duckdb"), decision.price("spark")
    assert here_price is not None
    assert there_price is not None
    chance = chance_of(here)
    elsewhere_s = 2.0 + 1.0 + SLOW_S
    assert 0.5 < chance < 0.9
    assert there_price.first_s == pytest.approx(elsewhere_s)
    missed_s = MISS_S + 3.0 + elsewhere_s
    assert here_price.first_s == pytest.approx(0.5 + 0.25 + chance * FAST_S + (1 - chance) * missed_s)
    assert (here_price.fits, here_price.seconds, here_price.miss_s) == (chance, FAST_S, MISS_S + 3.0)
    assert decision.price("impala") is None


def test_a_dear_miss_keeps_it_away_and_a_cheap_one_lets_it_try() -> None:
    """The same formula says both: at one second for a miss, or the 34 that the paper's Impala took."""
    unsure = fast(EVEN)
    cheap = decided(unsure, spark(20.0))
    dear = decided(fast(EVEN, miss_s=34.0), spark(20.0), policy=RoutingPolicy(explore=False))
    priced = decided(unsure, spark(20.0), policy=RoutingPolicy(miss_price_s=33.0, explore=False))
    assert (cheap.engine, codes(cheap)) == ("duckdb", [ReasonCode.FITS])
    for decision in (dear, priced):
        assert (decision.engine, codes(decision)) == ("spark", [ReasonCode.NOT_WORTH_THE_RISK])
        assert "34 s for a miss" in decision.reasons[0].text
    assert decided(fast(EVEN, miss_s=34.0), spark(500.0)).engine == "duckdb"  # where caution is dearer still


def test_what_is_faster_elsewhere_goes_there_though_it_fits() -> None:
    decision = decided(fast(seconds=30.0), spark(20.0))
    assert (decision.ranking, codes(decision)) == (("spark",), [ReasonCode.FASTER_ELSEWHERE])
    assert decision.remedy == Remedy("duckdb", blocked=(ReasonCode.FASTER_ELSEWHERE,))
    assert decided(fast(wait_s=30.0), spark(20.0)).engine == "spark"
    assert decided(fast(held_s=30.0), spark(20.0)).engine == "spark"
    assert decided(fast(seconds=30.0), spark(20.0, wait_s=30.0)).engine == "duckdb"


def test_a_misestimate_on_record_wins_over_the_estimate() -> None:
    for policy in (EXPECTED, SAFE, PAPER):
        decision = decided(fast(misestimates=("q1",)), spark(), policy=policy)
        assert (decision.ranking, codes(decision)) == (("spark",), [ReasonCode.MISESTIMATE_ON_RECORD])
        assert "q1" in decision.reasons[0].text


def test_all_obstacles_are_listed() -> None:
    troubled = fast(down="no worker", unsupported="no such function", no_equivalent="rounding", misestimates=("q1",))
    assert codes(decided(troubled, spark())) == [
        ReasonCode.ENGINE_DOWN,
        ReasonCode.UNSUPPORTED_FEATURE,
        ReasonCode.DIALECT,
        ReasonCode.MISESTIMATE_ON_RECORD,
    ]


def test_what_was_missing_and_what_was_learned_is_told() -> None:
    learned = Learned("Learned from 3 runs of this statement.", 3, SMALL, LIMIT)
    decision = decided(fast(gaps=("books has no statistics",), learned=learned), spark())
    assert codes(decision) == [ReasonCode.FITS, ReasonCode.LEARNED_FROM_RUNS, ReasonCode.STATISTICS_MISSING]
    assert decision.expectation("duckdb").peak_bytes == SMALL  # by the model alone


@pytest.mark.parametrize("policy", [EXPECTED, SAFE, PAPER], ids=lambda policy: policy.rule)
def test_no_estimate_goes_to_the_dependable_engine(policy: RoutingPolicy) -> None:
    decision = decided(fast(None), spark(), policy=policy)
    assert (decision.engine, codes(decision)) == ("spark", [ReasonCode.NO_ESTIMATE])
    assert decision.remedy == Remedy("duckdb", blocked=(ReasonCode.NO_ESTIMATE,))
    complex_ = decided(fast(None, too_complex="a join of 400 tables"), spark(), policy=policy)
    assert (complex_.engine, codes(complex_)) == ("spark", [ReasonCode.TOO_COMPLEX])
    assert "a join of 400 tables" in complex_.reasons[0].text


@pytest.mark.parametrize("policy", [EXPECTED, SAFE, PAPER], ids=lambda policy: policy.rule)
@pytest.mark.parametrize("peak_bytes", [SMALL, HUGE, None])
def test_what_no_dependable_engine_can_run_is_tried_on_the_fast_one(
    peak_bytes: int | None, policy: RoutingPolicy
) -> None:
    unable = spark(unsupported="a pattern that never ends there.")
    candidate = fast(peak_bytes, paper_bytes=peak_bytes)
    for others in ([unable], []):
        assert decided(candidate, *others, policy=policy).ranking == ("duckdb",)
    if peak_bytes != SMALL:
        assert codes(decided(candidate, unable, policy=policy))[-2:] == [ReasonCode.UNSUPPORTED_FEATURE] * 2
    missed = replace(candidate, misestimates=("q1",))
    assert decided(missed, unable, policy=policy).ranking == ("duckdb",)
    for blocked in (replace(candidate, unsupported="nor that."), replace(candidate, no_equivalent="otherwise.")):
        with pytest.raises(NoEngine):
            decided(blocked, unable, policy=policy)
    with pytest.raises(NoEngine):
        decided(candidate, unable, policy=policy, pinned="spark")


def test_while_nothing_dependable_is_available_likely_ones_run_and_unlikely_ones_wait() -> None:
    away = spark(down="restarting")
    likely, unlikely = fast(MIDDLE), fast(LARGE)
    assert chance_of(unlikely) < LIKELY < chance_of(likely)
    decision = decided(likely, away)
    assert (decision.ranking, codes(decision)) == (("duckdb",), [ReasonCode.FITS, ReasonCode.ENGINE_DOWN])
    with pytest.raises(NoEngine) as caught:
        decided(unlikely, away)
    assert [reason.code for reason in caught.value.reasons] == [ReasonCode.EXCEEDS_LIMIT, ReasonCode.ENGINE_DOWN]
    for kept_out in (fast(None), fast(misestimates=("q1",))):
        with pytest.raises(NoEngine):
            decided(kept_out, away)
    likelier = fast(SMALL, engine="impala")
    assert decided(likely, likelier, unlikely, away).ranking == ("impala", "duckdb")


def test_pinning_leaves_one_engine() -> None:
    for candidate in (fast(HUGE), fast(misestimates=("q1",)), fast(None)):
        decision = decided(candidate, spark(), pinned="duckdb")
        assert (decision.ranking, codes(decision), decision.remedy) == (("duckdb",), [ReasonCode.PINNED], None)
    assert decided(fast(), spark(), pinned="spark").ranking == ("spark",)
    assert {price.engine for price in decided(fast(), spark(), pinned="spark").prices} == {"duckdb", "spark"}


def test_pinning_to_an_engine_that_is_down_names_it() -> None:
    with pytest.raises(NoEngine, match="spark is not available: gone"):
        decided(fast(), spark(down="gone"), pinned="spark")


def test_nothing_left() -> None:
    with pytest.raises(NoEngine) as caught:
        decided(fast(down="gone"), spark(down="gone too"))
    assert [reason.code for reason in caught.value.reasons] == [ReasonCode.ENGINE_DOWN, ReasonCode.ENGINE_DOWN]


def test_without_a_fast_engine_the_reason_says_so() -> None:
    decision = decided(spark())
    assert (decision.engine, codes(decision)) == ("spark", [ReasonCode.NO_FAST_ENGINE])


def test_of_dependable_engines_the_quicker_comes_first() -> None:
    hive = replace(spark(5.0), engine="hive")
    assert decided(spark(), hive).ranking == ("hive", "spark")
    assert decided(spark(), replace(hive, wait_s=60.0)).ranking == ("spark", "hive")


@pytest.mark.parametrize("arguments", [(10, 5), (None, 5)])
def test_estimates_check_themselves(arguments: tuple[int | None, int]) -> None:
    with pytest.raises(ValueError, match=r"."):
        MemoryEstimate(*arguments)


# Policies

LIKELY_ENOUGH = round(LIMIT / math.exp(SHAPE.quantile(0.96)))
TOO_UNLIKELY = round(LIMIT / math.exp(SHAPE.quantile(0.94)))


def test_the_safe_policy_asks_for_a_bound_on_running_out_of_memory_whatever_it_saves() -> None:
    assert decided(fast(LIKELY_ENOUGH), spark(), policy=SAFE).engine == "duckdb"
    kept_out = decided(fast(TOO_UNLIKELY), spark(1_000.0), policy=SAFE)
    assert (kept_out.engine, codes(kept_out)) == ("spark", [ReasonCode.NOT_WORTH_THE_RISK])
    assert decided(fast(TOO_UNLIKELY), spark(1_000.0)).engine == "duckdb"
    slower = decided(fast(TOO_UNLIKELY, seconds=99.0), spark(), policy=SAFE)
    assert codes(slower) == [ReasonCode.NOT_WORTH_THE_RISK]  # seconds have no say
    bolder = RoutingPolicy(rule=Rule.SAFE, safe_miss=0.07)
    assert decided(fast(TOO_UNLIKELY), spark(), policy=bolder).engine == "duckdb"
    assert decided(fast(LIKELY_ENOUGH, seconds=99.0), spark(), policy=SAFE).engine == "duckdb"
    often = fast(TOO_UNLIKELY, elsewhere=10_000)
    assert decided(often, spark(), policy=SAFE).engine == "spark"  # never for the sake of finding out


def test_the_papers_policy_holds_its_formula_against_the_limit() -> None:
    within = decided(fast(HUGE, paper_bytes=LIMIT), spark(), policy=PAPER)
    beyond = decided(fast(SMALL, paper_bytes=LIMIT + 1), spark(), policy=PAPER)
    assert (within.engine, codes(within), within.rule) == ("duckdb", [ReasonCode.FITS], Rule.PAPER)
    assert (beyond.engine, codes(beyond)) == ("spark", [ReasonCode.EXCEEDS_LIMIT])
    assert "By the paper's formula it takes 1,024 MiB" in beyond.reasons[0].text
    assert beyond.remedy == Remedy("duckdb", limit_bytes=LIMIT + 1)


# Exploration

CAUTIOUS = RoutingPolicy(explore=False)
SKIPPED = RoutingPolicy(miss_price_s=99.0)  # with which what fits as likely as not is kept away


def unsure(elsewhere: int, **fields: Any) -> Candidate:
    return fast(EVEN, elsewhere=elsewhere, **fields)


def test_what_is_likely_to_come_back_is_tried_at_once_where_one_more_time_pays_for_it() -> None:
    dear = fast(EVEN, miss_s=34.0)
    decision = decided(dear, spark())
    price = decision.price("duckdb")
    assert price is not None
    assert price.first_s is not None
    assert SLOW_S < price.first_s <= SLOW_S + COMES_BACK * chance_of(dear) * (SLOW_S - FAST_S)
    assert (decision.ranking, codes(decision)) == (("duckdb", "spark"), [ReasonCode.EXPLORATION])
    assert "its template is new here" in decision.reasons[0].text


def test_a_dear_try_is_not_made_at_first_but_at_last() -> None:
    engines = [decided(unsure(count), spark(), policy=SKIPPED, template="t").engine for count in range(20)]
    assert engines[0] == "spark"
    assert engines[-1] == "duckdb"
    first = engines.index("duckdb")
    assert engines == ["spark"] * first + ["duckdb"] * (20 - first)
    decision = decided(unsure(first), spark(), policy=SKIPPED, template="t")
    assert (decision.ranking, codes(decision)) == (("duckdb", "spark"), [ReasonCode.EXPLORATION])
    assert f"its template ran elsewhere {first} time" in decision.reasons[0].text
    assert f"whether it fits ({100 * chance_of(unsure(0)):.0f} %)" in decision.reasons[0].text
    assert decision.remedy is None


def test_a_try_waits_until_caution_has_cost_as_much_at_most() -> None:
    """Ski rental: who pays at most once more what waiting has cost already loses little against one who knows."""
    candidate = unsure(0)
    price = decided(candidate, spark(), policy=SKIPPED).price("duckdb")
    assert price is not None
    assert price.first_s is not None
    premium_s = price.first_s - SLOW_S
    saved_s = chance_of(candidate) * (SLOW_S - FAST_S)
    most = math.ceil(premium_s / saved_s)
    starts = []
    for n in range(200):
        tried = (count for count in range(most + 1) if _is_tried(unsure(count), f"template {n}"))
        starts.append(next(tried))
    assert min(starts) >= 1
    assert max(starts) <= most
    assert len(set(starts)) > 1  # templates do not all try at once


def _is_tried(candidate: Candidate, template: str, seed: int = 0) -> bool:
    policy = replace(SKIPPED, seed=seed)
    return decided(candidate, spark(), policy=policy, template=template).engine == "duckdb"


def test_exploring_can_be_switched_off() -> None:
    assert _is_tried(unsure(1_000), "t")
    decision = decided(unsure(1_000), spark(), policy=replace(SKIPPED, explore=False), template="t")
    assert (decision.engine, codes(decision)) == ("spark", [ReasonCode.NOT_WORTH_THE_RISK])


def test_the_same_seed_tries_the_same_templates() -> None:
    def tried(seed: int) -> list[bool]:
        return [_is_tried(unsure(1), f"template {n}", seed) for n in range(100)]

    assert tried(1) == tried(1)
    assert tried(1) != tried(2)
    assert 0 < sum(tried(1)) < 100


@pytest.mark.parametrize(
    "fields",
    [
        {"misestimates": ("q1",), "missed_bytes": LIMIT},
        {"down": "no worker"},
        {"unsupported": "no such function"},
        {"no_equivalent": "rounding"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_no_try_against_a_misestimate_or_a_rule(fields: dict[str, Any]) -> None:
    assert decided(unsure(10**6, **fields), spark(), policy=SKIPPED, template="t").ranking == ("spark",)


def test_no_try_against_a_pin_or_where_nothing_is_known_or_nothing_can_be_won() -> None:
    assert decided(unsure(10**6), spark(), policy=SKIPPED, pinned="spark").ranking == ("spark",)
    assert decided(fast(None, elsewhere=10**6), spark(), policy=SKIPPED).ranking == ("spark",)
    assert decided(unsure(10**6, seconds=SLOW_S + 1), spark(), policy=SKIPPED).ranking == ("spark",)
    assert decided(fast(HUGE, elsewhere=10**6), spark(), policy=SKIPPED).ranking == ("spark",)


def test_only_one_engine_is_tried_to_find_out() -> None:
    both = [unsure(10**6), unsure(10**6, engine="impala")]
    assert decided(*both, spark(), policy=SKIPPED).ranking == ("duckdb", "spark")


# What would change a decision

candidates = st.builds(
    lambda peak, limit, seconds, miss_s, wait_s, held_s, paper: fast(
        peak, limit=limit, seconds=seconds, miss_s=miss_s, wait_s=wait_s, held_s=held_s, paper_bytes=paper
    ),
    st.integers(MIB, 8 * LIMIT),
    st.integers(MIB, 8 * LIMIT),
    st.floats(0.01, 100.0),
    st.floats(0.01, 100.0),
    st.floats(0.0, 10.0),
    st.floats(0.0, 10.0),
    st.integers(1, 8 * LIMIT),
)
dependables = st.builds(spark, st.floats(0.01, 100.0), wait_s=st.floats(0.0, 10.0), held_s=st.floats(0.0, 10.0))
policies = st.builds(
    RoutingPolicy,
    rule=st.sampled_from(Rule),
    safe_miss=st.floats(0.0, 0.5),
    miss_price_s=st.floats(0.0, 50.0),
    explore=st.booleans(),
    seed=st.integers(0, 9),
)


def cost(order: Sequence[Candidate], policy: RoutingPolicy) -> float:
    """Return the expected seconds of trying engines in this order, the last of which is sure to answer."""
    total, reached = 0.0, 1.0
    for each in order:
        assert each.forecast is not None
        chance = chance_of(each)
        total += reached * (each.wait_s + each.held_s + chance * each.forecast.seconds)
        if chance < 1.0:
            total += reached * (1 - chance) * (each.forecast.miss_s + policy.miss_price_s)
        reached *= 1 - chance
    return total


@given(candidates, candidates, dependables, policies)
def test_no_order_of_engines_is_expected_to_be_faster(
    one: Candidate, other: Candidate, last: Candidate, policy: RoutingPolicy
) -> None:
    policy = replace(policy, rule=Rule.EXPECTED, explore=False)
    two = replace(other, engine="impala")
    by_name = {each.engine: each for each in (one, two, last)}
    orders = [(*chosen, last) for count in range(3) for chosen in permutations((one, two), count)]
    decision = decided(one, two, last, policy=policy)
    taken = cost([by_name[name] for name in decision.ranking], policy)
    assert taken == pytest.approx(min(cost(order, policy) for order in orders))
    for each in by_name.values():
        price = decision.price(each.engine)
        assert price is not None
        assert price.first_s == pytest.approx(min(cost(order, policy) for order in orders if order[0] is each))


@given(candidates, dependables, policies, st.integers(0, 20), st.floats(1.0, 16.0))
def test_a_larger_limit_never_sends_a_statement_away(
    candidate: Candidate, last: Candidate, policy: RoutingPolicy, elsewhere: int, factor: float
) -> None:
    assert candidate.forecast is not None
    assert candidate.limit_bytes is not None
    now = replace(candidate, forecast=replace(candidate.forecast, elsewhere=elsewhere))
    larger = replace(now, limit_bytes=round(candidate.limit_bytes * factor))
    before, after = (decided(each, last, policy=policy, template="t") for each in (now, larger))
    assert before.engine == "spark" or after.engine == "duckdb"


@given(candidates, dependables, policies, st.none() | st.integers(0, LIMIT))
def test_a_remedy_is_enough_and_not_clearly_too_much(
    candidate: Candidate, last: Candidate, policy: RoutingPolicy, missed: int | None
) -> None:
    policy = replace(policy, explore=False)
    limit = candidate.limit_bytes or 0
    missed_bytes = limit + missed if missed is not None else None  # under this limit or a larger one

    def engine_with(limit_bytes: int) -> str:
        known = missed_bytes is not None and limit_bytes <= missed_bytes
        now = replace(
            candidate,
            limit_bytes=limit_bytes,
            misestimates=("q1",) if known else (),
            missed_bytes=missed_bytes if known else None,
        )
        return decided(now, last, policy=policy).engine

    decision = decided(
        replace(candidate, misestimates=("q1",) if missed_bytes else (), missed_bytes=missed_bytes), last, policy=policy
    )
    assert (decision.remedy is None) == (decision.engine == "duckdb")
    if decision.remedy is None:
        return
    if decision.remedy.limit_bytes is None:
        assert decision.remedy.blocked
        assert engine_with(1 << 60) == "spark"
        return
    needed = decision.remedy.limit_bytes
    assert needed > limit
    assert engine_with(needed) == "duckdb"
    assert engine_with(needed * 99 // 100) == "spark"


@given(candidates, dependables, policies)
def test_the_turning_limit_is_the_least_with_which_it_is_tried(
    candidate: Candidate, last: Candidate, policy: RoutingPolicy
) -> None:
    policy = replace(policy, explore=False)
    decision = decided(candidate, last, policy=policy)
    turning = decision.turning_bytes
    if turning is None:
        assert decision.engine == "spark"
        return
    assume(turning > 2 * MIB)  # below, peaks are all the same
    with_it, with_less = (
        decided(replace(candidate, limit_bytes=limit), last, policy=policy).engine
        for limit in (turning, turning * 99 // 100)
    )
    assert (with_it, with_less) == ("duckdb", "spark")


def test_the_limit_that_is_told_counts_that_a_larger_one_takes_longer_to_fill() -> None:
    """What is told is enough, and little more, though a miss takes the longer the more there is to fill."""
    told = 0
    for share in (0.3, 0.5, 0.7, 0.9):
        for filling_s in (1.0, 5.0, 20.0):
            candidate = fast(round(LIMIT / share))
            assert candidate.forecast is not None
            forecast = replace(candidate.forecast, miss_s=1.0 + filling_s * share, filling_s=filling_s)
            candidate = replace(candidate, forecast=forecast)
            decision = decided(candidate, spark(), policy=CAUTIOUS)
            if decision.remedy is None or decision.remedy.limit_bytes is None:
                continue
            told += 1
            for needed, engine in (
                (decision.remedy.limit_bytes, "duckdb"),
                (decision.remedy.limit_bytes * 0.99, "spark"),
            ):
                miss_s = forecast.miss_s_with(round(needed), LIMIT)
                larger = replace(candidate, limit_bytes=round(needed), forecast=replace(forecast, miss_s=miss_s))
                assert decided(larger, spark(), policy=CAUTIOUS).engine == engine
    assert told >= 4


def test_the_paper_lets_nothing_in_of_which_it_says_nothing() -> None:
    decision = decided(fast(paper_bytes=None), spark(), policy=PAPER)
    assert (decision.engine, codes(decision)[0]) == ("spark", ReasonCode.NO_ESTIMATE)


def test_what_probably_does_not_fit_is_called_a_try() -> None:
    decision = decided(fast(LARGE, miss_s=0.01), spark(500.0))
    assert decision.engine == "duckdb"
    assert codes(decision) == [ReasonCode.WORTH_A_TRY]


def test_what_no_limit_lifts_is_told_beside_it() -> None:
    decision = decided(fast(None, down="no worker", unsupported="no such function"), spark())
    obstacles = (ReasonCode.ENGINE_DOWN, ReasonCode.UNSUPPORTED_FEATURE, ReasonCode.NO_ESTIMATE)
    assert decision.remedy == Remedy("duckdb", blocked=obstacles)
    assert decided(fast(), spark()).remedy is None
    assert decided(fast(HUGE), spark(), pinned="spark").remedy is None


def test_what_has_no_limit_and_is_slower_tells_that_nothing_opens_it() -> None:
    decision = decided(fast(seconds=30.0, limit=None), spark(20.0))
    assert decision.engine == "spark"
    assert decision.remedy == Remedy("duckdb", blocked=(ReasonCode.FASTER_ELSEWHERE,))


# Several fast engines


def test_each_fast_engine_is_weighed_by_its_own_forecast_and_limit() -> None:
    first, second = fast(HUGE), fast(SMALL, engine="impala", limit=10 * LIMIT)
    decision = decided(first, second, spark())
    assert decision.ranking == ("impala", "spark")
    assert (decision.estimate, decision.limit_bytes) == (second.estimate, 10 * LIMIT)
    assert decision.estimated_for == "impala"
    assert decision.on("impala") == EngineEstimate("impala", second.estimate, 10 * LIMIT)
    assert decision.on("duckdb") == EngineEstimate("duckdb", first.estimate, LIMIT)
    assert decision.on("spark") is None


def test_a_second_fast_engine_is_tried_after_the_first_where_that_pays() -> None:
    roomy = fast(MIDDLE, engine="impala", limit=100 * LIMIT, seconds=5.0)
    decision = decided(fast(MIDDLE), roomy, spark(100.0))
    assert decision.ranking == ("duckdb", "impala", "spark")
    assert codes(decision) == [ReasonCode.FITS, ReasonCode.FITS]


def test_where_no_fast_engine_may_the_first_with_an_estimate_tells_what_would_change_that() -> None:
    unknown, large = fast(None), fast(HUGE, engine="impala")
    decision = decided(unknown, large, spark())
    assert decision.engine == "spark"
    assert decision.estimated_for == "impala"
    assert decision.remedy is not None
    assert decision.remedy.engine == "impala"
    assert (decision.remedy.limit_bytes or 0) > LIMIT
    pinned = decided(unknown, large, spark(), pinned="duckdb")
    assert (pinned.estimated_for, pinned.estimate, pinned.limit_bytes) == ("duckdb", UNKNOWN, LIMIT)
