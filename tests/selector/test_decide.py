from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.decide import (
    MIB,
    Candidate,
    Decision,
    EngineEstimate,
    NoEngine,
    ReasonCode,
    Remedy,
    RoutingPolicy,
    decide,
)
from selector.estimate import UNKNOWN, MemoryEstimate

LIMIT = 1024 * MIB
FAST = Candidate("duckdb", dependable=False, limit_bytes=LIMIT)
SPARK = Candidate("spark", dependable=True)
SMALL = MemoryEstimate(100 * MIB, 135 * MIB, confidence=1.0)
LARGE = MemoryEstimate(900 * MIB, 1215 * MIB, confidence=1.0)


def decided(
    *candidates: Candidate, estimate: MemoryEstimate = SMALL, pinned: str | None = None
) -> tuple[Decision, list[ReasonCode]]:
    weighed = [each if each.dependable else replace(each, estimate=estimate) for each in candidates]
    decision = decide(weighed, policy=RoutingPolicy(), pinned=pinned)
    return decision, [reason.code for reason in decision.reasons]


def changed(candidate: Candidate, **fields: object) -> Candidate:
    return replace(candidate, **fields)  # type: ignore[arg-type]


def test_what_fits_runs_fast_with_the_dependable_engine_behind_it() -> None:
    decision, codes = decided(FAST, SPARK)
    assert decision.ranking == ("duckdb", "spark")
    assert codes == [ReasonCode.FITS]
    assert decision.limit_bytes == LIMIT


def test_the_upper_bound_decides_not_the_expected_peak() -> None:
    decision, codes = decided(FAST, SPARK, estimate=LARGE)
    assert decision.ranking == ("spark",)
    assert codes == [ReasonCode.EXCEEDS_LIMIT]


def test_a_misestimate_on_record_wins_over_the_estimate() -> None:
    decision, codes = decided(changed(FAST, misestimates=("q1",)), SPARK)
    assert decision.engine == "spark"
    assert codes == [ReasonCode.MISESTIMATE_ON_RECORD, ReasonCode.FITS]
    assert "q1" in decision.reasons[0].text


def test_all_obstacles_are_listed() -> None:
    troubled = changed(FAST, down="no worker", unsupported="no such function", misestimates=("q1",))
    _, codes = decided(troubled, SPARK, estimate=LARGE)
    assert codes == [
        ReasonCode.ENGINE_DOWN,
        ReasonCode.UNSUPPORTED_FEATURE,
        ReasonCode.MISESTIMATE_ON_RECORD,
        ReasonCode.EXCEEDS_LIMIT,
    ]


def test_a_guess_goes_to_the_dependable_engine() -> None:
    unsure = MemoryEstimate(10 * MIB, 14 * MIB, confidence=0.1, gaps=("books has no statistics",))
    decision, codes = decided(FAST, SPARK, estimate=unsure)
    assert decision.engine == "spark"
    assert codes == [ReasonCode.LOW_CONFIDENCE, ReasonCode.STATISTICS_MISSING]


def test_no_estimate_goes_to_the_dependable_engine() -> None:
    decision, codes = decided(FAST, SPARK, estimate=UNKNOWN)
    assert (decision.engine, codes) == ("spark", [ReasonCode.NO_ESTIMATE])


def test_what_no_dependable_engine_can_run_is_tried_on_the_fast_one() -> None:
    unable = changed(SPARK, unsupported="a pattern that never ends there.")
    for estimate in (LARGE, UNKNOWN):
        decision, codes = decided(FAST, unable, estimate=estimate)
        assert decision.ranking == ("duckdb",)
        assert codes[-2:] == [ReasonCode.UNSUPPORTED_FEATURE, ReasonCode.UNSUPPORTED_FEATURE]
    for blocked in (changed(FAST, unsupported="nor that."), changed(FAST, no_equivalent="otherwise.")):
        with pytest.raises(NoEngine):
            decided(blocked, unable, estimate=LARGE)
    with pytest.raises(NoEngine):
        decided(FAST, unable, pinned="spark")


def test_pinning_leaves_one_engine() -> None:
    decision, codes = decided(FAST, SPARK, estimate=LARGE, pinned="duckdb")
    assert (decision.ranking, codes) == (("duckdb",), [ReasonCode.PINNED])


def test_pinning_to_an_engine_that_is_down_names_it() -> None:
    with pytest.raises(NoEngine, match="spark is not available: gone"):
        decided(FAST, changed(SPARK, down="gone"), pinned="spark")


