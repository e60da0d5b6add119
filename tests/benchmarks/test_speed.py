from __future__ import annotations

import pytest

from benchmarks.claim import Claim
from benchmarks.speed import PAPER_OVER_HIVE, Round, figures_of


def test_ratios_are_medians_of_pairs() -> None:
    rounds = [Round(1.0, 2.0, 0.5), Round(1.0, 9.0, 0.9), Round(2.0, 8.0, 2.0)]
    figures, targets = figures_of({"Q5": ("duckdb", rounds)})
    assert figures["Q5.over_spark"] == pytest.approx(4.0)  # of 2, 9 and 4
    assert figures["Q5.over_duckdb"] == pytest.approx(0.9)  # of 0.5, 0.9 and 1
    assert figures["Q5.spark_s"] == pytest.approx(8.0)
    assert targets["Q5.over_spark"].bound == PAPER_OVER_HIVE["Q5"]
    assert not Claim("speed", figures, targets).holds
