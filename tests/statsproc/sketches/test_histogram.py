from __future__ import annotations

import string

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.statistics import Histogram, Keys
from statsproc.sketches.column_summary import summarise
from statsproc.sketches.histogram import (
    BUCKETS,
    COMMON_VALUES,
    CROWDED,
    EMPTY,
    HEAVY,
    MERGED_POINTS,
    POINTS,
    TAIL_BUCKETS,
    Distribution,
    Floats,
    add_all,
    common_values,
    equi_height,
    ranks_at,
    thin,
)

TOLERANCE = 1 / POINTS  # of the rows: what a batch may be off between two of its points
CROWDS = CROWDED - 10

finite = st.floats(allow_nan=False, allow_infinity=False)
few = st.integers(-5, 5).map(float)


def distribution_of(values: Floats) -> Distribution:
    return summarise(pa.array(values), "double").distribution


def _texts(values: list[str], *, dictionary: bool = False) -> Distribution:
    array = pa.array(values, pa.string())
    return summarise(array.dictionary_encode() if dictionary else array, "string").distribution


def _ranks(values: Floats, x: Keys) -> tuple[Floats, Floats]:
    ordered = np.sort(values)
    return (
        np.searchsorted(ordered, np.asarray(x, dtype=float), side="left").astype(np.float64),
        np.searchsorted(ordered, np.asarray(x, dtype=float), side="right").astype(np.float64),
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


@settings(deadline=None)
@given(st.lists(st.one_of(finite, few), min_size=1, max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_merging_any_split_of_few_values_is_exact(values: list[float], cuts: list[int]) -> None:
    whole = np.array(values)
    parts = np.split(whole, sorted(min(cut, len(values)) for cut in cuts))
    merged = add_all([distribution_of(part) for part in parts])
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
    merged = add_all([distribution_of(part) for part in np.split(values, cuts)])
    assert merged.values.size <= MERGED_POINTS
    _check(merged, values, TOLERANCE)
    found = [distribution_of(part) for part in np.split(values, cuts)]
    for other in (
        add_all(found[::-1]),
        add_all([found[0], add_all(found[1:])]),
        add_all([add_all(found[:-1]), found[-1]]),
    ):
        _check(other, values, TOLERANCE)
    heavy, held = np.unique(values, return_counts=True)
    for value in heavy[held > values.size / HEAVY * 2]:  # so heavy that it is in each part that holds many of it
        at = int(np.searchsorted(merged.values, value))
        assert merged.values[at] == value


@settings(deadline=None)
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


@settings(deadline=None)
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
    histogram = equi_height(add_all(parts), rows=values.size)
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


# ---------------------------------------------------------------------- strings


def _check_texts(known: Distribution, values: list[str]) -> None:
    ordered = np.sort(np.array([value.encode()[:32] for value in values], dtype="S32"))
    assert known.rows == len(values)
    assert np.all(known.values[1:] > known.values[:-1])  # type: ignore[operator]
    assert known.values[0] <= ordered[0]
    assert known.values[-1] == ordered[-1]
    tolerance = len(values) / CROWDED + 1e-6
    for found, side in ((known.below, "left"), (known.up_to, "right")):
        truth = np.searchsorted(ordered, known.values, side=side)  # type: ignore[call-overload]
        np.testing.assert_allclose(found, truth, atol=tolerance)


@settings(deadline=None)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=80), st.integers(0, 80), st.booleans())
def test_merging_any_split_of_texts(values: list[str], cut: int, dictionary: bool) -> None:
    parts = [_texts(values[:cut], dictionary=dictionary), _texts(values[cut:])]
    _check_texts(add_all(parts), values)
    _check_texts(add_all(parts[::-1]), values)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("kind", ["words", "urls", "numbers", "long", "phrases", "crowds"])
def test_many_texts(kind: str, dictionary: bool) -> None:
    """Phrases agree in many bytes, and then differ; of crowds there are nearly as many as there can be."""
    random = np.random.default_rng(3)
    ranks = random.zipf(1.2, 60_000).clip(max=50_000)
    beginnings = ["".join(row) for row in random.choice(list(string.ascii_lowercase), (CROWDS, 20))]
    values = {
        "words": [f"{n * 2654435761 % 2**32:08x}" for n in ranks],
        "urls": [f"https://example.org/{n % 7}/{n}" for n in ranks],
        "numbers": [f"{n:020}" for n in ranks],
        "long": [f"{'x' * (n % 3)} the same long beginning {n}" for n in ranks],
        "phrases": [f"{beginnings[n % 200]} {row}" for row, n in enumerate(ranks)],
        "crowds": [f"{beginnings[row % CROWDS]} {n}" for row, n in enumerate(ranks)],
    }[kind]
    _check_texts(_texts(values, dictionary=dictionary), values)
    _check_texts(add_all([_texts(values[n::5], dictionary=dictionary) for n in range(5)]), values)


# ---------------------------------------------------------------------- common values


def test_common_values_are_counted_exactly() -> None:
    values = np.concatenate((np.repeat([3.0, 9.0, 4.0], [5_000, 3_000, 2_000]), np.arange(20_000.0)))
    parts = [distribution_of(part) for part in np.array_split(np.random.default_rng(1).permutation(values), 6)]
    found = common_values(add_all(parts), ndv=20_000)
    assert found is not None
    assert found.values[:3].tolist() == [3.0, 9.0, 4.0]
    assert found.rows[:3].tolist() == [5_001, 3_001, 2_001]


def test_few_values_are_all_common() -> None:
    found = common_values(distribution_of(np.array([1.0, 2.0, 2.0])), ndv=2)
    assert found is not None
    assert (found.values.tolist(), found.rows.tolist()) == ([2.0, 1.0], [2, 1])


def test_no_value_stands_out() -> None:
    assert common_values(distribution_of(np.arange(10_000.0)), ndv=10_000) is None
    assert common_values(EMPTY, ndv=0) is None
    many = common_values(distribution_of(np.repeat(np.arange(3_000.0), 4)), ndv=6_000)
    assert many is not None
    assert many.values.size == COMMON_VALUES
