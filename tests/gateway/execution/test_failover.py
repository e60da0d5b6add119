"""Which engine a query tries next."""

from __future__ import annotations

from engines.errors import BrokenOff, EngineRestarted, EngineUnavailable, MemoryExceeded, StatementError
from gateway.execution.failover import RESTARTS, FailoverPlan, PlannedAttempt


def _plan() -> FailoverPlan:
    return FailoverPlan(["fast", "spark"], dependable=["spark"])


def test_a_ranking_is_tried_in_its_order() -> None:
    plan = _plan()
    first = plan.next()
    assert first == PlannedAttempt("fast")
    assert plan.may_continue(first, MemoryExceeded("full"))
    assert plan.next() == PlannedAttempt("spark")
    assert not plan.may_continue(first, StatementError("wrong"))


def test_only_a_dependable_engine_is_tried_carefully_and_once() -> None:
    plan = _plan()
    assert plan.may_continue(plan.next(), MemoryExceeded("full"))
    plain = plan.next()
    assert plan.may_continue(plain, MemoryExceeded("full"))
    careful = plan.next()
    assert careful == PlannedAttempt("spark", careful=True)
    assert not plan.may_continue(careful, MemoryExceeded("full"))


def test_a_lost_engine_is_waited_for_once_and_a_restarted_one_longer() -> None:
    plan = _plan()
    plan.next()
    spark = plan.next()
    for _ in range(RESTARTS):
        assert plan.may_continue(spark, EngineRestarted("again"))
        plan.resume(["spark"])
        assert plan.next() == spark
    assert not plan.may_continue(spark, EngineRestarted("again"))
    assert plan.may_continue(spark, EngineUnavailable("lost"))
    plan.resume([])  # it did not come back
    assert not plan.waiting
    assert not plan.may_continue(spark, EngineUnavailable("lost"))


def test_care_is_kept_over_a_restart() -> None:
    plan = _plan()
    plan.next()
    assert plan.may_continue(plan.next(), MemoryExceeded("full"))
    careful = plan.next()
    assert plan.may_continue(careful, EngineRestarted("again"))
    plan.resume(["spark"])
    assert plan.next() == careful


def test_what_was_broken_off_may_run_to_its_end_once_nobody_else_has_ended_it() -> None:
    plan = _plan()
    first = plan.next()
    spark = plan.next()
    assert plan.may_continue(first, BrokenOff("too large", limit_bytes=1))
    assert plan.may_continue(spark, EngineUnavailable("lost"))
    again = plan.next()
    assert again == PlannedAttempt("fast", to_the_end=True)
    assert plan.may_continue(again, MemoryExceeded("full"))  # the lost one may be back
    assert not plan.waiting
