"""The replay of runs: what it counts, and that it finds a bound that is too narrow."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from benchmarks.claim import RunFailed
from benchmarks.coverage import SMALLEST, figures, measure, replay
from metastore.database.connection import sqlite_url
from selector.learning import Observation, WorkloadKey

MIB = 1 << 20
LIMIT = 1 << 40
RUNS = 300


def runs(error: float, *, count: int = RUNS) -> list[Observation]:
    """Return runs whose peaks are off by this much, as a standard deviation of logarithms."""
    chance = random.Random(1)  # noqa: S311 - not for secrets
    return [
        Observation(
            WorkloadKey(f"s{n}", f"t{n}", "v", LIMIT),
            "sort",
            100 * MIB,
            135 * MIB,
            round(100 * MIB * math.exp(chance.gauss(0.0, error))),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize(("error", "model_percent"), [(0.05, 100.0), (0.5, 73.0)])
def test_what_is_learned_covers_what_it_says_whatever_the_model_says(error: float, model_percent: float) -> None:
    covered = replay(runs(error), orders=3)
    assert covered.runs == 3 * (RUNS - SMALLEST // 2)
    assert covered.model_percent == pytest.approx(model_percent, abs=6.0)
    assert 93.0 <= covered.learned_percent <= 97.0
    assert figures(covered)["learned.off_percent"] == pytest.approx(abs(covered.learned_percent - 95.0))


def test_a_model_that_is_too_careful_gets_a_narrower_bound() -> None:
    covered = replay(runs(0.05), orders=3)
    assert covered.learned_factor < covered.model_factor


def test_runs_that_were_not_measured_are_not_counted() -> None:
    missed = [Observation(one.subject, one.holder, 100 * MIB, 135 * MIB, None) for one in runs(0.1, count=SMALLEST)]
    with pytest.raises(RunFailed, match="no run was measured"):
        replay(missed, orders=1)


def test_too_few_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="0 runs are too few"):
        measure(sqlite_url(tmp_path / "metastore.db"))
