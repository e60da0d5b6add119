"""Memory and seconds of statements to come: what one run changes about the next, and what a limit has to do with it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.estimate import LARGEST_BYTES, UNKNOWN, Uncertainty
from selector.forecast.distribution import ErrorDistribution
from selector.forecast.experience import Experience, PeakForecast
from selector.forecast.history import SMALLEST_BYTES, Expectation, PastRun, WorkloadKey
from selector.forecast.seconds import Speed, Work
from tests.selector.forecast.runs import (
    FAST,
    JOINS,
    LIMIT,
    MIB,
    SLOW,
    elsewhere,
    estimate,
    experience,
    run,
    subject,
)

MODEL = estimate(900 * MIB)


def fits(known: Experience, about: WorkloadKey, limit_bytes: int = LIMIT, expected_bytes: float = 900 * MIB) -> float:
    peak = known.forecast("duckdb", about, estimate=estimate(expected_bytes)).peak
    assert peak is not None
    return peak.below(limit_bytes)


def test_a_miss_lowers_the_probability_of_its_template_at_once() -> None:
    unseen = experience()
    missed = experience(run(subject("f"), None, MODEL))
    new, stranger = subject("new"), subject("x", "other")
    assert fits(missed, subject("f")) < 0.1 < 0.5 < fits(unseen, subject("f"))
    assert fits(missed, new) < fits(unseen, new) - 0.1
    assert fits(unseen, stranger) - 0.1 < fits(missed, stranger) <= fits(unseen, stranger)
    twice = experience(run(subject("f"), None, MODEL), run(subject("g"), None, MODEL))
    assert fits(twice, new) < fits(missed, new)


def test_a_miss_that_is_forgotten_is_as_if_it_had_not_been() -> None:
    missed = experience(run(subject("f"), None, MODEL), run(subject("g"), 800 * MIB, MODEL))
    missed.forget_misses("f")
    never = experience(run(subject("g"), 800 * MIB, MODEL))
    for name in ("f", "g", "new"):
        assert fits(missed, subject(name)) == pytest.approx(fits(never, subject(name)))


def test_a_repeated_statement_gets_what_it_took() -> None:
    known = experience(*[run(subject(), 37 * MIB, MODEL, seconds=4.0)] * 3)
    found = known.forecast("duckdb", subject(), estimate=MODEL)
    assert found.estimate.peak_bytes == pytest.approx(37 * MIB, rel=0.03)
    assert found.estimate.upper_bytes == pytest.approx(37 * MIB, rel=0.2)
    assert found.seconds == pytest.approx(4.0, rel=0.3)
    assert found.peak is not None
    assert found.peak.below(50 * MIB) > 0.95
    learned = found.estimate.learned
    assert learned is not None
    assert (learned.text, learned.runs) == ("Learned from 3 runs of this statement.", 3)
    assert (learned.peak_bytes, learned.upper_bytes) == (MODEL.peak_bytes, MODEL.upper_bytes)


def test_a_changed_limit_keeps_what_was_learned() -> None:
    known = experience(*(run(subject(f"s{n}"), 450 * MIB, MODEL, limit_bytes=LIMIT) for n in range(20)))
    assert fits(known, subject("new"), LIMIT // 4) < 0.1
    assert fits(known, subject("new"), LIMIT // 2) > 0.9
    missed = experience(run(subject(), None, MODEL, limit_bytes=LIMIT))
    assert fits(missed, subject(), LIMIT) < 0.1
    assert fits(missed, subject(), LIMIT // 2) <= fits(missed, subject(), LIMIT)
    assert fits(missed, subject(), 2 * LIMIT) > 0.5  # of which a miss at half of it says little


def test_unknown_stays_unknown_but_its_seconds_are_known() -> None:
    known = experience(run(subject(), 10 * MIB, seconds=3.0))
    found = known.forecast("duckdb", subject())
    assert (found.estimate, found.peak) == (UNKNOWN, None)
    assert found.model_s == FAST.start_s
    assert found.seconds > FAST.start_s


def test_peaks_are_an_engines_own_and_slowness_is_shared_until_runs_say_otherwise() -> None:
    known = experience(run(subject(), 10 * MIB, MODEL, seconds=3.0))
    learned, elsewhere = known.forecast("duckdb", subject()), known.forecast("spark", subject())
    assert learned.seconds > FAST.start_s
    assert SLOW.start_s < elsewhere.seconds < SLOW.start_s * learned.seconds / FAST.start_s
    for _ in range(5):
        known.learn(PastRun("spark", subject(), Expectation(seconds=SLOW.start_s), False, None, SLOW.start_s))
    assert known.forecast("spark", subject()).seconds == pytest.approx(SLOW.start_s, rel=0.25)
    before = known.forecast("duckdb", subject()).seconds
    known.learn(run(subject(), 10 * MIB, MODEL, engine="gone", seconds=99.0))  # an engine that is no longer there
    assert known.forecast("duckdb", subject()).seconds == before


def test_work_takes_each_engine_as_long_as_it_is_fast() -> None:
    known = Experience({"duckdb": Speed(0.1, 0.0, 1e6), "spark": Speed(1.0, 0.5, 1e5)})
    work = Work(shuffles=2, rows=1e6)
    assert known.forecast("duckdb", subject(), work).seconds == pytest.approx(0.1 + 1.0)
    assert known.forecast("spark", subject(), work).seconds == pytest.approx(1.0 + 2 * 0.5 + 10.0)


def test_how_often_a_template_ran_elsewhere_is_counted_until_it_runs_here() -> None:
    known = experience(*(elsewhere(subject(f"s{n}")) for n in range(3)), elsewhere(subject("x", "other")))
    assert known.forecast("duckdb", subject("new"), estimate=MODEL).elsewhere == 3
    assert known.forecast("spark", subject("new")).elsewhere == 0
    assert known.forecast("duckdb", subject("new", "never")).elsewhere == 0
    known.learn(run(subject("s1"), None, MODEL))
    assert known.forecast("duckdb", subject("new"), estimate=MODEL).elsewhere == 0
    assert known.forecast("spark", subject("new")).elsewhere == 1


@pytest.mark.parametrize("limit_bytes", [0, 1, SMALLEST_BYTES, LARGEST_BYTES])
def test_limits_beyond_all_bounds_have_a_probability_too(limit_bytes: int) -> None:
    for expected_bytes in (0, 1, MIB, 1 << 60):
        assert 0.0 <= fits(experience(), subject(), limit_bytes, expected_bytes) <= 1.0


past_runs = st.lists(
    st.builds(
        lambda statement, template, measured, expected, deviation: run(
            subject(f"s{statement}", f"t{template}"),
            measured,
            estimate(expected, Uncertainty("joins", 0.0, deviation)),
        ),
        st.integers(0, 9),
        st.integers(0, 3),
        st.none() | st.integers(0, 1 << 50),
        st.integers(0, 1 << 60),
        st.floats(0.01, 3.0),
    ),
    max_size=40,
)
sizes = st.integers(1, 1 << 50)


@settings(max_examples=100, deadline=None)
@given(past_runs, st.integers(0, 9), sizes, sizes, sizes)
def test_a_larger_limit_is_never_less_probable_to_be_enough(
    seen: Sequence[PastRun], statement: int, expected_bytes: int, one: int, other: int
) -> None:
    known = experience(*seen)
    about = subject(f"s{statement}", f"t{statement % 4}")
    smaller, larger = (fits(known, about, limit, expected_bytes) for limit in sorted((one, other)))
    assert 0.0 <= smaller <= larger <= 1.0


@settings(max_examples=100, deadline=None)
@given(past_runs, st.integers(0, 9), st.integers(0, 1 << 50), st.floats(0.01, 0.99))
def test_whatever_was_seen_the_bound_is_above_the_expected_peak_and_always_the_same(
    seen: Sequence[PastRun], statement: int, expected_bytes: int, level: float
) -> None:
    about, modelled = subject(f"s{statement}", f"t{statement % 4}"), estimate(expected_bytes)
    found = experience(*seen).forecast("duckdb", about, estimate=modelled)
    again = experience(*seen).forecast("duckdb", about, estimate=modelled)
    assert (found.estimate, found.seconds, found.miss_s) == (again.estimate, again.seconds, again.miss_s)
    assert found.peak is not None
    assert 0 < (found.estimate.peak_bytes or 0) <= (found.estimate.upper_bytes or 0) <= LARGEST_BYTES
    limit = found.peak.quantile(level)
    again_limit = found.peak.quantile(found.peak.below(limit))
    assert max(SMALLEST_BYTES, again_limit) == pytest.approx(max(SMALLEST_BYTES, limit), rel=1e-3, abs=2)


@pytest.mark.parametrize("level", [0.05, 0.5, 0.9, 0.95, 0.98])
def test_bytes_and_probabilities_lead_to_each_other(level: float) -> None:
    errors = ErrorDistribution.of_shape().scaled(JOINS.bias, JOINS.deviation)
    peak = PeakForecast(100 * MIB, errors)
    limit = peak.quantile(level)
    assert peak.below(limit) == pytest.approx(level, abs=1e-6)
    assert peak.below(limit) >= level - 1e-12
    assert peak.below(limit - 1) < level
    assert limit == pytest.approx(100 * MIB * math.exp(errors.quantile(level)), abs=1)
