from __future__ import annotations

import pytest

from benchmarks.accuracy import mape, percentage_errors, q_errors


def test_errors_are_relative_to_the_truth() -> None:
    assert percentage_errors([110.0, 50.0, 7.0], [100.0, 100.0, 7.0]).tolist() == pytest.approx([10.0, 50.0, 0.0])


def test_mape_is_their_mean() -> None:
    assert mape([110.0, 50.0, 7.0], [100.0, 100.0, 7.0]) == pytest.approx((10.0 + 50.0 + 0.0) / 3)


@pytest.mark.parametrize(("estimates", "truths"), [([1.0], [0.0]), ([1.0], [1.0, 2.0]), ([], [])])
def test_what_cannot_be_compared_is_refused(estimates: list[float], truths: list[float]) -> None:
    with pytest.raises(ValueError, match="truth"):
        mape(estimates, truths)


def test_a_q_error_counts_too_much_and_too_little_alike() -> None:
    assert q_errors([50.0, 200.0, 100.0], [100.0, 100.0, 100.0]).tolist() == [2.0, 2.0, 1.0]


def test_fewer_rows_than_one_count_as_one() -> None:
    assert q_errors([0.0, 0.25, 5.0], [0.0, 3.0, 0.0]).tolist() == [1.0, 3.0, 5.0]


@pytest.mark.parametrize(("estimates", "truths"), [([1.0], [1.0, 2.0]), ([], [])])
def test_q_errors_need_a_truth_for_each_estimate(estimates: list[float], truths: list[float]) -> None:
    with pytest.raises(ValueError, match="truths cannot be compared"):
        q_errors(estimates, truths)
