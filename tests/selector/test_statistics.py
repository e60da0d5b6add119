from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.statistics import Histogram, as_number

AGES = Histogram(np.array([8.0, 23.0, 23.0, 23.0, 27.0, 45.0]))  # the paper's Figure 5
numbers = st.floats(-1e6, 1e6)


def test_a_popular_value_holds_the_buckets_that_it_fills() -> None:
    assert AGES.share_below(23) == pytest.approx(1 / 5)
    assert AGES.share_up_to(23) == pytest.approx(3 / 5)


def test_between_endpoints_the_share_is_interpolated() -> None:
    assert AGES.share_below(36) == pytest.approx(4 / 5 + (36 - 27) / (45 - 27) / 5)


def test_outside_the_endpoints() -> None:
    assert AGES.share_up_to(7.9) == 0.0
    assert AGES.share_below(8) == 0.0
    assert AGES.share_up_to(45) == 1.0
    assert AGES.share_below(46) == 1.0


def test_counted_shares_win_over_ranks() -> None:
    counted = Histogram(np.array([1.0, 2.0]), below=np.array([0.0, 0.25]), up_to=np.array([0.25, 1.0]))
    assert counted.share_below(2) == 0.25
    assert counted.share_up_to(1) == 0.25


@pytest.mark.parametrize("endpoints", [[1.0], [2.0, 1.0], [1.0, np.nan], [[1.0, 2.0]]])
def test_what_is_no_histogram_is_refused(endpoints: list[float]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Histogram(np.array(endpoints))


@given(st.lists(numbers, min_size=2, max_size=50), numbers, numbers)
def test_shares_grow_with_the_value(values: list[float], x: float, y: float) -> None:
    histogram = Histogram(np.sort(np.array(values)))
    low, high = sorted((x, y))
    assert 0.0 <= histogram.share_below(low) <= histogram.share_up_to(low) <= 1.0
    assert histogram.share_up_to(low) <= histogram.share_up_to(high)
    assert histogram.share_below(low) <= histogram.share_below(high)


@pytest.mark.parametrize(
    ("value", "data_type", "number"),
    [
        ("1970-01-02", "date", 1.0),
        (dt.date(1969, 12, 31), "date", -1.0),
        ("1970-01-01 00:00:01", "timestamp", 1e6),
        (dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), "timestamp", 0.0),
        (Decimal("12.50"), "decimal(10,2)", 12.5),
        ("12.50", "double", 12.5),
        (True, "boolean", 1.0),
        ("twelve", "double", None),
        ("tomorrow", "date", None),
        ("inf", "double", None),
    ],
)
def test_literals_find_their_place_on_the_number_line(value: object, data_type: str, number: float | None) -> None:
    assert as_number(value, data_type) == number  # type: ignore[arg-type]
