"""What is known of a statement before it runs, where several fast engines could tell, or one was busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engines.errors import EngineBusy
from engines.protocol import EXPLAIN_S, EngineKind, never
from engines.scripted import Script, ScriptedEngine
from gateway import wiring
from gateway.admission import Ledger
from gateway.fleet import Fleet, Member
from gateway.gateway import Gateway
from gateway.statements import Statement
from tests.gateway.conftest import LIMIT, register, settings_for
from tests.gateway.test_coordinator import PLAN, SQL

UNREADABLE = "no plan that anybody can read"
Build = Callable[..., Gateway]


class BusyAtFirst(ScriptedEngine):
    """Could not plan the first statement in time."""

    def explain(self, sql: str, *, deadline_s: float = EXPLAIN_S, cancelled: Callable[[], bool] = never) -> str:
        plan = super().explain(sql, deadline_s=deadline_s, cancelled=cancelled)
        if len(self.explained) == 1:
            raise EngineBusy("It could not be planned in time.")
        return plan


@pytest.fixture
def gateway_of(tmp_path: Path, bookstore: Path) -> Iterator[Build]:
    """Build a gateway over some fast engines, with one behind them that takes everything."""
    with ExitStack() as stack:

        def build(*fast: ScriptedEngine) -> Gateway:
            dependable = ScriptedEngine("dependable", kind=EngineKind.DEPENDABLE, dialect="spark")
            members = [
                Member(each, Ledger(each.name, slots=2, capacity_bytes=2 * LIMIT), limit_bytes=LIMIT) for each in fast
            ]
            members.append(Member(dependable, Ledger("dependable", slots=2, capacity_bytes=None)))
            gateway = wiring.assemble(settings_for(tmp_path / "home"), Fleet(members))
            stack.callback(gateway.close)
            register(gateway, bookstore)
            gateway.start()
            return gateway

        yield build


def fast(name: str, plan: str, kind: type[ScriptedEngine] = ScriptedEngine) -> ScriptedEngine:
    engine = kind(name)
    engine.script("books", Script(plan=plan))
    return engine


@pytest.mark.parametrize(("first", "second"), [(UNREADABLE, PLAN), (PLAN, UNREADABLE)])
def test_the_estimate_is_of_the_fast_engine_that_has_one(gateway_of: Build, first: str, second: str) -> None:
    """What a planner's process knows nothing of is unknown here, too, though it is another object."""
    gateway = gateway_of(fast("first", first), fast("second", second))
    _, decision = gateway.coordinator.explain(Statement(SQL))
    assert decision.estimate.known


def test_a_plan_that_was_not_made_in_time_is_asked_for_again(gateway_of: Build) -> None:
    engine = fast("fast", PLAN, BusyAtFirst)
    gateway = gateway_of(engine)
    for engine_name, known in (("dependable", False), ("fast", True)):
        _, decision = gateway.coordinator.explain(Statement(SQL))
        assert (decision.engine, decision.estimate.known) == (engine_name, known)
    assert len(engine.explained) == 2
