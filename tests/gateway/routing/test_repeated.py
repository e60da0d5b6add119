"""A statement that is asked again and again: where it goes is decided once in a moment, and never on old ground."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engines.protocol import EngineStatus
from engines.scripted import ScriptedEngine
from gateway.routing import repeated
from gateway.routing.admission.values import LONG_S as LONGEST_SHORT_S
from gateway.routing.repeated import OFTEN, Asked, KnownMisses, RepeatedDecisions
from gateway.routing.rules.rules_file import RulesFile
from gateway.server.runtime import Gateway
from gateway.statements.statement import Statement
from metastore.records import Misestimate
from metastore.store import Metastore
from selector.decision import Decision, Rule
from tests.clock import set_clock
from tests.gateway.execution.test_coordinator import ANSWER, SQL
from tests.gateway.routing.test_router import gateway_of, toy

__all__ = ["gateway_of"]

Build = Callable[..., Gateway]
LONG_S = 600.0  # that a decision is kept in these tests: what ends it is what they are about


def missed(query_id: str) -> Misestimate:
    recorded_at = dt.datetime.now(dt.UTC)
    return Misestimate("f", "duckdb", "books@1", 1, query_id, SQL, 1, peak_bytes=2, recorded_at=recorded_at)


def test_misestimates_are_read_once_until_they_change(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'metastore.db'}"
    with Metastore(url) as store, Metastore(url) as another:
        known = KnownMisses(store.misestimates)

        def found() -> list[str]:
            return [each.query_id for each in known.about("f", store.catalog.versions()[1])]

        assert found() == []
        another.misestimates.remember(missed("q1"))
        assert found() == ["q1"]
        before = store.catalog.versions()
        another.misestimates.remember(replace(missed("q2"), limit_bytes=2))
        assert store.catalog.versions() == (before[0], before[1] + 1)
        assert [each.query_id for each in known.about("f", before[1])] == ["q1"], "known, and not read again"
        known.forget("f")
        assert [each.query_id for each in known.about("f", before[1])] == ["q1", "q2"]
        another.misestimates.forget("f")
        assert found() == []


def test_what_is_forgotten_while_it_is_read_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as store:
        known = KnownMisses(store.misestimates)
        read = store.misestimates.about

        def read_too_early(fingerprint: str) -> tuple[Misestimate, ...]:
            found = read(fingerprint)
            monkeypatch.undo()
            store.misestimates.remember(missed("q1"))
            known.forget(fingerprint)
            return found

        monkeypatch.setattr(store.misestimates, "about", read_too_early)
        assert known.about("f", 0) == ()
        assert [each.query_id for each in known.about("f", 0)] == ["q1"]


@pytest.fixture
def often(gateway_of: Build, monkeypatch: pytest.MonkeyPatch) -> tuple[Gateway, ScriptedEngine]:
    """Build a gateway that a short statement was asked of often."""
    monkeypatch.setattr(repeated, "KEPT_S", LONG_S)
    engine = toy("small", 10, ANSWER)
    gateway = gateway_of(engine)
    for _ in range(OFTEN):
        gateway.coordinator.submit(Statement(SQL)).done.result(30)
    return gateway, engine


def decided(gateway: Gateway, statement: Statement | None = None) -> Decision:
    return gateway.coordinator.explain(statement or Statement(SQL))[1]


def test_a_decision_about_a_statement_that_ran_often_holds_for_a_moment(
    often: tuple[Gateway, ScriptedEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, _ = often
    first = decided(gateway)
    assert first.engine == "small"
    assert decided(gateway) is first
    run = gateway.coordinator.submit(Statement(SQL))
    assert run.done.result(30).decision is first
    assert decided(gateway, Statement(SQL + " LIMIT 1")) is not first
    for other in (Statement(SQL, threads=1), Statement(SQL, pool="etl"), Statement(SQL, engine="dependable")):
        assert decided(gateway, other) is not first
    assert decided(gateway) is first
    later_s = time.monotonic() + 2 * LONG_S
    set_clock(monkeypatch, repeated, lambda: later_s)
    assert decided(gateway) is not first


@pytest.mark.parametrize("change", ["engine", "catalog", "misestimate", "another gateway's misestimate", "rules"])
def test_a_decision_does_not_outlive_its_ground(
    often: tuple[Gateway, ScriptedEngine], tmp_path: Path, change: str
) -> None:
    gateway, engine = often
    first = decided(gateway)
    fingerprint = gateway.coordinator.explain(Statement(SQL))[0].fingerprint
    lesson = replace(missed("q1"), fingerprint=fingerprint, engine="small", limit_bytes=1 << 60, model_bytes=1)
    match change:
        case "engine":
            engine.reported_status = EngineStatus(False, "gone")
        case "catalog":
            (table, *_) = gateway.metastore.catalog.list()
            gateway.metastore.catalog.set_owner(table.name, "ann")
        case "misestimate":
            gateway.metastore.misestimates.remember(lesson)
            gateway.router.missed(fingerprint)
        case "another gateway's misestimate":
            gateway.metastore.misestimates.remember(lesson)
        case "rules":
            file = tmp_path / "rules.toml"
            file.write_text('[[rule]]\nname = "all"\npin = "dependable"\n', encoding="utf-8")
            gateway.router.rules = RulesFile(file, gateway.engines)
    assert decided(gateway) is not first


def priced(decision: Decision, *, seconds: float = 0.01, fits: float = 1.0) -> Decision:
    return replace(decision, prices=tuple(replace(price, seconds=seconds, fits=fits) for price in decision.prices))


def learned(decision: Decision, *, runs: int = OFTEN, of_statement: bool = True) -> Decision:
    known = decision.estimate.learned
    assert known is not None
    taught = replace(known, runs=runs, of_statement=of_statement)
    return replace(decision, estimate=replace(decision.estimate, learned=taught))


OTHERS: dict[str, Callable[[Decision], Decision]] = {
    "rare": lambda decision: learned(decision, runs=OFTEN - 1),
    "like others": lambda decision: learned(decision, of_statement=False),
    "new": lambda decision: replace(decision, estimate=replace(decision.estimate, learned=None)),
    "long": lambda decision: priced(decision, seconds=1.01 * LONGEST_SHORT_S),
    "may not fit": lambda decision: priced(decision, fits=0.98),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_rare_long_or_may_not_fit_is_decided_each_time(
    often: tuple[Gateway, ScriptedEngine], other: str
) -> None:
    gateway, _ = often
    query, decision = gateway.coordinator.explain(Statement(SQL))
    asked, snapshot = Asked("f", "ann", "", None, Rule.EXPECTED, None), gateway.catalog.current()
    decisions = RepeatedDecisions(gateway.engines)
    decisions.keep(asked, query, snapshot, OTHERS[other](decision))
    assert decisions.find(asked, query, snapshot) is None
    decisions.keep(asked, query, snapshot, decision)
    assert decisions.find(asked, query, snapshot) is decision
    decisions.forget("f")
    assert decisions.find(asked, query, snapshot) is None
