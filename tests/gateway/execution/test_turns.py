"""Statements compute one after the other, and none that waits for something holds up another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pyarrow as pa
import pytest

from engines.protocol import EXPLAIN_S, Snapshots, never
from engines.scripted import Pause, Script
from gateway.execution import coordinator as module
from gateway.statements.statement import Run, Statement
from metastore.records import QueryState
from tests.gateway.conftest import Scripted
from tests.waiting import wait_until

Build = Callable[..., Scripted]
Waits = Callable[[Scripted], AbstractContextManager[None]]

ROWS = pa.RecordBatch.from_pydict({"id": [1, 2]})
SQL = "SELECT id FROM books WHERE id < {}"
ANSWER = Script(steps=(ROWS,))
SLOTS = 2
KNOWN = (1, 2)


@pytest.fixture(autouse=True)
def _nobody_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a statement that holds its turn while it waits hold up all others for good."""
    monkeypatch.setattr(module, "TURN_S", 3_600.0)


def started(house: Scripted, number: int) -> Run:
    return house.gateway.coordinator.start(Statement(sql=SQL.format(number), engine="fast"))


def known(house: Scripted) -> None:
    """Have statements be known, so that their next turn does not end with a planner's work."""
    for number in KNOWN:
        assert started(house, number).done.result(timeout=30).state is QueryState.FINISHED


@contextmanager
def in_the_engine(house: Scripted) -> Iterator[None]:
    known(house)
    house.fast.script("< 1", Script(before=(Pause.UNTIL_ENDED,)))
    yield


@contextmanager
def for_a_lease(house: Scripted) -> Iterator[None]:
    known(house)
    house.fast.script("< 9", Script(before=(Pause.UNTIL_ENDED,)))
    running = [started(house, number) for number in range(90, 90 + SLOTS)]
    wait_until(lambda: len(house.fast.asked) == len(KNOWN) + SLOTS, "no slot is left")
    yield
    for run in running:
        house.gateway.coordinator.cancel(run.id)


@contextmanager
def for_its_plan(house: Scripted) -> Iterator[None]:
    may_plan, plain = threading.Event(), house.fast.explain

    def explain(
        sql: str,
        *,
        deadline_s: float = EXPLAIN_S,
        cancelled: Callable[[], bool] = never,
        snapshots: Snapshots = (),
    ) -> str:
        if "< 1" in sql:
            assert may_plan.wait(timeout=60)
        return plain(sql, deadline_s=deadline_s, cancelled=cancelled)

    house.fast.explain = explain  # type: ignore[method-assign]
    yield
    may_plan.set()


@pytest.mark.parametrize("waiting", [in_the_engine, for_a_lease, for_its_plan])
def test_a_statement_that_waits_holds_up_no_other(scripted: Build, waiting: Waits) -> None:
    house = scripted(slots=SLOTS)
    house.fast.script("books", ANSWER)
    with ExitStack() as waits:
        waits.enter_context(waiting(house))
        first = started(house, 1)
        first.accepted.result(timeout=30)
        for number in (*KNOWN[1:], 3):
            assert started(house, number).accepted.result(timeout=30) is None
        assert not first.done.done()
    house.gateway.coordinator.cancel(first.id)
    assert first.done.result(timeout=30).state in {QueryState.CANCELLED, QueryState.FINISHED}


def test_statements_that_are_refused_or_fail_end_their_turn(scripted: Build) -> None:
    house = scripted()
    house.fast.script("books", ANSWER)
    for sql in ("SELECT nothing FROM books", "SELEC", "SHOW TABLES", "DROP TABLE nowhere"):
        run = house.gateway.coordinator.start(Statement(sql=sql))
        run.done.result(timeout=30)
    assert started(house, 5).done.result(timeout=30).state is QueryState.FINISHED
