"""The history of usage: what it says of each interval, and that nothing is lost between changes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engines.errors import EngineBusy
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.usage import INTERVAL_S, INTERVALS, WAIT_BOUNDS_S, Level, Of, Series, merged
from gateway.routing.admission.values import DEFAULT_POOL, EngineBudget, Request

MIB = 1 << 20
LONG_S = 30.0


def test_an_interval_has_the_highest_level_and_the_mean_over_time() -> None:
    series = Series(100.0)
    series.change(101.0, Level(1, 40, 2))
    series.change(102.0, Level(3, 10, 0))
    first, second = series.until(100.0 + INTERVAL_S + 1.0)
    assert (first.start_s, first.seconds, first.most) == (100.0, INTERVAL_S, Level(3, 40, 2))
    assert first.area == Level(1 * 1 + 3 * 3, 40 * 1 + 10 * 3, 2 * 1)
    assert first.mean.bytes == pytest.approx((40 * 1 + 10 * 3) / INTERVAL_S)
    assert (second.seconds, second.most, second.area) == (1.0, Level(3, 10, 0), Level(3, 10, 0))


def test_only_the_last_intervals_are_kept_and_the_level_lasts_through_them() -> None:
    series = Series(0.0)
    series.change(1.0, Level(1, 7, 0))
    found = series.until(10 * INTERVALS * INTERVAL_S)
    assert len(found) == INTERVALS
    assert {each.mean for each in found} == {Level(1, 7, 0)}
    assert found[-1].start_s + found[-1].seconds == 10 * INTERVALS * INTERVAL_S


changes = st.lists(
    st.tuples(st.floats(0.0, 40.0), st.integers(0, 8), st.integers(0, 1 << 34), st.integers(0, 300)), max_size=60
)


def lasting(level: Level, seconds: float) -> Level:
    return Level(level.slots * seconds, level.bytes * seconds, level.waiting * seconds)


@example([], 5e-324, INTERVAL_S)
@given(changes, st.floats(0.0, 100.0), st.sampled_from([INTERVAL_S, 3 * INTERVAL_S, 12 * INTERVAL_S]))
def test_the_sum_over_intervals_is_the_integral_over_the_changes(
    told: list[tuple[float, int, int, int]], rest_s: float, step_s: float
) -> None:
    series, now_s, level, most = Series(0.0), 0.0, Level(), Level()
    integral = Level()
    for later_s, *numbers in told:
        integral = integral.plus(lasting(level, later_s))
        now_s += later_s
        level = Level(*numbers)
        most = most.highest(level)
        series.change(now_s, level)
    integral = integral.plus(lasting(level, rest_s))
    now_s += rest_s
    intervals = series.until(now_s)
    for found in (intervals, merged(intervals, step_s)):
        summed, highest = Level(), Level()
        for each in found:
            summed, highest = summed.plus(each.area), highest.highest(each.most)
            assert each.mean.bytes <= each.most.bytes * (1 + 1e-9)
        assert sum(each.seconds for each in found) == pytest.approx(now_s)
        for name in ("slots", "bytes", "waiting"):
            assert getattr(summed, name) == pytest.approx(getattr(integral, name), rel=1e-6, abs=1e-6)
        assert highest == most


def test_admission_tells_its_usage_and_counts_waits_and_refusals() -> None:
    admission = Admission([EngineBudget("fast", slots=1, capacity_bytes=100 * MIB)])
    ended = threading.Event()
    request = Request("fast", 60 * MIB, query_id="1")

    def hold() -> None:
        with admission.lease(request, wait_s=LONG_S):
            ended.wait(LONG_S)

    with ThreadPoolExecutor() as threads:
        first, second = threads.submit(hold), threads.submit(hold)
        while not admission.waiting():
            pass
        with pytest.raises(EngineBusy), admission.lease(request, wait_s=0.0):
            pass
        (lease,) = admission.leases()
        assert (lease.engine, lease.pool, lease.memory_bytes) == ("fast", DEFAULT_POOL, 60 * MIB)
        ended.set()
        first.result()
        second.result()
    for of, name in ((Of.ENGINE, "fast"), (Of.POOL, DEFAULT_POOL)):
        intervals = admission.usage(of, name).intervals
        assert max(each.most.bytes for each in intervals) == 60 * MIB
        assert max(each.most.slots for each in intervals) == 1
        assert max(each.most.waiting for each in intervals) == 2
        assert sum(each.area.bytes for each in intervals) > 0
    with pytest.raises(KeyError):
        admission.usage(Of.POOL, "fast")
    (counts,) = admission.waited().values()
    assert sum(counts.up_to) == 2
    assert len(counts.up_to) == len(WAIT_BOUNDS_S)
    assert admission.refusals() == {("fast", DEFAULT_POOL, EngineBusy.code): 1}
    assert admission.leases() == ()


@pytest.mark.parametrize("clients", [40])
def test_the_history_ends_where_everything_is_given_back(clients: int) -> None:
    admission = Admission([EngineBudget("fast", slots=3, capacity_bytes=100 * MIB)])

    def ask(number: int) -> None:
        with admission.lease(Request("fast", (number % 7) * 10 * MIB, query_id=str(number)), wait_s=LONG_S) as grant:
            grant.raise_to(grant.lease.memory_bytes + 10 * MIB)

    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(ask, range(clients)))
    last = admission.usage(Of.ENGINE, "fast").intervals[-1]
    assert last.most.bytes <= 100 * MIB
    assert last.most.slots <= 3
    assert admission._usage.series[Of.ENGINE, "fast"]._level == Level()
    assert admission._usage.series[Of.POOL, DEFAULT_POOL]._level == Level()
