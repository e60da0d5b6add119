"""Which attempts' rows can be read while they run, and how a query ends whose attempt is lost in the middle."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from engines.errors import DeadlineExceeded, EngineError, EngineUnavailable, MemoryExceeded, StatementError
from engines.protocol import EngineKind
from engines.scripted import Pause, Script, ScriptedEngine
from gateway import settings as settings_module
from gateway.execution.streaming.early_result import EarlyResult
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.statements.session import Session
from gateway.statements.statement import Run, Statement
from metastore.records import QueryRecord, QueryState
from tests.gateway.conftest import BY_MEMORY, LIMIT, SLOW, Scripted, register, settings_for
from tests.gateway.execution.test_coordinator import PLAN
from tests.waiting import wait_until

ROWS = 10_000
_NUMBERS = itertools.count()
SOME, MORE = (pa.record_batch({"id": pa.array(range(at, at + ROWS), pa.int64())}) for at in (0, ROWS))
OTHERS = pa.record_batch({"id": pa.array(range(1, 1 + ROWS), pa.int64())})
LOST = EngineUnavailable("The engine was lost.")
FULL = MemoryExceeded("Out of memory.", peak_bytes=1 << 20)


@dataclass(frozen=True, slots=True)
class House:
    """A gateway whose engines wait in the middle of a result."""

    scripted: Scripted
    go: threading.Event
    sql: str

    def script(self, engine: ScriptedEngine, *attempts: EngineError | None, again: pa.RecordBatch = SOME) -> None:
        """Have tries end, after some rows, once ``go`` is set: with an error, or more rows. again: of later ones."""
        scripts = []
        for number, error in enumerate(attempts):
            first = again if number else SOME
            scripts.append(Script(steps=(first, self.go, error or MORE), plan=PLAN))
        engine.script("books", *scripts)

    def start(self, **asked: object) -> Run:
        return self.scripted.gateway.coordinator.submit(Statement(self.sql, **asked))  # type: ignore[arg-type]

    def early(self, run: Run) -> EarlyResult | None:
        return self.scripted.gateway.coordinator.early_results.find(run.id)

    def read(self, run: Run) -> list[int]:
        """Read the rows that are there, of which there must be some before the query's end."""
        run.ready.result(60)
        assert not run.done.done()
        early = self.early(run)
        assert early is not None
        with early.open() as result:
            rows: list[int] = []
            while not result.is_behind:
                rows += result.read_batch()["id"].to_pylist()
        assert rows
        return rows

    def end(self, run: Run) -> QueryRecord:
        self.go.set()
        record = run.done.result(timeout=60)
        assert record == self.scripted.gateway.metastore.queries.get(run.id)
        wait_until(lambda: self.early(run) is None)
        return record

    def recorded(self, run: Run) -> QueryRecord:
        record = self.scripted.gateway.metastore.queries.get(run.id)
        assert record is not None
        return record

    def result(self, run: Run) -> list[int]:
        with self.scripted.gateway.spool.open(run.id) as result:
            return [n for batch in result for n in batch["id"].to_pylist()]

    def left(self, run: Run) -> list[str]:
        """Return the kinds of files that there are of a query once it has ended."""
        wait_until(lambda: self.early(run) is None)
        folder = self.scripted.gateway.settings.home / "results"
        return [file.suffix for file in folder.glob(f"{run.id}*")]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, bookstore: Path) -> Iterator[Scripted]:
    """One gateway for all: what a test scripts last counts."""
    fast = ScriptedEngine("fast")
    dependable = ScriptedEngine("dependable", kind=EngineKind.DEPENDABLE)
    entries = [EngineEntry(fast, limit_bytes=LIMIT), EngineEntry(dependable, speed=SLOW)]
    settings = settings_for(tmp_path_factory.mktemp("home"), routing=BY_MEMORY)
    gateway = wiring.assemble(settings, EngineRegistry(entries))
    register(gateway, bookstore)
    gateway.start()
    yield Scripted(gateway, fast, dependable)
    gateway.close()


