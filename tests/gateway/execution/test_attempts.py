"""Which engine a query tries next."""

from __future__ import annotations

from engines.errors import EngineRestarted, EngineUnavailable, MemoryExceeded, StatementError
from gateway.execution.attempts import RESTARTS, Tries, Try


def _tries() -> Tries:
    return Tries(["fast", "spark"], dependable=["spark"])


def test_a_ranking_is_tried_in_its_order() -> None:
    tries = _tries()
    first = tries.next()
    assert first == Try("fast")
    assert tries.goes_on(first, MemoryExceeded("full"))
    assert tries.next() == Try("spark")
    assert not tries.goes_on(first, StatementError("wrong"))


def test_only_a_dependable_engine_is_tried_carefully_and_once() -> None:
    tries = _tries()
    assert tries.goes_on(tries.next(), MemoryExceeded("full"))
    plain = tries.next()
    assert tries.goes_on(plain, MemoryExceeded("full"))
    careful = tries.next()
    assert careful == Try("spark", careful=True)
    assert not tries.goes_on(careful, MemoryExceeded("full"))


def test_a_lost_engine_is_waited_for_once_and_a_restarted_one_longer() -> None:
    tries = _tries()
    tries.next()
    spark = tries.next()
    for _ in range(RESTARTS):
        assert tries.goes_on(spark, EngineRestarted("again"))
        tries.resume(["spark"])
        assert tries.next() == spark
    assert not tries.goes_on(spark, EngineRestarted("again"))
    assert tries.goes_on(spark, EngineUnavailable("lost"))
    tries.resume([])  # it did not come back
    assert not tries.waiting
    assert not tries.goes_on(spark, EngineUnavailable("lost"))


def test_care_is_kept_over_a_restart() -> None:
    tries = _tries()
    tries.next()
    assert tries.goes_on(tries.next(), MemoryExceeded("full"))
    careful = tries.next()
    assert tries.goes_on(careful, EngineRestarted("again"))
    tries.resume(["spark"])
    assert tries.next() == careful
