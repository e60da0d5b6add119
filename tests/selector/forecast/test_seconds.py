"""How long statements take: from the work in their plans, corrected by what runs took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.estimate import MemoryEstimate, OperatorEstimate
from selector.forecast.seconds import MISS_WEIGHT, RECENT, RECENT_MISSES, Seconds, Speed, Work
from tests.selector.forecast.runs import MIB, run, subject

SPEED = Speed(start_s=0.5, operator_s=0.25, rows_per_s=1e6)
MODEL_S = 2.0


def timed(*runs: tuple[str, str, float], speed: Speed = SPEED) -> Seconds:
    """Return what statements, each with its template and its seconds, teach."""
    timing = Seconds(speed)
    for statement, template, seconds in runs:
        timing.add(run(subject(statement, template), MIB, seconds=seconds, model_s=MODEL_S))
    return timing


def operator(name: str, rows: float | None) -> OperatorEstimate:
    return OperatorEstimate(name, 0, rows, rows, 0, "rows")


def test_work_is_what_passes_through_operators_and_which_of_them_shuffle() -> None:
    parts = [("hash join", 1e6), ("aggregate", 1e3), ("sort", None), ("scan of books", 5e6), ("filter", 5e5)]
    estimate = MemoryEstimate(1, 1, 1.0, tuple(operator(*part) for part in parts))
    work = Work.of(estimate)
    assert work == Work(shuffles=3, rows=1e6 + 1e3 + 5e6 + 5e5)
    assert work.seconds(SPEED) == pytest.approx(0.5 + 3 * 0.25 + work.rows / 1e6)
    assert Work().seconds(SPEED) == SPEED.start_s


def test_before_any_run_the_work_alone_tells() -> None:
    assert timed().expected(MODEL_S, subject()) == MODEL_S


def test_a_statement_that_is_repeated_is_expected_to_take_what_it_took() -> None:
    timing = timed(*[("f", "t", 10.0)] * 3)
    assert timing.expected(MODEL_S, subject("f", "t")) == pytest.approx(10.0, rel=0.1)


def test_the_nearer_a_run_is_the_more_it_says() -> None:
    timing = timed(("f", "t", 10.0))
    own, sibling, other = (
        timing.expected(MODEL_S, subject(statement, template))
        for statement, template in (("f", "t"), ("g", "t"), ("h", "u"))
    )
    assert MODEL_S < other < sibling < own < 10.0


def test_runs_of_an_engine_move_all_its_statements_as_far_as_they_agree() -> None:
    slow = timed(*((f"s{n}", f"t{n}", 3 * MODEL_S) for n in range(50)))
    assert slow.expected(MODEL_S, subject("new", "new")) == pytest.approx(3 * MODEL_S, rel=0.15)
    one_off = timed(*((f"s{n}", f"t{n}", MODEL_S) for n in range(50)), ("odd", "odd", 1_000.0))
    assert one_off.expected(MODEL_S, subject("new", "new")) == pytest.approx(MODEL_S, rel=0.05)


def test_the_oldest_run_is_forgotten() -> None:
    timing = timed(("first", "first", 100.0), *((f"s{n}", f"t{n}", MODEL_S) for n in range(RECENT)))
    assert timing.expected(MODEL_S, subject("first", "first")) == pytest.approx(MODEL_S)


def test_until_a_miss_it_takes_as_long_as_it_would_unless_runs_say_otherwise() -> None:
    timing = timed()
    assert timing.until_miss(7.0) == 7.0
    assert timing.until_miss(7.0, 0.5) == 3.5  # memory fills as it goes on
    assert timed(speed=Speed(miss_s=34.0)).until_miss(7.0) == 34.0
    for _ in range(3):
        timing.add(run(subject(), None, seconds=1.0, model_s=MODEL_S))
    assert timing.until_miss(7.0) == pytest.approx((MISS_WEIGHT * 7.0 + 3 * 1.0) / (MISS_WEIGHT + 3))
    for _ in range(2 * RECENT_MISSES):
        timing.add(run(subject(), None, seconds=1.0, model_s=MODEL_S))
    assert timing.until_miss(7.0) == pytest.approx((MISS_WEIGHT * 7.0 + RECENT_MISSES) / (MISS_WEIGHT + RECENT_MISSES))


def test_a_miss_says_nothing_of_how_long_a_statement_takes_that_fits() -> None:
    timing = timed()
    timing.add(run(subject(), None, seconds=100.0, model_s=MODEL_S))
    assert timing.expected(MODEL_S, subject()) == MODEL_S


def test_runs_of_unknown_length_say_nothing() -> None:
    timing = timed()
    timing.add(run(subject(), MIB, seconds=None, model_s=MODEL_S))
    timing.add(run(subject(), MIB, seconds=50.0, model_s=None))
    assert timing.expected(MODEL_S, subject()) == MODEL_S


@given(st.lists(st.floats(0.0, 1e4), max_size=20), st.floats(1e-3, 1e4))
def test_what_is_expected_lies_between_what_was_seen_and_what_the_model_says(seen: list[float], model_s: float) -> None:
    timing = Seconds(SPEED)
    for seconds in seen:
        timing.add(run(subject(), MIB, seconds=seconds, model_s=model_s))
    bounds = [model_s, *(max(1e-3, seconds) for seconds in seen)]
    assert min(bounds) * 0.999 <= timing.expected(model_s, subject()) <= max(bounds) * 1.001
