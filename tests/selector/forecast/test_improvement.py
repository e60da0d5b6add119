"""What finding out how long something takes is worth."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.forecast.improvement import LogNormal, information_s

DRAWS = 40_000
seconds = st.floats(0.01, 100.0)
deviations = st.floats(0.0, 1.0)
times = st.builds(LogNormal, seconds, deviations)


@pytest.mark.parametrize("deviation", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("best_s", [0.5, 1.0, 3.0])
def test_improvement_and_excess_are_what_drawing_says(deviation: float, best_s: float) -> None:
    chance = random.Random(5)  # noqa: S311 - examples, no secrets
    one = LogNormal(1.0, deviation)
    drawn = [chance.lognormvariate(0.0, deviation) for _ in range(DRAWS)]
    assert one.mean_s == pytest.approx(sum(drawn) / DRAWS, rel=0.03)
    assert one.above_median_s == one.mean_s - 1.0
    assert one.improvement_s(best_s) == pytest.approx(sum(max(0.0, best_s - s) for s in drawn) / DRAWS, abs=0.01)
    assert one.excess_s(best_s) == pytest.approx(sum(max(0.0, s - best_s) for s in drawn) / DRAWS, abs=0.03)
    below = sum(s < best_s for s in drawn) / DRAWS
    assert one.chance_below(LogNormal(best_s)) == pytest.approx(below, abs=0.01)


@given(times, seconds)
def test_what_is_sure_improves_by_its_difference_and_doubt_adds_to_that(one: LogNormal, best_s: float) -> None:
    sure = LogNormal(one.median_s)
    assert sure.improvement_s(best_s) == pytest.approx(max(0.0, best_s - one.median_s), abs=1e-3 * best_s)
    assert one.improvement_s(best_s) >= best_s - one.mean_s - 1e-9
    assert 0.0 <= one.improvement_s(best_s) <= best_s
    assert one.improvement_s(0.0) == 0.0


@given(times)
def test_of_two_that_are_known_alike_neither_is_worth_a_try(one: LogNormal) -> None:
    assert information_s(one, one) == pytest.approx(0.0, abs=1e-6 * one.mean_s)


@given(seconds, st.floats(1.0, 5.0), st.floats(0.05, 1.0))
def test_the_less_is_known_the_more_a_try_is_worth(best_s: float, factor: float, deviation: float) -> None:
    best = LogNormal(best_s, 0.02)
    worth = [information_s(LogNormal(factor * best_s, more), best) for more in (deviation, 1.5 * deviation)]
    assert worth[0] <= worth[1] + 1e-9 * best_s