def test_nothing_left() -> None:
    with pytest.raises(NoEngine) as caught:
        decided(changed(FAST, down="gone"), changed(SPARK, down="gone too"))
    assert [reason.code for reason in caught.value.reasons] == [ReasonCode.ENGINE_DOWN, ReasonCode.ENGINE_DOWN]


def test_without_a_fast_engine_the_reason_says_so() -> None:
    decision, codes = decided(SPARK)
    assert (decision.engine, codes) == ("spark", [ReasonCode.NO_FAST_ENGINE])


@pytest.mark.parametrize("arguments", [(10, 5, 1.0), (None, 5, 1.0), (10, 20, 1.5), (10, 20, -0.1)])
def test_estimates_check_themselves(arguments: tuple[int | None, int, float]) -> None:
    with pytest.raises(ValueError, match=r"."):
        MemoryEstimate(*arguments)


def test_what_does_not_fit_tells_the_limit_that_it_needs() -> None:
    assert decided(FAST, SPARK, estimate=LARGE)[0].remedy == Remedy("duckdb", limit_bytes=LARGE.upper_bytes)
    assert decided(FAST, SPARK)[0].remedy is None
    assert decided(FAST, SPARK, estimate=LARGE, pinned="spark")[0].remedy is None


def test_what_no_limit_lifts_is_told_beside_it() -> None:
    troubled = changed(FAST, down="no worker", unsupported="no such function")
    decision, _ = decided(troubled, SPARK, estimate=UNKNOWN)
    obstacles = (ReasonCode.ENGINE_DOWN, ReasonCode.UNSUPPORTED_FEATURE, ReasonCode.NO_ESTIMATE)
    assert decision.remedy == Remedy("duckdb", blocked=obstacles)


@given(
    upper=st.integers(1, 4 * LIMIT),
    confidence=st.floats(0.0, 1.0),
    missed=st.none() | st.integers(LIMIT, 2 * LIMIT),
)
def test_a_remedy_is_enough_and_not_a_byte_too_much(upper: int, confidence: float, missed: int | None) -> None:
    estimate = MemoryEstimate(upper // 2, upper, confidence)
    candidate = changed(FAST, misestimates=("q1",), missed_bytes=missed) if missed is not None else FAST

    def engine_with(limit: int, confidence: float) -> str:
        misestimate = missed is not None and limit <= missed
        now = changed(candidate, limit_bytes=limit, misestimates=("q1",) if misestimate else ())
        return decided(now, SPARK, estimate=replace(estimate, confidence=confidence))[0].engine

    decision, _ = decided(candidate, SPARK, estimate=estimate)
    assert (decision.remedy is None) == (decision.engine == "duckdb")
    if decision.remedy is not None:
        limit, sure = decision.remedy.limit_bytes or LIMIT, decision.remedy.confidence or confidence
        assert engine_with(limit, sure) == "duckdb"
        if decision.remedy.limit_bytes is not None:
            assert engine_with(limit - 1, sure) == "spark"
        if decision.remedy.confidence is not None:
            assert engine_with(limit, confidence) == "spark"


def test_each_fast_engine_is_weighed_by_its_own_estimate_and_limit() -> None:
    first = replace(FAST, estimate=LARGE)
    second = Candidate("impala", dependable=False, limit_bytes=10 * LIMIT, estimate=SMALL)
    decision = decide([first, second, SPARK], policy=RoutingPolicy())
    assert decision.ranking == ("impala", "spark")
    assert (decision.estimate, decision.limit_bytes, decision.estimated_for) == (SMALL, 10 * LIMIT, "impala")
    assert decision.on("impala") == EngineEstimate("impala", SMALL, 10 * LIMIT)
    assert decision.on("duckdb") == EngineEstimate("duckdb", LARGE, LIMIT)
    assert decision.on("spark") is None


def test_where_no_fast_engine_may_the_first_with_an_estimate_tells_what_would_change_that() -> None:
    unknown = replace(FAST, estimate=UNKNOWN)
    large = Candidate("impala", dependable=False, limit_bytes=LIMIT, estimate=LARGE)
    decision = decide([unknown, large, SPARK], policy=RoutingPolicy())
    assert decision.engine == "spark"
    assert decision.estimated_for == "impala"
    assert decision.remedy == Remedy("impala", limit_bytes=LARGE.upper_bytes)
    pinned = decide([unknown, large, SPARK], policy=RoutingPolicy(), pinned="duckdb")
    assert (pinned.estimated_for, pinned.estimate, pinned.limit_bytes) == ("duckdb", UNKNOWN, LIMIT)
