"""How long statements take: from the work in their plans, corrected by what runs took."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.estimate import MemoryEstimate, OperatorEstimate
from selector.forecast.experience import Experience
from selector.forecast.history import PastRun
from selector.forecast.seconds import (
    ENGINE_WEIGHT,
    MISS_WEIGHT,
    MOST_TOLD,
    NO_EXCESS,
    RECENT,
    RECENT_MISSES,
    SHARED,
    Excess,
    Seconds,
    Speed,
    Work,
    common_excess,
)
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
    estimate = MemoryEstimate(1, 1, tuple(operator(*part) for part in parts))
    work = Work.of(estimate)
    assert work == Work(shuffles=3, rows=1e6 + 1e3 + 5e6 + 5e5)
    assert work.seconds(SPEED) == pytest.approx(0.5 + 3 * 0.25 + work.rows / 1e6)
    assert Work().seconds(SPEED) == SPEED.start_s


def test_before_any_run_the_work_alone_tells() -> None:
    assert timed().expected_s(MODEL_S, subject()) == MODEL_S


def test_a_statement_that_is_repeated_is_expected_to_take_what_it_took() -> None:
    timing = timed(*[("f", "t", 10.0)] * 3)
    assert timing.expected_s(MODEL_S, subject("f", "t")) == pytest.approx(10.0, rel=0.1)


def test_the_nearer_a_run_is_the_more_it_says() -> None:
    timing = timed(("f", "t", 10.0))
    own, sibling, other = (
        timing.expected_s(MODEL_S, subject(statement, template))
        for statement, template in (("f", "t"), ("g", "t"), ("h", "u"))
    )
    assert MODEL_S < other < sibling < own < 10.0


def test_runs_of_an_engine_move_all_its_statements_as_far_as_they_agree() -> None:
    slow = timed(*((f"s{n}", f"t{n}", 3 * MODEL_S) for n in range(50)))
    assert slow.expected_s(MODEL_S, subject("new", "new")) == pytest.approx(3 * MODEL_S, rel=0.15)
    one_off = timed(*((f"s{n}", f"t{n}", MODEL_S) for n in range(50)), ("odd", "odd", 1_000.0))
    assert one_off.expected_s(MODEL_S, subject("new", "new")) == pytest.approx(MODEL_S, rel=0.05)


def test_the_oldest_run_is_forgotten() -> None:
    timing = timed(("first", "first", 100.0), *((f"s{n}", f"t{n}", MODEL_S) for n in range(RECENT)))
    assert timing.expected_s(MODEL_S, subject("first", "first")) == pytest.approx(MODEL_S)


def test_runs_elsewhere_move_what_has_not_run_here_and_less_and_less_what_has() -> None:
    slow = Excess(engine=0.0, template=1.0)
    new, known = timed(), timed(*[("f", "t", MODEL_S)] * 5)
    assert new.expected_s(MODEL_S, subject("f", "t"), slow) == pytest.approx(MODEL_S * math.exp(SHARED))
    assert known.expected_s(MODEL_S, subject("f", "t"), slow) == pytest.approx(MODEL_S, rel=0.05)
    assert new.expected_s(MODEL_S, subject(), Excess(engine=1.0)) == pytest.approx(MODEL_S * math.e)


def test_how_much_of_an_excess_is_shared_is_learned_from_statements_that_ran_on_both() -> None:
    alike, by_itself = Seconds(SPEED), Seconds(SPEED)
    chance = random.Random(3)  # noqa: S311 - examples, no secrets
    for n in range(60):
        there = chance.gauss(0.0, 0.7)
        for timing, seconds in ((alike, MODEL_S * math.exp(there)), (by_itself, MODEL_S)):
            about = run(subject(f"s{n}", f"t{n}"), MIB, seconds=seconds, model_s=MODEL_S)
            timing.add(about, Excess(template=there))

    def told(timing: Seconds, template: float) -> float:
        """Return by how much an excess elsewhere moves what is expected here."""
        both = [timing.expected_s(MODEL_S, subject("new", "new"), Excess(template=one)) for one in (template, 0.0)]
        return math.log(both[0] / both[1])

    assert told(alike, 1.0) == pytest.approx(1.0, abs=0.1)
    assert told(by_itself, 1.0) == pytest.approx(0.0, abs=0.1)


def test_of_two_engines_templates_that_ran_on_both_tell_which_is_faster() -> None:
    """Templates that run on one alone may be of another kind, which says nothing of the other engine."""
    hard = {f"h{n}": 4.0 * MODEL_S for n in range(12)}
    known = Experience({"one": SPEED, "two": SPEED})
    work = Work(rows=(MODEL_S - SPEED.start_s) * SPEED.rows_per_s)
    for name, seconds in hard.items():
        known.learn(timed_run("one", name, seconds))
    for n in range(6):
        known.learn(timed_run("two", f"b{n}", 2.0 * MODEL_S))
        known.learn(timed_run("one", f"b{n}", MODEL_S))
    new = subject("new", "new")
    one, two = (known.forecast(engine, new, work).seconds for engine in ("one", "two"))
    assert two / one == pytest.approx(2.0, rel=0.35)


def test_a_template_that_runs_often_counts_once_among_them() -> None:
    timing = Seconds(SPEED)
    for n in range(20):
        timing.add(run(subject(f"s{n}", "often"), MIB, seconds=MODEL_S / 5, model_s=MODEL_S))
        timing.pair("often", Excess(template=0.0))
    for n in range(5):
        timing.add(run(subject(f"r{n}", f"rare {n}"), MIB, seconds=MODEL_S, model_s=MODEL_S))
        timing.pair(f"rare {n}", Excess(template=0.0))
    assert timing.expected_s(MODEL_S, subject("new", "new")) == pytest.approx(MODEL_S, rel=0.4)


def test_engines_together_tell_another_of_no_more_than_one_run_does_of_an_engine() -> None:
    told = Excess.mean_of([Excess(template=9.0, statement=3.0), Excess(template=1.0)], 1.5)
    assert told == Excess(1.5, MOST_TOLD - 1.5, 0.0)
    assert Excess.mean_of([NO_EXCESS], 0.5) == Excess(0.5)


def test_what_several_engines_have_in_common_is_by_how_many_statements_ran() -> None:
    assert common_excess([]) == 0.0
    assert common_excess([(10, 1.0), (0, 0.0)]) == pytest.approx(10 / (10 + ENGINE_WEIGHT))


def test_what_is_forgotten_is_told_no_more() -> None:
    timing = Seconds(SPEED)
    timing.add(run(subject("old", "old"), MIB, seconds=9 * MODEL_S, model_s=MODEL_S))
    timing.pair("old", Excess(template=0.0))
    for n in range(RECENT):
        timing.add(run(subject(f"s{n}", f"t{n}"), MIB, seconds=MODEL_S, model_s=MODEL_S))
    assert timing.expected_s(MODEL_S, subject("old", "old")) == pytest.approx(MODEL_S)
    assert timing.excess(subject("old", "old"), 0.0) == NO_EXCESS


@pytest.mark.parametrize("statements", [1, 30, 2 * RECENT])
def test_the_newest_run_of_each_statement_tells_of_the_engine(statements: int) -> None:
    chance, timing = random.Random(statements), Seconds(SPEED)  # noqa: S311 - examples, no secrets
    ran: list[tuple[str, float]] = []
    for number in range(2 * RECENT + 50):
        ran.append((f"s{chance.randrange(statements)}", MODEL_S * chance.lognormvariate(0.0, 1.5)))
        timing.add(run(subject(*2 * ran[-1][:1]), MIB, seconds=ran[-1][1], model_s=MODEL_S))
        if number % 97 == 0 or number > 2 * RECENT:
            errors = [math.log(seconds / MODEL_S) for seconds in dict(ran[-RECENT:]).values()]
            median = statistics.median(max(-MOST_TOLD, min(error, MOST_TOLD)) for error in errors)
            assert timing.told[0] == len(errors)
            assert timing.told[1] == pytest.approx(median)


def timed_run(engine: str, name: str, seconds: float) -> PastRun:
    return run(subject(name, name), MIB, engine=engine, seconds=seconds, model_s=MODEL_S)


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
    assert timing.expected_s(MODEL_S, subject()) == MODEL_S


def test_runs_of_unknown_length_say_nothing() -> None:
    timing = timed()
    timing.add(run(subject(), MIB, seconds=None, model_s=MODEL_S))
    timing.add(run(subject(), MIB, seconds=50.0, model_s=None))
    assert timing.expected_s(MODEL_S, subject()) == MODEL_S


@given(st.lists(st.floats(0.0, 1e4), max_size=20), st.floats(1e-3, 1e4))
def test_what_is_expected_lies_between_what_was_seen_and_what_the_model_says(seen: list[float], model_s: float) -> None:
    timing = Seconds(SPEED)
    for seconds in seen:
        timing.add(run(subject(), MIB, seconds=seconds, model_s=model_s))
    bounds = [model_s, *(max(1e-3, seconds) for seconds in seen)]
    assert min(bounds) * 0.999 <= timing.expected_s(model_s, subject()) <= max(bounds) * 1.001
