from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.thresholds import spread

POINTS = 20


def test_one_value_of_each_quantile() -> None:
    values = [float(value) for value in range(100)]
    chosen = spread(values, POINTS, seed=42)
    assert [int(value) // (len(values) // POINTS) for value in chosen] == list(range(POINTS))


def test_popular_values_are_not_chosen_twice() -> None:
    values = [1.0] * 1_000 + [float(value) for value in range(2, 62)]
    chosen = spread(values, POINTS, seed=42)
    assert len(set(chosen)) == POINTS
    assert chosen[-1] > 58  # of the last quantile, however rare


def test_the_seed_decides() -> None:
    values = [float(value) for value in range(1_000)]
    assert spread(values, POINTS, seed=1) == spread(list(reversed(values)), POINTS, seed=1)
    assert spread(values, POINTS, seed=1) != spread(values, POINTS, seed=2)


@pytest.mark.parametrize("values", [[], [3.0], [2.0, 1.0, 2.0]])
def test_few_values_are_all_chosen(values: list[float]) -> None:
    assert spread(values, POINTS, seed=0) == sorted(set(values))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)), st.integers(1, 30), st.integers())
def test_chosen_values_are_values_in_order(values: list[float], count: int, seed: int) -> None:
    chosen = spread(values, count, seed=seed)
    assert set(chosen) <= set(values)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(count, len(set(values)))
