"""The replay of runs: what it counts, that it finds a bound that is too narrow, and one that says nothing."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.claim import RunFailed
from benchmarks.coverage import (
    LEAST_PERCENT,
    MOST_PERCENT,
    SEED,
    SMALLEST,
    Covered,
    cold,
    fitted,
    measure,
    replay,
)
from metastore.database.connection import sqlite_url
from selector.estimate import Uncertainty
from selector.forecast.history import Expectation, PastRun, WorkloadKey

MIB = 1 << 20
LIMIT = 1 << 40
RUNS = 300


def drawn(
    deviation: float, *, count: int = RUNS, bias: float = 0.0, kind: str = "joins", seed: int = 1
) -> list[PastRun]:
    """Return runs whose peaks are off by this much, as a standard deviation of logarithms."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    expected = Expectation(100 * MIB, Uncertainty(kind), LIMIT)
    return [
        PastRun(
            "duckdb",
            WorkloadKey(f"s{seed}-{n}", f"t{seed}-{n}"),
            expected,
            False,
            round(100 * MIB * math.exp(chance.gauss(bias, deviation))),
            None,
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("deviation", [0.1, 0.5])
def test_what_is_learned_covers_what_it_says_whatever_the_model_says(deviation: float) -> None:
    covered = replay(drawn(deviation), orders=3, seed=SEED)
    assert covered.factors.size == 3 * RUNS
    assert LEAST_PERCENT <= covered.percent <= MOST_PERCENT + 1.0


def test_what_was_fitted_to_the_same_errors_needs_no_runs() -> None:
    known = fitted([*drawn(0.1, seed=2), *drawn(0.6, kind="guesses", seed=3)])
    assert known.of("guesses").deviation > 4 * known.of("joins").deviation
    assert known.of("never seen") == Uncertainty("never seen", *known.usual)
    for kind, deviation in (("joins", 0.1), ("guesses", 0.6)):
        covered = cold(drawn(deviation, kind=kind, seed=4), known)
        assert 91.0 <= covered.percent <= 99.0
        assert covered.median < math.exp(2.5 * deviation)


def test_a_bias_is_found_and_taken_away() -> None:
    known = fitted(drawn(0.1, bias=-0.7, seed=2))
    assert known.of("joins").bias == pytest.approx(-0.7, abs=0.05)
    assert cold(drawn(0.1, bias=-0.7, seed=4), known).median < 1.4


def test_a_bound_that_says_nothing_is_told_from_a_sharp_one() -> None:
    sharp, endless = Covered(np.full(100, 1.2)), Covered(np.full(100, 1e6))
    assert sharp.percent == endless.percent == 100.0
    assert (sharp.median, endless.median) == pytest.approx((1.2, 1e6))
    assert sharp.pinball < endless.pinball
    assert Covered(np.full(100, 0.5)).pinball > Covered(np.full(100, 2.0)).pinball


def test_runs_that_were_not_measured_are_not_counted() -> None:
    missed = [replace(run, ran_out=True, measured_bytes=None) for run in drawn(0.1, count=SMALLEST)]
    with pytest.raises(RunFailed, match="no run was measured"):
        replay(missed, orders=1, seed=SEED)


def test_too_few_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="0 runs are too few"):
        measure(metastore=sqlite_url(tmp_path / "metastore.db"), engine="duckdb", orders=1, seed=SEED)
    with pytest.raises(RunFailed, match="3 runs are too few"):
        fitted(drawn(0.1, count=3))
