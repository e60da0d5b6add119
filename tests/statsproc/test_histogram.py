from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.statistics import Histogram
from statsproc.histogram import (
    BUCKETS,
    EMPTY,
    MERGED_POINTS,
    POINTS,
    TAIL_BUCKETS,
    Distribution,
    Floats,
    add,
    distribution_of,
    equi_height,
    ranks_at,
    thin,
)

TOLERANCE = 1 / POINTS  # of the rows: what a batch may be off between two of its points
finite = st.floats(allow_nan=False, allow_infinity=False)
few = st.integers(-5, 5).map(float)


def _ranks(values: Floats, x: Floats) -> tuple[Floats, Floats]:
    ordered = np.sort(values)
    return (
        np.searchsorted(ordered, x, side="left").astype(np.float64),
        np.searchsorted(ordered, x, side="right").astype(np.float64),
    )


def _histogram(values: Floats) -> Histogram:
    histogram = equi_height(distribution_of(values), rows=values.size)
    assert histogram is not None
    return histogram


def _check(known: Distribution, values: Floats, tolerance: float) -> None:
    assert known.rows == values.size
    assert (known.values[0], known.values[-1]) == (values.min(), values.max())
    assert np.all(np.diff(known.values) > 0)
    assert np.all(known.below <= known.up_to + 1e-6)
    assert np.all(np.diff(known.below) >= 0)
    assert np.all(np.diff(known.up_to) >= 0)
    below, up_to = _ranks(values, known.values)
    np.testing.assert_allclose(known.below, below, atol=tolerance * values.size + 1e-6)
    np.testing.assert_allclose(known.up_to, up_to, atol=tolerance * values.size + 1e-6)


@given(st.lists(st.one_of(finite, few), min_size=1, max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_merging_any_split_of_few_values_is_exact(values: list[float], cuts: list[int]) -> None:
    whole = np.array(values)
    parts = np.split(whole, sorted(min(cut, len(values)) for cut in cuts))
    merged = reduce(add, (distribution_of(part) for part in parts), EMPTY)
    _check(merged, whole, 0.0)
    np.testing.assert_array_equal(merged.values, distribution_of(whole).values)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["uniform", "skewed", "clustered", "mixed"]),
    st.integers(1, 9),
    st.booleans(),
)
def test_merging_any_split_of_many_values_is_near(seed: int, kind: str, parts: int, ordered: bool) -> None:
    random = np.random.default_rng(seed)
    rows = 20_000
    values = {
        "uniform": random.uniform(-1e6, 1e6, rows),
        "skewed": random.zipf(1.3, rows).clip(max=10**9).astype(np.float64),
        "clustered": random.normal(random.integers(0, 3, rows) * 1e9, 1.0),
        "mixed": np.where(random.random(rows) < 0.3, 7.0, random.lognormal(2.0, 2.0, rows)),
    }[kind]
    if ordered:
        values = np.sort(values)
    cuts = np.sort(random.integers(0, rows, parts - 1))
    merged = reduce(add, (distribution_of(part) for part in np.split(values, cuts)), EMPTY)
    assert merged.values.size <= MERGED_POINTS
    _check(merged, values, TOLERANCE)


@given(st.lists(finite, min_size=1), st.lists(finite, min_size=1))
def test_ranks_between_values_are_interpolated_and_never_fall(values: list[float], asked: list[float]) -> None:
    below, up_to = ranks_at(distribution_of(np.array(values)), np.sort(np.array(asked)))
    assert np.all((below >= 0) & (below <= up_to) & (up_to <= len(values)))
    assert np.all(np.diff(below) >= -1e-9)
    assert np.all(np.diff(up_to) >= -1e-9)


def test_thinning_keeps_popular_values_exactly() -> None:
    values = np.concatenate((np.full(5_000, 3.0), np.arange(5_000.0)))
    thinned = thin(distribution_of(values), 100)
    assert thinned.values.size <= 100
    at = int(np.searchsorted(thinned.values, 3.0))
    assert (thinned.below[at], thinned.up_to[at]) == (3.0, 3.0 + 5_001)