@pytest.fixture
def house(shared: Scripted) -> House:
    for engine in (shared.fast, shared.dependable):
        engine.asked.clear()
    return House(shared, threading.Event(), _sql())


def _sql() -> str:
    """Return a statement of which nothing is remembered."""
    calls = next(_NUMBERS)
    return f"SELECT id FROM books WHERE {'abs(' * calls}price{')' * calls} < 10"


@contextmanager
def runs_on(engine: ScriptedEngine) -> Iterator[None]:
    """Wait until the engine has been asked once more."""
    before = len(engine.asked)
    yield
    wait_until(lambda: len(engine.asked) > before)


def never_early(house: House, run: Run) -> None:
    """Wait until an engine waits in the middle, and see that nothing is told of its rows."""
    wait_until(lambda: run.engine is not None)
    with pytest.raises(TimeoutError):
        run.ready.result(0.3)  # three times as long as rows wait for others
    early = house.early(run)
    assert early is None or not early.is_readable


def test_a_pinned_engine_is_the_last_in_line(house: House) -> None:
    house.script(house.scripted.fast, None)
    run = house.start(engine="fast")
    assert house.read(run) == SOME["id"].to_pylist()
    assert run.state is QueryState.RUNNING
    wait_until(lambda: house.recorded(run).state is QueryState.RUNNING, "what is on record follows soon")
    assert (house.recorded(run).rows, house.recorded(run).finished_at) == (None, None)
    record = house.end(run)
    assert (record.state, record.rows) == (QueryState.FINISHED, 2 * ROWS)
    assert house.result(run) == list(range(2 * ROWS))
    assert house.left(run) == [".arrow"]


def test_a_fast_engine_with_another_one_behind_it_is_not(house: House) -> None:
    house.script(house.scripted.fast, None)
    house.script(house.scripted.dependable, None)
    run = house.start()
    never_early(house, run)
    record = house.end(run)
    assert (record.engine, record.rows) == ("fast", 2 * ROWS)
    assert house.result(run) == list(range(2 * ROWS))


def test_the_dependable_engine_is_once_the_fast_one_has_failed(house: House) -> None:
    house.scripted.fast.script("books", Script(steps=(OTHERS, FULL), plan=PLAN))
    house.script(house.scripted.dependable, None)
    run = house.start()
    assert house.read(run) == SOME["id"].to_pylist()
    record = house.end(run)
    assert [attempt.failure for attempt in record.attempts] == ["MEMORY_EXCEEDED", None]
    assert house.result(run) == list(range(2 * ROWS))


def test_the_dependable_engine_is_not_while_a_lost_one_may_come_back(house: House) -> None:
    house.scripted.fast.script("books", Script(steps=(OTHERS, LOST), plan=PLAN))
    house.script(house.scripted.dependable, None)
    run = house.start()
    wait_until(lambda: run.engine == "dependable")
    never_early(house, run)
    assert house.end(run).state is QueryState.FINISHED


