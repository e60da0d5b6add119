"""Waiting for slots, as arithmetic over a few statements."""

from __future__ import annotations

import pytest

from selector.replay.slots import Arrival, Slots, client_seconds

SERVICE_S = 10.0


def at(submitted_s: float, client: str = "", *, ended_s: float | None = None, engine: str = "fast") -> Arrival:
    told = submitted_s + SERVICE_S if ended_s is None else ended_s
    return Arrival(client or f"client at {submitted_s}", submitted_s, told, ((engine, SERVICE_S),))


def test_who_finds_a_slot_waits_for_nobody() -> None:
    assert client_seconds([at(0.0), at(1.0)], {"fast": 2}) == [SERVICE_S, SERVICE_S]


def test_the_others_wait_in_the_order_in_which_they_come() -> None:
    arrivals = [at(0.0), at(1.0), at(2.0)]
    assert client_seconds(arrivals, {"fast": 1}) == [SERVICE_S, 2 * SERVICE_S - 1.0, 3 * SERVICE_S - 2.0]
    assert client_seconds(arrivals, {"fast": 2}) == [SERVICE_S, SERVICE_S, 2 * SERVICE_S - 2.0]


def test_engines_do_not_wait_for_each_other() -> None:
    assert client_seconds([at(0.0), at(0.0, engine="other")], {"fast": 1, "other": 1}) == [SERVICE_S, SERVICE_S]


def test_a_statement_goes_from_one_engine_to_the_next() -> None:
    both = Arrival("one", 0.0, 30.0, (("fast", 1.0), ("other", SERVICE_S)))
    other = Arrival("two", 0.0, 30.0, (("other", 5.0),))
    assert client_seconds([both, other], {"fast": 1, "other": 1}) == [5.0 + SERVICE_S, 5.0]


@pytest.mark.parametrize(("client", "seconds"), [("one", SERVICE_S), ("another", 2 * SERVICE_S - 2.0)])
def test_a_client_that_waits_sends_nothing(client: str, seconds: float) -> None:
    arrivals = [at(0.0, "one", ended_s=1.0), at(2.0, client)]  # it took 1 s in the record, and 10 s now
    assert client_seconds(arrivals, {"fast": 1}) == [SERVICE_S, seconds]


def test_statements_of_one_client_that_overlapped_do_so_again() -> None:
    arrivals = [at(0.0, "one"), at(1.0, "one")]
    assert client_seconds(arrivals, {"fast": 2}) == [SERVICE_S, SERVICE_S]


def test_an_engine_whose_slots_nobody_told_has_enough() -> None:
    assert client_seconds([at(0.0), at(0.0)], {}) == [SERVICE_S, SERVICE_S]
    assert Slots({}).wait_s("fast", 0.0) == 0.0
