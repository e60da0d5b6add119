"""Errors as points with weights: levels and errors lead to each other, and runs move mass to where they lie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.forecast.distribution import BEYOND, FURTHEST, ErrorDistribution, RunError

DEVIATION = 0.3
errors = st.integers(-48, 48).map(lambda eighths: eighths / 8)  # so that errors are the same or clearly not
runs = st.lists(st.builds(RunError, errors, st.booleans()), max_size=30)
bandwidths = st.sampled_from([0.0, 0.02, 0.1])


def mixed(seen: Sequence[RunError], weight: float = 2.0, bandwidth: float = 0.1) -> ErrorDistribution:
    prior = ErrorDistribution.of_shape().scaled(0.0, DEVIATION)
    return prior.with_runs(seen, weight=weight, bandwidth=bandwidth)


def mass_beyond(distribution: ErrorDistribution, error: float) -> float:
    return float(distribution.weights[distribution.errors >= error].sum())


def test_the_shape_has_its_median_at_nothing_and_heavier_tails_than_a_normal_distribution() -> None:
    shape = ErrorDistribution.of_shape()
    assert shape.quantile(0.5) == pytest.approx(0.0, abs=0.05)
    assert 2.0 <= shape.quantile(0.95) <= 2.5  # where a normal distribution has 1.64
    assert shape.quantile(0.98) > 2.5  # where it has 2.05
    assert (shape.errors[0], shape.errors[-1]) == (-FURTHEST, FURTHEST)
    moved = shape.scaled(1.0, 0.5)
    assert moved.quantile(0.95) == pytest.approx(1.0 + 0.5 * shape.quantile(0.95))
    skewed = shape.scaled(1.0, 0.5, 2.0)
    assert skewed.quantile(0.95) == moved.quantile(0.95)
    assert skewed.quantile(0.05) == pytest.approx(1.0 + 2.0 * shape.quantile(0.05))


@given(runs, bandwidths, st.floats(0.05, 100.0))
def test_weights_sum_to_one_and_errors_ascend(seen: list[RunError], bandwidth: float, weight: float) -> None:
    found = mixed(seen, weight, bandwidth)
    assert found.weights.sum() == pytest.approx(1.0)
    assert np.all(found.weights >= 0.0)
    assert np.all(np.diff(found.errors) >= 0.0)


@given(runs, bandwidths, st.floats(0.001, 0.999))
def test_levels_and_errors_lead_to_each_other(seen: list[RunError], bandwidth: float, level: float) -> None:
    found = mixed(seen, bandwidth=bandwidth)
    error = found.quantile(level)
    assert found.quantile(found.below(error)) == pytest.approx(error, abs=1e-6)
    assert found.below(error) >= min(level, found.below(found.errors[-1])) - 1e-9
    if bandwidth and np.all(np.diff(found.errors) > 1e-6):  # where errors are the same, the probability jumps
        lowest, highest = found.below(found.errors[0]), found.below(found.errors[-1])
        assert found.below(error) == pytest.approx(min(max(level, lowest), highest), abs=1e-6)


@given(runs, errors, errors)
def test_more_is_never_less_probable(seen: list[RunError], one: float, other: float) -> None:
    found = mixed(seen)
    assert 0.0 <= found.below(min(one, other)) <= found.below(max(one, other)) <= 1.0


def test_runs_pull_it_to_what_they_took() -> None:
    few, many = (mixed([RunError(1.0)] * count) for count in (1, 20))
    assert 0.0 < few.quantile(0.5) < many.quantile(0.5)
    assert many.quantile(0.5) == pytest.approx(1.0, abs=0.1)
    assert many.quantile(0.9) - many.quantile(0.1) < few.quantile(0.9) - few.quantile(0.1)
    assert mixed([]).quantile(0.5) == pytest.approx(0.0, abs=0.05)


@given(runs, st.floats(-1.0, 1.0), st.integers(1, 10))
def test_what_ran_out_of_memory_lies_beyond_the_limit_with_all_its_weight(
    seen: list[RunError], least: float, count: int
) -> None:
    whole = 2.0 + len(seen) + count
    before, after = mixed(seen), mixed([*seen, *[RunError(least, True)] * count])
    assert mass_beyond(after, least) >= count / whole - 1e-9
    assert after.below(least - 1e-6) <= before.below(least - 1e-6) + 1e-9


def test_a_limit_below_all_errors_says_nothing() -> None:
    prior, told = mixed([]), mixed([RunError(-5.0, True)])
    levels = np.linspace(0.05, 0.95, 19)
    assert [told.quantile(level) for level in levels] == pytest.approx([prior.quantile(level) for level in levels])


def test_a_limit_above_all_errors_is_believed_all_the_same() -> None:
    far = FURTHEST * DEVIATION + 1.0
    told = mixed([RunError(far, True)] * 8)
    assert far < told.errors[-1] < far + BEYOND
    assert told.below(far) < 0.25 < 1.0 == mixed([]).below(far)
    assert told.quantile(0.5) > far


@given(runs, st.floats(-4.0, 4.0))
def test_the_score_is_how_far_the_steps_lie_from_what_came(seen: list[RunError], came: float) -> None:
    found = mixed(seen)
    distances = np.abs(found.errors[:, None] - found.errors[None, :])
    spread = float(found.weights @ distances @ found.weights)
    apart = float(found.weights @ np.abs(found.errors - came))
    assert found.score(came) == pytest.approx(apart - spread / 2, abs=1e-9)  # the other form of the same


def test_a_sharp_forecast_that_is_right_scores_best() -> None:
    sharp, wide = (ErrorDistribution.of_shape().scaled(0.0, deviation) for deviation in (0.1, 1.0))
    assert 0.0 < sharp.score(0.0) < wide.score(0.0) < wide.score(3.0) < sharp.score(3.0)