@pytest.mark.parametrize("by", ["session", "gateway"])
def test_who_wants_whole_results_alone_gets_no_others(house: House, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    coordinator = house.scripted.gateway.coordinator
    house.script(house.scripted.fast, None)
    assert coordinator.early_results._enabled is settings_module.ResultSettings().early is True
    session = Session(Statement("").principal, deadline_s=60.0, limits=coordinator.parser_limits)
    if by == "session":
        session.set("fusion.early_rows", "off")
    else:
        monkeypatch.setattr(coordinator.early_results, "_enabled", False)
    session.set("fusion.engine", "fast")
    run = coordinator.submit(session.statement(house.sql))
    never_early(house, run)
    assert house.end(run).state is QueryState.FINISHED


def test_a_lost_engine_loses_nothing_where_its_rows_come_again(house: House) -> None:
    fast = house.scripted.fast
    house.script(fast, LOST, None)
    run = house.start(engine="fast")
    assert house.read(run) == SOME["id"].to_pylist()
    with runs_on(fast):
        record = house.end(run)
    assert [attempt.failure for attempt in record.attempts] == ["ENGINE_UNAVAILABLE", None]
    assert record.state is QueryState.FINISHED
    assert house.result(run) == list(range(2 * ROWS))


def test_a_lost_engine_loses_nothing_where_nobody_has_read(house: House) -> None:
    house.script(house.scripted.fast, LOST, None, again=OTHERS)
    run = house.start(engine="fast")
    run.ready.result(60)
    record = house.end(run)
    assert record.state is QueryState.FINISHED
    assert house.result(run) == [*OTHERS["id"].to_pylist(), *MORE["id"].to_pylist()]


def test_other_rows_of_a_second_try_are_an_error(house: House) -> None:
    house.script(house.scripted.fast, LOST, None, again=OTHERS)
    run = house.start(engine="fast")
    house.read(run)
    record = house.end(run)
    assert record.state is QueryState.FAILED
    assert record.error is not None
    assert record.error.code == "RESULT_INTERRUPTED"
    assert f"after {ROWS:,} rows" in record.error.message
    assert [attempt.failure for attempt in record.attempts] == ["ENGINE_UNAVAILABLE", "RESULT_INTERRUPTED"]
    assert house.left(run) == []


def test_a_careful_second_try_of_the_dependable_engine_counts_too(house: House) -> None:
    dependable = house.scripted.dependable
    house.script(dependable, FULL, None)
    run = house.start(engine="dependable")
    house.read(run)
    assert house.end(run).state is QueryState.FINISHED
    assert [asked.lease.careful for asked in dependable.asked] == [False, True]
    assert house.result(run) == list(range(2 * ROWS))


@pytest.mark.parametrize(
    "error",
    [
        StatementError("Division by zero."),
        DeadlineExceeded("The time is spent."),
        FULL,
    ],
    ids=lambda error: error.code,
)
def test_an_attempt_that_fails_after_rows_were_read_says_how_many(house: House, error: EngineError) -> None:
    house.script(house.scripted.fast, error)
    run = house.start(engine="fast")
    house.read(run)
    record = house.end(run)
    assert (record.state, record.attempts[-1].failure) == (QueryState.FAILED, error.code)
    assert record.error is not None
    assert record.error.code == "RESULT_INTERRUPTED"
    assert f"after {ROWS:,} rows" in record.error.message
    assert error.message in record.error.message
    assert house.left(run) == []
    missed = [each for each in house.scripted.gateway.metastore.misestimates.list() if each.query_id == run.id]
    assert [each.engine for each in missed] == (["fast"] if error is FULL else [])


def test_the_same_error_is_its_own_where_nobody_has_read(house: House) -> None:
    house.script(house.scripted.fast, StatementError("Division by zero."))
    run = house.start(engine="fast")
    run.ready.result(60)
    record = house.end(run)
    assert record.error is not None
    assert record.error.code == "STATEMENT_ERROR"


def test_a_query_is_cancelled_while_its_rows_are_read(house: House) -> None:
    house.scripted.fast.script("books", Script(steps=(SOME, Pause.UNTIL_ENDED), plan=PLAN))
    run = house.start(engine="fast")
    house.read(run)
    assert house.scripted.gateway.coordinator.cancel(run.id)
    record = run.done.result(timeout=60)
    assert record.state is QueryState.CANCELLED
    assert record.error is not None
    assert record.error.code == "CANCELLED"
    assert house.left(run) == []


def test_the_cache_keeps_a_whole_result_that_was_read_early_and_no_other(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.script(house.scripted.fast, StatementError("Division by zero."), None)
    kept = []
    cached = house.scripted.gateway.coordinator.cached
    monkeypatch.setattr(cached, "keep", lambda run, query, lookup, outcome: kept.append(outcome.result))
    for _ in range(2):
        house.go.clear()
        run = house.start(engine="fast")
        house.read(run)
        house.end(run)
    assert [result and result.rows for result in kept] == [None, 2 * ROWS]
