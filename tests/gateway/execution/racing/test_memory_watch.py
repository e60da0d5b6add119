"""A running attempt's lease is raised before it is full, as far as there is room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engines.protocol import Progress
from engines.scripted import ScriptedEngine
from gateway.execution.racing import memory_watch
from gateway.execution.racing.memory_watch import MemoryWatch
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.values import EngineBudget, Request
from gateway.security.principals import IN_PROCESS
from selector.forecast.continuation import Standing
from tests.clock import set_clock

MIB = 1 << 20
LIMIT = 1_024 * MIB


class _Inelastic:
    """An engine that gives a statement what it had at first."""

    name = "fixed"


@contextmanager
def watched(
    capacity_mib: int, engine: object, judged: list[Standing], lease_mib: int = 100
) -> Iterator[tuple[MemoryWatch, Admission]]:
    admission = Admission([EngineBudget("fast", 2, capacity_mib * MIB, LIMIT)])
    with admission.lease(asked(lease_mib), wait_s=0, cancelled=lambda: False) as grant:
        yield MemoryWatch("q", engine, grant, LIMIT, judged.append), admission  # type: ignore[arg-type]
    assert held(admission) == 0


def asked(lease_mib: int) -> Request:
    return Request("fast", lease_mib * MIB, IN_PROCESS)


def held(admission: Admission) -> int:
    return admission.describe().engines[0].bytes_held


def told(watch: MemoryWatch, *held_mib: int) -> None:
    for each in held_mib:
        watch(Progress(held_bytes=each * MIB))


def test_a_lease_is_doubled_at_half_up_to_the_limit() -> None:
    engine, judged = ScriptedEngine(), list[Standing]()
    with watched(2_048, engine, judged) as (watch, admission):
        told(watch, 40, 49)
        assert not engine.raised
        told(watch, 50, 90, 100, 150, 600, 1_000)
        raised = [200, 400, 800, 1_024]
        assert engine.raised == [("q", each * MIB) for each in raised]
        assert held(admission) == watch.leased_bytes == LIMIT
    assert {standing.limit_bytes for standing in judged} == {LIMIT}


def test_where_little_room_is_left_it_is_raised_by_less_and_then_that_is_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_watch, "AGAIN_S", 0.0)
    engine, judged = ScriptedEngine(), list[Standing]()
    with watched(130, engine, judged) as (watch, admission):
        told(watch, 60, 70, 80)
        assert engine.raised == [("q", 125 * MIB)]
        assert held(admission) == 125 * MIB
    assert [standing.limit_bytes for standing in judged] == [LIMIT, 125 * MIB, 125 * MIB]


def test_room_that_others_give_back_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_watch, "AGAIN_S", 0.0)
    engine, judged = ScriptedEngine(), list[Standing]()
    with watched(200, engine, judged) as (watch, admission):
        with admission.lease(asked(100), wait_s=0, cancelled=lambda: False):
            told(watch, 60)
            assert judged[-1].limit_bytes == 100 * MIB
        told(watch, 60)
        assert engine.raised == [("q", 200 * MIB)]


def test_an_engine_that_is_not_elastic_has_what_it_was_leased() -> None:
    judged = list[Standing]()
    with watched(2_048, _Inelastic(), judged) as (watch, _):
        told(watch, 90)
    assert judged[-1].limit_bytes == 100 * MIB


def test_what_an_engine_cannot_tell_is_nothing() -> None:
    judged = list[Standing]()
    with watched(2_048, ScriptedEngine(), judged) as (watch, _):
        watch(Progress(share=0.5))
        assert (watch.most_bytes, judged) == (None, [])


def test_growth_is_that_of_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    set_clock(monkeypatch, memory_watch, lambda: now)
    judged = list[Standing]()
    with watched(2_048, ScriptedEngine(), judged, lease_mib=1_024) as (watch, _):
        for held_mib in (10, 20, 30, 30, 30, 30):
            now += 0.1
            told(watch, held_mib)
    mib_per_s = [round(standing.bytes_per_s / MIB) for standing in judged]
    assert mib_per_s[:3] == [100, 100, 100]
    assert mib_per_s[-1] == 0
    assert [standing.elapsed_s for standing in judged][-1] == pytest.approx(0.6)
    assert [standing.held_bytes // MIB for standing in judged][-1] == 30


def test_nobody_watches_where_nothing_would_follow() -> None:
    admission = Admission([EngineBudget("fast", 2, LIMIT, LIMIT)])
    elastic, fixed, judge = ScriptedEngine(), _Inelastic(), list[Standing]().append
    for lease_mib, engine, judged, acts in (
        (100, elastic, None, True),
        (100, fixed, None, False),
        (1_024, elastic, None, False),
        (1_024, elastic, judge, True),
    ):
        with admission.lease(asked(lease_mib), wait_s=0, cancelled=lambda: False) as grant:
            watch = MemoryWatch("q", engine, grant, LIMIT, judged)  # type: ignore[arg-type]
            assert watch.may_act is acts
