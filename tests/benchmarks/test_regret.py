"""What decisions cost beside what one who knows would pay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.regret import FIXED, _fixed, played_passes
from benchmarks.tape import AMPLE_MIB, MIB, Entry, Took
from selector.estimate import MemoryEstimate, OperatorEstimate, Uncertainty

LIMIT = 64
SURE = Uncertainty("joins", 0.0, 0.1)


def sure(expected_mib: float) -> MemoryEstimate:
    """Return an estimate that says what it expects with little doubt."""
    expected = round(expected_mib * MIB)
    operators = (OperatorEstimate("hash join", 0, 1e5, 1e5, expected, "containment of keys"),)
    return MemoryEstimate(expected, 2 * expected, operators, driver=0, uncertainty=SURE, paper_bytes=expected // 2)


def entry(name: str, expected_mib: float, peak_mib: float, *, fast_s: float = 0.2, slow_s: float = 4.0) -> Entry:
    """Return a statement that was expected to take so much, and took so much."""
    estimate = sure(expected_mib)
    fits = peak_mib <= LIMIT
    took = Took(fits, fast_s, round(peak_mib * MIB) if fits else None)
    ample = Took(True, fast_s, round(peak_mib * MIB))
    return Entry(name, "", name, name, estimate, {LIMIT: took, AMPLE_MIB: ample}, slow_s)


def test_a_perfect_estimate_costs_nothing_over_the_oracle() -> None:
    tape = [entry(f"s{n}", mib, mib) for n, mib in enumerate((5, 20, 30, 200, 300, 500))]
    for one in played_passes(tape, LIMIT, 0.0, 3, 0):
        assert one.ratio == pytest.approx(1.0)
        assert one.misses == 0


def test_no_statement_misses_twice_and_a_miss_is_paid_once() -> None:
    tape = [entry("wrong", 20, 300), entry("right", 20, 20)]
    first, second, third = played_passes(tape, LIMIT, 0.0, 3, 0)
    assert first.seconds == pytest.approx((4.2, 0.2))
    assert second.seconds == third.seconds == pytest.approx((4.0, 0.2))
    assert (first.misses, second.misses, third.misses) == (1, 0, 0)
    assert first.oracle_s == pytest.approx((4.0, 0.2))


def test_what_a_miss_costs_changes_what_is_tried() -> None:
    close = [entry(f"s{n}", 60, 60) for n in range(4)]
    cheap, dear = (played_passes(close, LIMIT, price_s, 1, 0)[0] for price_s in (0.0, 500.0))
    assert cheap.ratio == pytest.approx(1.0)
    assert dear.ratio == pytest.approx(20.0)


def test_an_engine_that_is_slower_is_not_chosen_for_long() -> None:
    tape = [replace(entry(f"s{n}", 10, 10, fast_s=9.0, slow_s=1.0)) for n in range(4)]
    passes = played_passes(tape, LIMIT, 0.0, 3, 0)
    assert passes[0].ratio > passes[2].ratio == pytest.approx(1.0)


def test_fixed_policies_are_priced_alike() -> None:
    tape = [entry("fits", 20, 20), entry("misses", 20, 300)]
    ratios = {name: _fixed(tape, LIMIT, 0.0, go).ratio for name, go in FIXED.items()}
    assert ratios["DuckDB, then Spark"] == pytest.approx(4.4 / 4.2)
    assert ratios["always Spark"] == pytest.approx(8.0 / 4.2)
    assert ratios["the paper's formula"] == pytest.approx(4.4 / 4.2)
    dear = _fixed(tape, LIMIT, 34.0, FIXED["DuckDB, then Spark"])
    assert dear.ratio == pytest.approx(38.4 / 4.2)
    assert dear.misses == 1
