"""Going on, switching and racing: each is chosen where it is expected to end first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from selector.estimate import USUAL_UNCERTAINTY
from selector.forecast.continuation import Continuation, Prospects, Standing, fits_given, weigh
from selector.forecast.distribution import ErrorDistribution
from selector.forecast.experience import PeakForecast

MIB = 1 << 20
LIMIT = 1_024 * MIB
PEAK = PeakForecast(700 * MIB, ErrorDistribution.of_shape().scaled(0.0, USUAL_UNCERTAINTY.deviation))
PROSPECTS = Prospects(PEAK, fits=PEAK.below(LIMIT), seconds=2.0, elsewhere_s=6.0, slowed=2.0)
YOUNG = Standing(held_bytes=300 * MIB, limit_bytes=LIMIT, elapsed_s=0.5, bytes_per_s=600 * MIB)
FULL = Standing(held_bytes=1_015 * MIB, limit_bytes=LIMIT, elapsed_s=3.0, bytes_per_s=3 * MIB)


def test_what_is_held_lowers_the_probability_of_fitting_as_the_forecast_says() -> None:
    held = 900 * MIB
    below_limit, below_held = PEAK.below(LIMIT), PEAK.below(held)
    assert fits_given(PEAK, 0, LIMIT) == pytest.approx(below_limit)
    assert fits_given(PEAK, held, LIMIT) == pytest.approx((below_limit - below_held) / (1 - below_held))
    falling = [fits_given(PEAK, step * 64 * MIB, LIMIT) for step in range(17)]
    assert falling == sorted(falling, reverse=True)
    assert fits_given(PEAK, LIMIT, LIMIT) == 0.0


def test_where_more_is_held_than_was_ever_expected_the_room_that_is_left_says_how_likely_it_is() -> None:
    tiny = PeakForecast(2 * MIB, PEAK.errors)
    assert fits_given(tiny, 500 * MIB, 1_000 * MIB) == 1.0
    assert fits_given(tiny, 900 * MIB, 1_000 * MIB) == pytest.approx(np.log2(1_000 / 900))


def test_what_probably_fits_goes_on() -> None:
    weighed = weigh(PROSPECTS, YOUNG)
    assert weighed.choice is Continuation.GO_ON
    assert weighed.go_on_s < weighed.switch_s


def test_what_fills_its_memory_slowly_and_will_not_fit_is_switched() -> None:
    weighed = weigh(PROSPECTS, FULL)
    assert weighed.choice is Continuation.SWITCH
    assert weighed.until_full_s == 3.0  # 9 MiB at 3 MiB a second
    assert weighed.go_on_s > weighed.switch_s == PROSPECTS.elsewhere_s


def test_what_is_about_to_run_out_at_once_goes_on_as_that_costs_nothing_and_may_save_all() -> None:
    at_once = weigh(PROSPECTS, replace(FULL, bytes_per_s=3_000 * MIB))
    assert at_once.choice is Continuation.GO_ON


def test_on_one_machine_a_race_never_pays_and_on_two_it_may() -> None:
    standing = replace(FULL, held_bytes=930 * MIB, elapsed_s=1.0, bytes_per_s=30 * MIB)
    here = weigh(PROSPECTS, standing)
    assert here.race_s >= min(here.go_on_s, here.switch_s)
    apart = weigh(replace(PROSPECTS, slowed=1.0), standing)
    assert apart.choice is Continuation.RACE
    assert apart.race_s < here.race_s
    assert apart.race_s == pytest.approx(apart.fits * apart.rest_s + (1 - apart.fits) * PROSPECTS.elsewhere_s)
    assert apart.race_s < apart.go_on_s


def test_what_was_tried_against_the_odds_needs_evidence_to_be_broken_off() -> None:
    poor = PeakForecast(1_400 * MIB, PEAK.errors)
    tried = replace(PROSPECTS, peak=poor, fits=poor.below(LIMIT), elsewhere_s=1.0)
    assert tried.fits < 0.5
    assert weigh(tried, replace(YOUNG, held_bytes=260 * MIB)).choice is Continuation.GO_ON
    assert weigh(tried, FULL).choice is Continuation.SWITCH


@pytest.mark.parametrize(
    ("share", "rest_s"),
    [(None, 1.5), (0.01, 1.5), (0.05, 1.5), (0.5, 0.5), (1.0, 0.0)],
    ids=["unknown", "too small to say anything", "more than expected", "less than expected", "done"],
)
def test_an_engines_own_word_counts_where_it_says_that_less_is_left(share: float | None, rest_s: float) -> None:
    assert weigh(PROSPECTS, replace(YOUNG, share=share)).rest_s == pytest.approx(rest_s)


def test_after_the_expected_time_it_takes_as_long_again() -> None:
    assert weigh(PROSPECTS, replace(YOUNG, elapsed_s=5.0)).rest_s == 5.0


def test_what_was_weighed_is_told_in_words() -> None:
    text = weigh(PROSPECTS, FULL).text("spark")
    for part in ("1,015 MiB of the 1,024 MiB", "after 3.0 s", "spark 6.0 s"):
        assert part in text