@given(st.lists(st.one_of(few, finite), min_size=1, max_size=400))
def test_shares_of_a_histogram_never_fall_and_end_at_all_rows(values: list[float]) -> None:
    histogram = _histogram(np.array(values))
    assert histogram.below is not None
    assert histogram.up_to is not None
    assert histogram.buckets <= BUCKETS
    assert histogram.below[0] == 0.0
    assert histogram.up_to[-1] == 1.0
    assert np.all(np.diff(histogram.below) >= 0)
    assert np.all(np.diff(histogram.up_to) >= 0)
    assert np.all(histogram.below <= histogram.up_to)


def test_the_ages_of_figure_5() -> None:
    """The popular age repeats: 8, 23, 23, 23, 27, 45 in the paper."""
    ages = np.array([8, 12, 23, 23, 23, 23, 23, 25, 27, 45], dtype=np.float64)
    histogram = _histogram(ages)
    repeated = np.count_nonzero(histogram.endpoints == 23.0)
    assert abs(repeated / histogram.buckets - 5 / 10) < 0.02
    assert (histogram.endpoints[0], histogram.endpoints[-1]) == (8.0, 45.0)
    assert histogram.share_below(23.0) == pytest.approx(2 / 10)
    assert histogram.share_up_to(23.0) == pytest.approx(7 / 10)


def test_rare_values_of_a_column_with_few_are_exact() -> None:
    quantities = np.repeat(np.arange(1.0, 101.0), np.geomspace(100_000, 1, 100).astype(int))
    histogram = _histogram(quantities)
    for quantity in range(1, 101):
        below, up_to = _ranks(quantities, np.array([float(quantity)]))
        assert histogram.share_below(quantity) == pytest.approx(below[0] / quantities.size, abs=1e-12)
        assert histogram.share_up_to(quantity) == pytest.approx(up_to[0] / quantities.size, abs=1e-12)


def test_end_points_of_many_values_lie_at_equal_heights() -> None:
    values = np.random.default_rng(7).lognormal(3.0, 1.0, 300_000)
    parts = [distribution_of(part) for part in np.array_split(values, 7)]
    histogram = equi_height(reduce(add, parts), rows=values.size)
    assert histogram is not None
    assert histogram.buckets == BUCKETS
    below, up_to = _ranks(values, histogram.endpoints)
    equal = np.linspace(0, values.size, BUCKETS - 2 * TAIL_BUCKETS + 1)
    tail = equal[1] / 2 ** np.arange(TAIL_BUCKETS, 0, -1)  # the outer buckets are halved again and again
    heights = np.concatenate(([0], tail, equal[1:-1], np.sort(values.size - tail), [values.size]))
    rank_error = np.maximum(np.maximum(below - heights, heights - up_to), 0.0) / values.size
    assert rank_error.max() <= 0.001


@pytest.mark.parametrize("value", [0.0, -1e308, 5e-324])
def test_one_value(value: float) -> None:
    histogram = _histogram(np.array([value]))
    assert set(histogram.endpoints) == {value}
    assert histogram.share_below(value) == 0.0
    assert histogram.share_up_to(value) == 1.0


def test_no_values() -> None:
    assert equi_height(EMPTY, rows=0) is None


def test_extreme_values_do_not_overflow() -> None:
    below, _ = ranks_at(distribution_of(np.array([-1.7e308, 1.7e308])), np.array([0.0]))
    assert below[0] == pytest.approx(1.0)


def test_rows_outside_the_number_line_have_their_share() -> None:
    histogram = equi_height(distribution_of(np.array([1.0, 2.0])), rows=8, rows_before=2)
    assert histogram is not None
    assert histogram.share_below(1.0) == 2 / 8
    assert histogram.share_up_to(2.0) == 4 / 8
