"""A running attempt's lease is raised before it is full, as far as there is room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from engines.protocol import Engine
from engines.scripted import ScriptedEngine
from gateway.execution import memory_watch
from gateway.execution.memory_watch import MemoryWatch
from gateway.routing.admission.admission import Admission
from gateway.routing.admission.values import EngineBudget, Request
from gateway.security.principals import IN_PROCESS

MIB = 1 << 20
LIMIT = 1_024 * MIB


class _Inelastic:
    """An engine that gives a statement what it had at first."""

    name = "fixed"


FIXED = cast(Engine, _Inelastic())


@contextmanager
def watched(capacity_mib: int, engine: Engine, lease_mib: int = 100) -> Iterator[tuple[MemoryWatch, Admission]]:
    admission = Admission([EngineBudget("fast", 2, capacity_mib * MIB, LIMIT)])
    with admission.lease(asked(lease_mib), wait_s=0, cancelled=lambda: False) as grant:
        yield MemoryWatch("q", engine, grant, LIMIT), admission
    assert held(admission) == 0


def asked(lease_mib: int) -> Request:
    return Request("fast", lease_mib * MIB, IN_PROCESS)


def held(admission: Admission) -> int:
    return admission.describe().engines[0].bytes_held


def hears(watch: MemoryWatch, *held_mib: int) -> None:
    for mebibytes in held_mib:
        watch(mebibytes * MIB)


def test_a_lease_is_doubled_at_half_up_to_the_limit() -> None:
    engine = ScriptedEngine()
    with watched(2_048, engine) as (watch, admission):
        hears(watch, 40, 49)
        assert not engine.raised
        hears(watch, 50, 90, 100, 150, 600, 1_000)
        assert engine.raised == [("q", raised_mib * MIB) for raised_mib in (200, 400, 800, 1_024)]
        assert held(admission) == watch.leased_bytes == LIMIT


def test_where_little_room_is_left_it_is_raised_by_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_watch, "AGAIN_S", 0.0)
    engine = ScriptedEngine()
    with watched(130, engine) as (watch, admission):
        hears(watch, 60, 70, 80)
        assert engine.raised == [("q", 125 * MIB)]
        assert held(admission) == watch.leased_bytes == 125 * MIB


def test_room_that_others_give_back_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_watch, "AGAIN_S", 0.0)
    engine = ScriptedEngine()
    with watched(200, engine) as (watch, admission):
        with admission.lease(asked(100), wait_s=0, cancelled=lambda: False):
            hears(watch, 60)
            assert watch.leased_bytes == 100 * MIB
        hears(watch, 60)
        assert engine.raised == [("q", 200 * MIB)]


def test_an_engine_that_is_not_elastic_has_what_it_was_leased() -> None:
    with watched(2_048, FIXED) as (watch, admission):
        hears(watch, 90)
        assert held(admission) == watch.leased_bytes == 100 * MIB


def test_only_what_is_below_the_limit_of_an_elastic_engine_can_be_raised() -> None:
    elastic = ScriptedEngine()
    for lease_mib, engine, can_raise in ((100, elastic, True), (100, FIXED, False), (1_024, elastic, False)):
        with watched(1_024, engine, lease_mib) as (watch, _):
            assert watch.can_raise is can_raise
