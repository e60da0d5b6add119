"""What runs teach of peaks: coverage and width of the upper bound, whose runs count, and what is forgotten."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pytest

from selector.estimate import MemoryEstimate, Uncertainty
from selector.forecast.experience import PeakForecast
from selector.forecast.history import Expectation, WorkloadKey
from selector.forecast.peaks import KEPT_RUNS, KEPT_SHARE, PER_TEMPLATE, RECENT, Peaks
from tests.selector.forecast.runs import ENDLESS, JOINS, LIMIT, MIB, SORTS, estimate, run, subject

SEED = 20260301
STREAM = 1_700
WARM_UP = 200
KINDS = (
    Uncertainty("joins", 0.0, 0.15),
    Uncertainty("groups", 0.0, 0.3),
    Uncertainty("guesses", -0.5, 0.8),
)

Error = Callable[[random.Random, int], float]

ERRORS: dict[str, Error] = {  # in deviations of their kind
    "normal": lambda chance, _: chance.gauss(0.3, 1.0),
    "heavy tails": lambda chance, _: 0.4 * chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.0, 1.0)),
    "drift": lambda chance, place: chance.gauss(0.8 * place / STREAM, 1.0),
    "one-sided": lambda chance, _: -chance.expovariate(0.7),
}
COVERED = {"one-sided": (0.95, 1.0)}  # the other side stays possible: what was known before counts as some runs
HONEST = (0.93, 0.97)


def forecast(peaks: Peaks, modelled: MemoryEstimate, about: WorkloadKey) -> PeakForecast:
    return PeakForecast(modelled.peak_bytes or 0, peaks.errors(modelled, about).errors)


def upper(peaks: Peaks, about: WorkloadKey, modelled: MemoryEstimate | None = None) -> int:
    return forecast(peaks, modelled or estimate(), about).quantile(0.95)


def expected(peaks: Peaks, about: WorkloadKey, modelled: MemoryEstimate | None = None) -> int:
    return forecast(peaks, modelled or estimate(), about).quantile(0.5)


@pytest.mark.parametrize("templates", [10, STREAM], ids=["few templates", "hardly one twice"])
@pytest.mark.parametrize("errors", list(ERRORS))
def test_the_upper_bound_covers_what_it_says_and_is_not_wide(errors: str, templates: int) -> None:
    chance = random.Random(SEED)  # noqa: S311 - not for secrets
    peaks = Peaks()
    covered: list[bool] = []
    widths: list[float] = []
    for place in range(STREAM):
        template = chance.randrange(templates)
        kind = KINDS[template % len(KINDS)]
        modelled = estimate(MIB * 10 ** chance.uniform(0.5, 2), kind)
        error = kind.bias + kind.deviation * ERRORS[errors](chance, place)
        measured = (modelled.peak_bytes or 0) * math.exp(error)
        about = subject(f"s{place}", f"t{template}")
        if place >= WARM_UP and place % 2:
            bound = upper(peaks, about, modelled)
            covered.append(measured <= bound)
            widths.append(bound / max(MIB, measured))
        peaks.add(run(about, measured, modelled, limit_bytes=ENDLESS))
    least, most = COVERED.get(errors, HONEST)
    assert least <= sum(covered) / len(covered) <= most
    assert median(widths) <= 1.8


def test_statements_that_are_repeated_are_covered_too() -> None:
    chance = random.Random(SEED)  # noqa: S311 - not for secrets
    own = {f"s{n}": 10 * MIB * (1 + n) for n in range(20)}
    peaks = Peaks()
    covered: list[bool] = []
    for place in range(STREAM):
        name = chance.choice(list(own))
        about = subject(name, name)
        measured = own[name] * math.exp(chance.gauss(0, 0.1))
        if place >= 300 and place % 2:
            found = forecast(peaks, estimate(), about)
            covered.append(measured <= found.quantile(0.95))
            assert found.quantile(0.5) == pytest.approx(own[name], rel=0.25)
        peaks.add(run(about, measured))
    assert 0.93 <= sum(covered) / len(covered) <= 0.97


def test_what_ran_out_of_memory_counts_as_more_and_not_as_the_limit() -> None:
    """Peaks above the limit are not seen; the bound covers them all the same, and those of smaller statements."""
    chance = random.Random(SEED)  # noqa: S311 - not for secrets
    peaks = Peaks()
    covered: list[bool] = []
    for place in range(STREAM):
        modelled = estimate(MIB * 10 ** chance.uniform(1.5, 3))
        measured = (modelled.peak_bytes or 0) * math.exp(chance.gauss(0.1, 0.4))
        about = subject(f"s{place}", f"t{place}")
        if place >= WARM_UP and place % 2:
            covered.append(measured <= upper(peaks, about, modelled))
        peaks.add(run(about, measured if measured <= LIMIT else None, modelled))
    assert sum(one.ran_out for one in peaks) > RECENT // 50  # more than a few
    assert 0.93 <= sum(covered) / len(covered) <= 0.97


def test_before_any_run_the_models_uncertainty_holds() -> None:
    found = Peaks().errors(estimate(), subject())
    assert (found.text, found.runs) == ("", 0)
    unsure = upper(Peaks(), subject(), estimate(uncertainty=Uncertainty("guesses", 0.0, 0.8)))
    assert 100 * MIB < upper(Peaks(), subject()) < unsure
    biased = Uncertainty("guesses", -0.5, 0.3)
    assert expected(Peaks(), subject(), estimate(uncertainty=biased)) == pytest.approx(
        100 * MIB * math.exp(-0.5), rel=0.02
    )


def test_a_statement_is_expected_to_take_what_it_took() -> None:
    peaks = Peaks([run(subject(), 37 * MIB)])
    assert expected(peaks, subject()) == pytest.approx(37 * MIB, rel=0.03)
    assert upper(peaks, subject()) < 1.25 * 37 * MIB
    found = peaks.errors(estimate(), subject())
    assert (found.text, found.runs) == ("Learned from 1 run of this statement.", 1)


def test_errors_of_a_statement_that_ran_often_are_kept_until_a_run_surprises_or_there_are_a_share_more() -> None:
    peaks, often = Peaks(), KEPT_RUNS * 4
    for _ in range(often):
        peaks.add(run(subject(), 30 * MIB))
    found = peaks.errors(estimate(), subject())
    for _ in range(int(often * KEPT_SHARE) - 1):
        peaks.add(run(subject(), 30 * MIB))
        assert peaks.errors(estimate(), subject()) is found
    peaks.add(run(subject(), 30 * MIB))
    again = peaks.errors(estimate(), subject())
    assert (again.runs, found.runs) == (often + int(often * KEPT_SHARE), often)
    peaks.add(run(subject(), 33 * MIB))
    surprised = peaks.errors(estimate(), subject())
    assert surprised.runs == again.runs + 1
    assert peaks.errors(estimate(), subject()) is surprised
    peaks.add(run(subject(), None))
    fits = math.log(LIMIT / (100 * MIB))
    assert peaks.errors(estimate(), subject()).errors.below(fits) < surprised.errors.below(fits)
    assert not peaks.errors(estimate(20 * MIB), subject()).of_statement


def test_errors_are_looked_at_again_also_once_the_oldest_runs_are_forgotten() -> None:
    peaks = Peaks()
    for _ in range(2 * RECENT):
        peaks.add(run(subject(), 30 * MIB))
        peaks.errors(estimate(), subject())
    for _ in range(RECENT):
        peaks.add(run(subject(), 30.3 * MIB))
        peaks.errors(estimate(), subject())
    assert expected(peaks, subject()) == pytest.approx(30.3 * MIB, rel=0.002)


def test_new_ground_of_which_the_model_says_something_else_retires_a_statements_own_runs() -> None:
    peaks = Peaks([run(subject(), 37 * MIB) for _ in range(9)])
    same, other = estimate(105 * MIB), estimate(400 * MIB)
    assert peaks.errors(same, subject()).text == "Learned from 9 runs of this statement."
    found = peaks.errors(other, subject())
    assert found.text == "Learned from 1 run of this template."  # the statement as it was is a sibling of itself
    assert expected(peaks, subject(), other) > 100 * MIB


def test_runs_of_a_template_move_its_other_statements_the_more_the_more_there_are() -> None:
    peaks, new = Peaks(), subject("new")
    seen = [expected(peaks, new)]
    for n in range(20):
        peaks.add(run(subject(f"s{n}"), 200 * MIB))
        seen.append(expected(peaks, new))
    assert 100 * MIB <= seen[0] < seen[1] < seen[2] <= seen[5]
    assert seen[20] == pytest.approx(200 * MIB, rel=0.05)
    assert upper(peaks, new) < 1.3 * 200 * MIB
    found = peaks.errors(estimate(), new)
    assert (found.text, found.runs) == ("Learned from 20 runs of this template.", 20)


def test_a_statement_that_is_repeated_speaks_once_for_its_template() -> None:
    once = Peaks([run(subject("a"), 200 * MIB), *[run(subject("b"), 50 * MIB)]])
    often = Peaks([run(subject("a"), 200 * MIB), *[run(subject("b"), 50 * MIB)] * 50])
    assert expected(often, subject("new")) == pytest.approx(expected(once, subject("new")), rel=0.02)


def test_kinds_are_told_apart() -> None:
    joins = [run(subject(f"j{n}", f"j{n}"), 100 * MIB, estimate(uncertainty=JOINS)) for n in range(60)]
    sorts = [run(subject(f"o{n}", f"o{n}"), 300 * MIB, estimate(uncertainty=SORTS)) for n in range(60)]
    peaks = Peaks([*joins, *sorts])
    new = subject("new", "new")
    assert expected(peaks, new, estimate(uncertainty=JOINS)) == pytest.approx(100 * MIB, rel=0.1)
    assert expected(peaks, new, estimate(uncertainty=SORTS)) > 200 * MIB
    assert peaks.errors(estimate(), new).text == ""


def test_one_busy_template_does_not_speak_for_all_statements() -> None:
    others = [run(subject(f"s{n}", f"t{n}"), 200 * MIB) for n in range(60)]
    busy = [run(subject(f"b{n}", "busy"), 10 * MIB) for n in range(400)]
    without = Peaks([*others, *busy[:PER_TEMPLATE]])
    peaks = Peaks([*others, *busy])
    new = subject("new", "new")
    assert expected(peaks, new) == pytest.approx(expected(without, new), rel=0.01)
    assert expected(peaks, new) > 130 * MIB
    assert expected(peaks, subject("new", "busy")) < 15 * MIB


def test_one_wrong_estimate_that_seemed_sure_does_not_widen_the_doubtful_ones() -> None:
    sure, doubtful = Uncertainty("sure", 0.0, 0.05), Uncertainty("guesses", 0.0, 0.8)
    good = [run(subject(f"s{n}", f"t{n}"), 100 * MIB, estimate(uncertainty=sure)) for n in range(40)]
    wrong = run(subject("wrong", "wrong"), 10_000 * MIB, estimate(uncertainty=sure))
    new = subject("new", "new")
    before = upper(Peaks(good), new, estimate(uncertainty=doubtful))
    assert upper(Peaks([*good, wrong]), new, estimate(uncertainty=doubtful)) < 2 * before


def test_peaks_too_small_to_be_seen_say_nothing_about_others() -> None:
    small, large = estimate(900 << 10), estimate(9 * MIB)
    seen = (0, 108 << 10, 120 << 10, 16 << 10, 0, 133 << 10)
    tiny = [run(subject("tiny", "tiny"), seen[n % len(seen)], small) for n in range(60)]
    peaks = Peaks([*tiny, *[run(subject("large", "large"), 6 * MIB, large) for _ in range(3)]])
    assert expected(peaks, subject("tiny", "tiny"), small) == pytest.approx(MIB, rel=0.05)
    assert expected(peaks, subject("large", "large"), large) == pytest.approx(6 * MIB, rel=0.05)
    assert upper(peaks, subject("new", "new")) <= 250 * MIB


def test_the_oldest_run_is_forgotten() -> None:
    first = subject("first", "first")
    peaks = Peaks([run(first, 7 * MIB)])
    assert expected(peaks, first) == pytest.approx(7 * MIB, rel=0.05)
    for n in range(RECENT):
        peaks.add(run(subject(f"s{n}", f"t{n}"), 100 * MIB))
    assert len(peaks) == RECENT
    assert expected(peaks, first) == pytest.approx(100 * MIB, rel=0.05)


def test_runs_that_tell_nothing_of_memory_are_left_out() -> None:
    told = run(subject(), 50 * MIB)
    unmeasured = replace(told, measured_bytes=None)
    unexpected = replace(told, expected=Expectation())
    spilled = replace(told, ran_out=True, measured_bytes=None, expected=replace(told.expected, limit_bytes=None))
    assert list(Peaks([unmeasured, told, unexpected, spilled])) == [told]
