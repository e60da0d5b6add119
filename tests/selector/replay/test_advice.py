"""Which limit and how many slots would have cost the least."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from selector.decision import RoutingPolicy
from selector.replay.advice import Option, advise, limits_to_try
from selector.replay.recorded import History, ReplaySettings
from selector.wording import MIB
from tests.selector.replay.live import DEPENDABLE, FAST, LIMIT, SLOTS, lived, truths

POLICY = RoutingPolicy()
MEMORY = 4 * LIMIT


@pytest.fixture(scope="module")
def history() -> History:
    return lived(truths(150), POLICY)


def options(history: History, *, memory_bytes: int = MEMORY, prices: dict[str, float] | None = None) -> list[Option]:
    return advise(
        history,
        ReplaySettings(POLICY),
        engine=FAST,
        limit_bytes=LIMIT,
        memory_bytes=memory_bytes,
        prices=prices or {},
    )


def test_one_client_needs_one_slot_and_the_larger_limit(history: History) -> None:
    found = options(history)
    (best,) = [each for each in found if each.is_best]
    (recorded,) = [each for each in found if each.is_recorded]
    assert (recorded.limit_bytes, recorded.slots) == (LIMIT, SLOTS[FAST])
    assert recorded.client_s == pytest.approx(sum(each.client_s for each in history.statements))
    assert best.slots == 1
    assert best.limit_bytes > LIMIT
    assert best.client_s < recorded.client_s
    assert all(each.memory_bytes <= MEMORY for each in found)
    assert {each.slots for each in found} == {1, 2, 3, 4}


def test_statements_that_come_at_once_need_more_slots(history: History) -> None:
    crowd = [
        replace(each, client=each.id, submitted_s=number * 0.01, ended_s=number * 0.01 + each.client_s)
        for number, each in enumerate(history.statements)
    ]
    alone = {each.slots for each in options(history, memory_bytes=MEMORY * 4) if each.is_best}
    together = {
        each.slots for each in options(replace(history, statements=crowd), memory_bytes=MEMORY * 4) if each.is_best
    }
    assert max(together) > max(alone)


def test_a_price_may_choose_otherwise(history: History) -> None:
    (quickest,) = [each for each in options(history) if each.is_best]
    dear = {FAST: 1_000.0, DEPENDABLE: 0.01}
    found = options(history, prices=dear)
    (cheapest,) = [each for each in found if each.is_best]
    assert cheapest.load.money(dear) == pytest.approx(min(each.load.money(dear) for each in found), rel=0.01)
    assert cheapest.limit_bytes < quickest.limit_bytes


def test_memory_that_is_not_there_is_not_recommended(history: History) -> None:
    found = options(history, memory_bytes=LIMIT)
    assert [each.is_best for each in found if each.memory_bytes > LIMIT] == [False]  # what is configured is shown
    assert max(each.memory_bytes for each in found if not each.is_recorded) <= LIMIT


def test_limits_lie_around_the_peaks_and_what_is_configured_is_one(history: History) -> None:
    peaks = [attempt.peak_bytes for each in history.statements for attempt in each.attempts if attempt.peak_bytes]
    limits = limits_to_try(history.statements, FAST, LIMIT, 100 * LIMIT)
    assert LIMIT in limits
    assert limits[-1] >= max(peaks)
    assert all(limit % MIB == 0 for limit in limits)
    ratios = [larger / smaller for smaller, larger in pairwise(limits)]
    assert max(ratios) < 2.0


def test_without_runs_there_is_little_to_try() -> None:
    limits = limits_to_try([], FAST, LIMIT, MEMORY)
    assert LIMIT in limits
    assert LIMIT // 2 <= limits[0] < limits[-1] == LIMIT
