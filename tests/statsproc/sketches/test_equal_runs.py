"""Different values with their runs, however they are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from statsproc.sketches.equal_runs import runs, runs_of

KINDS = (np.int8, np.int16, np.int32, np.int64, np.uint64, np.float32, np.float64)


def _check(values: NDArray[Any]) -> None:
    ordered = np.sort(values)
    starts, ends = runs(ordered)
    found, found_starts, found_ends = runs_of(values)
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, ordered[starts])
    np.testing.assert_array_equal(found_starts, starts)
    np.testing.assert_array_equal(found_ends, ends)


@given(st.sampled_from(KINDS).flatmap(lambda kind: arrays.arrays(kind, st.integers(0, 30))))
def test_runs_are_those_of_sorted_values(values: NDArray[Any]) -> None:
    _check(values)
    _check(np.sort(values))


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint64])
def test_values_between_close_bounds_are_counted(kind: Any) -> None:
    """Also at the ends of their type, where differences do not fit into it."""
    bounds = np.iinfo(kind)
    drawn = np.random.default_rng(3).integers(0, 256, 2_000)
    for low in {int(bounds.min), int(bounds.max) - 255}:
        _check(np.array([low + int(n) for n in drawn], dtype=kind))
