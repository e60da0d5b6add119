"""A history that a small router lived through, decided again: under its own settings, and under others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from selector.decision import RoutingPolicy, Rule
from selector.forecast.history import Ground
from selector.replay.hindsight import UNKNOWN_FITS, Hindsight
from selector.replay.recorded import History, Missed, ReplaySettings
from selector.replay.replay import HOUR_S, Load, Replayed, recorded_load, replay
from selector.wording import MIB
from tests.selector.replay.live import (
    DEAR_MISSES,
    DEPENDABLE,
    FAST,
    LIMIT,
    MISS_S,
    SLOTS,
    SPEEDS,
    VERSION,
    Truth,
    lived,
    truths,
)

CHEAP_MISSES = RoutingPolicy()
STATEMENTS = 200


def replayed(history: History, policy: RoutingPolicy = CHEAP_MISSES, *, rule: Rule | None = None) -> Replayed:
    return replay(history, ReplaySettings(policy, rule))


def at_limit(history: History, limit_bytes: int, policy: RoutingPolicy = CHEAP_MISSES) -> Replayed:
    return replay(history, ReplaySettings(policy, limits={FAST: limit_bytes}))


@pytest.mark.parametrize(
    "policy", [CHEAP_MISSES, DEAR_MISSES, RoutingPolicy(Rule.SAFE), RoutingPolicy(Rule.PAPER)], ids=str
)
def test_under_its_own_settings_everything_goes_as_it_went(policy: RoutingPolicy) -> None:
    history = lived(truths(STATEMENTS), policy)
    again = replayed(history, policy)
    assert [each.engine for each in again.statements] == [each.engine for each in history.statements]
    assert again.load == recorded_load(history.statements)
    assert again.client_s(history, SLOTS) == pytest.approx([each.client_s for each in history.statements])


def test_its_own_settings_are_not_simply_taken_from_the_record() -> None:
    history = lived(truths(STATEMENTS), CHEAP_MISSES)
    misses = recorded_load(history.statements).misses
    assert misses > 10
    forgetful = replace(history, statements=[replace(each, attempts=each.attempts[-1:]) for each in history.statements])
    assert replayed(forgetful).repeated < STATEMENTS


@pytest.mark.parametrize("factor", [0.5, 1.5, 2.0])
def test_another_limit_goes_about_as_if_it_had_been_lived(factor: float) -> None:
    limit_bytes = round(LIMIT * factor)
    histories = [truths(100, seed=seed) for seed in range(5)]
    predicted = [at_limit(lived(each, CHEAP_MISSES), limit_bytes).load for each in histories]
    true = [recorded_load(lived(each, CHEAP_MISSES, limit_bytes=limit_bytes).statements) for each in histories]
    assert sum(load.seconds for load in predicted) == pytest.approx(sum(load.seconds for load in true), rel=0.15)
    assert sum(load.misses for load in predicted) == pytest.approx(sum(load.misses for load in true), rel=0.25)
    shares = [sum(load.statements.get(FAST, 0) for load in loads) for loads in (predicted, true)]
    assert shares[0] == pytest.approx(shares[1], rel=0.1)


def test_a_larger_limit_has_fewer_misses_and_a_smaller_one_sends_more_elsewhere() -> None:
    history = lived(truths(STATEMENTS), CHEAP_MISSES)
    as_it_was = recorded_load(history.statements)
    larger, smaller = at_limit(history, 2 * LIMIT).load, at_limit(history, LIMIT // 2).load
    assert larger.misses < as_it_was.misses
    assert larger.statements[FAST] > as_it_was.statements[FAST] > smaller.statements[FAST]
    assert larger.seconds < as_it_was.seconds < smaller.seconds


def test_caution_has_fewer_misses_and_takes_longer() -> None:
    history = lived(truths(STATEMENTS), CHEAP_MISSES)
    as_it_was = recorded_load(history.statements)
    safe = replayed(history, rule=Rule.SAFE).load
    assert safe.misses < as_it_was.misses
    assert safe.seconds > as_it_was.seconds
    dear = replayed(history, DEAR_MISSES).load
    assert safe.misses < dear.misses < as_it_was.misses


def test_each_statement_keeps_its_rule_unless_another_one_is_asked_for() -> None:
    history = lived(truths(STATEMENTS), RoutingPolicy(Rule.SAFE))
    assert replayed(history, CHEAP_MISSES).repeated == STATEMENTS
    assert replayed(history, CHEAP_MISSES, rule=Rule.EXPECTED).repeated < STATEMENTS


def one(**fields: object) -> Truth:
    return Truth("one", "template", **{"peak_bytes": LIMIT // 2, "expected_bytes": LIMIT // 2} | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("peak", "lived_at", "limit", "fits"),
    [
        (LIMIT // 2, LIMIT, LIMIT // 2, 1.0),
        (LIMIT // 2, LIMIT, LIMIT // 2 - 1, 0.0),
        (LIMIT // 2, LIMIT, 2 * LIMIT, 1.0),
        (2 * LIMIT, LIMIT, LIMIT, 0.0),
        (2 * LIMIT, LIMIT, LIMIT // 2, 0.0),
    ],
)
def test_what_was_measured_says_whether_it_fits(peak: int, lived_at: int, limit: int, fits: float) -> None:
    history = lived([one(peak_bytes=peak)], CHEAP_MISSES, limit_bytes=lived_at)
    (statement,) = history.statements
    assert statement.attempts[0].engine == FAST
    fast = replace(statement.candidates[0], limit_bytes=limit)
    assert Hindsight(history).expected(statement, fast).ends == fits


def test_what_ran_out_fits_with_more_room_as_its_forecast_says_of_peaks_above_the_limit() -> None:
    history = lived([one(peak_bytes=2 * LIMIT)], CHEAP_MISSES)
    (statement,) = history.statements
    hindsight = Hindsight(history)
    chances = [
        hindsight.expected(statement, replace(statement.candidates[0], limit_bytes=round(LIMIT * factor))).ends
        for factor in (1.01, 1.5, 2.0, 4.0, 1e6)
    ]
    assert chances == sorted(chances)
    assert 0.0 <= chances[0] < 0.1 < chances[2] < 1.0
    assert chances[-1] == 1.0


def test_without_an_estimate_nobody_knows_whether_it_fits() -> None:
    history = lived([one(pinned=DEPENDABLE)], CHEAP_MISSES)
    (statement,) = history.statements
    unknown = replace(statement, estimates={})
    assert Hindsight(history).expected(unknown, statement.candidates[0]).ends == UNKNOWN_FITS


def test_seconds_are_those_that_were_measured_where_there_are_any() -> None:
    truth = one(fast_s=0.7, dependable_s=3.0)
    history = lived([truth, replace(truth, pinned=DEPENDABLE)], CHEAP_MISSES)
    first, second = history.statements
    hindsight = Hindsight(history)
    assert hindsight.expected(first, first.candidates[1]).seconds == 3.0
    assert hindsight.expected(second, second.candidates[0]).seconds == 0.7


def test_a_statement_that_would_run_out_now_costs_the_miss_and_the_other_engine() -> None:
    truth = one(expected_bytes=LIMIT // 8, dependable_s=3.0)
    history = lived([replace(truth, pinned=DEPENDABLE), truth], CHEAP_MISSES)
    assert history.statements[1].attempts[0].engine == FAST
    (_, found) = at_limit(history, LIMIT // 4).statements  # twice as much as is expected, half of what it takes
    assert found.engine == FAST
    assert found.misses == 1.0
    (fast, lost_s), (dependable, seconds) = found.visits
    assert (fast, dependable, seconds) == (FAST, DEPENDABLE, 3.0)
    assert lost_s > 0.0


def test_pinned_statements_stay_and_what_is_fixed_is_not_decided_about() -> None:
    history = lived([one(pinned=FAST), one(pinned=DEPENDABLE)], CHEAP_MISSES)
    safe = replay(history, ReplaySettings(CHEAP_MISSES, Rule.SAFE, limits={FAST: MIB}))
    assert [each.engine for each in safe.statements] == [FAST, DEPENDABLE]
    assert safe.statements[0].misses == 1.0  # it took more than that
    fixed = replace(history, statements=[replace(each, is_fixed=True) for each in history.statements])
    kept = replay(fixed, ReplaySettings(CHEAP_MISSES, Rule.SAFE, limits={FAST: MIB}))
    assert kept.load == recorded_load(history.statements)
    assert all(each.decision is None for each in kept.statements)


def test_what_was_measured_is_told_from_what_is_forecast() -> None:
    truth = one(expected_bytes=LIMIT // 8)
    history = lived([truth, replace(truth, pinned=DEPENDABLE), replace(truth, fingerprint="two")], CHEAP_MISSES)
    first, _, alone = at_limit(history, LIMIT // 4).statements
    assert [each.misses for each in (first, alone)] == [1.0, 1.0]
    assert (first.is_measured, alone.is_measured) == (True, False)  # nobody knows what "two" takes on the other engine
    assert all(each.is_measured for each in replayed(history).statements)


def test_what_comes_again_is_expected_to_run_out_once_at_most() -> None:
    truth = one(peak_bytes=2 * LIMIT, dependable_s=9.0)
    history = lived([truth, truth, truth], CHEAP_MISSES)
    assert [each.engine for each in history.statements] == [FAST, DEPENDABLE, DEPENDABLE]
    found = at_limit(history, 2 * LIMIT)
    assert [each.engine for each in found.statements] == [FAST, FAST, FAST]
    first, again, _ = found.statements
    assert 0.0 < first.misses < 1.0
    assert again.misses == 0.0
    assert dict(again.visits)[DEPENDABLE] == pytest.approx(first.misses * truth.dependable_s)
    assert dict(again.visits)[FAST] < dict(first.visits)[FAST]


def test_misses_of_before_count() -> None:
    truth = one(peak_bytes=2 * LIMIT)
    (statement,) = lived([truth], CHEAP_MISSES).statements
    history = lived([truth, truth], CHEAP_MISSES)
    again = history.statements[1]
    assert (statement.engine, again.engine) == (FAST, DEPENDABLE)
    alone = replace(history, statements=[again])
    assert replayed(alone).statements[0].engine == FAST
    missed = {truth.fingerprint: [Missed(Ground(FAST, LIMIT, VERSION, truth.expected_bytes), statement.id)]}
    assert replayed(replace(alone, missed=missed)).statements[0].engine == DEPENDABLE


def test_where_no_engine_could_take_it_nothing_is_spent() -> None:
    history = lived([one(pinned=DEPENDABLE)], CHEAP_MISSES)
    (statement,) = history.statements
    down = tuple(replace(each, down="stopped") for each in statement.candidates)
    (found,) = replayed(replace(history, statements=[replace(statement, candidates=down)])).statements
    assert (found.engine, found.seconds, found.misses) == (None, 0.0, 0.0)


@pytest.mark.parametrize(
    ("prices", "money"),
    [({}, 0.0), ({FAST: 0.5}, 1.0), ({FAST: 0.5, DEPENDABLE: 2.0}, 1.0 + 6.0), ({"another": 9.0}, 0.0)],
)
def test_money_is_paid_for_the_hours_that_an_engine_works(prices: Mapping[str, float], money: float) -> None:
    load = Load({FAST: 1}, {FAST: 2 * HOUR_S, DEPENDABLE: 3 * HOUR_S}, 0.0)
    assert load.money(prices) == pytest.approx(money)


def test_a_miss_takes_what_misses_take() -> None:
    history = lived(truths(STATEMENTS), CHEAP_MISSES)
    missed = [each for each in history.statements if each.misses]
    assert missed
    assert all(each.attempts[0].run_s == MISS_S for each in missed)
    smaller = at_limit(history, LIMIT // 2)
    new = [each for each in smaller.statements if each.misses > each.statement.misses]
    assert new
    assert all(each.visits[0][1] >= MISS_S / 2 for each in new)


def test_a_second_fast_engine_is_asked_before_the_dependable_one() -> None:
    truth = one(dependable_s=9.0)
    history = lived([truth], CHEAP_MISSES)
    (statement,) = history.statements
    fast, dependable = statement.candidates
    second = replace(fast, engine="second", limit_bytes=10 * LIMIT)
    both = replace(
        statement,
        candidates=(fast, second, dependable),
        estimates={**statement.estimates, "second": statement.estimates[FAST]},
    )
    asked = replace(history, statements=[both], speeds={**SPEEDS, "second": SPEEDS[FAST]})
    as_it_was = replayed(asked).statements[0]
    assert as_it_was.decision is not None
    assert as_it_was.decision.ranking[-1] == DEPENDABLE
    smaller = at_limit(asked, LIMIT // 4).statements[0]
    assert smaller.engine == "second"
    assert sum(seconds for engine, seconds in smaller.visits if engine == DEPENDABLE) < 1.0
