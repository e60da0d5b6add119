"""What runs teach: coverage of the upper bound, whose runs count, and what retires them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.estimate import UNKNOWN, MemoryEstimate, OperatorEstimate
from selector.learning import (
    ANY,
    ENOUGH,
    RECENT,
    REPEATED_MISSES,
    SHRINKAGE,
    Observation,
    Residuals,
    WorkloadKey,
    holder_of,
    observe,
)

MIB = 1 << 20
LIMIT = 1 << 30
FACTOR = 1.35  # of the upper bound, at full confidence
SEED = 20260301
STREAM = 1_700


def estimate(expected_bytes: int = 100 * MIB, confidence: float = 1.0, operator: str = "hash join") -> MemoryEstimate:
    upper_bytes = round(expected_bytes * FACTOR / confidence)
    holds = (OperatorEstimate(operator, 0, 1.0, 1.0, expected_bytes, "histogram"),)
    return MemoryEstimate(expected_bytes, upper_bytes, confidence, holds, driver=0)


def subject(
    statement: str = "f", template: str = "t", version: str = "books@1", limit_bytes: int = LIMIT
) -> WorkloadKey:
    return WorkloadKey(statement, template, version, limit_bytes)


def run(about: WorkloadKey, measured_bytes: float | None, expected: MemoryEstimate | None = None) -> Observation:
    seen = observe(
        expected or estimate(), about, measured_bytes=None if measured_bytes is None else round(measured_bytes)
    )
    assert seen is not None
    return seen


def others(count: int, ratio: Callable[[int], float] = lambda _: 1.0) -> list[Observation]:
    """Return runs of different statements, each of a template of its own."""
    return [run(subject(f"s{n}", f"t{n}"), 100 * MIB * ratio(n)) for n in range(count)]


def known(found: MemoryEstimate) -> tuple[int, int]:
    assert found.peak_bytes is not None
    assert found.upper_bytes is not None
    return found.peak_bytes, found.upper_bytes


Error = Callable[[random.Random, int], float]

ERRORS: dict[str, Error] = {  # logarithm of measured over expected
    "normal": lambda chance, _: chance.gauss(0.1, 0.3),
    "heavy tails": lambda chance, _: 0.1 * chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.0, 1.0)),
    "one-sided": lambda chance, _: -chance.expovariate(2.0),
    "drift": lambda chance, place: chance.gauss(0.2 * place / STREAM, 0.3),
}


@pytest.mark.parametrize("templates", [10, STREAM], ids=["few templates", "no template twice"])
@pytest.mark.parametrize("error", ERRORS.values(), ids=list(ERRORS))
def test_the_upper_bound_covers_what_it_says(error: Error, templates: int) -> None:
    chance = random.Random(SEED)  # noqa: S311 - not for secrets
    residuals = Residuals()
    covered = []
    for place in range(STREAM):
        modelled = estimate(round(MIB * 10 ** chance.uniform(0, 2)), confidence=chance.choice((1.0, 0.7, 0.4)))
        peak_bytes, upper_bytes = known(modelled)
        width = math.log(upper_bytes / peak_bytes)
        measured = peak_bytes * math.exp(width / math.log(FACTOR) * error(chance, place))
        about = subject(f"s{place}", f"t{chance.randrange(templates)}", limit_bytes=LIMIT << 20)
        if len(residuals) >= 200:
            covered.append(measured <= known(residuals.correct(modelled, about))[1])
        residuals.add(run(about, measured, modelled))
    assert 0.93 <= sum(covered) / len(covered) <= 0.97


def test_statements_that_are_repeated_are_covered_too() -> None:
    chance = random.Random(SEED)  # noqa: S311 - not for secrets
    own = {f"s{n}": 10 * MIB * (1 + n) for n in range(20)}
    residuals = Residuals()
    covered = []
    for place in range(STREAM):
        name = chance.choice(list(own))
        measured = own[name] * math.exp(chance.gauss(0, 0.1))
        found = residuals.correct(estimate(), subject(name, name))
        if place >= 300:
            covered.append(measured <= known(found)[1])
            assert found.peak_bytes == pytest.approx(own[name], rel=0.25)
        residuals.add(run(subject(name, name), measured))
    assert 0.93 <= sum(covered) / len(covered) <= 0.97


def test_what_ran_out_of_memory_counts_as_more_and_not_as_the_limit() -> None:
    """Peaks above the limit are not seen; the bound still covers those of smaller statements, which lie below it."""
    chance = random.Random(SEED)  # noqa: S311 - not for secrets
    residuals = Residuals()
    covered = []
    for place in range(STREAM):
        modelled = estimate(round(MIB * 10 ** chance.uniform(1, 2.9)))
        measured = (modelled.peak_bytes or 0) * math.exp(chance.gauss(0, 0.4))
        about = subject(f"s{place}", f"t{place}")
        if len(residuals) >= 200:
            covered.append(measured <= known(residuals.correct(modelled, about))[1])
        residuals.add(run(about, measured if measured <= LIMIT else None, modelled))
    assert sum(run.is_censored for run in residuals) > RECENT // 50  # more than a few
    assert 0.93 <= sum(covered) / len(covered) <= 0.97


def test_a_statement_is_expected_to_take_what_it_took() -> None:
    found = Residuals([run(subject(), 37 * MIB)]).correct(estimate(confidence=0.2), subject())
    assert known(found) == (37 * MIB, math.ceil(37 * MIB * FACTOR))
    assert found.confidence == 1.0
    assert found.learned is not None
    assert found.learned.text == "Learned from 1 run of this statement."
    assert (found.learned.peak_bytes, found.learned.upper_bytes) == known(estimate(confidence=0.2))


def test_statements_that_always_take_the_same_get_a_narrow_bound() -> None:
    steady = [run(subject(f"s{n % 2}"), 40 * MIB) for n in range(ENOUGH + 2)]
    assert known(Residuals(steady[:-1]).correct(estimate(), subject("s1")))[1] == math.ceil(40 * MIB * FACTOR)
    assert known(Residuals(steady).correct(estimate(), subject("s1"))) == (40 * MIB, math.ceil(40 * MIB * 1.05))


@pytest.mark.parametrize("runs", [1, 5, ENOUGH - 1])
def test_few_runs_of_a_template_move_the_expected_peak_a_little(runs: int) -> None:
    template = [run(subject(f"s{n}"), 200 * MIB) for n in range(runs)]
    found = Residuals(template).correct(estimate(), subject("new"))
    assert found.peak_bytes == pytest.approx(100 * MIB * 2 ** (runs / (runs + SHRINKAGE)), abs=1)
    assert (found.upper_bytes or 0) >= 200 * MIB
    assert found.learned is not None
    assert found.learned.runs == runs


def test_a_template_with_enough_runs_has_a_bound_of_its_own() -> None:
    template = [run(subject(f"s{n}"), 50 * MIB) for n in range(ENOUGH)]
    found = Residuals([*others(100, lambda _: 3.0), *template]).correct(estimate(), subject("new"))
    assert found.upper_bytes == pytest.approx(max(50 * MIB, found.peak_bytes or 0), abs=2)
    assert found.learned is not None
    assert found.learned.text == f"Learned from {ENOUGH} runs of this template."


def test_statements_with_the_same_driver_are_asked_before_all_others() -> None:
    sorts = [run(subject(f"o{n}", f"o{n}"), 400 * MIB, estimate(operator="sort")) for n in range(ENOUGH)]
    residuals = Residuals([*others(ENOUGH), *sorts])
    join, sort = (known(residuals.correct(estimate(operator=kind), subject("new", "new")))[1] for kind in JOIN_SORT)
    assert join < 110 * MIB
    assert sort == pytest.approx(400 * MIB, abs=2)
    widest = known(residuals.correct(estimate(operator="window"), subject("new", "new")))[1]
    assert widest == pytest.approx(400 * MIB, abs=2)


JOIN_SORT = ("hash join", "sort")


def test_one_busy_template_does_not_speak_for_all_statements() -> None:
    busy = [run(subject(f"b{n}", "busy"), 10 * MIB) for n in range(400)]
    found = Residuals([*others(60, lambda _: 2.0), *busy]).correct(estimate(), subject("new", "new"))
    assert found.upper_bytes == pytest.approx(200 * MIB, abs=2)


@pytest.mark.parametrize("count", [0, 1, ENOUGH - 1])
def test_while_few_runs_are_known_the_models_bound_holds(count: int) -> None:
    found = Residuals(others(count, lambda _: 5.0)).correct(estimate(), subject("new", "new"))
    assert found == estimate()


@pytest.mark.parametrize("changed", [{"version": "books@2"}, {"limit_bytes": 2 * LIMIT}])
def test_new_statistics_and_another_limit_retire_what_was_learned(changed: dict[str, object]) -> None:
    residuals = Residuals([run(subject(f"s{n}"), 50 * MIB) for n in range(ENOUGH - 1)])
    assert residuals.correct(estimate(), subject("s1")) != estimate()
    assert residuals.correct(estimate(), subject("s1", **changed)) == estimate()  # type: ignore[arg-type]


def test_never_below_a_limit_that_was_not_enough() -> None:
    residuals = Residuals([run(subject(), None)])
    assert known(residuals.correct(estimate(), subject())) == (LIMIT, LIMIT)
    assert known(residuals.correct(estimate(), subject(limit_bytes=2 * LIMIT))) == (LIMIT, LIMIT)
    assert residuals.correct(estimate(), subject(version="books@2")) == estimate()


def test_a_template_that_ran_out_of_memory_again_and_again_does_not_fit() -> None:
    misses = [run(subject(f"s{n}"), None) for n in range(REPEATED_MISSES)]
    assert known(Residuals(misses[:1]).correct(estimate(), subject("new")))[1] < LIMIT
    assert known(Residuals(misses).correct(estimate(), subject("new")))[1] > LIMIT
    many = [run(subject(f"s{n}"), None) for n in range(ENOUGH)]
    assert known(Residuals(many).correct(estimate(), subject("new")))[1] > LIMIT


def test_unknown_stays_unknown() -> None:
    assert Residuals([run(subject(), 10 * MIB)]).correct(UNKNOWN, subject()) == UNKNOWN
    assert observe(UNKNOWN, subject(), measured_bytes=10) is None
    assert holder_of(UNKNOWN) == ANY


def test_only_the_model_is_held_against_runs_and_not_what_was_learned() -> None:
    residuals = Residuals([run(subject(), 400 * MIB)])
    corrected = residuals.correct(estimate(), subject())
    assert run(subject(), 400 * MIB, corrected) == run(subject(), 400 * MIB)


def test_the_oldest_run_is_forgotten() -> None:
    residuals = Residuals([run(subject("first", "first"), 7 * MIB)])
    assert known(residuals.correct(estimate(), subject("first", "first")))[0] == 7 * MIB
    for seen in others(RECENT):
        residuals.add(seen)
    assert len(residuals) == RECENT
    assert known(residuals.correct(estimate(), subject("first", "first")))[0] == pytest.approx(100 * MIB)


observations = st.lists(
    st.builds(
        lambda statement, template, version, measured, expected, confidence: run(
            subject(f"s{statement}", f"t{template}", f"books@{version}"), measured, estimate(expected, confidence)
        ),
        st.integers(0, 9),
        st.integers(0, 3),
        st.integers(1, 2),
        st.none() | st.integers(0, 1 << 50),
        st.integers(0, 1 << 1000),
        st.floats(0.01, 1.0),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(observations, st.integers(0, 1 << 1000), st.floats(0.01, 1.0), st.integers(0, 9))
def test_whatever_was_seen_a_bound_is_above_the_expected_peak_and_always_the_same(
    seen: Sequence[Observation], expected: int, confidence: float, statement: int
) -> None:
    modelled, about = estimate(expected, confidence), subject(f"s{statement}", f"t{statement % 4}")
    found = Residuals(seen).correct(modelled, about)
    assert found == Residuals(seen).correct(modelled, about)
    peak_bytes, upper_bytes = known(found)
    assert 0 <= peak_bytes <= upper_bytes
    assert peak_bytes >= missed(seen, about)
    assert found.operators == modelled.operators


def missed(seen: Iterable[Observation], about: WorkloadKey) -> int:
    return max((LIMIT for one in seen if one.is_censored and one.subject == about), default=0)


def test_peaks_too_small_to_be_seen_say_nothing_about_others() -> None:
    tiny, large = subject("tiny", "tiny"), subject("large", "large")
    assert (known(Residuals([run(tiny, 0)]).correct(estimate(900 << 10), tiny))[1] or 0) >= MIB
    seen = (0, 108 << 10, 120 << 10, 16 << 10, 0, 133 << 10)
    runs = [run(tiny, seen[n % len(seen)], estimate(900 << 10)) for n in range(3 * ENOUGH)]
    runs += [run(large, 6 * MIB, estimate(9 * MIB)) for _ in range(3)]
    learned = Residuals(runs)
    assert known(learned.correct(estimate(9 * MIB), large)) == (6 * MIB, math.ceil(6 * MIB * 1.05))
    assert known(learned.correct(estimate(900 << 10), tiny))[1] == math.ceil(MIB * 1.05)
    assert known(learned.correct(estimate(100 * MIB), subject("new", "new")))[1] <= 200 * MIB
