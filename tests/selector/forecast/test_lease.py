"""What a statement is leased, and when the whole limit is worth another try."""

from __future__ import annotations

import pytest

from selector.decide import decide
from selector.decision import Candidate, Decision, RoutingPolicy
from selector.estimate import UNKNOWN, MemoryEstimate, OperatorEstimate
from selector.forecast.distribution import ErrorDistribution
from selector.forecast.experience import Forecast, PeakForecast
from selector.forecast.lease import GROUPING, LEAST_BYTES, STABLE, STEP_BYTES, lease_bytes

MIB = 1 << 20
LIMIT = 1024 * MIB


def estimate_of(peak: int, upper: int, operator: str = "hash join", held: int = 1) -> MemoryEstimate:
    return MemoryEstimate(peak, upper, (OperatorEstimate(operator, 0, 1.0, 1.0, held, ""),))


@pytest.mark.parametrize(
    ("operator", "held", "margin"),
    [("hash join", 1, STABLE), ("aggregate", 1, GROUPING), ("aggregate", 0, STABLE), ("sort", 1, GROUPING)],
)
def test_a_lease_is_the_upper_bound_and_a_margin_in_whole_steps(operator: str, held: int, margin: float) -> None:
    lease = lease_bytes(estimate_of(100 * MIB, 200 * MIB, operator, held), LIMIT)
    assert lease % STEP_BYTES == 0
    assert margin * 200 * MIB <= lease < margin * 200 * MIB + STEP_BYTES


def test_it_has_a_floor_and_the_limit_is_the_most() -> None:
    assert lease_bytes(estimate_of(0, 0), LIMIT) == LEAST_BYTES
    assert lease_bytes(estimate_of(0, 0), LEAST_BYTES // 2) == LEAST_BYTES // 2
    assert lease_bytes(estimate_of(LIMIT, 2 * LIMIT), LIMIT) == LIMIT


def test_what_is_not_known_leases_the_whole_limit() -> None:
    assert lease_bytes(UNKNOWN, LIMIT) == LIMIT


def test_what_ran_out_with_as_much_before_leases_the_whole_limit() -> None:
    estimate = estimate_of(100 * MIB, 120 * MIB)
    small = lease_bytes(estimate, LIMIT)
    assert lease_bytes(estimate, LIMIT, missed_bytes=small) == LIMIT
    assert lease_bytes(estimate, LIMIT, missed_bytes=small - 1) == small


def decision(*, lease: int | None, elsewhere_s: float, dependable: bool = True) -> Decision:
    estimate = estimate_of(100 * MIB, 150 * MIB)
    peak = PeakForecast(100 * MIB, ErrorDistribution.of_shape().scaled(0.0, 1.0, None))
    fast = Candidate(
        "fast", False, LIMIT, forecast=Forecast(estimate, peak, 1.0, 1.0, 1.0), wait_s=0.0, lease_bytes=lease
    )
    behind = Candidate("behind", True, forecast=Forecast(UNKNOWN, None, elsewhere_s, elsewhere_s, elsewhere_s))
    return decide([fast, behind] if dependable else [fast], policy=RoutingPolicy())


@pytest.mark.parametrize(("elsewhere_s", "pays"), [(30.0, True), (1.01, False)])
def test_the_whole_limit_is_tried_where_that_takes_less_time_than_going_elsewhere(
    elsewhere_s: float, pays: bool
) -> None:
    price = decision(lease=100 * MIB, elsewhere_s=elsewhere_s).price("fast")
    assert price is not None
    assert (price.lease_bytes, price.whole_pays) == (100 * MIB, pays)


def test_without_an_engine_behind_it_the_whole_limit_is_always_tried() -> None:
    price = decision(lease=100 * MIB, elsewhere_s=1.0, dependable=False).price("fast")
    assert price is not None
    assert price.whole_pays


@pytest.mark.parametrize("lease", [None, LIMIT])
def test_the_whole_limit_is_not_tried_twice(lease: int | None) -> None:
    price = decision(lease=lease, elsewhere_s=30.0).price("fast")
    assert price is not None
    assert (price.lease_bytes, price.whole_pays) == (LIMIT, False)
