"""Keys that were sampled on both sides correct an estimate by cells, but chance alone does not."""

from __future__ import annotations

import numpy as np
import pytest

from selector.cardinality.matching import MATCHED, _Matches

KEYS = 2_000
SHARE = 0.1
EXPECTED = np.full(1, SHARE)  # of one cell


def matches(met_share: float, seed: int = 0) -> tuple[_Matches, float]:
    """Return sampled keys of which a share has a match, by chance, and the lift that counting alone gives."""
    met = (np.random.default_rng(seed).random(KEYS) < met_share).astype(np.float64)
    counted = (met.sum() + MATCHED * SHARE) / (KEYS * SHARE + MATCHED * SHARE)
    return _Matches(np.zeros(KEYS, dtype=np.int64), np.ones(KEYS), met), float(counted)


@pytest.mark.parametrize("seed", range(10))
def test_what_chance_brings_is_taken_off(seed: int) -> None:
    sampled, counted = matches(SHARE, seed)
    lift = sampled.lift(EXPECTED, sampled.met)
    assert abs(lift - 1.0) < abs(counted - 1.0)
    assert (lift - 1.0) * (counted - 1.0) >= 0.0


def test_on_average_chance_changes_little() -> None:
    pairs = [matches(SHARE, seed) for seed in range(200)]
    with_chance = np.mean([(counted - 1.0) ** 2 for _, counted in pairs])
    without = np.mean([(sampled.lift(EXPECTED, sampled.met) - 1.0) ** 2 for sampled, _ in pairs])
    assert without < with_chance / 2.0


@pytest.mark.parametrize("met_share", [0.0, 0.01, 0.5, 0.9])
def test_a_difference_beyond_chance_is_believed(met_share: float) -> None:
    sampled, counted = matches(met_share)
    lift = sampled.lift(EXPECTED, sampled.met)
    assert abs(lift - counted) < 0.15 * abs(counted - 1.0)


def test_a_few_keys_say_nothing_against_many_rows() -> None:
    sampled = _Matches(np.zeros(10, dtype=np.int64), np.ones(10), np.zeros(10))
    assert sampled.lift(EXPECTED, sampled.met) == 1.0
