"""Which engine a query tries next."""

from __future__ import annotations

from engines.errors import EngineRestarted, EngineUnavailable, MemoryExceeded, StatementError
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


def test_what_runs_out_of_memory_while_it_is_planned_is_not_tried_there_again() -> None:
    plan = FailoverPlan(["spark", "hive"], dependable=["spark", "hive"])
    assert plan.may_continue(plan.next(), MemoryExceeded("full", while_planning=True))
    assert plan.waiting == [PlannedAttempt("hive")]
    assert not plan.may_continue(plan.next(), MemoryExceeded("full", while_planning=True))
