from __future__ import annotations

import pytest

from selector.decide import MIB, Candidate, Decision, NoEngine, Policy, ReasonCode, decide
from selector.estimate import UNKNOWN, MemoryEstimate

LIMIT = 1024 * MIB
FAST = Candidate("duckdb", dependable=False, limit_bytes=LIMIT)
SPARK = Candidate("spark", dependable=True)
SMALL = MemoryEstimate(100 * MIB, 135 * MIB, confidence=1.0)
LARGE = MemoryEstimate(900 * MIB, 1215 * MIB, confidence=1.0)


def decided(
    *candidates: Candidate, estimate: MemoryEstimate = SMALL, pinned: str | None = None
) -> tuple[Decision, list[ReasonCode]]:
    decision = decide(candidates, estimate, policy=Policy(), pinned=pinned)
    return decision, [reason.code for reason in decision.reasons]


def changed(candidate: Candidate, **fields: object) -> Candidate:
    from dataclasses import replace

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


def test_pinning_leaves_one_engine() -> None:
    decision, codes = decided(FAST, SPARK, estimate=LARGE, pinned="duckdb")
    assert (decision.ranking, codes) == (("duckdb",), [ReasonCode.PINNED])


def test_pinning_to_an_engine_that_is_down_names_it() -> None:
    with pytest.raises(NoEngine, match="spark takes no work: gone"):
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
