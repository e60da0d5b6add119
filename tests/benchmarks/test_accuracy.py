from __future__ import annotations

import pytest

from benchmarks.accuracy import mape, percentage_errors


def test_errors_are_relative_to_the_truth() -> None:
    assert percentage_errors([110.0, 50.0, 7.0], [100.0, 100.0, 7.0]).tolist() == pytest.approx([10.0, 50.0, 0.0])


def test_mape_is_their_mean() -> None:
    assert mape([110.0, 50.0, 7.0], [100.0, 100.0, 7.0]) == pytest.approx((10.0 + 50.0 + 0.0) / 3)


@pytest.mark.parametrize(("estimates", "truths"), [([1.0], [0.0]), ([1.0], [1.0, 2.0]), ([], [])])
def test_what_cannot_be_compared_is_refused(estimates: list[float], truths: list[float]) -> None:
    with pytest.raises(ValueError, match="truth"):
        mape(estimates, truths)
